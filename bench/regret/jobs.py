"""Starts algorithm-timing in every place."""

import json
from dataclasses import dataclass

import libraries  # from ../peers
import processes
import table
from install import Missing

# Jobs in a row without a result after which the rest of the cells is given up.
FAILURES = 2


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


class Program(libraries.Ringfold):
    """One of ringfold's programs under ringrun, with its arguments."""

    def __init__(self, folder, name, *arguments):
        super().__init__(folder)
        self.program, self.arguments = folder / name, arguments

    def words(self, job, *more):
        return self.arguments


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


def measure(folder, group, place, wanted, options, variables, say):
    """Yields a row for each cell. After a failure the first unfinished cell has failed, and another
    job times the others."""
    left, in_vain = list(wanted), 0
    while left:
        rows, failures = [], []

        def read(text):
            if text.startswith("{"):
                rows.append(table.Row(place, group.name, json.loads(text)))

        program = Program(folder, "algorithm-timing", options.seconds, options.rounds, *left)
        outcome = start(program, group, variables, options.patience, read)
        yield from rows
        left, in_vain = left[len(rows):], 0 if rows else in_vain + 1
        if not left:
            return
        failures.append((left.pop(0), outcome.reason()))
        if in_vain == FAILURES:
            failures += [(cell, "given up") for cell in left]
            left = []
        for cell, reason in failures:
            say(f"{place} x {group.name}, {cell}: {reason}")
            collective, kind, size = cell.split(":")
            record = {"collective": collective, "type": kind, "bytes": int(size)}
            yield table.Row(place, group.name, record, reason)


def tune(folder, group, file, variables, patience):
    """Measures the prices of links into `file`. Raises Missing if the program cannot."""
    program = Program(folder, "ringfold", "tune", "--machine", "-o", file)
    outcome = start(program, group, variables, patience, lambda _: None)
    if outcome.status != 0 or not file.exists():
        raise Missing(f"ringfold tune --machine: {outcome.reason()}")


def start(program, group, variables, patience, read):
    """Runs a job, and calls `read` for each line of its output. Returns its outcome."""
    setting = libraries.Setting("given", (), variables)
    argv, environment = program.command(group, setting), program.environment(group, setting)
    return processes.run(argv, environment, patience, read)
