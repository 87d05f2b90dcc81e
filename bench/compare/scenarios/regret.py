"""The time of ringfold's own choice of algorithm beside that of the best algorithm."""

import contextlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import figures
import gate
import install
import libraries
import machine
import measure
import network
import processes
import sizes
import table
from command import at_least, listed, numbers, positive, rate, some_sizes
from processes import say

PLACES = ["shm", "100mbit", "1gbit", "unshaped"]
# Those that a choice of algorithms is made for; the others have one way each, or uneven blocks.
COLLECTIVES = [
    name for name in figures.BUS_FACTORS if not name.endswith("_v") and name != "send_recv"
]
SIZES = [8, 256, 4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20]
# The name of ringfold's own choice among the times of a cell.
CHOICE = "choice"
# The ratio that the wanted share of all cells may reach, and the one that no cell may exceed.
RATIO, SHARE, WORST = 1.15, 0.9, 1.5
# Cells with fewer rounds are counted as such.
FEW = 3


def places(text):
    """Parses places with commas."""
    return [word if word in ("shm", "unshaped") else rate(word) for word in text.split(",")]


def flags(add):
    """Adds the flags."""
    add("--place", type=places, default=PLACES,
        help="shm, unshaped, and rates of the hosts' links (default: shm,100mbit,1gbit,unshaped)")
    add("--ranks", type=numbers(2), default=[2, 4, 8],
        help="numbers of ranks over shm, and of hosts elsewhere (default: 2,4,8)")
    add("--per-host", type=at_least(1), default=1, help="ranks of each host (default: 1)")
    add("--dealt", action="store_true", help="ranks go to the hosts in turn")
    add("--types", type=listed(libraries.TYPES), default=["f32", "bf16"],
        help="of elements (default: f32,bf16)")
    add("--sizes", type=some_sizes, default=SIZES,
        help="as in 8,4K,1M (default: 8,256,4K,32K,256K,2M,16M)")
    add("--collectives", type=listed(COLLECTIVES), default=COLLECTIVES, help="default: all")
    add("--rounds", type=at_least(1), default=5, help="most rounds of a cell (default: 5)")
    add("--seconds", type=positive, default=0.7, help="for the rounds of a cell (default: 0.7)")
    add("--env", action="append", default=[], metavar="NAME=VALUE", help="for all ranks")
    add("--tune", action="store_true", help="measure the prices of links in each place before")
    add("--beside", type=Path, metavar="FILE", help="JSON of another run, for its ratios")
    add("--patience", type=positive, default=120.0, help="most seconds without a result")
    add("--out", type=Path, metavar="FILE", help="write all times as JSON")
    install.program_flags(add)


def check(args):
    """Refuses variables without a value."""
    for text in args.env:
        if "=" not in text:
            args.error(f"--env {text}: give NAME=VALUE")


@dataclass(frozen=True)
class Group:
    """The ranks of a job. `hosts` is None on one machine."""

    ranks: int
    hosts: object = None
    per_host: int = 1
    is_dealt: bool = False

    @property
    def name(self):
        """The number of ranks, or of hosts and the ranks of each."""
        if self.per_host == 1:
            return str(self.ranks)
        return f"{self.ranks // self.per_host} x {self.per_host}{' dealt' if self.is_dealt else ''}"

    def start(self, words, folder, variables, patience, read=lambda _: None):
        """Runs a program of ringfold on these ranks. Returns its outcome."""
        ours = libraries.Ringfold(folder)
        argv = [*ours.launch(self), folder / words[0], *words[1:]]
        environment = ours.environment(self, libraries.Setting("given", (), variables))
        return processes.run(argv, environment, patience, read)


def cells(collectives, types, some_sizes):
    """Returns the cells of a job, as arguments of algorithm-timing. Sizes ascend, since a long call
    needs the times of the size before. A barrier has neither size nor type."""
    found = []
    for collective in collectives:
        if collective == "barrier":
            found.append("barrier:f32:0")
            continue
        name = collective.replace("all_to_all", "alltoall").replace("all_", "all")
        found += [f"{name}:{kind}:{size}" for kind in types for size in sorted(some_sizes)]
    return found


def rows_of(args, folder, group, place, wanted, variables):
    """Yields a row for each cell. After a failure the first unfinished cell has failed, and another
    job times the others."""

    def start(left):
        rows = []

        def read(text):
            if text.startswith("{"):
                rows.append(Row(place, group.name, json.loads(text)))

        words = ["algorithm-timing", args.seconds, args.rounds, *left]
        outcome = group.start(words, folder, variables, args.patience, read)
        return rows, left[len(rows):], outcome

    def failed(cell, reason):
        say(f"{place} x {group.name}, {cell}: {reason}")
        collective, kind, size = cell.split(":")
        record = {"collective": collective, "type": kind, "bytes": int(size)}
        return [Row(place, group.name, record, reason)]

    for rows in measure.until_done(wanted, start, failed):
        yield from rows


def prices(args, folder, group, file, variables):
    """Returns the variables with the prices of a place, if the programs can measure them."""
    if not args.tune:
        return variables
    words = ["ringfold", "tune", "--machine", "-o", file]
    outcome = group.start(words, folder, variables, args.patience)
    if outcome.status != 0 or not file.exists():
        say(f"no prices: ringfold tune --machine: {outcome.reason()}")
        return variables
    return variables | {"RINGFOLD_PRICES": str(file)}


def in_place(args, folder, place):
    """Yields the rows of all jobs in a place."""
    variables = dict(text.split("=", 1) for text in args.env)
    wanted = cells(args.collectives, args.types, args.sizes)
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        hosts, per_host = None, 1
        if place != "shm":
            rates = [None if place == "unshaped" else place] * max(args.ranks)
            hosts, per_host = stack.enter_context(network.Hosts(rates)), args.per_host
        group = lambda count: Group(count * per_host, hosts, per_host, args.dealt)  # noqa: E731
        variables = prices(args, folder, group(2), home / "prices", variables)
        for count in args.ranks:
            yield from rows_of(args, folder, group(count), place, wanted, variables)
            say(f"{place} x {group(count).name}: done")


def run(args):
    """Prints the tables. Returns 0 if the choices are good, 2 if not, and 1 after a failure."""
    beside = ratios(json.loads(args.beside.read_text())) if args.beside else None
    names = ["ringrun", "algorithm-timing", *["ringfold"] * args.tune]
    folder = install.ringfold(args, *names, more=["ringfold-cli"] * args.tune)
    about = machine.about(args.rounds) | {"ringfold": install.ringfold_version()}
    rows = []
    try:
        for place in args.place:
            for row in in_place(args, folder, place):
                rows.append(row)
    except KeyboardInterrupt:
        say("interrupted: the tables have the cells of finished jobs")
    print("\n".join([*all_cells(rows, beside), "", *summary(rows)]))
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(document(about, rows), indent=1)
        args.out.write_text(text + "\n", encoding="utf-8")
    if not rows or any(row.failure for row in rows):
        return 1
    return 0 if is_good(rows) else 2



class Row:
    """A record of algorithm-timing for a place and a group of ranks, or the reason of a failure.
    `best` is the algorithm with the lowest median."""

    def __init__(self, place, group, record, failure=None):
        self.place, self.group, self.record = place, group, record
        wrong = record.get("wrong")
        self.failure = f"{wrong} wrong elements" if wrong else failure
        size = "" if record["collective"] == "barrier" else f"{sizes.show(record['bytes'])}B"
        # The name of the cell.
        self.key = (place, group, record["collective"], record["type"], size)
        if self.failure:
            return
        self.cell = figures.Cell(record["collective"], group, place, record["bytes"])
        for name, times in record["times"].items():
            for number, time in enumerate(times):
                self.cell.add(name, number, time)
        self.rounds, self.chosen = len(record["times"][CHOICE]), record["chosen"]
        self.best = self.cell.best([name for name in record["times"] if name != CHOICE])
        # The choice's time over the best algorithm's. It is 1 if the choice is the best algorithm.
        self.ratio = 1.0 if self.best == self.chosen else self.cell.compare(CHOICE, self.best)
        # The choice's time over that of the same algorithm, when it alone was allowed. Without
        # noise it is 1.
        self.noise = self.cell.compare(CHOICE, self.chosen)


def all_cells(rows, beside=None):
    """Returns the lines of the table of all cells. `beside` has the ratios of another run."""
    head = ["place", "ranks", "collective", "type", "size", "chosen", "us", "best", "us", "ratio",
        "noise", "rounds", *([] if beside is None else ["ratio beside"])]
    lines = table.head(head)
    for row in rows:
        if row.failure:
            lines.append(table.line([*row.key, row.failure, *[""] * (len(head) - 6)]))
            continue
        cell = row.cell
        words = [*row.key, row.chosen, f"{cell.time(CHOICE):.1f}", row.best,
            f"{cell.time(row.best):.1f}", f"{row.ratio:.2f}", f"{row.noise:.2f}", row.rounds]
        if beside is not None:
            other = beside.get(row.key)
            words.append(f"{other:.2f}" if other else "")
        lines.append(table.line(words))
    return lines


def summary(rows):
    """Returns the lines of the summary by place and of all cells."""
    head = ["place", "cells", f"at most {RATIO}", "mean", "worst", "worst cell",
        "noise over 5 %", "90 % of noise within", f"under {FEW} rounds", "failed"]  # fmt: skip
    lines = table.head(head)
    for place in dict.fromkeys(row.place for row in rows):
        lines.append(table.line([place, *_totals([row for row in rows if row.place == place])]))
    return [*lines, table.line(["all", *_totals(rows)])]


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
    rows = [Row(cell["place"], cell["ranks"], cell) for cell in value["cells"] if "ratio" in cell]
    return {row.key: row.record["ratio"] for row in rows}
