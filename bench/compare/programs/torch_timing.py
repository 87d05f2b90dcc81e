"""Times operations of torch.distributed on groups of Gloo and ringfold in turn, in one process per
rank. Rank 0 prints a line of JSON for each cell: the operation, bytes, and microseconds of each.

The bytes are those of the larger of a rank's two buffers. The time of a round is its slowest rank's,
and that of a cell the median round's. Each rank has a processor of its own if there are as many. The
all-reduces are also timed on a backend in Python that does nothing: what is left is torch's time."""

import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import Backend
from torch.nn.parallel import DistributedDataParallel

NAMES = ["gloo", "ringfold"]
ROUNDS = 7
#: About how long a round may take, in seconds.
ROUND_SECONDS = 0.05


class Ended(dist._Work):
    """The handle of an operation that did nothing."""

    def wait(self, timeout=None):
        return True


class Nothing(Backend):
    """A backend whose all-reduce does nothing."""

    def __init__(self, opts, _=None):
        super().__init__(opts.group_rank, opts.group_size)
        self._options = Backend.Options("nothing", timeout=opts.timeout)
        # torch keeps the part in C++ alone.
        alive.append(self)

    @property
    def options(self):
        return self._options

    def getBackendName(self):
        return "nothing"

    def allreduce(self, tensors, opts):
        return Ended() if opts.asyncOp else None


alive = []


def operations(size, ranks, group):
    """The calls of a size in bytes, on floats."""
    block = max(size // 4 // ranks, 1)
    whole, part = torch.ones(block * ranks), torch.ones(block)
    other, vector = torch.ones(block * ranks), torch.ones(max(size // 4, 1))
    rank = dist.get_rank()

    def ping_pong():
        """A message from rank 0 to rank 1, and one back."""
        for sender in (0, 1):
            if rank == sender:
                dist.send(vector, 1 - sender, group=group)
            elif rank == 1 - sender:
                dist.recv(vector, sender, group=group)

    def exchange():
        """Messages of ranks 0 and 1 to each other at once."""
        if rank < 2:
            works = [dist.irecv(part, 1 - rank, group=group)]
            works.append(dist.isend(vector[: len(part)], 1 - rank, group=group))
            for work in works:
                work.wait()

    messages = {"ping-pong": ping_pong, "isend and irecv": exchange} if ranks > 1 else {}
    return {
        "all_reduce": lambda: dist.all_reduce(vector, group=group),
        "all_reduce async": lambda: dist.all_reduce(vector, group=group, async_op=True).wait(),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole, group=group),
        "broadcast": lambda: dist.broadcast(vector, 0, group=group),
        "all_to_all": lambda: dist.all_to_all_single(other, whole, group=group),
        **messages,
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
    """The median microseconds of each call, with rounds in turn."""
    names = list(calls)
    counts = {name: max(1, min(2000, int(ROUND_SECONDS / once(calls[name], 3)))) for name in names}
    times = {name: [] for name in names}
    for turn in range(ROUNDS):
        for name in names if turn % 2 else names[::-1]:
            times[name].append(once(calls[name], counts[name]))
    return {name: statistics.median(times[name]) * 1e6 for name in names}


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
    ranks, here = int(os.environ["WORLD_SIZE"]), sorted(os.sched_getaffinity(0))
    if ranks <= len(here):
        # The threads of this process follow.
        os.sched_setaffinity(0, {here[int(os.environ["LOCAL_RANK"])]})
    dist.Backend.register_backend("nothing", Nothing, extended_api=True, devices=["cpu"])
    dist.init_process_group("gloo")
    groups = {name: dist.new_group(backend=name) for name in NAMES}
    nothing = dist.new_group(backend="nothing")
    sizes = [int(size) for size in sys.argv[1].split(",")]

    def report(operation, size, found):
        if dist.get_rank() == 0:
            row = {"operation": operation, "bytes": size, "ranks": ranks, **found}
            print(json.dumps(row), flush=True)

    for size in sizes:
        cells = {name: operations(size, ranks, group) for name, group in groups.items()}
        idle = operations(size, ranks, nothing)
        for operation in cells["gloo"]:
            calls = {name: cells[name][operation] for name in NAMES}
            if operation.startswith("all_reduce"):
                calls["nothing"] = idle[operation]
            report(operation, size, compare(calls))
    report("DDP step", sum(BUCKETS), compare(steps(groups)))
    report("DDP communication", sum(BUCKETS), compare(communication(groups)))
    dist.destroy_process_group()


main()
