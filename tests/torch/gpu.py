"""Sums tensors of a GPU through pinned memory. All ranks may share one GPU, which NCCL refuses. It needs
no backend of torch.distributed, and so no particular version of torch."""

import sys
import threading

import ringfold
import torch
from ringfold.torch import _memory

TYPES = [torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.uint8]


def values(count, rank):
    return (torch.arange(count, device="cuda") * 7 + rank * 3) % 5 + 1


def equal(comm, found, expected, what):
    if not torch.equal(found, expected):
        sys.exit(f"rank {comm.rank}: {what}: {found} and not {expected}")


def sums(comm):
    for dtype in TYPES:
        for count in [0, 1, 13, 1000, (1 << 22) + 3]:
            mine = values(count, comm.rank).to(dtype)
            memory, finish = _memory.writable(mine, is_read=True)
            assert count == 0 or memory.is_pinned()
            comm.all_reduce(memory)
            finish()
            total = sum(values(count, rank) for rank in range(comm.size)).to(dtype)
            equal(comm, mine, total, f"all_reduce of {count} {dtype}")
    mine = torch.full((3, 5), float(comm.rank), device="cuda").t()
    memory, finish = _memory.writable(mine, is_read=True)
    comm.all_reduce(memory)
    finish()
    equal(comm, mine, torch.full_like(mine, sum(range(comm.size))), "a transposed tensor")


def streams(comm):
    """Work that is late on a stream of its own, before and after the call. Another thread copies the
    result back."""
    stream, total = torch.cuda.Stream(), sum(range(comm.size))
    for turn in range(20):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            mine = torch.full((1 << 20,), float(comm.rank + turn), device="cuda")
            memory, finish = _memory.writable(mine, is_read=True)
            comm.all_reduce(memory)
            thread = threading.Thread(target=finish)
            thread.start()
            thread.join()
            twice = mine * 2
        stream.synchronize()
        expected = torch.full_like(twice, 2 * (total + turn * comm.size))
        equal(comm, twice, expected, "a late stream")


def refusals(comm):
    try:
        comm.all_reduce(torch.ones(4, device="cuda"))
    except ringfold.ArgumentError as error:
        assert "the memory of a device" in str(error), error
        return
    sys.exit("a tensor of a GPU was not refused")


def main():
    comm = ringfold.init()
    for check in [sums, streams, refusals]:
        check(comm)
    # One write, so that the lines of ranks do not mix.
    sys.stdout.write(f"right {comm.rank}\n")
    comm.close()


if __name__ == "__main__":
    main()
