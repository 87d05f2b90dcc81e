"""A compared library, its job, and ringfold with the command that starts it."""

import json
import math
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import processes

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
    """A library with its timing program. `role` is ours, peer or limit. `types` and `collectives`
    are those that the program times, and `variables` those that it needs."""

    types = ("f32",)
    collectives = None
    variables = {}

    def __init__(self, name, title, role, program):
        self.name, self.title, self.role, self.program = name, title, role, program

    def runs(self, job):
        """Returns whether the library can run the job."""
        return self.collectives is None or job.collective in self.collectives

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
        return clean | setting.variables | self.variables


def ringrun(folder, ranks, hosts=None, per_host=1, is_dealt=False):
    """Returns the words that start a program on so many ranks."""
    launch = [folder / "ringrun"]
    if hosts:
        names = hosts.names(math.ceil(ranks / per_host))
        # ringrun deals the ranks beyond the slots to the hosts in turn.
        slots = ",".join(f"{name}:{1 if is_dealt else per_host}" for name in names)
        launch = [hosts.enter, names[0], *launch, "--agent", hosts.enter, "--host", slots]
        launch += ["--rendezvous-addr", hosts.address(0), *["--oversubscribe"] * is_dealt]
    return [*launch, "-n", ranks]


def perf(launch, folder, words, variables, shows_log=False):
    """Runs allreduce-perf for a single size. Returns its result in JSON."""
    with tempfile.TemporaryDirectory() as home:
        file = Path(home, "result.json")
        command = [*launch, folder / "allreduce-perf", *words, "-J", file]
        processes.lines(command, {"HOME": home} | variables, shows_log=shows_log)
        results = json.loads(file.read_text(encoding="utf-8"))["results"]
    return single(results)


def single(results):
    """Returns the only result of allreduce-perf, or raises `Failed` if its sums are wrong."""
    halves = [result[name] for result in results for name in ("out_of_place", "in_place")]
    if len(results) != 1 or any(half["nwrong"] not in (0, "0", "N/A") for half in halves):
        raise processes.Failed(f"allreduce-perf has no single right result: {results}")
    return results[0]


class Ringfold(Library):
    """ringfold under ringrun; optionally with buffers in windows, with one algorithm, or with a
    number of channels."""

    types = tuple(TYPES)

    def __init__(self, folder, windows=False, algorithm=None, channels=None):
        variant = "windows" if windows else algorithm or channels and f"channels: {channels}"
        name = f"ringfold, {variant}" if variant else "ringfold"
        super().__init__(name, name, "ours", folder / "peer-timing")
        self.folder, self.flags = folder, ["--windows"] if windows else []
        given = {"RINGFOLD_ALGO": algorithm, "RINGFOLD_CHANNELS": channels}
        self.variables = {name: str(value) for name, value in given.items() if value}

    def runs(self, job):
        return not self.flags or (job.collective == "all_reduce" and not job.hosts)

    def launch(self, job):
        """Returns the words that start a program of ringfold on the job's ranks."""
        return ringrun(self.folder, job.ranks, job.hosts, job.per_host, job.is_dealt)

    def command(self, job, setting):
        return [*self.launch(job), self.program, *self.flags, *self.words(job)]

    def environment(self, job, setting):
        transport = "shm" if not job.hosts else "tcp" if job.per_host == 1 else "shm,tcp"
        return {**super().environment(job, setting), "RINGFOLD_TRANSPORT": transport}
