"""ringfold beside other libraries on this machine, or two builds of ringfold."""

import contextlib
import os
import subprocess
from pathlib import Path

import builds
import figures
import install
import libraries
import machine
import network
import page
import peers
import processes
import report
import sizes
from command import at_least, listed, numbers, positive, rate, some_sizes
from processes import say

TRANSPORTS = ["shm", "tcp"]
COLLECTIVES = list(figures.BUS_FACTORS)
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
    "collectives": COLLECTIVES,
    "types": ["f32"],
    "transports": ["shm"],
    "ranks": [2, 4, 8],
    "sizes": sizes.ALL,
    "place": "out,in",
    "rounds": 5,
    "seconds": 2.0,
}


def flags(add):
    """Adds the flags. Some defaults depend on others."""
    builds.flags(add, seconds=3.0)
    add("--page", type=Path, metavar="FOLDER",
        help="write this machine's page below FOLDER, and a list of all pages; with sizes, rounds "
        "and transports that take some minutes")
    add("--quick", action="store_true", help="5 sizes, 2 ranks, 3 rounds, buffers apart")
    add("--collectives", type=listed(COLLECTIVES),
        help="names of operations with commas (default: all)")
    add("--types", type=listed(libraries.TYPES), help="of elements, as in f32,bf16 (default: f32)")
    add("--ranks", type=numbers(2), help="numbers of ranks of each transport (default: 2,4,8)")
    add("--per-host", type=at_least(1), default=1,
        help="with tcp: ranks of each host; no peers then")
    add("--dealt", action="store_true", help="with --per-host: ranks go to the hosts in turn")
    add("--algorithms", type=listed(), default=[], help="for ringfold, each beside its own choice")
    add("--channels", type=numbers(1), default=[], help="for ringfold, each beside its own choice")
    add("--sizes", type=some_sizes, help="as in 8,4K,1M; default: 8 to 128M by 4")
    add("--place", choices=["out", "in", "out,in"], help="buffers apart, in place, or both")
    add("--rounds", type=at_least(1), help="number of rounds (default: 5)")
    add("--batches", type=at_least(1), default=5, help="batches of calls in a round")
    add("--seconds", type=positive,
        help="time after which a cell starts no more batches (default: 2)")
    add("--calls", type=at_least(1), help="most calls of a batch")
    add("--patience", type=positive, default=60.0, help="most seconds without a result")
    add("--peers", type=listed(peers.PEERS), default=["openmpi", "mpich", "impi"],
        help="names with commas")
    add("--gloo", action="store_true", help="with Gloo too: installs PyTorch, 5 GB")
    add("--transport", dest="transports", type=listed(TRANSPORTS),
        help="shm (one host), tcp (several) or both; both with --builds and --page")
    add("--shape", type=rate, metavar="RATE", help="with tcp: rate of each host's link, as in 1gbit")
    add("--per-connection", type=rate, metavar="RATE",
        help="with tcp: rate of each connection")
    add("--mtu", type=at_least(68, 65535), default=1500, help="with tcp: MTU of the hosts' links")
    add("--cache", type=Path, default=install.cache_folder(), help="folder of the installed peers")
    add("--out", type=Path, default=install.ROOT / "target" / "peers", help="folder of the results")
    add("--wait", action="store_true", help="only measure the CPU time of a waiting rank")
    install.program_flags(add)


def check(args):
    """Completes the flags with the defaults of the kind of run."""
    presets = [PAGE] * bool(args.page) + [QUICK] * args.quick + [BUILDS] * bool(args.builds)
    for preset in [*presets, DEFAULTS]:
        for name, value in preset.items():
            if not getattr(args, name):
                setattr(args, name, value)
    if isinstance(args.ranks, list):
        args.ranks = {transport: args.ranks for transport in args.transports}
    if (args.shape or args.per_connection or args.per_host != 1) and "tcp" not in args.transports:
        args.error("--shape, --per-connection and --per-host are for --transport tcp")
    if args.shape and args.per_connection:
        args.error("--shape and --per-connection: one of them")
    if args.per_host != 1:
        args.peers = []
    if args.gloo:
        args.peers = [*args.peers, "gloo"]


def run(args):
    """Returns the exit status."""
    if args.wait:
        command = ["cargo", "bench", "-q", "-p", "ringfold-bench", "--bench", "waiting"]
        return subprocess.run(command, cwd=install.ROOT, check=False).returncode
    with contextlib.ExitStack() as stack:
        return compare_builds(args, stack) if args.builds else compare(args, stack)


def compare(args, stack):
    """Compares ringfold with its peers."""
    folder = install.ringfold(args, "ringrun", "peer-timing")
    compared = [libraries.Ringfold(folder), libraries.Ringfold(folder, windows=True)]
    compared += [libraries.Ringfold(folder, algorithm=name) for name in args.algorithms]
    compared += [libraries.Ringfold(folder, channels=number) for number in args.channels]
    for name in dict.fromkeys(args.peers):
        try:
            compared.append(peers.peer(name, args.cache))
            say(f"{name}: {compared[-1].title}")
        except install.Missing as error:
            say(f"{name}: left out: {error}")
    titles = [library.title for library in compared if library.role == "peer"]
    limit = peers.Limit(install.own_program("limit", args.cache))
    compared.append(limit)
    if "tcp" in args.transports:
        compared.append(peers.Wire(install.own_program("wire", args.cache)))
    about = machine.about(args.rounds) | {
        "limits": limits(args, limit),
        "ringfold": install.ringfold_version(),
        "compared with": ", ".join(titles) or "nothing",
        "compilers": install.compilers(),
    }
    title = machine.name() if args.page else "Peers"
    written = report.compare(args, about, compared, jobs(args, stack), title)
    if args.page:
        say(f"{page.write(written, args.page.resolve())}: written")
    return 0


def compare_builds(args, stack):
    """Compares two builds of ringfold, with windows too if possible."""
    folders = [install.with_programs(it, "ringrun", "peer-timing") for it in args.builds]
    plain = builds.three(libraries.Ringfold, *folders)
    windows = builds.three(lambda folder: libraries.Ringfold(folder, windows=True), *folders)
    series = []
    for one in jobs(args, stack):
        labels = (one.transport, plain), (f"{one.transport}, windows", windows)
        series += [(label, of, one) for label, of in labels if of[0].runs(one)]
    return builds.compare(args, machine.about(args.rounds), series)


def jobs(args, stack):
    """Yields all jobs. Hosts last as long as `stack`."""
    hosts_of = {"shm": None}
    if "tcp" in args.transports:
        hosts = network.Hosts([args.shape] * max(args.ranks["tcp"]), 1, args.per_connection, args.mtu)
        hosts_of["tcp"] = stack.enter_context(hosts)
    for transport in args.transports:
        for ranks in args.ranks[transport]:
            for collective in args.collectives:
                # A barrier has no elements.
                for data_type in args.types[:1] if collective == "barrier" else args.types:
                    yield job(args, collective, ranks, hosts_of[transport], data_type)


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
    known = {"handover": "ns from core to core", "exchange": "ns to exchange a line",
             "reduce": "GB/s reduced, 2 ranks", "copy": "GB/s copied"}
    found = [line.split(" ", 1)
        for line in processes.lines([limit.program, "machine"], {}, args.patience)[0]]
    return "; ".join(f"{value} {known[key]}" for key, value in found if key in known)
