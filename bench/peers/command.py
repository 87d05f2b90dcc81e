"""The command line and its actions."""

import argparse
import contextlib
import datetime
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import builds
import figures
import network
import install
import libraries
import machine
import measure
import page
import processes
import report
import sizes

TRANSPORTS = ["shm", "tcp"]
# The defaults of a benchmark page, for the collectives of training, within some minutes.
PAGE = {
    "collectives": ["all_reduce", "all_gather", "reduce_scatter", "broadcast"],
    "types": ["f32", "bf16"],
    "transports": TRANSPORTS,
    "ranks": {"shm": [2, 4], "tcp": [2]},
    "sizes": sizes.PAGE,
    "place": "out",
    "rounds": 5,
    "seconds": 0.06,
}
QUICK = {"ranks": [2], "sizes": sizes.QUICK, "place": "out", "rounds": 3}
BUILDS = {"transports": TRANSPORTS, "sizes": builds.SIZES, "place": "out"}
DEFAULTS = {
    "types": ["f32"],
    "transports": ["shm"],
    "ranks": [2, 4, 8],
    "sizes": sizes.ALL,
    "place": "out,in",
    "rounds": 5,
    "seconds": 2.0,
}
COLLECTIVES = list(figures.BUS_FACTORS)


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
    add("--page", type=Path, metavar="FOLDER",
        help="write this machine's page below FOLDER, and a list of all pages; with sizes, rounds "
        "and transports that take some minutes")
    add("--quick", action="store_true", help="5 sizes, 2 ranks, 3 rounds, buffers apart")
    add("--collectives", type=listed, help="names of operations with commas (default: all)")
    add("--types", type=listed, help="of elements, as in f32,bf16 (default: f32)")
    add("--ranks", type=numbers, help="numbers of ranks of each transport (default: 2,4,8)")
    add("--per-host", type=int, default=1, help="with tcp: ranks of each host; no peers then")
    add("--dealt", action="store_true", help="with --per-host: ranks go to the hosts in turn")
    add("--algorithms", type=listed, default=[], help="for ringfold, each beside its own choice")
    add("--channels", type=numbers, default=[], help="for ringfold, each beside its own choice")
    add("--sizes", type=some_sizes, help="as in 8,4K,1M; default: 8 to 128M by 4")
    add("--place", choices=["out", "in", "out,in"], help="buffers apart, in place, or both")
    add("--rounds", type=int, help="number of rounds (default: 5)")
    add("--batches", type=int, default=5, help="batches of calls in a round")
    add("--seconds", type=float,
        help="time after which a cell starts no more batches (default: 2)")
    add("--calls", type=int, help="most calls of a batch")
    add("--patience", type=float, default=60.0, help="most seconds without a result")
    add("--peers", type=listed, default=["openmpi", "mpich", "impi"], help="names with commas")
    add("--gloo", action="store_true", help="with Gloo too: installs PyTorch, 5 GB")
    add("--transport", dest="transports", type=listed,
        help="shm (one host), tcp (several) or both; both with --builds and --page")
    add("--shape", metavar="RATE", help="with tcp: rate of each host's link, as in 1gbit")
    add("--per-connection", metavar="RATE", help="with tcp: rate of each connection")
    add("--mtu", type=int, default=1500, help="with tcp: MTU of the hosts' links")
    add("--cache", type=Path, default=install.cache_folder(), help="folder of the installed peers")
    add("--out", type=Path, default=install.ROOT / "target" / "peers", help="folder of the results")
    add("--no-build", action="store_true", help="use ringfold's binaries without a build")
    add("--wait", action="store_true", help="only measure the CPU time of a waiting rank")
    args = parser.parse_args(words)
    presets = [PAGE] * bool(args.page) + [QUICK] * args.quick + [BUILDS] * bool(args.builds)
    for preset in [*presets, DEFAULTS | {"collectives": COLLECTIVES}]:
        for name, value in preset.items():
            if not getattr(args, name):
                setattr(args, name, value)
    if isinstance(args.ranks, list):
        args.ranks = {transport: args.ranks for transport in args.transports}
    if min(map(min, args.ranks.values())) < 2:
        parser.error("--ranks: a collective takes two")
    if (args.shape or args.per_connection or args.per_host != 1) and "tcp" not in args.transports:
        parser.error("--shape, --per-connection and --per-host are for --transport tcp")
    if args.shape and args.per_connection:
        parser.error("--shape and --per-connection: one of them")
    if args.per_host != 1:
        args.peers = []
    for given, known in (
        (args.collectives, COLLECTIVES), (args.peers, libraries.PEERS),
        (args.types, libraries.TYPES), (args.transports, TRANSPORTS),
    ):  # fmt: skip
        for name in set(given) - set(known):
            parser.error(f"there is no {name}; give some of {','.join(known)}")
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
    limit = libraries.Limit(install.own_program("limit", args.cache))
    compared.append(limit)
    if "tcp" in args.transports:
        compared.append(libraries.Wire(install.own_program("wire", args.cache)))
    about = about_run(args) | limits(args, limit)
    about["ringfold"] = install.ringfold_version()
    peers = [library.title for library in compared if library.role == "peer"]
    about["compared with"] = ", ".join(peers) or "nothing"
    about["compilers"] = install.compilers()
    all_series, title = [], machine.name() if args.page else "Peers"
    with contextlib.ExitStack() as stack:
        for one, settings in jobs(args, stack):
            series = measure.Series(one, say, args.patience)
            series.measure(compared, args.rounds, settings)
            settings.update(series.settings)
            all_series.append(series)
            results = report.Report(about, compared, all_series, title)
            names = results.write(args.out)
            say(f"{one.collective} x {one.ranks}, {one.transport}, {one.data_type}: done")
    say(f"{args.out}: {' '.join(names)}")
    if args.page:
        say(f"{page.write(results, args.page.resolve())}: written")
    return 0


def jobs(args, stack):
    """Yields all jobs, each with the settings that a job with other types has found. Hosts last
    as long as `stack`."""
    hosts_of = {transport: hosts(args, stack, transport) for transport in args.transports}
    for transport in args.transports:
        for ranks in args.ranks[transport]:
            for collective in args.collectives:
                settings = {}
                # A barrier has no elements.
                for data_type in args.types[:1] if collective == "barrier" else args.types:
                    one = job(args, collective, ranks, hosts_of[transport], data_type)
                    yield one, settings


def hosts(args, stack, transport):
    """Returns the hosts of a transport, or None for this machine."""
    if transport == "shm":
        return None
    shapes = args.shape, args.per_connection
    return stack.enter_context(network.Hosts(max(args.ranks[transport]), *shapes, args.mtu))


def compare_builds(args):
    """Compares two builds of ringfold, with windows too if possible."""
    folders = [install.with_programs(it, "ringrun", "peer-timing") for it in args.builds]
    plain = builds.three(libraries.Ringfold, *folders)
    windows = builds.three(lambda folder: libraries.Ringfold(folder, windows=True), *folders)
    comparison = builds.Comparison(about_run(args), args.rounds, args.time, args.patience, say)
    series = []
    with contextlib.ExitStack() as stack:
        for one, _ in jobs(args, stack):
            name = one.transport + ("" if one.data_type == "f32" else f", {one.data_type}")
            labels = (name, plain), (f"{name}, windows", windows)
            series += [(label, of, one) for label, of in labels if of[0].runs(one)]
        return comparison.all(series, args.out)


def job(args, collective, ranks, hosts, data_type):
    """Returns a job, which is the same for each library."""
    cores = len(os.sched_getaffinity(0))
    most = args.calls or (500 if hosts else 200 if ranks > cores else 5000)
    some = args.sizes[:1] if collective == "barrier" else args.sizes
    cells = tuple((size, sizes.calls(size, most)) for size in some)
    places = figures.ONE_PLACE.get(collective, args.place)
    transport, line_rate = "shm", None
    if hosts:
        transport = "tcp" + (f" at {args.shape} per host" if args.shape else "")
        line_rate = network.bytes_per_second(args.shape) / 1e9 if args.shape else None
    return libraries.Job(
        collective, ranks, places, cells, args.seconds, args.batches, cores, hosts,
        args.per_host, args.dealt, data_type, transport, line_rate,
    )  # fmt: skip


def limits(args, limit):
    """Returns the limits of the machine, for the head of the report."""
    measured = []
    known = {"handover": "ns from core to core", "exchange": "ns to exchange a line",
             "reduce": "GB/s reduced, 2 ranks", "copy": "GB/s copied"}

    def read(line):
        key, _, value = line.partition(" ")
        if key in known:
            measured.append(f"{value} {known[key]}")

    processes.run([limit.program, "machine"], dict(os.environ), args.patience, read)
    return {"limits": "; ".join(measured)}


def about_run(args):
    """Returns the head of every report."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    now = datetime.datetime.now(datetime.timezone.utc)
    return machine.describe() | {
        "taken": now.strftime("%Y-%m-%d %H:%M UTC"),
        "load before": load,
        "rounds": args.rounds,
        "command": f"`bench/peers/run {shlex.join(sys.argv[1:])}`".replace(" `", "`"),
    }
