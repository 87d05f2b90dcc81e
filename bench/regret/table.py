"""Compares the time of ringfold's choice with that of the best algorithm, and writes the tables.
This module neither measures nor prints."""

from dataclasses import dataclass, field

import figures  # from ../peers
import gate
import sizes

# The name of ringfold's own choice among the times of a cell.
CHOICE = "choice"
# The ratio that the wanted share of all cells may reach, and the one that no cell may exceed.
RATIO, SHARE, WORST = 1.15, 0.9, 1.5
# Cells with fewer rounds are counted as such.
FEW = 3


@dataclass
class Row:
    """A place, a group of ranks and a record of algorithm-timing, or the reason of a failure."""

    place: str
    group: str
    record: dict
    failure: str | None = None
    cell: figures.Cell = field(init=False)

    def __post_init__(self):
        record = self.record
        self.cell = figures.Cell(record["collective"], self.group, self.place, record["bytes"])
        for name, times in record.get("times", {}).items():
            for number, time in enumerate(times):
                self.cell.add(name, number, time)
        if record.get("wrong"):
            self.failure = f"{record['wrong']} wrong elements"

    @property
    def key(self):
        """The name of the cell."""
        record = self.record
        size = "" if record["collective"] == "barrier" else f"{sizes.show(record['bytes'])}B"
        return (self.place, self.group, record["collective"], record["type"], size)

    @property
    def chosen(self):
        """The algorithm that ringfold chose."""
        return self.record["chosen"]

    @property
    def best(self):
        """The algorithm with the lowest median."""
        return self.cell.best([name for name in self.record["times"] if name != CHOICE])

    @property
    def ratio(self):
        """The choice's time over the best algorithm's: the median of the rounds' ratios. It is 1 if
        the choice is the best algorithm, whatever the noise."""
        return 1.0 if self.best == self.chosen else self.cell.compare(CHOICE, self.best)

    @property
    def noise(self):
        """The choice's time over that of the same algorithm, when it alone was allowed. Without
        noise it is 1."""
        return self.cell.compare(CHOICE, self.chosen)

    @property
    def rounds(self):
        """The number of rounds."""
        return len(self.record["times"][CHOICE])


def table(rows, beside=None):
    """Returns the lines of the table of all cells. `beside` has the ratios of another run."""
    head = ["place", "ranks", "collective", "type", "size", "chosen", "us", "best", "us", "ratio",
        "noise", "rounds", *([] if beside is None else ["ratio beside"])]
    lines = [line(head), line(["---"] * len(head))]
    for row in rows:
        if row.failure:
            lines.append(line([*row.key, row.failure, *[""] * (len(head) - 6)]))
            continue
        cell = row.cell
        words = [*row.key, row.chosen, f"{cell.time(CHOICE):.1f}", row.best,
            f"{cell.time(row.best):.1f}", f"{row.ratio:.2f}", f"{row.noise:.2f}", row.rounds]
        if beside is not None:
            other = beside.get(row.key)
            words.append(f"{other:.2f}" if other else "")
        lines.append(line(words))
    return lines


def summary(rows):
    """Returns the lines of the summary by place and of all cells."""
    head = ["place", "cells", f"at most {RATIO}", "mean", "worst", "worst cell",
        "noise over 5 %", "90 % of noise within", f"under {FEW} rounds", "failed"]  # fmt: skip
    lines = [line(head), line(["---"] * len(head))]
    for place in dict.fromkeys(row.place for row in rows):
        lines.append(line([place, *_totals([row for row in rows if row.place == place])]))
    return [*lines, line(["all", *_totals(rows)])]


def _totals(rows):
    good = [row for row in rows if not row.failure]
    failed = len(rows) - len(good)
    if not good:
        return [0, "", "", "", "", "", "", "", failed]
    worst = max(good, key=lambda row: row.ratio)
    noises = sorted(max(row.noise, 1 / row.noise) for row in good)
    mean = figures.geometric_mean([row.ratio for row in good])
    noisy = sum(noise > 1 + gate.ALLOWED for noise in noises)
    few = sum(row.rounds < FEW for row in good)
    return [len(good), f"{share(good) * 100:.1f} %", f"{mean:.3f}", f"{worst.ratio:.2f}",
        " ".join(filter(None, worst.key[1:])), noisy, f"{noises[-(-9 * len(noises) // 10) - 1]:.2f}",
        few, failed]  # fmt: skip


def share(rows):
    """Returns the share of cells whose ratio is at most `RATIO`."""
    return sum(row.ratio <= RATIO for row in rows) / len(rows)


def is_good(rows):
    """Whether no cell failed or exceeds `WORST`, and enough cells are at most `RATIO`."""
    if not rows or any(row.failure for row in rows):
        return False
    return share(rows) >= SHARE and max(row.ratio for row in rows) <= WORST


def line(words):
    """Returns a line of a Markdown table."""
    return f"| {' | '.join(map(str, words))} |"


def document(about, rows):
    """Returns all results as a value for JSON."""
    cells = []
    for row in rows:
        names = {"place": row.place, "ranks": row.group}
        if row.failure:
            cells.append(names | row.record | {"failure": row.failure})
        else:
            found = {"best": row.best, "ratio": row.ratio, "noise": row.noise}
            cells.append(names | row.record | found)
    return {"about": about, "cells": cells}


def ratios(value):
    """Returns the ratios in a document of `document`, by the name of the cell."""
    found = {}
    for cell in value["cells"]:
        if "ratio" in cell:
            row = Row(cell["place"], cell["ranks"], cell)
            found[row.key] = cell["ratio"]
    return found
