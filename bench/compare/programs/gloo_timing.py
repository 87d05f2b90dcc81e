"""Times one collective of Gloo, as timing.c times an MPI's: see there. The rank, the number of
ranks and where they meet come from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Gloo has f32 and f16.

Python calls Gloo for a user of PyTorch too, so its share of a call counts."""

import statistics
import sys
import time

import torch
import torch.distributed as dist


# The values of timing.c repeat.
PERIOD = 11
TYPES = {"f32": torch.float32, "f16": torch.float16}


class Timer:
    """Times cells, with the same two buffers for all."""

    def __init__(self, dtype, collective, cells):
        self.dtype, self.collective = dtype, collective
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.blocks = collective in ("all_gather", "reduce_scatter")
        longest = max(self.length(self.count(size)) for size, _ in cells)
        self.input = torch.zeros(longest, dtype=dtype)
        self.output = torch.zeros(longest, dtype=dtype)

    def count(self, size):
        """Returns the elements of a call."""
        return max(1, size // self.dtype.itemsize // (self.ranks if self.blocks else 1))

    def length(self, count):
        """Returns the elements of the larger buffer."""
        return count * (self.ranks if self.blocks else 1)

    def call(self, count, in_place):
        """Returns a function that makes one call. All-reduce, reduce and broadcast have one buffer
        in PyTorch."""
        length = self.length(count)
        output, given = self.output[:length], self.input[:length]
        own = slice(self.rank * count, (self.rank + 1) * count)
        if self.collective == "all_reduce":
            if in_place:
                return lambda: dist.all_reduce(output)

            def copy_and_reduce():
                output.copy_(given)
                dist.all_reduce(output)

            return copy_and_reduce
        if self.collective == "broadcast":
            return lambda: dist.broadcast(output, 0)
        if self.collective == "barrier":
            return dist.barrier
        if self.collective == "reduce":
            if in_place:
                return lambda: dist.reduce(output, 0)

            def copy_and_reduce_to_root():
                output.copy_(given)
                dist.reduce(output, 0)

            return copy_and_reduce_to_root
        if self.collective == "all_gather":
            block = output[own] if in_place else given[:count]
            return lambda: dist.all_gather_into_tensor(output, block)
        if in_place:
            return lambda: dist.reduce_scatter_tensor(output[own], output)
        return lambda: dist.reduce_scatter_tensor(output[:count], given)

    def value(self, rank, index):
        """Returns a rank's values at these indices, as timing.c does."""
        return (rank + index) % PERIOD

    def fill(self, count, in_place):
        """Writes known inputs, and garbage to the outputs."""
        length = self.length(count)
        own = count if self.collective == "all_gather" else length
        self.output[:length] = -1
        at = self.rank * count if in_place and self.collective == "all_gather" else 0
        if self.collective != "broadcast" or self.rank == 0:
            to = self.output if in_place else self.input
            to[at : at + own] = self.value(self.rank, torch.arange(own)).to(self.dtype)

    def wrong(self, count, in_place):
        """Counts the wrong elements on all ranks."""
        scatters = self.collective == "reduce_scatter"
        length = count if scatters else self.length(count)
        if self.collective == "barrier" or self.collective == "reduce" and self.rank != 0:
            length = 0
        index = torch.arange(length)
        if scatters or self.collective in ("all_reduce", "reduce"):
            first = self.rank * count if scatters else 0
            expected = sum(self.value(rank, index + first) for rank in range(self.ranks))
        elif self.collective == "all_gather":
            expected = self.value(index // count, index % count)
        else:
            expected = self.value(0, index)
        at = self.rank * count if scatters and in_place else 0
        total = (self.output[at : at + length] != expected.to(self.dtype)).sum()
        dist.all_reduce(total)
        return int(total)

    def time_batch(self, call, calls):
        """Returns the seconds that `calls` calls take on the slowest rank."""
        dist.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        slowest = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        return float(slowest)

    def measure(self, size, calls, in_place, batches, seconds):
        """Measures a cell, which rank 0 prints."""
        count = self.count(size)
        call = self.call(count, in_place)
        self.fill(count, in_place)
        call()
        wrong = self.wrong(count, in_place)
        if in_place:
            self.output.zero_()
        first = max(1, calls // 10)
        warm = self.time_batch(call, first) / first
        calls = min(calls, max(1, int(seconds / batches / warm)))
        times, spent = [], 0.0
        while len(times) < batches and (not times or spent < seconds):
            batch = self.time_batch(call, calls)
            spent += batch
            times.append(batch / calls)
        if self.rank == 0:
            place = "in" if in_place else "out"
            middle = statistics.median_high(times) * 1e6
            used = self.dtype.itemsize * self.length(count)
            print("cell", place, size, used, calls, len(times), f"{middle:.4f}", wrong, flush=True)


def main(words):
    """[--type TYPE] COLLECTIVE PLACES SECONDS BATCHES BYTES:CALLS..."""
    name = "f32"
    if words[0] == "--type":
        name, words = words[1], words[2:]
    collective, places, seconds, batches, *rest = words
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    cells = [tuple(map(int, cell.split(":"))) for cell in rest]
    timer = Timer(TYPES[name], collective, cells)
    for size, calls in cells:
        for place in ("out", "in"):
            if place in places.split(","):
                timer.measure(size, calls, place == "in", int(batches), float(seconds))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
