"""The figures of a run: gains of bandwidth, and shares of latency."""

from install import Missing  # from ../peers

# The least share of the ideal gain, and the most shares of the times of recursive doubling and a
# tree.
GAIN_WANTED = 0.93
LATENCY_WANTED = 0.75
LOSS_WANTED = 1.5


def ideal_gain(hosts):
    """Returns the gain of a tree over a ring, if only bytes count: a host sends its data once."""
    return 2 * (hosts - 1) / hosts


def of_document(document, algorithm):
    """Returns the microseconds of a call from allreduce-perf's document: the faster of in-place and
    out-of-place. `algorithm` is the one that must have run."""
    results = document["results"]
    if len(results) != 1 or results[0]["algorithm"] != algorithm:
        raise Missing(f"no single result by {algorithm}: {results}")
    halves = [results[0][name] for name in ("out_of_place", "in_place")]
    if any(half["nwrong"] not in (0, "0", "N/A") for half in halves):
        raise Missing(f"wrong sums: {results}")
    return min(float(half["time"]) for half in halves)
