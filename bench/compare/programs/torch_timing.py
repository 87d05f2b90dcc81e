"""Times operations of torch.distributed on groups of Gloo and ringfold in turn, in one process per
rank. Rank 0 prints a line of JSON for each cell: the operation, bytes, and microseconds of each.

The bytes are those of the larger of a rank's two buffers. The time of a round is its slowest rank's,
and that of a cell the median round's."""

import json
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

NAMES = ["gloo", "ringfold"]
ROUNDS = 5
#: About how long a round may take, in seconds.
ROUND_SECONDS = 0.05


def operations(size, ranks, group):
    """The calls of a size in bytes, on floats."""
    block = max(size // 4 // ranks, 1)
    whole, part = torch.ones(block * ranks), torch.ones(block)
    other, vector = torch.ones(block * ranks), torch.ones(max(size // 4, 1))
    return {
        "all_reduce": lambda: dist.all_reduce(vector, group=group),
        "all_reduce async": lambda: dist.all_reduce(vector, group=group, async_op=True).wait(),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole, group=group),
        "broadcast": lambda: dist.broadcast(vector, 0, group=group),
        "all_to_all": lambda: dist.all_to_all_single(other, whole, group=group),
    }


def once(call, count):
    """The mean seconds of a call on the slowest rank."""
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(count):
        call()
    taken = torch.tensor((time.perf_counter() - begin) / count)
    dist.all_reduce(taken, dist.ReduceOp.MAX)
    return taken.item()


def compare(calls):
    """The median seconds of each call, with rounds in turn."""
    counts = {name: max(1, min(2000, int(ROUND_SECONDS / once(calls[name], 3)))) for name in NAMES}
    times = {name: [] for name in NAMES}
    for turn in range(ROUNDS):
        for name in NAMES if turn % 2 else NAMES[::-1]:
            times[name].append(once(calls[name], counts[name]))
    return {name: statistics.median(times[name]) * 1e6 for name in NAMES}


#: The lengths in bytes of the buckets in which DDP reduces the gradients of a step.
BUCKETS = [1 << 20, 25 << 20, 4 * 10 * (1024 * 1024 + 1024) - (26 << 20)]


def communication(groups):
    """The all-reduces of a step's gradients without the model."""
    buckets = [torch.ones(size // 4) for size in BUCKETS]

    def reduce(group):
        works = [dist.all_reduce(bucket, group=group, async_op=True) for bucket in buckets]
        for work in works:
            work.wait()

    return {name: lambda group=group: reduce(group) for name, group in groups.items()}


def steps(groups):
    """A step of a model of ten million parameters with each group."""
    calls, inputs = {}, torch.randn(8, 1024)
    for name, group in groups.items():
        layers = [layer for _ in range(10) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
        model = DistributedDataParallel(nn.Sequential(*layers[:-1]), process_group=group)
        calls[name] = lambda model=model: model(inputs).sum().backward()
    return calls


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    ranks = dist.get_world_size()
    groups = {name: dist.new_group(backend=name) for name in NAMES}
    sizes = [int(size) for size in sys.argv[1].split(",")]

    def report(operation, size, found):
        if dist.get_rank() == 0:
            row = {"operation": operation, "bytes": size, "ranks": ranks, **found}
            print(json.dumps(row), flush=True)

    for size in sizes:
        cells = {name: operations(size, ranks, group) for name, group in groups.items()}
        for operation in cells["gloo"]:
            report(operation, size, compare({name: cells[name][operation] for name in NAMES}))
    report("DDP step", sum(BUCKETS), compare(steps(groups)))
    report("DDP communication", sum(BUCKETS), compare(communication(groups)))
    dist.destroy_process_group()


main()
