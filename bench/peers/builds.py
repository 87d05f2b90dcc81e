"""Times two builds in turn, A B A', and says whether the second one is slower."""

import dataclasses
import json
import math
import time

import gate
import measure
import sizes

NAMES = ("before", "after", "again")
# A coarse grid: the shortest call, and both sides of the limits at which algorithms change.
SIZES = [8, 1 << 10, 32 << 10, 1 << 20, 16 << 20]
# For the trial that finds out how many calls a cell has time for: most calls of a batch.
TRIAL_CALLS = 50
# Most calls of a batch.
CALLS_MAX = 1_000_000
BATCHES = 5
# Seconds to start a job and to check a cell once. Only the estimate uses them.
START_SECONDS = 0.7


def three(make, before, after):
    """A, B and A': what `make` makes of a folder, under the names of the gate."""
    libraries = [make(folder) for folder in (before, after, before)]
    for library, name in zip(libraries, NAMES):
        library.name = library.title = name
    return libraries


@dataclasses.dataclass
class Cell:
    """One label (which names the transport), collective, number of ranks, place and size. It has no
    more runs after a failure, which says why a build has no time."""

    label: str
    collective: str
    ranks: int
    place: str
    size: int
    runs: list = dataclasses.field(default_factory=list)
    failure: str | None = None

    @property
    def needs_more(self):
        """Whether another run could change the verdict."""
        return not self.failure and gate.needs_more(self.runs)

    @property
    def fails(self):
        """Whether the second build is slower, or a build has no time."""
        return bool(self.failure) or gate.fails(self.runs)


class Comparison:
    """All cells. `seconds` are those of a cell in a run: of all builds and rounds together."""

    def __init__(self, about, rounds, seconds, patience, say):
        self.about, self.rounds, self.patience, self.say = about, rounds, patience, say
        # Those of one job's cell.
        self.seconds = seconds / (len(NAMES) * rounds)
        # By series, its job, its three libraries and its cells.
        self.measured = []

    def all(self, series, folder):
        """Measures and repeats all series, each a label, three libraries and a job, and prints and
        writes the outcome. Returns the exit status."""
        cells = [len(job.cells) * len(job.places.split(",")) for _, _, job in series]
        self._foretell(sum(cells), len(series))
        start = time.monotonic()
        for done, (label, libraries, job) in enumerate(series, 1):
            self.measure(label, libraries, job)
            self.write(folder)
            left = (time.monotonic() - start) * sum(cells[done:]) / sum(cells[:done])
            self.say(f"{label}, {job.collective} x {job.ranks}: about {left / 60:.1f} min left")
        self.repeat()
        self.write(folder)
        print(self.markdown(), end="")
        return int(not self.passes())

    def _foretell(self, cells, series):
        one = cells * self.seconds + series * START_SECONDS
        minutes = math.ceil(len(NAMES) * self.rounds * one / 60)
        self.say(f"{cells} cells: about {minutes} min, and more for those that seem slower")

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
        """Runs again what was slower, until there is a verdict."""
        for _ in range(gate.RUNS - 1):
            for job, libraries, cells in self.measured:
                slow = {key: cell for key, cell in cells.items() if cell.needs_more}
                some = tuple(cell for cell in job.cells if cell[0] in {size for _, size in slow})
                if some:
                    self.say(f"again: {job.collective} x {job.ranks}, {len(slow)} cells")
                    self._run(dataclasses.replace(job, cells=some), libraries, slow)

    def _with_calls(self, job, library):
        """As many calls in a batch as fill the time by the first build; all builds make as many. A
        build may take twice as long as the first before it makes fewer."""
        trial = dataclasses.replace(
            job, batches=1, seconds=self.seconds,
            cells=tuple((size, sizes.calls(size, TRIAL_CALLS)) for size, _ in job.cells),
        )  # fmt: skip
        tried = measure.Series(trial, self.say, self.patience, precedence=True)
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
        series = measure.Series(job, self.say, self.patience, precedence=True)
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
        """All of them, in the order of measuring."""
        return [cell for _, _, cells in self.measured for cell in cells.values()]

    def mean(self):
        """Over all cells that have times, or None."""
        return gate.mean([cell.runs[0] for cell in self.cells if cell.runs])

    def passes(self):
        """The verdict."""
        mean = self.mean()
        return bool(mean) and not mean.is_slower and not any(cell.fails for cell in self.cells)

    def markdown(self):
        """A table of all cells, with the last run of each, which decided, and the verdict."""
        lines = [*(f"{name}: {value}  " for name, value in self.about.items()), "", HEAD, RULE]
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
        """Every run, and the verdict."""
        mean = self.mean()
        document = {
            "about": self.about,
            "passes": self.passes(),
            "mean": mean and dataclasses.asdict(mean),
            "cells": [dataclasses.asdict(cell) | {"fails": cell.fails} for cell in self.cells],
        }
        return json.dumps(document, indent=1) + "\n"

    def write(self, folder):
        """builds.md and builds.json."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "builds.md").write_text(self.markdown(), encoding="utf-8")
        (folder / "builds.json").write_text(self.json(), encoding="utf-8")


HEAD = "| by | collective | ranks | place | bytes | A us | B us | B/A | A'/A | runs | |"
RULE = "|---|---|--:|---|--:|--:|--:|--:|--:|--:|---|"


def _row(cell):
    first = [cell.label, cell.collective, cell.ranks, cell.place, sizes.show(cell.size)]
    if cell.failure:
        rest = ["-", "-", "-", "-", len(cell.runs), f"FAILED: {cell.failure}"]
    else:
        run = cell.runs[-1]
        rest = [f"{run.before:.2f}", f"{run.after:.2f}", f"{run.ratio:.3f}", f"{run.spread:.3f}"]
        rest += [len(cell.runs), "FAILED" if cell.fails else ""]
    return "| " + " | ".join(str(word) for word in [*first, *rest]) + " |"
