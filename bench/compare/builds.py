"""Times two builds in turn, A B A', and decides whether the second one is slower."""

import dataclasses
import json
import math
import time
from pathlib import Path

import gate
import measure
import sizes
import table
from command import positive
from processes import say

# A coarse grid: the shortest call, and both sides of the limits at which algorithms change.
SIZES = [8, 1 << 10, 32 << 10, 1 << 20, 16 << 20]
# Most calls of a batch in the trial that finds the number of calls of a cell.
TRIAL_CALLS = 50
# Most calls of a batch.
CALLS_MAX = 1_000_000
BATCHES = 5
# Seconds to start a job and to check a cell once. Only the estimate uses them.
START_SECONDS = 0.7


def flags(add, seconds):
    """Adds the flags of a comparison, with the default time of a cell."""
    add("--builds", nargs=2, type=Path, metavar=("BEFORE", "AFTER"),
        help="only compare two builds, in folders with their programs")
    add("--time", type=positive, default=seconds,
        help=f"with --builds: seconds for a cell (default: {seconds:g})")


def three(make, before, after):
    """A, B and A': the results of `make` for a folder, under the names of the gate."""
    libraries = [make(folder) for folder in (before, after, before)]
    for library, name in zip(libraries, gate.NAMES):
        library.name = library.title = name
    return libraries


@dataclasses.dataclass
class Cell:
    """A label (which names the transport), collective, number of ranks, place and size. A failure
    names the reason why a build has no time, and ends the runs."""

    label: str
    collective: str
    ranks: int
    place: str
    size: int
    runs: list = dataclasses.field(default_factory=list)
    failure: str | None = None

    @property
    def needs_more(self):
        """Whether another run could change the result."""
        return not self.failure and gate.needs_more(self.runs)

    @property
    def fails(self):
        """Whether the second build is slower, or a build has no time."""
        return bool(self.failure) or gate.fails(self.runs)


def compare(args, about, series):
    """Compares builds by jobs: each of `series` has a label, three libraries and a job. Prints and
    writes the results. Returns the exit status."""
    comparison = Comparison(about, args.rounds, args.time, args.patience)
    return comparison.all(series, args.out)


class Comparison:
    """All cells. `seconds` is the time of a cell in a run, over all builds and rounds."""

    def __init__(self, about, rounds, seconds, patience):
        self.about, self.rounds, self.patience = about, rounds, patience
        # The time of a cell in one job.
        self.seconds = seconds / (len(gate.NAMES) * rounds)
        # The job, the three libraries and the cells of each series.
        self.measured = []

    def all(self, series, folder):
        """Measures and repeats all series. Prints and writes the results. Returns the exit status."""
        cells = [len(job.cells) * len(job.places.split(",")) for _, _, job in series]
        self._foretell(sum(cells), len(series))
        start = time.monotonic()
        for done, (label, libraries, job) in enumerate(series, 1):
            label += "" if job.data_type == "f32" else f", {job.data_type}"
            self.measure(label, libraries, job)
            self.write(folder)
            left = (time.monotonic() - start) * sum(cells[done:]) / sum(cells[:done])
            say(f"{label}, {job.collective} x {job.ranks}: about {left / 60:.1f} min left")
        self.repeat()
        self.write(folder)
        print(self.markdown(), end="")
        return int(not self.passes())

    def _foretell(self, cells, series):
        one = cells * self.seconds + series * START_SECONDS
        minutes = math.ceil(len(gate.NAMES) * self.rounds * one / 60)
        say(f"{cells} cells: about {minutes} min, and more for those that seem slower")

    def measure(self, label, libraries, job):
        """The first run of a job by the three builds in turn."""
        job = self._with_calls(job, libraries[0])
        places = job.places.split(",")
        cells = {
            (place, size): Cell(label, job.collective, job.ranks, place, size)
            for place in places
            for size, _ in job.cells
        }
        self.measured.append((job, libraries, cells))
        self._run(job, libraries, cells)

    def repeat(self):
        """Repeats the slower cells until the result is decided."""
        for _ in range(gate.RUNS - 1):
            for job, libraries, cells in self.measured:
                slow = {key: cell for key, cell in cells.items() if cell.needs_more}
                some = tuple(cell for cell in job.cells if cell[0] in {size for _, size in slow})
                if some:
                    say(f"again: {job.collective} x {job.ranks}, {len(slow)} cells")
                    self._run(dataclasses.replace(job, cells=some), libraries, slow)

    def _with_calls(self, job, library):
        """Returns the calls of a batch that fill the time with the first build. All builds make so
        many; a build that takes more than twice as long as the first makes fewer."""
        trial = dataclasses.replace(
            job, batches=1, seconds=self.seconds,
            cells=tuple((size, sizes.calls(size, TRIAL_CALLS)) for size, _ in job.cells),
        )  # fmt: skip
        tried = measure.Series(trial, self.patience)
        tried.measure([library], 1)
        times = {}
        for cell in tried.cells.values():
            if found := cell.time(library.name):
                times[cell.size] = max(found, times.get(cell.size, 0))
        cells = tuple((size, self._calls(times.get(size))) for size, _ in job.cells)
        return dataclasses.replace(job, cells=cells, batches=BATCHES, seconds=2 * self.seconds)

    def _calls(self, microseconds):
        if not microseconds:
            return 1
        return max(1, min(CALLS_MAX, int(self.seconds * 1e6 / BATCHES / microseconds)))

    def _run(self, job, libraries, cells):
        series = measure.Series(job, self.patience)
        series.measure(libraries, self.rounds)
        reasons = {size: f"{name}: {why}" for (name, size), why in series.failures.items()}
        for (place, size), cell in cells.items():
            times = [series.cells[(place, size)].time(library.name) for library in libraries]
            if size in reasons or None in times:
                cell.failure = reasons.get(size, "no time")
            else:
                cell.runs.append(gate.Run(*times))

    @property
    def cells(self):
        """All cells, in the order of measurement."""
        return [cell for _, _, cells in self.measured for cell in cells.values()]

    def mean(self):
        """The mean over all cells with times, or None."""
        return gate.mean([cell.runs[0] for cell in self.cells if cell.runs])

    def passes(self):
        """The result."""
        mean = self.mean()
        return bool(mean) and not mean.is_slower and not any(cell.fails for cell in self.cells)

    def markdown(self):
        """A table with the last run of each cell, which decided, and the result."""
        lines = [f"{name}: {value}  " for name, value in self.about.items()]
        lines += ["", *table.head(HEAD, "llrlrrrrrrl")]
        lines += [_row(cell) for cell in self.cells]
        failed = sum(cell.fails for cell in self.cells)
        noisy = sum(any(run.is_noisy for run in cell.runs) for cell in self.cells)
        counts = f"{len(self.cells)} cells, {failed} failed"
        lines += ["", f"{counts}. In {noisy}, A and A' differ by more than {gate.ALLOWED:.0%}."]
        if mean := self.mean():
            verdict = "slower" if mean.is_slower else "not slower"
            lines += [
                f"Mean of B/A: {mean.ratio:.4f}; noise alone moves it by a factor of "
                f"{mean.noise:.4f}: {verdict}."
            ]
        return "\n".join([*lines, "passed" if self.passes() else "FAILED", ""])

    def json(self):
        """Every run, and the result."""
        mean = self.mean()
        document = {
            "about": self.about,
            "passes": self.passes(),
            "mean": mean and dataclasses.asdict(mean),
            "cells": [dataclasses.asdict(cell) | {"fails": cell.fails} for cell in self.cells],
        }
        return json.dumps(document, indent=1) + "\n"

    def write(self, folder):
        """Writes builds.md and builds.json."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "builds.md").write_text(self.markdown(), encoding="utf-8")
        (folder / "builds.json").write_text(self.json(), encoding="utf-8")


HEAD = ["by", "collective", "ranks", "place", "bytes", "A us", "B us", "B/A", "A'/A", "runs", ""]


def _row(cell):
    first = [cell.label, cell.collective, cell.ranks, cell.place, sizes.show(cell.size)]
    if cell.failure:
        rest = ["-", "-", "-", "-", len(cell.runs), f"FAILED: {cell.failure}"]
    else:
        run = cell.runs[-1]
        rest = [f"{run.before:.2f}", f"{run.after:.2f}", f"{run.ratio:.3f}", f"{run.spread:.3f}"]
        rest += [len(cell.runs), "FAILED" if cell.fails else ""]
    return table.line([*first, *rest])
