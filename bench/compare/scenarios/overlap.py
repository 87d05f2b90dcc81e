"""How much of started collectives a computation hides, in ringfold and the MPIs.

Exit status 2 if ringfold hides too little of a long call at a rate, or is slower than an MPI."""

import contextlib
import json
import os
from pathlib import Path

import figures
import install
import libraries
import machine
import measure
import network
import page
import peers
import processes
import sizes
import table
from command import at_least, listed, positive, rate, some_sizes
from libraries import Library, Setting
from processes import say

OPTIONAL = True
# The operations, and ringfold's program for each.
PROGRAMS = {"all_reduce": "allreduce-perf", "all_gather": "allgather-perf", "reduce": "reduce-perf"}
# The bytes of the calls of a job, within the limits on their number.
JOB_BYTES, CALLS_MIN, CALLS_MAX = 16 << 20, 4, 50
# The least share of a call that a computation hides from this size on, and the most that a call with
# a computation takes of an MPI's time.
HIDDEN_WANTED, HIDDEN_FROM = 80.0, 256 << 10
RATIO_WANTED = 1.0
ABOUT = (
    "A *started* call is timed alone, from start to wait, and with a computation between both. On each\n"
    "rank the computation takes as long as its calls alone. *Hidden* is the share of the call that the\n"
    "computation hides. Each rank has a core of its own. Times are microseconds: means of the ranks, and\n"
    "medians of the rounds. Each MPI has the setting with which the call and the computation took the\n"
    "least time. *Ratio* is ringfold's time with the computation over that of the fastest MPI: the median\n"
    "of the rounds' ratios."
)  # fmt: skip


def places(text):
    """Parses places with commas."""
    return [word if word in ("shm", "tcp") else rate(word) for word in text.split(",")]


def flags(add):
    """Adds the flags."""
    add("--place", type=places, default=["1gbit", "tcp", "shm"],
        help="shm, tcp between hosts, and rates of the hosts' links (default: 1gbit,tcp,shm)")
    add("--collectives", type=listed(PROGRAMS), default=list(PROGRAMS), help="default: all")
    add("--sizes", type=some_sizes, default=[64 << 10 << shift for shift in (0, 2, 4, 6, 8)],
        help="default: 64K,256K,1M,4M,16M")
    add("--ranks", type=at_least(2), default=2, help="each on a core of its own (default: 2)")
    add("--rounds", type=at_least(1), default=3, help="rounds of all libraries in turn (default: 3)")
    add("--peers", type=listed(["openmpi", "mpich", "impi"]), default=["openmpi", "mpich"],
        help="default: openmpi,mpich")
    add("--patience", type=positive, default=120.0, help="most seconds of a job")
    add("--page", type=Path, metavar="FOLDER", help="write this machine's page below FOLDER")
    add("--cache", type=Path, default=install.cache_folder(), help="folder of the installed MPIs")
    add("--out", type=Path, default=install.ROOT / "target/overlap", help="folder of the results")
    install.program_flags(add)


class Mpi(Library):
    """One setting of an MPI. `launcher` starts it."""

    def __init__(self, launcher, program, setting):
        super().__init__(f"{launcher.name}: {setting.name}", launcher.title, "peer", program)
        self.launcher, self.setting = launcher, setting

    def command(self, job, setting):
        (size, calls), cpus = job.cells[0], on_core(job)
        return [*self.launcher.launch(job, self.setting), *cpus, self.program, job.collective,
            size, calls]  # fmt: skip

    def environment(self, job, setting):
        return self.launcher.environment(job, self.setting)

    def read(self, line, job):
        words = line.split()
        if words[:1] == ["overlap"]:
            yield from halves(job, words[2:4], int(words[4]))


class Ringfold(libraries.Ringfold):
    """ringfold, with the processors of its helper thread."""

    def __init__(self, folder, progress):
        super().__init__(folder)
        self.variables = {"RINGFOLD_PROGRESS": progress}
        if progress != "thread":
            self.name = self.title = f"ringfold, helper on {progress}"

    def command(self, job, setting):
        (size, calls), program = job.cells[0], self.folder / PROGRAMS[job.collective]
        words = ["--overlap", "-b", size, "-e", size, "-n", calls, "-w", 1, "-c", 1, "-a", 1]
        return [*self.launch(job), *on_core(job), program, *words]

    def read(self, line, job):
        words = line.split()
        # Of the columns, those of wrong elements are the ninth and the thirteenth.
        if words[:1] == [str(job.cells[0][0])]:
            wrong = sum(int(word) for word in (words[8], words[12]) if word != "N/A")
            yield from halves(job, words[-3:-1], wrong)


def on_core(job):
    """Returns the words that give each rank a processor."""
    cpus = sorted(os.sched_getaffinity(0))[: job.ranks]
    return [install.PROGRAMS / "on-core", ",".join(map(str, cpus))]


def halves(job, times, wrong):
    """Yields what `Library.read` does."""
    size = job.cells[0][0]
    for place, time in zip(job.places.split(","), times):
        yield (place, size), (size, float(time), wrong)


def settings(launcher, job):
    """Returns the reasonable settings of an MPI, with and without a thread for started calls. With a
    core for each rank there is nothing to bind, and no reason to yield."""
    plain = [it for it in launcher.settings(job) if not it.name.endswith(("bound", "yield"))]
    if launcher.progress is None or (launcher.name == "openmpi" and not job.hosts):
        return plain
    more = {launcher.progress: "1"}
    return plain + [Setting(f"{it.name}, thread", it.words, it.variables | more) for it in plain]


def hidden(alone, computing):
    """Returns the share of a call that the computation hides, in percent."""
    return min(max(100 * (2 - computing / alone), 0), 100)


class Row:
    """The times of one size, by library and round."""

    def __init__(self, series):
        self.job = series.job
        self.size, self.calls = series.job.cells[0]
        self.alone, self.computing = series.cells.values()
        self.failures = {name: why for (name, _), why in series.failures.items()}

    def best(self, of, compared):
        """Returns the fastest setting of one MPI, or of any without `of`."""
        names = [it.name for it in compared if it.role == "peer" and of in (None, it.title)]
        return self.computing.best(names)

    def hidden(self, name):
        """Returns the hidden percents of a library: the median of the rounds."""
        pairs = zip(self.alone.times.get(name, []), self.computing.times.get(name, []))
        return figures.median([hidden(*pair) for pair in pairs if all(pair)])

    def ratio(self, name, compared):
        """Returns a library's time with the computation over that of the fastest MPI."""
        return self.computing.compare(name, self.best(None, compared))

    def columns(self, name):
        """Returns the figures of a library."""
        alone, both, share = self.alone.time(name), self.computing.time(name), self.hidden(name)
        if both is None:
            return ["-", "-", "-"]
        return [f"{alone:.0f}", f"{both:.0f}", f"{share:.0f} %"]


class Results:
    """All figures of a run."""

    def __init__(self, about):
        self.title, self.about, self.groups = machine.name(), about, []

    def add(self, title, rows, compared):
        """Adds the rows of a place and a collective."""
        self.groups.append((title, rows, compared))

    def markdown(self):
        """Returns the page."""
        lines = [f"# {self.title}: overlap", ""]
        lines += [f"- {key}: {value}" for key, value in self.about.items()] + ["", ABOUT]
        for title, rows, compared in self.groups:
            lines += ["", f"## {title}", "", *self._table(rows, compared)]
            failures = {(row.size, name): why for row in rows for name, why in row.failures.items()}
            lines += [""] * bool(failures) + [
                f"- {name} at {sizes.show(size)}: {why}" for (size, name), why in failures.items()]  # fmt: skip
        return "\n".join(lines) + "\n"

    def _table(self, rows, compared):
        ours = [it for it in compared if it.role == "ours"]
        mpis = list(dict.fromkeys(it.title for it in compared if it.role == "peer"))
        heads = ["bytes", "calls"]
        for library in ours:
            heads += [f"{library.title}: alone", "computing", "hidden"]
        for title in mpis:
            heads += [f"{title}: setting", "alone", "computing", "hidden"]
        heads += ["ratio" if it is ours[0] else f"ratio of {it.title}" for it in ours]
        yield from table.head(heads, "r" * (2 + 3 * len(ours)) + "lrrr" * len(mpis) + "r" * len(ours))
        for row in rows:
            words = [sizes.show(row.size), row.calls]
            for library in ours:
                words += row.columns(library.name)
            for title in mpis:
                name = row.best(title, compared)
                words += [name.split(": ")[1] if name else "-", *row.columns(name)]
            ratios = [row.ratio(it.name, compared) for it in ours]
            words += ["-" if ratio is None else f"{ratio:.3f}" for ratio in ratios]
            yield table.line(words)

    def json(self):
        """Returns every time of every round."""
        groups = [{"title": title, "cells": [
            {"bytes": row.size, "calls": row.calls, "alone": row.alone.times,
             "computing": row.computing.times, "failures": row.failures} for row in rows]}
            for title, rows, _ in self.groups]  # fmt: skip
        document = {"title": self.title, "about": self.about, "groups": groups}
        return json.dumps(document, indent=1) + "\n"

    def write(self, folder, name="overlap.md"):
        """Writes both files in place of an earlier run's."""
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in ((name, self.markdown()), ("overlap.json", self.json())):
            (folder / file).write_text(text, encoding="utf-8")

    def lacks(self):
        """Yields what ringfold misses at a rate."""
        for title, rows, compared in self.groups:
            for row in rows if rows[0].job.line_rate else []:
                where, share = f"{title}, {sizes.show(row.size)}", row.hidden("ringfold")
                if share is None or (row.size >= HIDDEN_FROM and share < HIDDEN_WANTED):
                    yield f"{where}: {share} % hidden, {HIDDEN_WANTED:.0f} wanted"
                ratio = row.ratio("ringfold", compared)
                if ratio is not None and ratio > RATIO_WANTED:
                    yield f"{where}: {ratio:.3f} times as long as the fastest MPI"


def launchers(args):
    """Returns the MPIs, with their programs."""
    found = []
    for name in dict.fromkeys(args.peers):
        try:
            launcher = peers.peer(name, args.cache)
            found.append((launcher, install.mpi_program(launcher.folder, "overlap")))
        except install.Missing as why:
            say(f"SKIPPED: {name} ({why})")
    return found


def job(args, place, hosts, collective, size):
    """Returns a job of one size."""
    calls = max(CALLS_MIN, min(CALLS_MAX, JOB_BYTES // size))
    line_rate = None if place in ("shm", "tcp") else network.bytes_per_second(place) / 1e9
    cores = len(os.sched_getaffinity(0))
    return libraries.Job(collective, args.ranks, "alone,computing", ((size, calls),), args.patience, 1,
        cores, hosts, transport=place, line_rate=line_rate)  # fmt: skip


def run(args):
    """Returns the exit status."""
    folder = install.ringfold(args, "ringrun", *PROGRAMS.values())
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < args.ranks:
        raise install.Missing(f"each of {args.ranks} ranks needs a core, and there are {len(cpus)}")
    # A helper has a processor of its own where one is left.
    spare = [",".join(map(str, cpus[args.ranks :]))] if cpus[args.ranks :] else []
    ours = [Ringfold(folder, progress) for progress in ["thread", *spare]]
    mpis = launchers(args)
    about = machine.about(args.rounds) | {
        "ringfold": install.ringfold_version(),
        "compared with": ", ".join(launcher.title for launcher, _ in mpis) or "nothing",
        "compilers": install.compilers(),
    }
    results = Results(about)
    for place in args.place:
        with contextlib.ExitStack() as stack:
            rates = [None if place == "tcp" else place] * args.ranks
            hosts = None if place == "shm" else stack.enter_context(network.Hosts(rates))
            for collective in args.collectives:
                measured(args, results, place, hosts, collective, ours, mpis)
    if args.page:
        say(f"{page.write(results, args.page.resolve(), 'overlap.md')}: written")
    lacks = list(results.lacks())
    print(results.markdown(), *lacks, sep="\n")
    return 2 if lacks else 0


def measured(args, results, place, hosts, collective, ours, mpis):
    """Adds the rows of a place and a collective to the results, which are then written."""
    rows = []
    for size in args.sizes:
        one = job(args, place, hosts, collective, size)
        compared = ours + [
            Mpi(*it, setting) for it in mpis for setting in settings(it[0], one)]  # fmt: skip
        series = measure.Series(one, args.patience)
        series.measure(compared, args.rounds)
        rows.append(Row(series))
    where = place if place in ("shm", "tcp") else f"tcp at {place}"
    results.add(f"{collective.replace('_', '-')}, {args.ranks} ranks, {where}", rows, compared)
    results.write(args.out)
    say(f"{collective}, {where}: done")
