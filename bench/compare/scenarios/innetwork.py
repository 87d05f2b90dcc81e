"""Calls over an aggregator beside the ranks' own steps: bandwidth, latency, or a lost aggregator."""

import contextlib
import os
import shlex
import statistics
import subprocess
from pathlib import Path

import install
import libraries
import measure
import network
import processes
from command import at_least, listed, numbers, positive, rate
from processes import Failed

OPTIONAL = True
PORT = 7411
# The least share of the ideal gain, and the most shares of the times of recursive doubling and a
# tree.
GAIN_WANTED = 0.93
LATENCY_WANTED = 0.75
LOSS_WANTED = 1.5
# Seconds of a link's rate that may pass at once. Calls are thousands of times longer. Shorter packets
# would make this machine's CPUs the limit.
AT_ONCE = 4e-3


def flags(add):
    """Adds the flags."""
    add("what", nargs="?", choices=["bandwidth", "latency", "lost"], default="bandwidth",
        help="which figure (default: bandwidth)")
    add("--hosts", type=numbers(2), help="numbers of hosts (default: 4,8; latency: 8)")
    add("--types", type=listed(), default=["float", "bfloat16"],
        help="of elements (default: float,bfloat16)")
    add("--rate", type=rate, default="200mbit", help="rate of a host's link in tc's notation (200mbit)")
    add("--size", default="64M", help="bytes of a long call (default: 64M)")
    add("--delay", type=positive, default=1.0, help="milliseconds of a message (default: 1)")
    add("--rounds", type=at_least(1), default=1, help="rounds of all cases in turn (default: 1)")
    add("--calls", type=at_least(1),
        help="timed calls of a case in a round (default: 1; latency: 100; lost: 20)")
    add("--debug", action="store_true", help="print the ranks' log")
    install.program_flags(add)


@contextlib.contextmanager
def aggregator(enter, folder, at, home):
    """Runs an aggregator. Yields its process."""
    command = [*enter, folder / "ringfold", "aggregate", "--listen", at]
    environment = os.environ | {"HOME": str(home)}
    # It shares the cores with the ranks, as their equal.
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True,
        start_new_session=True, preexec_fn=processes.take_precedence)
    try:
        if not process.stdout.readline().startswith("aggregator at"):
            raise Failed(f"{shlex.join(map(str, command))} does not listen")
        yield process
    finally:
        process.kill()
        process.wait()


def ideal_gain(hosts):
    """Returns the gain of a tree over a ring, if only bytes count: a host sends its data once."""
    return 2 * (hosts - 1) / hosts


def microseconds(result, algorithm):
    """Returns the faster time of in-place and out-of-place. The algorithm must have run."""
    if result["algorithm"] != algorithm:
        raise Failed(f"{result['algorithm']} ran in place of {algorithm}")
    return min(float(result[name]["time"]) for name in ("out_of_place", "in_place"))


def compare(args, folder, hosts, words, own):
    """Returns the median microseconds by an aggregator, and by the algorithm `own`. The last host is
    the aggregator's."""
    launch = libraries.ringrun(folder, hosts.count - 1, hosts)
    common = {"RINGFOLD_TRANSPORT": "tcp", "HOME": hosts.folder}
    if args.debug:
        common["RINGFOLD_DEBUG"] = "INFO"

    def one(algorithm):
        variables = common | {"RINGFOLD_ALGO": f"allreduce:{algorithm}"}
        with contextlib.ExitStack() as stack:
            if algorithm == "in_network":
                at = f"{hosts.address(hosts.count - 1)}:{PORT}"
                enter = [hosts.enter, hosts.names(hosts.count)[-1]]
                stack.enter_context(aggregator(enter, folder, at, hosts.folder))
                variables |= {"RINGFOLD_AGGREGATORS": at, "RINGFOLD_INNETWORK": "require"}
            result = libraries.perf(launch, folder, words, variables, args.debug)
        return microseconds(result, algorithm)

    cases = {name: name for name in ("in_network", own)}
    return map(statistics.median, measure.alternate(cases, args.rounds, one).values())


def bandwidth(args, folder):
    """Yields the lines of the gains over a ring, and whether each is high enough."""
    for count in args.hosts or [4, 8]:
        of_all = f"{round(network.bytes_per_second(args.rate) * 8 * count)}bit"
        with network.Hosts([args.rate] * count + [of_all], seconds=AT_ONCE) as hosts:
            for kind in args.types:
                words = ["-b", args.size, "-e", args.size, "-d", kind, "-w", 0, "-c", 1]
                words += ["-n", args.calls or 1]
                by_network, by_ring = compare(args, folder, hosts, words, "ring")
                gain, ideal = by_ring / by_network, ideal_gain(count)
                yield (f"{count} hosts, {kind:8} ring {by_ring / 1e6:7.3f} s  in_network "
                    f"{by_network / 1e6:7.3f} s  gain {gain:5.3f} of {ideal:5.3f}: "
                    f"{gain / ideal:5.3f}", gain >= GAIN_WANTED * ideal)  # fmt: skip


def latency(args, folder):
    """Yields the lines of the shares of recursive doubling's time, and whether each is low enough."""
    for count in args.hosts or [8]:
        with network.Delayed(count + 1, args.delay / 1e3) as hosts:
            words = ["-b", 8, "-e", 8, "-w", 10, "-n", args.calls or 100]
            by_network, doubling = compare(args, folder, hosts, words, "recursive_doubling")
            share = by_network / doubling
            yield (f"{count} hosts, 8 B: recursive_doubling {doubling / 1e3:6.3f} ms  in_network "
                f"{by_network / 1e3:6.3f} ms  share {share:5.3f}", share <= LATENCY_WANTED)  # fmt: skip


def by_size(args, folder, variables, at_first=lambda: None):
    """Returns the microseconds by size of the last of three cycles of four hosts on loopback. Calls
    `at_first` at the first row."""
    perf = [folder / "allreduce-perf", "-b", "64K", "-e", "4M", "-f", 8, "-N", 3,
        "-n", args.calls or 20, "-c", 1]  # fmt: skip
    script = f"RINGFOLD_HOSTID=host$RINGFOLD_RANK exec {shlex.join(map(str, perf))}"
    found = {}

    def read(line):
        words = line.split()
        if words and words[0].isdigit():
            if not found:
                at_first()
            found[int(words[0])] = float(words[5])

    command = [*libraries.ringrun(folder, 4), "sh", "-c", script]
    processes.lines(command, {"RINGFOLD_TRANSPORT": "tcp"} | variables, on_line=read)
    return found


def lost(args, folder):
    """Yields the lines of the times of calls after an aggregator was killed, and whether each is low
    enough."""
    at = f"127.0.0.1:{PORT}"

    def one(algorithm):
        variables = {"RINGFOLD_ALGO": f"allreduce:{algorithm}"}
        if algorithm == "tree":
            return by_size(args, folder, variables)
        with aggregator([], folder, at, Path.home()) as process:
            return by_size(args, folder, variables | {"RINGFOLD_AGGREGATORS": at}, process.kill)

    cases = {name: name for name in ("tree", "in_network")}
    found = measure.alternate(cases, args.rounds, one)
    for size in found["tree"][0]:
        tree, after = (statistics.median(it[size] for it in of) for of in found.values())
        yield (f"4 hosts, {size:7} B: tree {tree / 1e3:7.3f} ms  in_network without its aggregator "
            f"{after / 1e3:7.3f} ms  share {after / tree:5.3f}", after <= LOSS_WANTED * tree)  # fmt: skip


def run(args):
    """Prints the lines. Returns 0 if all figures are good enough, and 2 if not."""
    folder = install.ringfold(args, "ringrun", "ringfold", "allreduce-perf", more=["ringfold-cli"])
    is_good = True
    measured = {"bandwidth": bandwidth, "latency": latency, "lost": lost}[args.what]
    for line, is_enough in measured(args, folder):
        print(line, flush=True)
        is_good &= is_enough
    return 0 if is_good else 2
