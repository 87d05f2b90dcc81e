"""Ratios and means of times. This module neither measures nor prints."""

import math
import statistics


def median(values):
    """Returns the median of `values`; None without values."""
    return statistics.median(values) if values else None


def geometric_mean(values):
    """Returns the geometric mean; None without values."""
    return math.exp(statistics.fmean(math.log(value) for value in values)) if values else None


# The bytes that the busiest link carries for each byte of the size, by nccl-tests' convention: a
# number, and a multiple of (n - 1) / n for n ranks.
BUS_FACTORS = {
    "all_reduce": (0, 2),
    "all_gather": (0, 1),
    "reduce_scatter": (0, 1),
    "broadcast": (1, 0),
    "reduce": (1, 0),
    "barrier": (0, 0),
    "all_to_all": (0, 1),
    "gather": (0, 1),
    "scatter": (0, 1),
    "scan": (1, 0),
    "exscan": (1, 0),
    "send_recv": (1, 0),
    "all_to_all_v": (0, 1),
    "gather_v": (0, 1),
    "scatter_v": (0, 1),
    "all_gather_v": (0, 1),
    "reduce_scatter_v": (0, 1),
}
# Operations with one place: a broadcast has one buffer in MPI, a barrier none, and messages two.
ONE_PLACE = {"broadcast": "in", "barrier": "in", "send_recv": "out"}
# Those of scenarios/rdma.py.
RDMA_FACTORS = {"put": (1, 0), "round_trip": (2, 0)}


def bus_factor(collective, ranks):
    """Returns the bytes that the busiest link carries for each byte of the size."""
    number, of_others = (BUS_FACTORS | RDMA_FACTORS)[collective]
    return number + of_others * (ranks - 1) / ranks


def bus_bandwidth(collective, ranks, size, microseconds):
    """Returns the bus bandwidth in GB/s (1e9)."""
    return size * bus_factor(collective, ranks) / microseconds / 1e3


class Cell:
    """A collective, number of ranks, place and size: the times of every library by round, or None
    for a failure."""

    def __init__(self, collective, ranks, place, size):
        self.collective, self.ranks, self.place, self.size = collective, ranks, place, size
        # The actual bytes of each library's buffers: at least one element for each rank.
        self.used = {}
        self.times = {}

    def add(self, library, round_number, microseconds):
        """Adds the time of a round. Earlier rounds without a time count as failed."""
        times = self.times.setdefault(library, [])
        times.extend([None] * (round_number + 1 - len(times)))
        times[round_number] = microseconds

    def time(self, library):
        """Returns the median over the rounds."""
        return median([time for time in self.times.get(library, []) if time is not None])

    def best(self, libraries):
        """Returns the library with the lowest median."""
        timed = [library for library in libraries if self.time(library) is not None]
        return min(timed, key=self.time, default=None)

    def ratio(self, ours, peers):
        """Returns ringfold's time over the best peer's: the median of the rounds' ratios. Below 1
        is faster."""
        return self.compare(ours, self.best(peers))

    def compare(self, one, other):
        """Returns one library's time over the other's: the median of the rounds' ratios."""
        pairs = zip(self.times.get(one, []), self.times.get(other, []))
        return median([this / that for this, that in pairs if this and that])


def mean_ratio(cells, ours, peers):
    """Returns the geometric mean of the ratios of `cells`, and the worst ratio with its cell."""
    ratios = [(cell.ratio(ours, peers), cell) for cell in cells]
    ratios = [(ratio, cell) for ratio, cell in ratios if ratio is not None]
    if not ratios:
        return None, None, None
    worst, where = max(ratios, key=lambda pair: pair[0])
    return geometric_mean([ratio for ratio, _ in ratios]), worst, where
