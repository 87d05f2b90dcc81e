"""The join time of two builds: until the last rank can reach all others."""

import contextlib
import datetime
import re
import statistics
from pathlib import Path

import gate
import install
import libraries
import measure
import network
import processes
from command import at_least
from processes import Failed

OPTIONAL = True
# The log lines of a rank at its start, and when it can reach another rank.
STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+)Z.* INFO.*?: (rank .*|ringfold .*)")
BEGUN = re.compile(r"ringfold \S+: rank \d+ of \d+,")
JOINED = re.compile(r"rank \d+: rank \d+ by ")


def flags(add):
    """Adds the flags."""
    add("before", type=Path, help="folder with ringrun and allreduce-perf of the first build")
    add("after", type=Path, help="folder of the second build")
    add("--ranks", type=at_least(2), default=64, help="number of ranks (default: 64)")
    add("--hosts", type=at_least(1), default=1, help="number of hosts (default: 1)")
    add("--rails", type=at_least(1), default=2,
        help="interfaces of each of several hosts (default: 2)")
    add("--rounds", type=at_least(1), default=21,
        help="rounds of A, B and A' in a run (default: 21)")
    gate.flag(add)


def check(args):
    """Refuses ranks that the hosts cannot share."""
    if args.ranks % args.hosts:
        args.error(f"--ranks {args.ranks}: give a multiple of --hosts {args.hosts}")


def one(args, folder, hosts):
    """Returns the milliseconds of one job."""
    launch = libraries.ringrun(folder, args.ranks, hosts, args.ranks // args.hosts)
    words = [folder / "allreduce-perf", "-b", 8, "-e", 8, "-n", 1, "-w", 0]
    variables = {"RINGFOLD_DEBUG": "INFO"} | ({"HOME": hosts.folder} if hosts else {})
    _, log = processes.lines([*launch, *words], variables)
    return milliseconds(log)


def milliseconds(log):
    """Returns the time from the start of the last rank until all ranks can reach each other."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", log)
    found = [match.groups() for match in map(STAMP.search, plain.splitlines()) if match]
    times = []
    for line in (BEGUN, JOINED):
        stamps = [datetime.datetime.fromisoformat(at) for at, text in found if line.match(text)]
        if not stamps:
            raise Failed(f"no rank logged its join: {plain[-2000:]}")
        times.append(max(stamps))
    return (times[1] - times[0]).total_seconds() * 1e3


def run(args):
    """Prints the times and the result. Returns 1 if the second build is slower."""
    folders = [install.with_programs(it, "ringrun", "allreduce-perf")
        for it in (args.before, args.after, args.before)]  # fmt: skip
    builds, done = dict(zip(gate.NAMES, folders)), []
    with contextlib.ExitStack() as stack:
        hosts = None
        if args.hosts > 1:
            hosts = stack.enter_context(network.Hosts(["10gbit"] * args.hosts, args.rails))
        while not done or gate.needs_more(done, args.allowed):
            times = measure.alternate(builds, args.rounds, lambda it: one(args, it, hosts))
            done.append(gate.Run(*map(statistics.median, times.values())))
            for name, of in times.items():
                shown = " ".join(f"{time:.0f}" for time in sorted(of))
                print(f"{name:6} {statistics.median(of):8.1f} ms  ({shown})")
            print(f"after/before {done[-1].ratio:.3f}, again/before {done[-1].spread:.3f}", flush=True)
    slower = gate.fails(done, args.allowed)
    what = f"slower by more than {args.allowed:.0%} and noise in {len(done)} runs"
    print(f"FAILED: {what}" if slower else f"passed: not {what}")
    return int(slower)
