"""ringfold over RDMA beside perftest and Open MPI, or two builds, in a guest."""

import dataclasses
import os
import shutil
import sys
from pathlib import Path

import builds
import figures
import guest
import install
import libraries
import machine
import report
import sizes
from command import at_least, listed, numbers, positive, some_sizes
from libraries import Setting
from processes import say

WHAT = ["put", "broadcast", "round_trip", "all_reduce"]
WHAT_OF_BUILDS = ["put", "round_trip", *figures.BUS_FACTORS]
SIZES = [8, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20]
PUT = [64 << 10 << step for step in range(7)]
ROUND_TRIP = [4 << 10]
# Collectives whose type matters; the others move bytes of one message.
TYPED = {"all_reduce", "reduce_scatter", "reduce", "all_gather"}
# The most calls of a batch.
CALLS, CALLS_MOST = {"put": 2000, "broadcast": 2000, "round_trip": 1000}, 500
# Makes every rank a host.
AS_HOST = install.PROGRAMS / "as-host"


def flags(add):
    """Adds the flags."""
    builds.flags(add, seconds=10.0)
    add("--what", type=listed(), help=f"default: {','.join(WHAT)}; of builds all collectives")
    add("--hosts", type=numbers(2), default=[2, 4], help="of collectives (default: 2,4)")
    add("--rails", type=at_least(1), default=1, help="NICs of each host (default: 1)")
    add("--sizes", type=some_sizes, help="of collectives, as in 8,4K,1M")
    add("--transports", type=listed(), default=["rdma"],
        help="of ringfold, the first counts; tcp goes by loop-back (default: rdma)")
    add("--types", type=listed(libraries.TYPES), default=["f32"],
        help="of all_reduce's elements, as in f32,bf16; of builds also of other collectives "
        "(default: f32)")
    add("--rounds", type=at_least(1), default=3, help="default: 3")
    add("--seconds", type=positive, default=2.0, help="after which a cell begins no more batches")
    add("--patience", type=positive, default=60.0, help="seconds without a result that are too many")
    add("--limit", type=at_least(1), default=3600, help="seconds for everything (default: 3600)")
    guest.flags(add, "--hosts {hosts} --rails {rails} --limit {limit} --share {out}",
        "{hosts}, {rails}, {limit} and {out}, a folder that it may write to")
    add("--cache", type=Path, default=install.cache_folder(), help="for what is built")
    add("--out", type=Path, default=install.ROOT / "target" / "rdma", help="for the results")
    install.program_flags(add)


def check(args):
    """Completes the flags that depend on others."""
    known = WHAT_OF_BUILDS if args.builds else WHAT
    args.what = args.what or known
    args.sizes = args.sizes or (builds.SIZES if args.builds else SIZES)
    for name in args.what:
        if name not in known:
            args.error(f"--what {name}: give some of {','.join(known)}")


class Ringfold(libraries.Library):
    """ringfold under ringrun, by one transport. A broadcast of two ranks goes one way, a call at a time,
    from and to registered memory. An all-reduce by a tree is a round trip. A put uses the RDMA transport
    alone, from and to registered memory, with several messages in flight like `ib_write_bw`."""

    # The collectives that stand in for others, with their flags and variables.
    CALLS = {name: (name, [], {}) for name in (*TYPED, "barrier")} | {
        "broadcast": ("broadcast", ["--registered"], {}),
        "round_trip": ("all_reduce", [], {"RINGFOLD_ALGO": "allreduce:tree"}),
    }
    types = tuple(libraries.TYPES)
    # The address at which the two ranks of a put connect without a launcher.
    PLACE = ["127.0.0.1", 29533]
    AS_RANK = ["sh", "-c", 'exec "$0" "$RINGFOLD_RANK" "$RINGFOLD_IB_HCA" "$@"']

    def __init__(self, transport, folder, rails):
        name = "ringfold" if transport == "rdma" else f"ringfold, {transport}"
        super().__init__(name, name, "ours", folder / "peer-timing")
        self.folder, self.rails = folder, rails
        self.variables = {"RINGFOLD_TRANSPORT": transport}
        self.collectives = [*self.CALLS, *["put"] * (transport == "rdma")]

    def command(self, job, setting):
        launch = [*libraries.ringrun(self.folder, job.ranks), AS_HOST, self.rails]
        if job.collective == "put":
            _, _, *words = job.words()
            return [*launch, *self.AS_RANK, install.program(self.folder, "put"), *self.PLACE, *words]
        collective, flags, _ = self.CALLS[job.collective]
        words = self.words(dataclasses.replace(job, collective=collective))
        return [*launch, self.program, *flags, *words]

    def environment(self, job, setting):
        _, _, variables = self.CALLS.get(job.collective, ("put", [], {}))
        return super().environment(job, setting) | variables


class OpenMpiUcx(libraries.Library):
    """The distribution's Open MPI, whose UCX has verbs; that of PyPI has no UCX."""

    collectives = ("all_reduce",)
    # UCX wires up by datagrams, and drops those of rxe unless told not to look at their addresses.
    VARIABLES = {
        "UCX_TLS": "rc_v,ud_v,self",
        "UCX_IB_GID_INDEX": "1",
        "UCX_UD_VERBS_ETH_DGID_CHECK": "n",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    # By default Open MPI uses UCX only on devices that it knows, and rxe is none of them.
    WORDS = ["--mca", "pml", "ucx", "--mca", "btl", "^openib",
             "--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any"]

    def __init__(self, program, rails):
        title = install.output(["mpicc", "--showme:version"], "no mpicc (libopenmpi-dev)")
        version = title.removeprefix("mpicc: ").split(" (")[0].strip()
        super().__init__("openmpi", f"{version} + UCX", "peer", program)
        self.rails, self.variables = rails, self.VARIABLES | {"UCX_MAX_RNDV_RAILS": str(rails)}
        self.types = install.mpi_types(program)

    def settings(self, job):
        yielding = ("--mca", "mpi_yield_when_idle", "1")
        return [Setting("ucx rc, yield", yielding), Setting("ucx rc")]

    def command(self, job, setting):
        launch = ["mpirun", "-np", job.ranks, "--oversubscribe", "--bind-to", "none"]
        host = [AS_HOST, self.rails]
        return [*launch, *self.WORDS, *setting.words, *host, self.program, *self.words(job)]


class Pair(libraries.Library):
    """perftest, which polls since it cannot sleep until a write is done, and rdma-core's example,
    which waits for events. From host 0 to host 1."""

    def __init__(self, program, title, collectives, ways):
        super().__init__(title, title, "peer", install.PROGRAMS / "pair.py")
        if not shutil.which(program):
            raise install.Missing(f"no {program}")
        self.collectives, self.ways = collectives, ways

    def settings(self, job):
        return [Setting(f"{self.title} {way}".strip(), (way,)) for way in self.ways]

    def command(self, job, setting):
        cells = [f"{size}:{calls}" for size, calls in job.cells]
        return [sys.executable, self.program, self.collectives[0], *setting.words, *cells]


def compared(args):
    """Returns the programs that are installed here."""
    found = [Ringfold(name, args.bin, args.rails) for name in args.transports]
    for make in (
        lambda: OpenMpiUcx(args.cache / "timing-openmpi", args.rails),
        lambda: Pair("ib_write_bw", "ib_write_bw", ["put", "broadcast"], [""]),
        # An MTU of 1024 bytes, the default, or of the whole link.
        lambda: Pair("ibv_rc_pingpong", "ibv_rc_pingpong -e", ["round_trip"], ["-e", "-e -m 4096"]),
    ):
        try:
            found.append(make())
        except install.Missing as missing:
            say(f"left out: {missing}")
    return found


def jobs(args):
    """Returns the measurements, in this order."""
    if args.builds:
        wanted, collectives = [("put", 2, PUT[::3])], figures.BUS_FACTORS
    else:
        wanted, collectives = [("put", 2, PUT), ("broadcast", 2, PUT)], ["all_reduce"]
    wanted += [("round_trip", 2, ROUND_TRIP)]
    wanted += [(what, hosts, args.sizes) for hosts in args.hosts for what in collectives]
    cores = len(os.sched_getaffinity(0))
    for what, ranks, some in wanted:
        if what in args.what:
            some = some[:1] if what == "barrier" else some
            cells = tuple((size, sizes.calls(size, CALLS.get(what, CALLS_MOST))) for size in some)
            for data_type in args.types if what in TYPED else ["f32"]:
                yield libraries.Job(
                    what, ranks, "out", cells, args.seconds, 5, cores,
                    data_type=data_type, transport="rdma",
                )  # fmt: skip


def inside(args):
    """Measures in the guest. Returns 0 if every measurement is complete, and no build is slower."""
    about = machine.about(args.rounds) | {"transport": f"soft-RoCE, {args.rails} rails"}
    if args.builds:
        three = builds.three(lambda folder: Ringfold("rdma", folder, args.rails), *args.builds)
        return builds.compare(args, about, [("rdma", three, job) for job in jobs(args)])
    about["ringfold"] = install.ringfold_version()
    written = report.compare(args, about, compared(args), jobs(args))
    if written:
        print(written.markdown(), end="")
    return int(not written or any(series.failures for series in written.all_series))


def run(args):
    """Starts the guest, and returns its exit status."""
    if args.inside:
        return inside(args)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.cache / "timing-openmpi").unlink(missing_ok=True)
    out = args.out.resolve()
    more = ["--out", out, "--cache", args.cache.resolve()]
    if args.builds:
        names = ["ringrun", "peer-timing", *["put"] * ("put" in args.what)]
        more += ["--builds", *(install.with_programs(it, *names) for it in args.builds)]
    else:
        names = ["ringrun", "peer-timing", "put"]
        more += ["--bin", install.ringfold(args, *names, more=["ringfold-transport"], example="put")]
        try:
            install.compile_c(["-O2"], "timing.c", args.cache / "timing-openmpi", [], "mpicc")
        except install.Missing as missing:
            say(f"Open MPI: {missing}")
    values = {"hosts": max([2, *args.hosts]), "rails": args.rails, "limit": args.limit, "out": out}
    return guest.enter(args, values, *more)
