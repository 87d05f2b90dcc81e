"""Checks every operation on each rank, against results computed from the ranks alone."""

import gc
import sys
import time
import weakref
from datetime import timedelta
from functools import reduce
from operator import and_, or_, xor

import ringfold
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from ringfold.torch import _memory

Op = dist.ReduceOp


def inputs(dtype, count, rank):
    """The same small whole numbers in every type, different for each rank."""
    values = (torch.arange(count) * 7 + rank * 3) % 5 + 1
    return values.to(dtype)


def all_inputs(dtype, count):
    return [inputs(dtype, count, rank) for rank in range(dist.get_world_size())]


def equal(found, expected, what):
    if not torch.equal(found.cpu(), expected):
        sys.exit(f"rank {dist.get_rank()}: {what}: {found} and not {expected}")


def done(work):
    """Waits for an operation in the background, in turn by each of the ways to do so."""
    done.turn = getattr(done, "turn", 0) + 1
    if done.turn % 3 == 0:
        work.wait(timedelta(seconds=60))
    elif done.turn % 3 == 1:
        work.get_future().wait()
    else:
        while not work.is_completed():
            time.sleep(0.001)
        work.wait()


def reductions(rank, size):
    types = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16]
    types += [torch.bfloat16, torch.float32, torch.float64, torch.complex64]
    for dtype in [torch.float8_e4m3fn, torch.float8_e5m2]:
        mine = torch.ones(1000).to(dtype)
        dist.all_reduce(mine)
        equal(mine.float(), torch.full((1000,), float(size)), f"all_reduce of {dtype}")
    for dtype in types:
        for count in [0, 1, 13, 1000]:
            stack = torch.stack(all_inputs(dtype, count))
            total = stack.sum(0).to(dtype)
            for is_async in [False, True]:
                mine = inputs(dtype, count, rank)
                work = dist.all_reduce(mine, async_op=is_async)
                if is_async:
                    done(work)
                equal(mine, total, f"all_reduce of {dtype}")
            mine = inputs(dtype, count, rank)
            dist.reduce(mine, dst=size - 1)
            if rank == size - 1:
                equal(mine, total, f"reduce of {dtype}")
            blocks = torch.cat([inputs(dtype, count, rank) + to for to in range(size)])
            part = torch.empty(count, dtype=dtype)
            dist.reduce_scatter_tensor(part, blocks)
            equal(part, (total + size * rank).to(dtype), f"reduce_scatter of {dtype}")
    mine = torch.full((3, 5), float(rank)).t()
    dist.all_reduce(mine, Op.AVG)
    equal(mine, torch.full((5, 3), (size - 1) / 2), "the average of a transposed tensor")
    mine = torch.ones(4)
    dist.all_reduce(mine, dist._make_nccl_premul_sum(0.5))
    equal(mine, torch.full((4,), size / 2), "premul_sum")
    flags = torch.tensor([rank == 0, True, False])
    for op, expected in [(Op.SUM, [1, 1, 0]), (Op.MIN, [size == 1, 1, 0]), (Op.BOR, [1, 1, 0])]:
        mine = flags.clone()
        dist.all_reduce(mine, op)
        equal(mine, torch.tensor(expected).bool(), f"{op} of booleans")
    words = [7 << of for of in range(size)]
    for op, combine in [(Op.BAND, and_), (Op.BOR, or_), (Op.BXOR, xor)]:
        mine = torch.tensor([words[rank]])
        dist.all_reduce(mine, op)
        equal(mine, torch.tensor([reduce(combine, words)]), f"{op}")
    uneven = [torch.full((to + 1,), float(rank)) for to in range(size)]
    part = torch.empty(rank + 1)
    dist.reduce_scatter(part, uneven)
    equal(part, torch.full((rank + 1,), size * (size - 1) / 2.0), "uneven reduce_scatter")
    entry = torch.sparse_coo_tensor([[rank, 0]], [1.0, 2.0], (size + 1,))
    dist.all_reduce(entry)
    expected = torch.ones(size + 1)
    expected[0], expected[size] = 1 + 2 * size, 0
    equal(entry.to_dense(), expected, "the sum of sparse tensors")


def movement(rank, size):
    for dtype in [torch.bool, torch.int16, torch.float32, torch.complex128]:
        everyone = all_inputs(dtype, 6)
        for is_async in [False, True]:
            parts = [torch.empty(6, dtype=dtype) for _ in range(size)]
            work = dist.all_gather(parts, everyone[rank], async_op=is_async)
            if is_async:
                done(work)
            equal(torch.stack(parts), torch.stack(everyone), "all_gather")
        whole = torch.empty(6 * size, dtype=dtype)
        dist.all_gather_into_tensor(whole, everyone[rank])
        equal(whole, torch.cat(everyone), "all_gather_into_tensor")
        mine = everyone[rank].view(2, 3).t().clone(memory_format=torch.preserve_format)
        dist.broadcast(mine, size - 1)
        equal(mine, everyone[size - 1].view(2, 3).t(), "broadcast of a transposed tensor")
        parts = [torch.empty(6, dtype=dtype) for _ in range(size)] if rank == 0 else None
        dist.gather(everyone[rank], parts, dst=0)
        if rank == 0:
            equal(torch.stack(parts), torch.stack(everyone), "gather")
        mine = torch.empty(6, dtype=dtype)
        dist.scatter(mine, everyone if rank == 0 else None, src=0)
        equal(mine, everyone[rank], "scatter")
    parts = [torch.empty(of + 1) for of in range(size)]
    dist.all_gather(parts, torch.full((rank + 1,), float(rank)))
    equal(torch.cat(parts), torch.cat([torch.full((r + 1,), float(r)) for r in range(size)]), "uneven")
    rows = torch.arange(size * 2.0).view(size, 2) + 100 * rank
    into = torch.empty(size, 2)
    dist.all_to_all_single(into, rows)
    expected = torch.stack([torch.arange(2.0) + 2 * rank + 100 * of for of in range(size)])
    equal(into, expected, "all_to_all_single")
    sizes = [(rank + to) % 3 for to in range(size)]
    data = torch.full((sum(sizes),), float(rank))
    into = torch.empty(sum(sizes))
    work = dist.all_to_all_single(into, data, sizes, sizes, async_op=True)
    done(work)
    equal(into, torch.cat([torch.full((n,), float(of)) for of, n in enumerate(sizes)]), "uneven splits")
    out = [torch.empty((rank + of) % 3 + 1) for of in range(size)]
    dist.all_to_all(out, [torch.full(((rank + to) % 3 + 1,), float(rank)) for to in range(size)])
    equal(torch.cat(out), torch.cat([torch.full_like(o, of) for of, o in enumerate(out)]), "all_to_all")


def messages(rank, size):
    count = 300_000
    others = [other for other in range(size) if other != rank]
    into = {other: torch.empty(count) for other in others}
    works = [dist.isend(torch.full((count,), float(rank)), to, tag=5) for to in others]
    # The sends wait for receivers that start later.
    works += [dist.irecv(into[other], other, tag=5) for other in others]
    for work in works:
        done(work)
    for other in others:
        equal(into[other], torch.full((count,), float(other)), "messages among all")
    if size > 1:
        right, left = (rank + 1) % size, (rank - 1) % size
        mine = torch.empty(3, 2).t()
        ops = [dist.P2POp(dist.isend, torch.full((2, 3), float(rank)), right)]
        ops.append(dist.P2POp(dist.irecv, mine, left))
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        equal(mine, torch.full((2, 3), float(left)), "a batch of messages")
        from_any_source(rank, size, count)


def from_any_source(rank, size, count):
    """Rank 0 receives from all others, as they come."""
    if rank != 0:
        for tag in [1, 2, 3]:
            dist.send(torch.full((count,), float(rank)), 0, tag=tag)
    else:
        for tag in [1, 2]:
            senders = set()
            for _ in range(1, size):
                into = torch.empty(2, count // 2).t()
                senders.add(sender := dist.recv(into, tag=tag))
                equal(into, torch.full((count // 2, 2), float(sender)), "from any source")
            assert senders == set(range(1, size)), senders
        # A receive that names its source waits behind one that does not.
        into = [torch.empty(count) for _ in range(size)]
        works = [dist.irecv(into[0], tag=4)]
        works += [dist.irecv(into[peer], peer, tag=3) for peer in range(1, size)]
        assert not works[0].is_completed()
        for work in works[1:]:
            done(work)
        for peer in range(1, size):
            equal(into[peer], torch.full((count,), float(peer)), "behind any source")
    dist.barrier()
    if rank == size - 1:
        dist.send(torch.full((count,), 7.0), 0, tag=4)
    elif rank == 0:
        done(works[0])
        assert works[0]._source_rank() == size - 1
        equal(into[0], torch.full((count,), 7.0), "from any source at last")
    # A receive for which nobody is left fails.
    group = dist.new_group(list(range(size)))
    if rank == 0:
        work = dist.irecv(torch.empty(1), group=group)
    dist.barrier()
    if rank != 0:
        return dist.destroy_process_group(group)
    try:
        work.wait()
        sys.exit("a receive from no rank did not fail")
    except dist.DistBackendError as error:
        assert "the rank has left the job" in str(error), error
    dist.destroy_process_group(group)


def groups(rank, size):
    for ranks in [list(range(size)), [0], list(range(size))[::-1], list(range(0, size, 2))]:
        group = dist.new_group(ranks)
        if rank in ranks:
            mine = torch.ones(3)
            dist.all_reduce(mine, group=group)
            equal(mine, torch.full((3,), float(len(ranks))), f"the group {ranks}")
            dist.barrier(group)
    tensors = [torch.full((n,), float(rank)) for n in [1, 10, 5000]]
    with dist.distributed_c10d._coalescing_manager(async_ops=True) as works:
        for tensor in tensors:
            dist.all_reduce(tensor)
    works.wait()
    for tensor in tensors:
        equal(tensor, torch.full_like(tensor, size * (size - 1) / 2), "coalesced all_reduce")
    dist.monitored_barrier()
    works = [dist.all_reduce(torch.ones(100), async_op=True) for _ in range(50)]
    dist.barrier()
    assert all(work.is_completed() for work in works)
    if size > 1:
        wrong = dist.new_group(list(range(size)))
        try:
            dist.all_reduce(torch.ones(3 + (rank == 0)), group=wrong)
            sys.exit("an all-reduce of different lengths did not fail")
        except dist.DistBackendError as error:
            assert "rank" in str(error), error


def windows(rank, size):
    """Tensors of the backend's own memory."""
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert not backend.supports_tensor_alloc(torch.device("cpu"))
    for dtype in [torch.float32, torch.bfloat16, torch.int64, torch.int16, torch.complex64]:
        for count in [0, 1, 1000, 70_000]:
            mine = backend.allocate_tensor(count, dtype=dtype, device=torch.device("cpu"))
            assert mine.shape == (count,) and mine.dtype == dtype and not mine.any()
            assert count == 0 or backend._windows.find(mine)[1] == 0
            mine.copy_(inputs(dtype, count, rank))
            total = torch.stack(all_inputs(dtype, count)).sum(0).to(dtype)
            dist.all_reduce(mine[1:])
            equal(mine[1:], total[1:], f"all_reduce of a part of a window of {dtype}")
            equal(mine[:1], inputs(dtype, count, rank)[:1], "the rest of a window")
            work = dist.all_reduce(mine[:1], async_op=True)
            done(work)
            equal(mine, total, f"all_reduce of a window of {dtype}")
            dist.broadcast(mine, 0)
    # The next operation forgets those that are done, with their tensors.
    del mine, work
    dist.barrier(async_op=True).wait()
    assert not backend._windows._places, "the windows live on"


def registrations(rank, size):
    """Registered tensors, whose registrations end with them."""
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    tensor = torch.ones(1 << 18)
    kept = backend.register_tensor(tensor)
    part = backend.register_tensor(tensor[10:20])
    assert (kept.nbytes, part.nbytes) == (1 << 20, 40)
    dist.all_reduce(tensor)
    equal(tensor, torch.full((1 << 18,), float(size)), "all_reduce of a registered tensor")
    closed = []
    weakref.finalize(kept, closed.append, "kept")
    del kept
    gc.collect()
    assert not closed, "the tensor keeps its registration"
    del tensor
    gc.collect()
    assert closed, "the registration has ended with its tensor"
    part.close()
    part.close()
    backend.register_tensor(torch.ones(0)).close()
    for odd, words in [
        (torch.ones(4, 6).t(), "is not contiguous"),
        (torch.empty(3, device="meta"), "a tensor of meta is not in the memory of the CPU"),
    ]:
        try:
            backend.register_tensor(odd)
        except ringfold.ArgumentError as error:
            assert words in str(error), str(error)
        else:
            raise AssertionError(f"no ArgumentError with {words!r}")


def copies(rank, size):
    """The path of GPUs' tensors, here with tensors of the CPU that pass for those of a device."""
    is_memory, _memory.is_memory = _memory.is_memory, lambda tensor: False
    for check in [reductions, movement, messages]:
        check(rank, size)
    _memory.is_memory = is_memory


def refused(call, words):
    try:
        call()
    except ringfold.ArgumentError as error:
        assert words in str(error), (words, error)
        return
    sys.exit(f"no error with {words!r}")


def tensors(rank, size):
    """The methods of ringfold itself take tensors of torch by DLPack."""
    comm = ringfold.init()
    types = [torch.uint8, torch.int8, torch.int32, torch.int64, torch.uint32, torch.uint64]
    types += [torch.float16, torch.bfloat16, torch.float32, torch.float64]
    types += [torch.float8_e4m3fn, torch.float8_e5m2]
    for dtype in types:
        for count in [0, 1, 13, 1000]:
            mine, into = torch.ones(count).to(dtype), torch.zeros(count).to(dtype)
            comm.all_reduce(mine, into)
            equal(into.float(), torch.full((count,), float(size)), f"DLPack of {dtype}")
            comm.all_reduce(mine, async_op=True).wait()
            equal(mine.float(), into.float(), f"DLPack of {dtype} in the background")
    for dtype in [torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16]:
        mine = torch.full((9,), 0.5).to(dtype)
        comm.all_reduce(mine.view(torch.uint8 if dtype.itemsize == 1 else torch.int16), dtype=dtype)
        equal(mine.float(), torch.full((9,), size / 2), f"a view of {dtype}")
    flags = torch.tensor([rank == 0, True, False])
    comm.all_reduce(flags, op="max")
    equal(flags, torch.tensor([True, True, False]), "booleans")
    whole = torch.empty(size, 2, dtype=torch.complex64)
    comm.all_gather(torch.full((2,), complex(rank, 1)), whole)
    equal(whole[:, 0], torch.arange(size) + 1j, "complex numbers")
    rows = torch.ones(4, 6)
    refused(lambda: comm.all_reduce(rows.t()), "not contiguous in C order")
    refused(lambda: comm.all_reduce(rows[:, ::2]), "not contiguous in C order")
    refused(lambda: comm.all_reduce(rows[0].expand(4, 6)), "not contiguous in C order")
    refused(lambda: comm.all_reduce(torch.ones(3, requires_grad=True)), "require gradient")
    refused(lambda: comm.all_reduce(torch.empty(3, device="meta")), "does not lend its memory")
    refused(lambda: comm.all_reduce(torch.ones(2, dtype=torch.complex64)), "not combined")
    refused(lambda: comm.all_reduce(rows, torch.ones(23)), "allreduce on rank")
    # A column of a single element is contiguous with any stride.
    comm.all_reduce(rows[:1, :1])
    equal(rows[0, :2], torch.tensor([float(size), 1]), "one element")
    window = comm.alloc(10, torch.float32)
    view = torch.frombuffer(window, dtype=torch.float32)
    view.fill_(rank)
    comm.all_reduce_window(window)
    equal(view, torch.full((10,), size * (size - 1) / 2), "a window")
    comm.close()


def functional(rank, size):
    """Functional collectives and calls in place, by themselves and traced by torch.compile."""
    group, mine = dist.group.WORLD, inputs(torch.float32, 12, rank)
    stack = torch.stack(all_inputs(torch.float32, 12))
    total, whole = stack.sum(0), stack.flatten()

    def in_place(tensor):
        tensor = tensor * 2
        dist.all_reduce(tensor)
        return tensor + 1

    calls = [
        (in_place, 2 * total + 1),
        (lambda tensor: collectives.all_reduce(tensor, "sum", group) + 1, total + 1),
        (lambda tensor: collectives.all_gather_tensor(tensor, 0, group) + 1, whole + 1),
        (
            lambda tensor: collectives.reduce_scatter_tensor(tensor, "sum", 0, group) + 1,
            total.view(size, -1)[rank] + 1,
        ),
        (
            lambda tensor: collectives.all_to_all_single(tensor, None, None, group) + 1,
            stack.view(size, size, -1)[:, rank].flatten() + 1,
        ),
        (lambda tensor: collectives.broadcast(tensor, 0, group) + 1, stack[0] + 1),
    ]
    for number, (call, expected) in enumerate(calls):
        equal(call(mine), expected, f"functional call {number}")
        traced = torch.compile(call, backend="aot_eager", fullgraph=True)
        equal(traced(mine), expected, f"traced call {number}")
    equal(mine, stack[rank], "the input of functional calls")


def main():
    dist.init_process_group("ringfold")
    rank, size = dist.get_rank(), dist.get_world_size()
    for check in [
        reductions, movement, messages, groups, tensors, windows, registrations, copies, functional,
    ]:
        check(rank, size)
    dist.destroy_process_group()
    dist.init_process_group("cpu:ringfold")
    dist.barrier()
    dist.destroy_process_group()
    # One write, so that the lines of ranks do not mix.
    sys.stdout.write(f"right {rank}\n")


if __name__ == "__main__":
    main()
