"""The programs compared over RDMA, and their start. `as-host` makes every rank a host."""

import dataclasses
import sys

import install
import libraries
from libraries import Setting

HERE = install.HERE.parent / "rdma"


class Ringfold(libraries.Library):
    """ringfold under ringrun, by one transport. A broadcast of two ranks goes one way, a call at a time,
    from and to registered memory. An all-reduce by a tree is a round trip. A put uses the RDMA transport
    alone, from and to registered memory, with several messages in flight like `ib_write_bw`."""

    CALLS = {
        "broadcast": ("broadcast", ["--registered"], {}),
        "round_trip": ("all_reduce", [], {"RINGFOLD_ALGO": "allreduce:tree"}),
        **{
            name: (name, [], {})
            for name in ("all_reduce", "all_gather", "reduce_scatter", "reduce", "barrier")
        },
    }
    types = tuple(libraries.TYPES)
    # The address at which the two ranks of a put connect without a launcher.
    PLACE = ["127.0.0.1", 29533]
    AS_RANK = ["sh", "-c", 'exec "$0" "$RINGFOLD_RANK" "$RINGFOLD_IB_HCA" "$@"']

    def __init__(self, transport, folder, put, rails):
        name = "ringfold" if transport == "rdma" else f"ringfold, {transport}"
        super().__init__(name, name, "ours", folder / "peer-timing")
        self.ringrun, self.transport, self.put, self.rails = folder / "ringrun", transport, put, rails

    def runs(self, job):
        return job.collective in self.CALLS or self._puts(job) and self.transport == "rdma"

    def _puts(self, job):
        return job.collective == "put"

    def command(self, job, setting):
        host = [HERE / "as-host", self.rails]
        if self._puts(job):
            _, _, *words = job.words()
            launch = [self.ringrun, "-n", job.ranks, *host, *self.AS_RANK]
            return [*launch, self.put, *self.PLACE, *words]
        collective, flags, _ = self.CALLS[job.collective]
        words = self.words(dataclasses.replace(job, collective=collective))
        return [self.ringrun, "-n", job.ranks, *host, self.program, *flags, *words]

    def environment(self, job, setting):
        variables = {} if self._puts(job) else self.CALLS[job.collective][-1]
        transport = {"RINGFOLD_TRANSPORT": self.transport}
        return super().environment(job, setting) | transport | variables


class OpenMpiUcx(libraries.Library):
    """The distribution's Open MPI, whose UCX has verbs; that of PyPI has no UCX."""

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

    def __init__(self, title, program, rails):
        super().__init__("openmpi", title, "peer", program)
        self.rails = rails
        self.types = install.mpi_types(program)

    def runs(self, job):
        return job.collective == "all_reduce"

    def settings(self, job):
        yielding = ("--mca", "mpi_yield_when_idle", "1")
        return [Setting("ucx rc, yield", yielding), Setting("ucx rc")]

    def command(self, job, setting):
        launch = ["mpirun", "-np", job.ranks, "--oversubscribe", "--bind-to", "none"]
        host = [HERE / "as-host", self.rails]
        return [*launch, *self.WORDS, *setting.words, *host, self.program, *self.words(job)]

    def environment(self, job, setting):
        rails = {"UCX_MAX_RNDV_RAILS": str(self.rails)}
        return super().environment(job, setting) | self.VARIABLES | rails


class Pair(libraries.Library):
    """perftest and rdma-core's example, from host 0 to host 1."""

    def __init__(self, what, title, ways, beside=()):
        super().__init__(title, title, "peer", HERE / "pair.py")
        self.what, self.ways, self.jobs = what, ways, (what, *beside)

    def runs(self, job):
        return job.collective in self.jobs

    def settings(self, job):
        return [Setting(f"{self.title} {way}".strip(), (way,)) for way in self.ways]

    def command(self, job, setting):
        cells = [f"{size}:{calls}" for size, calls in job.cells]
        return [sys.executable, self.program, self.what, *setting.words, *cells]


def write_bandwidth():
    """Polling: perftest cannot sleep until a write is done."""
    return Pair("put", "ib_write_bw", [""], ["broadcast"])


def pingpong():
    """Event-driven, with an MTU of 1024 bytes, its default, or of the whole link."""
    return Pair("round_trip", "ibv_rc_pingpong -e", ["-e", "-e -m 4096"])
