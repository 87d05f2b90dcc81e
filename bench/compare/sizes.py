"""The measured sizes, and the number of calls for each."""

SUFFIXES = {"K": 10, "M": 20, "G": 30}

# The sizes of nccl-tests' `-b 8 -e 128M -f 4`.
ALL = [8 * 4**step for step in range(13)]
# Those of the benchmark page, up to 16 MiB.
PAGE = [8 * 8**step for step in range(8)]
QUICK = [8, 4 << 10, 256 << 10, 16 << 20, 128 << 20]

# The least bytes that a batch moves, within the limits on its number of calls.
BATCH_BYTES = 64 << 20


def parse(text):
    """A size such as 8, 4K or 128M."""
    shift = SUFFIXES.get(text[-1:].upper(), 0)
    return int(text[:-1] if shift else text) << shift


def show(size):
    """The shortest exact way to write a size."""
    for suffix, shift in reversed(SUFFIXES.items()):
        if size and size % (1 << shift) == 0:
            return f"{size >> shift} {suffix}i"
    return str(size)


def calls(size, most):
    """Returns the calls of a batch, the same for every library."""
    return max(1, min(most, BATCH_BYTES // max(size, 1)))
