"""Distinguishes a slower build from a noisy machine. This module neither measures nor prints.

A run times one build, the other, and the first again: A, B and A'. The difference of A and A' is
noise, and B may differ as much without being slower."""

import math
from dataclasses import dataclass

import figures
from command import share

# The share by which the second build may be slower than the first.
ALLOWED = 0.05
NAMES = ("before", "after", "again")
# Number of runs in which a build must be slower to fail.
RUNS = 3


def flag(add):
    """Adds the flag of the allowed share."""
    add("--allowed", type=share, default=ALLOWED,
        help=f"share by which AFTER may be slower (default: {ALLOWED})")


@dataclass(frozen=True)
class Run:
    """The times of A, B and A', in any unit: medians of the rounds."""

    before: float
    after: float
    again: float

    @property
    def ratio(self):
        """B over A; above 1 the second build is slower."""
        return self.after / self.before

    @property
    def spread(self):
        """A' over A; 1 on a machine without noise."""
        return self.again / self.before

    @property
    def is_noisy(self):
        """Whether the two times of the first build differ by more than the allowed share."""
        return abs(self.again - self.before) > ALLOWED * self.before

    def is_slower(self, allowed=ALLOWED):
        """Whether B is slower by more than the allowed share plus the noise."""
        return self.after > (1 + allowed) * self.before + abs(self.again - self.before)


def fails(runs, allowed=ALLOWED):
    """Whether a cell fails: it must be slower in all `RUNS` runs."""
    return len(runs) == RUNS and all(run.is_slower(allowed) for run in runs)


def needs_more(runs, allowed=ALLOWED):
    """Whether another run could change the result."""
    return len(runs) < RUNS and all(run.is_slower(allowed) for run in runs)


@dataclass(frozen=True)
class Mean:
    """The geometric mean of all cells' B over A, and the factor by which noise alone moves it."""

    ratio: float
    noise: float

    @property
    def is_slower(self):
        """Whether the mean exceeds 1 by more than the noise."""
        return self.ratio > self.noise


def mean(runs):
    """Of the first run of every cell, since repeated ones were chosen for being slow. A and A' both
    count as the first build. The noise is two standard errors: log A' - log A has twice the
    variance of one time, and log B - (log A + log A') / 2 has 1.5 times."""
    if not runs:
        return None
    ratio = figures.geometric_mean([run.ratio / math.sqrt(run.spread) for run in runs])
    squares = sum(math.log(run.spread) ** 2 for run in runs)
    return Mean(ratio, math.exp(2 * math.sqrt(0.75 * squares) / len(runs)))
