"""The compared libraries, and the usual command that starts each of them."""

import math
import os
import sys
from dataclasses import dataclass, field

import figures
import install

# Bytes of an element of each type that ringfold's columns may have.
TYPES = {"f32": 4, "f16": 2, "bf16": 2, "f8e4m3": 1, "f8e5m2": 1}

# Variables of a launcher that must not reach the processes of another one.
FOREIGN = ("OMPI_", "PMIX_", "PRTE_", "PMI_", "MPI_", "I_MPI_", "MPIR_", "FI_", "UCX_", "HYDRA_")


@dataclass(frozen=True)
class Job:
    """The work of one process group. `hosts` is None on one machine."""

    collective: str
    ranks: int
    places: str
    cells: tuple
    seconds: float
    batches: int
    cores: int
    hosts: object = None
    per_host: int = 1
    # Whether ranks go to the hosts in turn, instead of filling one host after the other.
    is_dealt: bool = False
    data_type: str = "f32"
    # The name of the transport in the report, and the rate of a host's link in GB/s if it has one.
    transport: str = "shm"
    line_rate: float | None = None

    def words(self, *more):
        """Returns the arguments of all timing programs, after their flags."""
        cells = [f"{size}:{calls}" for size, calls in self.cells]
        return [self.collective, *more, self.places, self.seconds, self.batches, *cells]

    @property
    def is_oversubscribed(self):
        """Whether there are more ranks than cores."""
        return self.ranks > self.cores


@dataclass(frozen=True)
class Setting:
    """A reasonable way to run a library. If there are several, a trial finds the best."""

    name: str
    words: tuple = ()
    variables: dict = field(default_factory=dict)


class Library:
    """A library with its timing program. `role` is ours, peer or limit. `types` are the types that
    the program times."""

    types = ("f32",)

    def __init__(self, name, title, role, program):
        self.name, self.title, self.role, self.program = name, title, role, program

    def runs(self, job):
        """Returns whether the library can run the job."""
        del job
        return True

    def data_type(self, job):
        """Returns the type that the library times: that of the job, or else f32 of the same
        bytes."""
        return job.data_type if job.data_type in self.types else "f32"

    def shown(self, job):
        """Returns the title in a table, with the type that stands in for the job's."""
        timed = self.data_type(job)
        return self.title if timed == job.data_type else f"{self.title} ({timed})"

    def words(self, job, *more):
        """Returns the arguments of the timing program."""
        timed = self.data_type(job)
        return [*([] if timed == "f32" else ["--type", timed]), *job.words(*more)]

    def settings(self, job):
        """Returns at least one setting."""
        del job
        return [Setting("default")]

    def command(self, job, setting):
        """Returns the command that starts the job."""
        raise NotImplementedError

    def read(self, line, job):
        """Parses a line of output: yields place and size with bytes used, microseconds and wrong
        elements. Programs print place, bytes, bytes used, calls, batches, microseconds and wrong
        elements."""
        del job
        words = line.split()
        if len(words) == 8 and words[0] == "cell":
            place, size, used = words[1], int(words[2]), int(words[3])
            yield (place, size), (used, float(words[6]), int(words[7]))

    def environment(self, job, setting):
        """Returns the environment of the command."""
        del job
        clean = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
        return clean | setting.variables


class Ringfold(Library):
    """ringfold under ringrun; optionally with buffers in windows, with one algorithm, or with a
    number of channels."""

    types = tuple(TYPES)

    def __init__(self, folder, windows=False, algorithm=None, channels=None):
        variant = "windows" if windows else algorithm or channels and f"channels: {channels}"
        name = f"ringfold, {variant}" if variant else "ringfold"
        super().__init__(name, name, "ours", folder / "peer-timing")
        self.ringrun, self.algorithm, self.channels = folder / "ringrun", algorithm, channels
        self.flags = ["--windows"] if windows else []

    def runs(self, job):
        return not self.flags or (job.collective == "all_reduce" and not job.hosts)

    def command(self, job, setting):
        launch = [self.ringrun]
        if job.hosts:
            names = job.hosts.names(math.ceil(job.ranks / job.per_host))
            # ringrun deals the ranks beyond the slots to the hosts in turn.
            slots = ",".join(f"{name}:{1 if job.is_dealt else job.per_host}" for name in names)
            launch = [job.hosts.enter, job.hosts.names(1)[0], self.ringrun]
            launch += ["--agent", job.hosts.enter, "--host", slots]
            launch += ["--rendezvous-addr", job.hosts.address(0)]
            launch += ["--oversubscribe"] if job.is_dealt else []
        return [*launch, "-n", job.ranks, self.program, *self.flags, *self.words(job)]

    def environment(self, job, setting):
        transport = "shm" if not job.hosts else "tcp" if job.per_host == 1 else "shm,tcp"
        variables = {"RINGFOLD_TRANSPORT": transport}
        if self.algorithm:
            variables["RINGFOLD_ALGO"] = self.algorithm
        if self.channels:
            variables["RINGFOLD_CHANNELS"] = str(self.channels)
        return super().environment(job, setting) | variables


class Mpi(Library):
    """The common part of all MPIs: an mpiexec in a folder of its own."""

    def __init__(self, name, title, folder):
        super().__init__(name, title, "peer", install.mpi_program(folder))
        self.folder = folder
        self.types = install.mpi_types(self.program)

    def command(self, job, setting):
        launch = [self.folder / "bin" / "mpiexec", *self.placement(job), "-n", job.ranks]
        if job.hosts:
            launch = [job.hosts.enter, job.hosts.names(1)[0], *launch]
        return [*launch, *setting.words, self.program, *self.words(job)]

    def placement(self, job):
        """Returns the arguments that place the ranks."""
        raise NotImplementedError

    def hydra(self, job):
        """Returns the placement arguments of Hydra, for MPICH and Intel MPI."""
        if not job.hosts:
            return []
        hosts = ",".join(job.hosts.addresses(job.ranks))
        agent = ["-launcher", "ssh", "-launcher-exec", job.hosts.agent]
        return [*agent, "-hosts", hosts, "-ppn", "1", "-iface", "eth0"]


class OpenMpi(Mpi):
    """Open MPI. It yields if its command line permits oversubscription."""

    def placement(self, job):
        if job.hosts:
            hosts = ",".join(f"{address}:1" for address in job.hosts.addresses(job.ranks))
            # All hosts have the same cores, so no rank may claim one.
            where = ["--host", hosts, "--map-by", "node", "--bind-to", "none"]
            agent = ["--prtemca", "plm_ssh_agent", job.hosts.agent]
            return [*where, *agent, "--prtemca", "prte_if_include", "eth0"]
        return ["--map-by", ":OVERSUBSCRIBE"] if job.is_oversubscribed else []

    def settings(self, job):
        ob1 = ("--mca", "pml", "ob1", "--mca", "btl")
        if job.hosts:
            tcp = (*ob1, "tcp,self", "--mca", "btl_tcp_if_include", "eth0")
            yielding = Setting("ob1 tcp, yield", (*tcp, "--mca", "mpi_yield_when_idle", "1"))
            return [Setting("ob1 tcp", tcp), yielding]
        known = [Setting("default"), Setting("ob1 sm", (*ob1, "sm,self"))]
        bound = Setting("bound", ("--bind-to", "core:overload-allowed"))
        return [*known, bound] if job.is_oversubscribed else known

    def environment(self, job, setting):
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return super().environment(job, setting) | root


class Mpich(Mpi):
    """MPICH, ch4."""

    THROUGH_MEMORY = ("ALLREDUCE", "BCAST", "REDUCE")

    def placement(self, job):
        return self.hydra(job)

    def settings(self, job):
        if job.hosts:
            ofi = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "eth0"}
            ucx = {"MPIR_CVAR_CH4_NETMOD": "ucx", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}
            return [Setting("ofi tcp", (), ofi), Setting("ucx tcp", (), ucx)]
        # Its collectives through shared memory spin without yielding.
        names = [f"MPIR_CVAR_{name}_POSIX_INTRA_ALGORITHM" for name in self.THROUGH_MEMORY]
        pairs = Setting("point to point", (), {name: "mpir" for name in names})
        bound = ("-bind-to", "core")
        if job.is_oversubscribed:
            both = Setting("point to point, bound", bound, pairs.variables)
            return [Setting("default"), pairs, both]
        return [Setting("default"), Setting("bound", bound), pairs]


class IntelMpi(Mpi):
    """Intel MPI. It pins ranks by itself."""

    def placement(self, job):
        return self.hydra(job)

    def settings(self, job):
        if job.hosts:
            over = {"I_MPI_FABRICS": "ofi", "I_MPI_OFI_PROVIDER": "tcp", "FI_TCP_IFACE": "eth0"}
            over |= {"I_MPI_PIN": "0"}
            yielding = Setting("ofi tcp, yield", (), over | {"I_MPI_THREAD_YIELD": "2"})
            return [Setting("ofi tcp", (), over), yielding]
        shm = {"I_MPI_FABRICS": "shm"}
        if job.is_oversubscribed:
            crowd = shm | {"I_MPI_THREAD_YIELD": "2"}
            bound = Setting("shm, yield, bound", (), crowd)
            free = Setting("shm, yield", (), crowd | {"I_MPI_PIN": "0"})
            return [Setting("shm", (), shm), bound, free]
        return [Setting("shm", (), shm)]

    def environment(self, job, setting):
        places = {"I_MPI_ROOT": self.folder, "FI_PROVIDER_PATH": self.folder / "lib"}
        found = {name: str(place) for name, place in places.items()}
        return super().environment(job, setting) | found


def start(job, port):
    """Returns the command that starts a rank on each host without a launcher."""
    words = [sys.executable, install.HERE / "start.py", job.ranks]
    if not job.hosts:
        return [*words, "127.0.0.1", port, "--"]
    where = ["--hosts", job.hosts.enter, *job.hosts.names(job.ranks)]
    return [*words, job.hosts.address(0), port, *where, "--"]


# The collectives that the limit of one host and Gloo's program know.
FIRST = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "barrier")


class Gloo(Library):
    """Gloo in PyTorch. It has no shared memory, and uses TCP on one machine too."""

    PORT = 29511
    types = ("f32", "f16")

    def __init__(self, name, title, folder):
        super().__init__(name, title, "peer", install.HERE / "gloo_timing.py")
        self.python = folder / "bin" / "python"

    def runs(self, job):
        return job.collective in FIRST

    def command(self, job, setting):
        return [*start(job, self.PORT), self.python, self.program, *self.words(job)]

    def environment(self, job, setting):
        interface = {"GLOO_SOCKET_IFNAME": "eth0" if job.hosts else "lo"}
        return super().environment(job, setting) | interface


class Limit(Library):
    """The limit of the machine, by limit.c. Memory limits it, so f32 stands in for every type."""

    def __init__(self, program):
        super().__init__("limit", "limit of this machine", "limit", program)

    def runs(self, job):
        return not job.hosts and job.collective in FIRST

    def command(self, job, setting):
        return [self.program, *self.words(job, job.ranks)]


class Wire(Library):
    """The limit of the network between hosts, by wire.c: bytes of any type."""

    PORT = 0

    def __init__(self, program):
        super().__init__("wire", "limit of plain sockets", "limit", program)

    def data_type(self, job):
        return job.data_type

    def runs(self, job):
        return bool(job.hosts) and job.per_host == 1

    def command(self, job, setting):
        addresses = job.hosts.addresses(job.ranks)
        return [*start(job, self.PORT), self.program, job.ranks, *addresses]

    def read(self, line, job):
        words = line.split()
        if words[:1] != ["wire"]:
            return
        hop, rate = float(words[1]), float(words[2])
        hops = math.ceil(math.log2(job.ranks))
        for place in job.places.split(","):
            for size, _ in job.cells:
                moved = size * figures.bus_factor(job.collective, job.ranks)
                yield (place, size), (size, hops * hop + moved / rate / 1e3, 0)


PEERS = {
    "openmpi": ("Open MPI", ("openmpi",), OpenMpi),
    "mpich": ("MPICH", ("mpich",), Mpich),
    "impi": ("Intel MPI", ("impi-rt", "impi-devel"), IntelMpi),
    "gloo": ("Gloo", ("torch", "numpy"), Gloo),
}


def peer(name, cache):
    """Installs and builds a peer by its name, or raises install.Missing."""
    title, packages, kind = PEERS[name]
    folder = cache / name
    if kind is IntelMpi:
        folder = install.intel_mpi(folder)
    else:
        folder = install.environment(folder, packages)
    return kind(name, f"{title} {install.version(folder, packages[0])}", folder)
