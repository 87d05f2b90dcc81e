"""The command line and its actions."""

import argparse
import contextlib
import datetime
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import builds
import network
import install
import libraries
import measure
import processes
import report
import sizes

COLLECTIVES = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "barrier"]


def arguments(words):
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="bench/peers/run", description=__doc__)
    listed = lambda text: text.split(",")  # noqa: E731
    numbers = lambda text: [int(word) for word in text.split(",")]  # noqa: E731
    some_sizes = lambda text: [sizes.parse(word) for word in text.split(",")]  # noqa: E731
    add = parser.add_argument
    add("--builds", nargs=2, type=Path, metavar=("BEFORE", "AFTER"),
        help="only compare two builds, in folders with their binaries")
    add("--time", type=float, default=3.0, help="with --builds: seconds for a cell (default: 3)")
    add("--quick", action="store_true", help="5 sizes, 2 ranks, 3 rounds, buffers apart")
    add("--collectives", type=listed, default=COLLECTIVES, help="names with commas")
    add("--ranks", type=numbers, help="numbers of ranks (default: 2,4,8)")
    add("--per-host", type=int, default=1, help="with tcp: ranks of each host; no peers then")
    add("--algorithms", type=listed, default=[], help="for ringfold, each beside its own choice")
    add("--channels", type=numbers, default=[], help="for ringfold, each beside its own choice")
    add("--sizes", type=some_sizes, help="as in 8,4K,1M; default: 8 to 128M by 4")
    add("--place", choices=["out", "in", "out,in"], help="buffers apart, in place, or both")
    add("--rounds", type=int, help="number of rounds (default: 5)")
    add("--batches", type=int, default=5, help="batches of calls in a round")
    add("--seconds", type=float, default=2.0, help="time after which a cell starts no more batches")
    add("--calls", type=int, help="most calls of a batch")
    add("--patience", type=float, default=60.0, help="most seconds without a result")
    add("--peers", type=listed, default=["openmpi", "mpich", "impi"], help="names with commas")
    add("--gloo", action="store_true", help="with Gloo too: installs PyTorch, 5 GB")
    add("--transport", choices=["shm", "tcp"], help="one host, or several; both with --builds")
    add("--shape", metavar="RATE", help="with tcp: rate of each host's link, as in 1gbit")
    add("--per-connection", metavar="RATE", help="with tcp: rate of each connection")
    add("--mtu", type=int, default=1500, help="with tcp: MTU of the hosts' links")
    add("--cache", type=Path, default=install.cache_folder(), help="folder of the installed peers")
    add("--out", type=Path, default=install.ROOT / "target" / "peers", help="folder of the results")
    add("--no-build", action="store_true", help="use ringfold's binaries without a build")
    add("--wait", action="store_true", help="only measure the CPU time of a waiting rank")
    args = parser.parse_args(words)
    if min(args.ranks or [2]) < 2:
        parser.error("--ranks: a collective takes two")
    if (args.shape or args.per_connection or args.per_host != 1) and args.transport != "tcp":
        parser.error("--shape, --per-connection and --per-host are for --transport tcp")
    if args.shape and args.per_connection:
        parser.error("--shape and --per-connection: one of them")
    if args.per_host != 1:
        args.peers = []
    for name in [*args.collectives, *args.peers]:
        if name not in [*COLLECTIVES, *libraries.PEERS]:
            parser.error(f"there is no {name}")
    args.transports = [args.transport] if args.transport else ["shm", "tcp"]
    args.transport = args.transport or "shm"
    if args.builds:
        args.sizes, args.place = args.sizes or builds.SIZES, args.place or "out"
    args.ranks = args.ranks or ([2] if args.quick else [2, 4, 8])
    args.sizes = args.sizes or (sizes.QUICK if args.quick else sizes.ALL)
    args.place = args.place or ("out" if args.quick else "out,in")
    args.rounds = args.rounds or (3 if args.quick else 5)
    if args.gloo:
        args.peers = [*args.peers, "gloo"]
    return args


def say(message):
    """Prints a progress line. The results go to files."""
    print(message, file=sys.stderr, flush=True)


def main(words):
    """Runs the command, and returns the exit status."""
    args = arguments(words)
    processes.adopt_orphans()
    # As after ^C: end the started processes, and remove the hosts.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if args.wait:
        return wait_check()
    try:
        return compare_builds(args) if args.builds else compare(args)
    except install.Missing as error:
        say(f"error: {error}")
        return 1


def wait_check():
    """Measures the CPU time of a waiting rank, over all transports."""
    command = ["cargo", "bench", "-q", "-p", "ringfold-bench", "--bench", "waiting"]
    return subprocess.run(command, cwd=install.ROOT, check=False).returncode


def compare(args):
    """Compares ringfold with its peers."""
    args.cache.mkdir(parents=True, exist_ok=True)
    folder = install.ringfold(not args.no_build)
    ours, windows = libraries.Ringfold(folder), libraries.Ringfold(folder, windows=True)
    by_name = [libraries.Ringfold(folder, algorithm=name) for name in args.algorithms]
    by_number = [libraries.Ringfold(folder, channels=number) for number in args.channels]
    compared = [ours, windows, *by_name, *by_number]
    for name in dict.fromkeys(args.peers):
        try:
            compared.append(libraries.peer(name, args.cache))
            say(f"{name}: {compared[-1].title}")
        except install.Missing as error:
            say(f"{name}: left out: {error}")
    with contextlib.ExitStack() as stack:
        limit = libraries.Limit(install.own_program("limit", args.cache))
        about = about_machine(args) | describe(args, limit)
        hosts = line_rate = None
        if args.transport == "tcp":
            limit = libraries.Wire(install.own_program("wire", args.cache))
            shapes = args.shape, args.per_connection
            hosts = stack.enter_context(network.Hosts(max(args.ranks), *shapes, args.mtu))
        if args.shape:
            line_rate = network.bytes_per_second(args.shape) / 1e9
        compared.append(limit)
        all_series = []
        for ranks in args.ranks:
            for collective in args.collectives:
                series = measure.Series(job(args, collective, ranks, hosts), say, args.patience)
                series.measure(compared, args.rounds)
                all_series.append(series)
                results = report.Report(about, compared, all_series, line_rate)
                names = results.write(args.out)
                say(f"{collective} x {ranks}: done")
    say(f"{args.out}: {' '.join(names)}")
    return 0


def compare_builds(args):
    """Compares two builds of ringfold, with windows too if possible."""
    folders = [install.with_programs(it, "ringrun", "peer-timing") for it in args.builds]
    plain = builds.three(libraries.Ringfold, *folders)
    windows = builds.three(lambda folder: libraries.Ringfold(folder, windows=True), *folders)
    comparison = builds.Comparison(
        about_machine(args), args.rounds, args.time, args.patience, say
    )
    series = []
    with contextlib.ExitStack() as stack:
        for transport in args.transports:
            hosts = None
            if transport == "tcp":
                shapes = args.shape, args.per_connection
                hosts = stack.enter_context(network.Hosts(max(args.ranks), *shapes, args.mtu))
            for ranks in args.ranks:
                for collective in args.collectives:
                    one = job(args, collective, ranks, hosts)
                    labels = (transport, plain), (f"{transport}, windows", windows)
                    series += [(name, of, one) for name, of in labels if of[0].runs(one)]
        return comparison.all(series, args.out)


def job(args, collective, ranks, hosts):
    """Returns the jobs, which are the same for each library."""
    cores = len(os.sched_getaffinity(0))
    most = args.calls or (500 if hosts else 200 if ranks > cores else 5000)
    some = args.sizes[:1] if collective == "barrier" else args.sizes
    cells = tuple((size, sizes.calls(size, most)) for size in some)
    # A broadcast has one buffer in MPI, and a barrier none.
    places = "in" if collective in ("broadcast", "barrier") else args.place
    return libraries.Job(
        collective, ranks, places, cells, args.seconds, args.batches, cores, hosts, args.per_host
    )


def describe(args, limit):
    """Returns the limits of the machine, for the head of the report."""
    measured = []
    known = {"handover": "ns from core to core", "exchange": "ns to exchange a line",
             "reduce": "GB/s reduced, 2 ranks", "copy": "GB/s copied"}

    def read(line):
        key, _, value = line.partition(" ")
        if key in known:
            measured.append(f"{value} {known[key]}")

    processes.run([limit.program, "machine"], dict(os.environ), args.patience, read)
    return {
        "transport": args.transport + (f" at {args.shape} per host" if args.shape else ""),
        "limits": "; ".join(measured),
    }


def about_machine(args):
    """Returns the head of every report."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
        "taken": now.strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{_processor()}, {len(os.sched_getaffinity(0))} cores, {platform.release()}",
        "load before": load,
        "rounds": args.rounds,
        "command": "bench/peers/run " + " ".join(sys.argv[1:]),
    }


def _processor():
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()
