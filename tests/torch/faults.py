"""Programs that go wrong, or that ask for what is rare: `faults.py NAME [BACKEND]` on each rank.

Each prints what it found. `test_faults.py` says what is right.
"""

import gc
import os
import signal
import sys
import threading
import time
import weakref
from datetime import timedelta

import ringfold.torch
import torch
import torch.distributed as dist


def say(*words):
    # One write, so that the lines of ranks do not mix.
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


#: The elements of a message that leaves only when its receiver takes it.
LONG = 300_000


def equal(name, found, expected):
    """Says what is wrong."""
    if found.tolist() != expected:
        say("wrong", name, found.tolist(), "and not", expected)


def fails(name, call):
    """Says how a call fails, and after how many seconds. Returns the error."""
    began = time.monotonic()
    try:
        call()
        say(name, "did not fail")
    except Exception as error:
        text = " ".join(str(error).split())
        say(name, f"{time.monotonic() - began:.1f}", type(error).__name__, text)
        return error


def comes_true(found, seconds=10):
    """Whether something comes true within some seconds."""
    end = time.monotonic() + seconds
    while not found():
        if time.monotonic() > end:
            return False
        gc.collect()
        time.sleep(0.02)
    return True


def total(rank, size):
    """Twice the sum of the inputs `rank + 1`."""
    return size * (size + 1)


# Tensors.


def dropped(rank, size):
    """Results arrive though nobody keeps the handles."""
    strided = lambda count=4: torch.full((6, count), float(rank + 1)).t()
    tensors = {
        "contiguous": torch.full((4, 6), float(rank + 1)),
        "strided": strided(),
        "int16": torch.full((8,), rank + 1, dtype=torch.int16),
        "complex": torch.full((3, 4), complex(rank + 1, 0)).t(),
    }
    for tensor in tensors.values():
        dist.all_reduce(tensor, async_op=True)
    parts = [torch.zeros(3) for _ in range(size)]
    dist.all_gather(parts, torch.full((3,), float(rank + 1)), async_op=True)
    block = torch.zeros(6, 4).t()
    dist.broadcast(strided() if rank == 0 else block, 0, async_op=True)
    part = torch.zeros(3, 2).t()
    whole = torch.full((2 * size, 3), float(rank + 1))
    dist.reduce_scatter_tensor(part, whole, async_op=True)
    dist.barrier()
    for name, tensor in tensors.items():
        half = torch.full(tensor.shape, total(rank, size) // 2, dtype=tensor.dtype)
        equal(name, tensor, half.tolist())
    equal("all_gather", torch.stack(parts), [[float(r + 1)] * 3 for r in range(size)])
    if rank != 0:
        equal("broadcast", block, [[1.0] * 6] * 4)
    equal("reduce_scatter", part, [[total(rank, size) / 2] * 3] * 2)
    # A message: the next one of the same direction follows its end.
    mine = torch.zeros(3, 2).t()
    if rank == 0:
        dist.isend(torch.full((2, 3), 7.0), 1)
        dist.send(torch.ones(1), 1)
    elif rank == 1:
        dist.irecv(mine, 0)
        dist.recv(torch.zeros(1), 0)
        equal("irecv", mine, [[7.0] * 3] * 2)
    dist.barrier()


def grads(rank, size):
    """Leaves that require grad, of any strides, without no_grad."""
    value = lambda: torch.nn.Parameter(torch.full((6, 4), float(rank + 1)).t())
    for is_async in [False, True]:
        done = lambda work: work.wait() if is_async else None
        leaf = value()
        done(dist.broadcast(leaf, 0, async_op=is_async))
        equal("broadcast", leaf, [[1.0] * 6] * 4)
        leaf = value()
        done(dist.all_reduce(leaf, async_op=is_async))
        equal("all_reduce", leaf, [[total(rank, size) / 2] * 6] * 4)
        leaf, source = value(), [value() for _ in range(size)] if rank == 0 else None
        done(dist.scatter(leaf, source, 0, async_op=is_async))
        equal("scatter", leaf, [[1.0] * 6] * 4)
        leaves = [value() for _ in range(size)]
        done(dist.all_gather(leaves, value(), async_op=is_async))
        for other, leaf in enumerate(leaves):
            equal("all_gather", leaf, [[other + 1.0] * 6] * 4)
        into = torch.nn.Parameter(torch.zeros(6, 4 * size).t())
        done(dist.all_gather_into_tensor(into, value(), async_op=is_async))
        equal("all_gather_into_tensor", into[-1], [float(size)] * 6)
    conv = torch.nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
    for leaf in conv.parameters():
        dist.broadcast(leaf, 0)
        dist.all_reduce(leaf)
    kept = torch.full((4,), rank + 1.0, dtype=torch.cfloat, requires_grad=True) * 1
    dist.all_reduce(kept)
    equal("complex", kept, [complex(total(rank, size) / 2)] * 4)
    # The other ranks take what they get in inference mode, a thread of ringfold copies it.
    with torch.inference_mode():
        mine = torch.full((6, 4), float(rank + 1)).t()
    work = dist.all_reduce(mine, async_op=True)
    work.wait()
    equal("inference", mine, [[total(rank, size) / 2] * 6] * 4)


def views(rank, size):
    """Tensors that are not what lies in memory."""
    both = total(rank, size)
    negative = torch.tensor([complex(0, rank + 1)]).conj().imag
    assert negative.is_neg()
    dist.all_reduce(negative)
    equal("negative", negative, [-both / 2])
    negative = torch._neg_view(torch.full((4,), rank + 1.0))
    dist.all_reduce(negative, async_op=True).wait()
    equal("negative view", negative, [-both / 2] * 4)
    negative = torch._neg_view(torch.full((2,), rank + 1.0))
    dist.broadcast(negative, 0)
    equal("broadcast of a negative view", negative, [-1.0] * 2)
    whole = torch.zeros(2 * size)
    dist.all_gather_into_tensor(whole, torch._neg_view(torch.full((2,), rank + 1.0)))
    equal("all_gather of negative views", whole, [-float(r + 1) for r in range(size) for _ in "ab"])
    expanded = torch.full((1,), rank + 1.0).expand(4)
    dist.all_reduce(expanded)
    equal("expanded", expanded, [both / 2] * 4)
    expanded = torch.full((2, 1), rank + 1.0).expand(2, 3)
    dist.all_reduce(expanded, async_op=True).wait()
    equal("expanded rows", expanded, [[both / 2] * 3] * 2)
    expanded = torch.full((1, 3), rank + 1.0).expand(2, 3)
    dist.broadcast(expanded, 0)
    equal("broadcast into an expanded tensor", expanded, [[1.0] * 3] * 2)
    part = torch.zeros(1).expand(2)
    dist.reduce_scatter_tensor(part, torch.ones(2 * size))
    equal("reduce_scatter into an expanded tensor", part, [float(size)] * 2)
    sliding = torch.arange(6.0).as_strided((4, 3), (1, 1))
    dist.all_reduce(sliding)
    equal("sliding", sliding[0], [0.0, float(size), 2.0 * size])
    zero = torch._efficientzerotensor(3)
    whole = torch.ones(3 * size)
    dist.all_gather_into_tensor(whole, zero)
    equal("a zero without memory", whole, [0.0] * 3 * size)
    empty = torch.zeros(3, 4)[:, :0]
    dist.all_reduce(empty)
    dist.broadcast(empty, 0)


def splits(rank, size):
    """Only some ranks give splits."""
    # Rank 0 sends 1, 2, … rows, and gets as many from itself, and `size` from each other.
    counts = [1 + to for to in range(size)]
    for is_async in [False, True]:
        if rank == 0:
            mine = torch.cat([torch.full((n,), float(to)) for to, n in enumerate(counts)])
            into = torch.zeros(1 + 3 * (size - 1))
            out, given = [1] + [3] * (size - 1), counts
        else:
            # Every other rank sends 3 rows to each, and gets 3 of each but rank 0.
            mine, given = torch.full((3 * size,), float(rank)), None
            out = [counts[rank]] + [3] * (size - 1)
            into = torch.zeros(sum(out))
            out = None if len(set(out)) == 1 else out
        work = dist.all_to_all_single(into, mine, out, given, async_op=is_async)
        if is_async:
            work.wait()
        first = [float(rank)] * counts[rank]
        equal("splits", into, first + [float(r) for r in range(1, size) for _ in range(3)])


def freed(rank, size):
    """What an operation in the background keeps."""
    world = dist.group.WORLD._get_backend(torch.device("cpu"))
    for name, make in [
        ("contiguous", lambda: torch.ones(1000, 10)),
        ("strided", lambda: torch.ones(1000, 10).t()),
        ("int16", lambda: torch.ones(1000, dtype=torch.int16)),
    ]:
        tensor = make()
        alive = weakref.ref(tensor)
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        del tensor, work
        say("waited", name, "freed" if comes_true(lambda: alive() is None) else "alive")
    tensor = torch.ones(1000)
    if rank < 2:
        work = dist.isend(tensor, 1 - rank)
        dist.recv(torch.ones(1000), 1 - rank)
        work.wait()
        alive = weakref.ref(tensor)
        del tensor, work
        say("waited", "message", "freed" if comes_true(lambda: alive() is None) else "alive")
    tensor = torch.ones(1000)
    alive = weakref.ref(tensor)
    works = [dist.all_reduce(tensor, async_op=True), dist.barrier(async_op=True)]
    for work in works:
        work.wait()
    del tensor, works, work
    backend = weakref.ref(world)
    del world
    dist.destroy_process_group()
    say("destroyed", "backend", "freed" if comes_true(lambda: backend() is None) else "alive")
    say("destroyed", "tensor", "freed" if comes_true(lambda: alive() is None) else "alive")


def descriptors(rank, size):
    """The descriptors of a process after groups that came and went. Three are opened once, perhaps
    late: two of the helper thread, which begins with the first unfinished call, and one of the
    default group."""
    count = lambda: len(os.listdir("/proc/self/fd"))
    for is_async in [False, True]:
        first = None
        for turn in range(12):
            group = dist.new_group(list(range(size)))
            work = dist.all_reduce(torch.ones(1), group=group, async_op=is_async)
            if is_async:
                work.wait()
            dist.destroy_process_group(group)
            del group, work
            dist.barrier()
            time.sleep(0.2)
            if turn == 3:
                first = count()
        most = first + 3
        say("descriptors", "closed" if comes_true(lambda: count() <= most) else count() - first)


# Ranks that end.


def killed(rank, size):
    """Rank 2 dies. Nobody has exchanged a message with it, or with any other."""
    dist.barrier()
    if rank == 2:
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)
    receive = dist.irecv(torch.zeros(3), 2)
    # A short message leaves at once.
    send = dist.isend(torch.zeros(LONG), 2)
    anybody = dist.all_reduce(torch.ones(3), async_op=True)
    fails("all_reduce", anybody.wait)
    fails("irecv", receive.wait)
    fails("isend", send.wait)
    fails("later", lambda: dist.recv(torch.zeros(3), 2))
    # The group has failed, also for messages of the others.
    fails("others", lambda: (dist.recv if rank else dist.send)(torch.ones(2), 1 - rank))


def killed_again(rank, size):
    """Rank 2 dies after a message from it, and the next never comes."""
    if rank == 2:
        dist.send(torch.ones(3), 0)
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 0:
        dist.recv(torch.zeros(3), 2)
        fails("recv", lambda: dist.recv(torch.zeros(3), 2))
        fails("send", lambda: dist.send(torch.zeros(3), 2))


def left(rank, size):
    """Rank 1 leaves before the first message."""
    dist.barrier()
    if rank == 1:
        dist.destroy_process_group()
        time.sleep(15)
        return
    time.sleep(1)
    fails("send", lambda: dist.send(torch.ones(LONG), 1))
    fails("recv", lambda: dist.recv(torch.ones(3), 1))


def aborted(rank, size):
    """Rank 0 aborts while messages wait for their first partner."""
    dist.barrier()
    if rank == 0:
        waiting = dist.irecv(torch.zeros(3), 1)
        time.sleep(1)
        dist.group.WORLD._get_backend(torch.device("cpu")).abort()
        fails("own irecv", waiting.wait)
    elif rank == 2:
        fails("irecv", lambda: dist.recv(torch.zeros(3), 0))
    else:
        time.sleep(8)


def destroyed(rank, size):
    """A group is destroyed while a message waits for its partner."""
    group = dist.new_group(list(range(size)))
    if rank == 0:
        waiting = dist.irecv(torch.zeros(3), 1, group=group)
        time.sleep(0.5)
        dist.destroy_process_group(group)
        fails("irecv", waiting.wait)
    dist.barrier()


def aborted_pair(rank, size):
    """Rank 1 aborts while rank 2 waits for its next message."""
    if rank == 1:
        dist.send(torch.ones(3), 2)
        time.sleep(1)
        dist.group.WORLD._get_backend(torch.device("cpu")).abort()
    elif rank == 2:
        dist.recv(torch.zeros(3), 1)
        error = fails("recv", lambda: dist.recv(torch.zeros(3), 1)).__cause__
        say("attributes", error.rank, error.peers, error.operation, error.cause)
    else:
        time.sleep(5)


def callbacks(rank, size):
    """A function that learns of the end of a message sends another, while a thread aborts."""
    dist.barrier()
    if rank == 1:
        dist.destroy_process_group()
        time.sleep(15)
        return
    backend, ended = dist.group.WORLD._get_backend(torch.device("cpu")), threading.Event()

    def learn(_future):
        aborting = threading.Thread(target=backend.abort)
        aborting.start()
        time.sleep(0.5)
        dist.isend(torch.ones(3), 1)
        aborting.join()
        ended.set()

    dist.isend(torch.ones(3), 1).get_future().add_done_callback(learn)
    say("callback", "ended" if ended.wait(20) else "hangs")
    os._exit(0)


def matched(rank, size):
    """Receives choose messages by their tags and sources."""
    if rank == 1:
        works = [dist.isend(torch.full((LONG,), float(tag)), 2, tag=tag) for tag in (1, 2, 3)]
        for work in works:
            work.wait()
    elif rank == 2:
        mine = [torch.zeros(LONG) for _ in range(3)]
        anybody = dist.irecv(mine[2], tag=3)
        dist.recv(mine[1], 1, tag=2)
        dist.recv(mine[0], 1, tag=1)
        anybody.wait()
        equal("the source", torch.tensor(anybody._source_rank()), 1)
        for tag, tensor in enumerate(mine, 1):
            equal(f"tag {tag}", tensor[[0, -1]], [float(tag)] * 2)
    # A ring of messages in the background, beside a collective.
    reduced, sums = torch.ones(LONG), torch.zeros(LONG)
    works = [dist.all_reduce(reduced, async_op=True)]
    works.append(dist.irecv(sums, (rank - 1) % size))
    works.append(dist.isend(torch.full((LONG,), float(rank)), (rank + 1) % size))
    for work in reversed(works):
        work.wait()
    equal("the ring", sums[-1], float((rank - 1) % size))
    equal("the sum", reduced[-1], float(size))


def own_time(rank, size):
    """An operation has a timeout of its own, far below that of the group."""
    dist.barrier()
    if rank == 0:
        options = dist.AllreduceOptions()
        options.timeout, options.asyncOp = timedelta(seconds=2), True
        work = dist.group.WORLD.allreduce([torch.ones(1)], options)
        fails("allreduce", work.wait)
    else:
        time.sleep(15)


def own_times(rank, size):
    """Only one of two threads gives its operation a timeout of its own, and rank 1 is late."""
    world = dist.group.WORLD
    dist.barrier()
    if rank == 1:
        time.sleep(5)
        for _ in range(2):
            dist.all_reduce(torch.ones(1))
        return
    backend = world._get_backend(torch.device("cpu"))
    comm = backend._comm

    class Slow:
        """The communicator, whose calls with the timeout take a while to begin."""

        def __getattr__(self, name):
            return getattr(comm, name)

        def all_reduce(self, *arguments, **names):
            if threading.current_thread() is timed:
                time.sleep(1)
            return comm.all_reduce(*arguments, **names)

    def reduce_in_time():
        options = dist.AllreduceOptions()
        options.timeout, options.asyncOp = timedelta(seconds=2), True
        works.append(world.allreduce([torch.ones(1)], options))

    works, backend._comm = [], Slow()
    timed = threading.Thread(target=reduce_in_time)
    timed.start()
    time.sleep(0.5)
    works.append(dist.all_reduce(torch.ones(1), async_op=True))
    timed.join()
    backend._comm = comm
    for work in works:
        work.wait()
    say("both are done")


def split_again(rank, size):
    """A split is interrupted on rank 1, and both split again."""
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    timeout = backend.options._timeout
    backend.set_timeout(timedelta(seconds=3))
    if rank == 1:
        os.environ["RINGFOLD_WIRE"] = "nonsense"
    fails("split", lambda: backend.split(None, [0, 1], None))
    os.environ.pop("RINGFOLD_WIRE", None)
    backend.set_timeout(timeout)
    dist.barrier()
    child = backend.split(None, [0, 1], None)
    mine = torch.ones(1)
    options = dist.AllreduceOptions()
    options.asyncOp = False
    child.allreduce([mine], options)
    equal("the second split", mine, [float(size)])
    child.shutdown()


def ended(rank, size):
    """Rank 1 ends while rank 0 reduces."""
    dist.barrier()
    if rank == 0:
        fails("all_reduce", lambda: dist.all_reduce(torch.ones(10)))


# Groups.


def connections(rank, size):
    """The connections to the store that groups make."""
    clones = []
    original = dist.PrefixStore.clone

    def clone(store):
        clones.append(store)
        return original(store)

    dist.PrefixStore.clone = clone
    for _ in range(5):
        group = dist.new_group(list(range(size)))
        dist.all_reduce(torch.ones(1), group=group)
        dist.send(torch.ones(1), 1, group=group) if rank == 0 else None
        dist.recv(torch.ones(1), 0, group=group) if rank == 1 else None
        part = dist.split_group(split_ranks=[list(range(size))])
        mine = torch.ones(1)
        dist.all_reduce(mine, group=part)
        equal("split", mine, [float(size)])
        dist.destroy_process_group(part)
        dist.destroy_process_group(group)
    say("connections", len(clones))


def host_ends(rank, size):
    """Rank 0, which has the store, ends while others make a group."""
    group = dist.new_group([2, 3])
    if rank >= 2:
        mine = torch.ones(1)
        dist.all_reduce(mine, group=group)
        say("reduced", mine.item())


def host_ended(rank, size):
    """Rank 0, which has the store, has ended when others make a group."""
    dist.barrier()
    if rank == 0:
        sys.stdout.flush()
        os._exit(0)
    time.sleep(2)
    fails("new_group", lambda: dist.new_group([1, 2]))
    os._exit(0)


def reconfigured(rank, size):
    """A group by torch's `reconfigure`, which loses rank 0, and with it the store."""
    fails("before", lambda: dist.all_reduce(torch.ones(1)))
    store, handles = dist.distributed_c10d._get_default_store(), [None] * size
    store.set(f"handle {rank}", dist._get_reconfigure_handle())
    for other in range(size):
        handles[other] = store.get(f"handle {other}").decode()
    # The ranks of a list are in its order.
    dist._reconfigure(7, handles[::-1]).wait()
    say("rank", dist.get_rank(), "of", dist.get_world_size())
    fails("stale", lambda: dist._reconfigure(8, handles))
    dist.all_gather_object(handles, dist._get_reconfigure_handle())
    fails("nonsense", lambda: dist._reconfigure(8, ["nonsense"]))
    fails("twice", lambda: dist._reconfigure(8, [handles[0]] * 2))
    fails("without", lambda: dist._reconfigure(8, handles[: dist.get_rank()]))
    fails("reused", lambda: dist._reconfigure(7, handles))
    mine = torch.full((3,), float(dist.get_rank()))
    dist.all_reduce(mine)
    say("sum", mine[0].item())
    if rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    fails("killed", lambda: dist.all_reduce(mine))
    # The ranks of a set keep their order. Rank 0 of the job was the last one.
    dist._reconfigure(9, set(handles[:-1])).wait()
    say("rank", dist.get_rank(), "of", dist.get_world_size())
    ranks = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, rank)
    say("ranks", ranks)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    model(torch.full((1, 2), float(rank))).sum().backward()
    # The mean of the ranks that are left.
    say("gradient", model.module.weight.grad.tolist())
    dist.destroy_process_group()


def halved(rank, size):
    """Ranks 0 and 1 stop. The others are half, and go on by the vote of torchrun's store."""
    store, pids = dist.distributed_c10d._get_default_store(), [None] * size
    dist.all_gather_object(pids, os.getpid())
    dist.group.WORLD._get_backend(torch.device("cpu")).set_timeout(timedelta(seconds=3))
    if rank < 2:
        os.kill(os.getpid(), signal.SIGSTOP)
    fails("all_reduce", lambda: dist.all_reduce(torch.ones(1)))
    if rank < 2:
        fails("shrink", ringfold.torch.shrink)
        store.add("out", 1)
        sys.stdout.flush()
        os._exit(0)
    ringfold.torch.shrink()
    mine = torch.ones(1)
    dist.all_reduce(mine)
    say("reduced", mine.item())
    if dist.get_rank() == 0:
        for pid in pids[:2]:
            os.kill(pid, signal.SIGCONT)
    # The two learn of this group as long as it lives.
    if not comes_true(lambda: store.add("out", 0) == 2, 60):
        say("wrong: the two ranks do not end")


def flights(rank, size):
    """Rank 1 sleeps where the others reduce. All write what torch's Flight Recorder has."""
    dist.all_reduce(torch.ones(4))
    dist.broadcast(torch.ones(5), 0, async_op=True).wait()
    dist.barrier()
    dumped = threading.Event()

    def dump():
        time.sleep(2)
        say("dumped", ringfold.torch.dump_flights(os.environ["FLIGHTS"]))
        dumped.set()

    threading.Thread(target=dump).start()
    if rank == 1:
        # The hang.
        dumped.wait()
        time.sleep(4)
    dist.all_reduce(torch.ones(6))
    dumped.wait()


def profiled(rank, size):
    """The events of the profiler."""
    into = torch.zeros(size, 3)
    with torch.profiler.profile(record_shapes=True) as profile:
        dist.all_reduce(torch.ones(3, 2))
        dist.all_reduce(torch.ones(3, 2), async_op=True).wait()
        dist.all_gather_into_tensor(into, torch.ones(1, 3))
        dist.broadcast(torch.ones(4), 0)
        dist.barrier()
        if rank == 0:
            dist.send(torch.ones(5), 1)
        elif rank == 1:
            dist.recv(torch.ones(5), 0)
    for event in profile.events():
        if event.name.startswith("ringfold:"):
            say("event", event.name, event.input_shapes)
    dist.all_reduce(torch.ones(1))


def main():
    name, *rest = sys.argv[1:]
    may_change = name == "reconfigured"
    dist.init_process_group(*(rest or ["ringfold"]), enable_reconfigure=may_change)
    globals()[name](dist.get_rank(), dist.get_world_size())
    if dist.is_initialized():
        dist.destroy_process_group()
    say("end")


if __name__ == "__main__":
    main()
