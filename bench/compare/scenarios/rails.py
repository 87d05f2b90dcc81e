"""All-reduces over TCP between hosts with several rails, by all rails and by one."""

import json
import statistics

import install
import libraries
import measure
import network
from command import at_least, rate

OPTIONAL = True
# The timed cases: the algorithm, and whether it uses all rails.
CASES = {
    "hierarchical, all rails": ("hierarchical", True),
    "hierarchical, one rail": ("hierarchical", False),
    "ring, one rail": ("ring", False),
}
# The required speed of the first case over each other case.
WANTED = [1.85, 2.1]


def flags(add):
    """Adds the flags."""
    add("--hosts", type=at_least(1), default=4, help="number of hosts (default: 4)")
    add("--rails", type=at_least(1), default=2, help="interfaces of each host (default: 2)")
    add("--per-host", type=at_least(1), default=2, help="ranks of each host (default: 2)")
    add("--rate", type=rate, default="200mbit",
        help="rate of each rail in tc's notation (default: 200mbit)")
    add("--size", default="64M", help="bytes of an all-reduce (default: 64M)")
    add("--rounds", type=at_least(1), default=3, help="rounds of all cases in turn (default: 3)")
    add("--calls", type=at_least(1), default=2,
        help="timed calls of a case in a round (default: 2)")
    add("--debug", action="store_true", help="print the ranks' log")
    install.program_flags(add)


def one(args, folder, hosts, algorithm, uses_all):
    """Returns the seconds of a call in separate buffers."""
    links = ",".join(f"eth{rail}" for rail in range(args.rails if uses_all else 1))
    variables = {"RINGFOLD_TRANSPORT": "shm,tcp", "RINGFOLD_ALGO": f"allreduce:{algorithm}",
        "RINGFOLD_SOCKET_IFNAME": f"={links}"}
    if args.debug:
        variables["RINGFOLD_DEBUG"] = "INFO"
    launch = libraries.ringrun(folder, args.hosts * args.per_host, hosts, args.per_host)
    words = ["-b", args.size, "-e", args.size, "-n", args.calls, "-w", 1]
    result = libraries.perf(launch, folder, words, variables, args.debug)
    return round(float(result["out_of_place"]["time"]) / 1e6, 9)


def run(args):
    """Prints the table. Returns 0 if the ratios are high enough, and 2 if not."""
    folder = install.ringfold(args, "ringrun", "allreduce-perf")
    with network.Hosts([args.rate] * args.hosts, args.rails) as hosts:
        times = measure.alternate(CASES, args.rounds, lambda case: one(args, folder, hosts, *case))
    middle = {name: statistics.median(of) for name, of in times.items()}
    ratios = [took / middle[next(iter(CASES))] for took in middle.values()]
    for (name, took), ratio in zip(middle.items(), ratios):
        print(f"{name:26} {took:7.3f} s  {ratio:5.2f}")
    print(json.dumps({"seconds": times}))
    return 0 if all(ratio >= wanted for ratio, wanted in zip(ratios[1:], WANTED)) else 2
