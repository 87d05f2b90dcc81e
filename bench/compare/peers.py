"""The other libraries and the limits, and the usual command that starts each of them."""

import math
import sys

import figures
import install
from libraries import TYPES, Library, Setting


class Mpi(Library):
    """The common part of all MPIs: an mpiexec in a folder of its own. By default it is Hydra's.
    `progress` is the variable that gives a rank a thread for started calls."""

    progress = None

    def __init__(self, name, title, folder):
        super().__init__(name, title, "peer", install.mpi_program(folder))
        self.folder = folder
        self.types = install.mpi_types(self.program)

    def launch(self, job, setting):
        """Returns the words that start a program on the job's ranks."""
        launch = [self.folder / "bin" / "mpiexec", *self.placement(job), "-n", job.ranks]
        if job.hosts:
            launch = [job.hosts.enter, job.hosts.names(1)[0], *launch]
        return [*launch, *setting.words]

    def command(self, job, setting):
        return [*self.launch(job, setting), self.program, *self.words(job)]

    def placement(self, job):
        """Returns the arguments that place the ranks."""
        if not job.hosts:
            return []
        hosts = ",".join(job.hosts.addresses(job.ranks))
        agent = ["-launcher", "ssh", "-launcher-exec", job.hosts.agent]
        return [*agent, "-hosts", hosts, "-ppn", "1", "-iface", "eth0"]


class OpenMpi(Mpi):
    """Open MPI. It yields if its command line permits oversubscription."""

    variables = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    # Only its TCP has such a thread.
    progress = "OMPI_MCA_btl_tcp_progress_thread"

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


class Mpich(Mpi):
    """MPICH, ch4."""

    THROUGH_MEMORY = ("ALLREDUCE", "BCAST", "REDUCE")
    progress = "MPIR_CVAR_ASYNC_PROGRESS"

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

    progress = "I_MPI_ASYNC_PROGRESS"

    def __init__(self, name, title, folder):
        super().__init__(name, title, folder)
        self.variables = {"I_MPI_ROOT": str(folder), "FI_PROVIDER_PATH": str(folder / "lib")}

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


def start(job, port):
    """Returns the command that starts a rank on each host without a launcher."""
    words = [sys.executable, install.PROGRAMS / "start.py", job.ranks]
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
    collectives = FIRST

    def __init__(self, name, title, folder):
        super().__init__(name, title, "peer", install.PROGRAMS / "gloo_timing.py")
        self.python = folder / "bin" / "python"

    def command(self, job, setting):
        return [*start(job, self.PORT), self.python, self.program, *self.words(job)]

    def environment(self, job, setting):
        interface = {"GLOO_SOCKET_IFNAME": "eth0" if job.hosts else "lo"}
        return super().environment(job, setting) | interface


class Limit(Library):
    """The limit of the machine, by limit.c. Memory limits it, so f32 stands in for every type."""

    collectives = FIRST

    def __init__(self, program):
        super().__init__("limit", "limit of this machine", "limit", program)

    def runs(self, job):
        return not job.hosts and super().runs(job)

    def command(self, job, setting):
        return [self.program, *self.words(job, job.ranks)]


class Wire(Library):
    """The limit of the network between hosts, by wire.c: bytes of any type."""

    PORT, types = 0, tuple(TYPES)

    def __init__(self, program):
        super().__init__("wire", "limit of plain sockets", "limit", program)

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
