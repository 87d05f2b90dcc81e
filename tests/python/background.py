"""Calls in the background: order, coroutines, callbacks, and handles that nobody keeps."""

import array
import asyncio
import gc
import os
import threading
import time
import weakref

import ringfold

comm = ringfold.init(timeout=60)
rank, size = comm.rank, comm.size
total = sum(range(size))


def soon(condition, what):
    """Waits for a condition without a call of ringfold."""
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.001)


def threads():
    """The names of the threads of this process."""
    names = []
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/comm") as file:
            names.append(file.read().strip())
    return names


def no_worker():
    """Collectives in the background have one thread of the process at most."""
    groups = [comm.duplicate() for _ in range(4)]
    buffers = [array.array("f", [rank] * 50_000) for _ in groups]
    window = comm.alloc(1000, "float32")
    memoryview(window)[:] = memoryview(array.array("f", [rank] * 1000))
    late = groups[0].all_reduce(buffers[0], async_op=True) if rank == 0 else None
    if size > 1:
        # Rank 0 is in the call when the others begin it.
        comm.barrier()
    handles = [late or groups[0].all_reduce(buffers[0], async_op=True)]
    handles += [group.all_reduce(it, async_op=True) for group, it in zip(groups[1:], buffers[1:])]
    for start in (0, 500):
        handles.append(comm.all_reduce_window(window, start=start, count=500, async_op=True))
    together, one = groups[3].group(), array.array("q", [1])
    together.all_reduce(one)
    handles.append(together.run(async_op=True))
    for handle in reversed(handles):
        handle.wait(60)
    assert one[0] == size
    assert set(memoryview(window)) == {total}
    assert all(set(buffer) == {total} for buffer in buffers)
    # A new thread has the name of its parent for a moment. Calls of the other ranks may have ended
    # while they were started, without a helper.
    least = int(size > 1 and rank == 0)
    soon(lambda: least <= threads().count("ringfold-calls") <= 1, "one helper")
    # A duplicate is made by the worker of its parent.
    assert threads().count("ringfold") <= 1, threads()
    for group in groups:
        group.close()


def order():
    """Blocking and background calls of every kind follow one another."""
    for turn in range(30):
        value = array.array("q", [1] * (1 + turn * 301))
        gathered = array.array("q", [0] * (len(value) * size))
        handles = [comm.all_reduce(value, async_op=True), comm.all_reduce(value, async_op=True)]
        if turn % 2:
            comm.all_reduce(value)
        else:
            handles.append(comm.all_reduce_by(value, op=add, async_op=True))
        handles.append(comm.all_gather(value, gathered, async_op=True))
        part = array.array("q", [rank] * (rank + 1))
        parts = array.array("q", [0] * sum(range(size + 1)))
        handles.append(
            comm.all_gather_v(part, parts, parts=list(range(1, size + 1)), async_op=True)
        )
        near, far = array.array("q", [rank]), array.array("q", [0])
        right, left = (rank + 1) % size, (rank - 1) % size
        if size > 1:
            comm.send_recv(near, right, far, left)
            assert far[0] == left
        handles.append(comm.broadcast(far, root=0, async_op=True))
        with comm.group() as group:
            group.all_reduce(near)
        assert near[0] == total
        group = comm.group()
        sent, got, sums = (array.array("q", [at]) for at in (turn, -1, rank))
        group.send(sent, right, 9)
        group.recv(got, left, 9)
        group.all_reduce(sums)
        group.run(async_op=True).wait()
        assert got[0] == turn and sums[0] == total
        assert set(gathered) == {size**3}, (turn, gathered[:3])
        assert list(parts) == [of for of in range(size) for _ in range(of + 1)]
        assert far[0] == (size - 1 if size > 1 else 0)
        for handle in handles:
            assert handle.is_completed() and handle.exception() is None, handle
            handle.wait()


def several_threads():
    """Several threads wait for calls of one communicator, in any order."""
    buffers = [array.array("i", [rank + at] * 3000) for at in range(24)]
    handles = [comm.all_reduce(buffer, async_op=True) for buffer in buffers]
    failures = []

    def wait(part):
        try:
            for handle in part:
                handle.wait(60)
        except BaseException as error:
            failures.append(error)

    waiting = [threading.Thread(target=wait, args=(handles[at::3][::-1],)) for at in range(3)]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join()
    assert not failures, failures
    for at, buffer in enumerate(buffers):
        assert set(buffer) == {total + at * size}, at


def coroutines():
    """Many coroutines await calls, while the loop goes on."""

    async def reduce(at):
        buffer = array.array("d", [rank + at] * (1 + at * 97 % 3000))
        await comm.all_reduce(buffer, async_op=True)
        assert set(buffer) == {total + size * at}, at
        return at

    async def tick(ticks):
        while True:
            ticks.append(time.monotonic())
            await asyncio.sleep(0.001)

    async def main():
        ticks = []
        ticking = asyncio.create_task(tick(ticks))
        assert await asyncio.gather(*map(reduce, range(200))) == list(range(200))
        # A call that is done needs no turn of the loop.
        handle = comm.barrier(async_op=True)
        handle.wait()
        await handle
        # The loop goes on while rank 0 is late.
        if rank == 0:
            before = len(ticks)
            await asyncio.sleep(0.3)
            assert len(ticks) > before + 10
        before = len(ticks)
        await comm.barrier(async_op=True)
        if rank != 0:
            assert len(ticks) > before + 10, len(ticks) - before
        # A cancelled coroutine leaves its call alone.
        handle = comm.barrier(async_op=True) if rank == 0 else None
        if handle and size > 1:
            try:
                await asyncio.wait_for(await_it(handle), 0.05)
                raise AssertionError("nobody else is in the barrier")
            except TimeoutError:
                pass
            assert not handle.is_completed()
        comm_of_threads.barrier()
        await (handle or comm.barrier(async_op=True))
        ticking.cancel()

    async def await_it(handle):
        await handle

    comm_of_threads = comm.duplicate()
    asyncio.run(main())
    # A loop that has ended hears of no call, and no exception is reported.
    late = comm.duplicate()

    async def leave():
        waiting = asyncio.create_task(await_it(late.barrier(async_op=True)))
        await asyncio.sleep(0)
        waiting.cancel()

    if rank == 0:
        asyncio.run(leave())
        comm_of_threads.barrier()
    else:
        comm_of_threads.barrier()
        late.barrier()
    comm.barrier()
    late.close()
    comm_of_threads.close()


def callbacks():
    """Functions learn of the ends in their order, and may start the next calls."""
    steps, done, last = array.array("q", [1]), [], threading.Event()

    def next_call(handle):
        assert handle.is_completed() and handle.exception() is None
        done.append(steps[0])
        if len(done) < 20:
            comm.all_reduce(steps, op="max", async_op=True).add_done_callback(next_call)
        else:
            last.set()

    comm.all_reduce(steps, async_op=True).add_done_callback(next_call)
    assert last.wait(60)
    assert done == [size] * 20, done
    ended = []
    handles = [comm.barrier(async_op=True) for _ in range(50)]
    for number, handle in enumerate(handles):
        handle.add_done_callback(lambda _, number=number: ended.append(number))
    soon(lambda: len(ended) == 50, "functions that learn of an end")
    if size > 1:
        # One that is added after the end runs at once, maybe before others.
        assert sorted(ended) == list(range(50)), ended


def results_of_functions():
    """A call that blocks, or a wait, ends after the functions that learn of the ends before it."""
    for wait in [comm.barrier, lambda: comm.barrier(async_op=True).wait(60)]:
        heard = []

        def learn(_):
            time.sleep(0.05)
            heard.append(1)

        for _ in range(3):
            comm.all_reduce(array.array("q", [1] * 5000), async_op=True).add_done_callback(learn)
        wait()
        assert heard == [1] * 3, heard


def forgotten():
    """Calls go on without their handles, and keep their memory until they end."""

    class Kept:
        pass

    buffers = [array.array("f", [rank] * 20_000) for _ in range(10)]
    kept, alive = [Kept() for _ in buffers], []
    for buffer, it in zip(buffers, kept):
        pair = (buffer.buffer_info()[0], 80_000)
        comm.all_reduce(pair, dtype="float32", async_op=True, keep=(it, buffer))
        alive.append(weakref.ref(it))
    del kept, it
    comm.barrier()
    assert all(set(buffer) == {total} for buffer in buffers)
    soon(lambda: not any(it() for it in alive), "the objects of calls that have ended")
    # Nobody has a reference to the communicator: it leaves after its calls.
    other = comm.duplicate()
    handle = other.all_reduce(buffers[0], async_op=True)
    del other
    gc.collect()
    handle.wait(60)
    assert buffers[0][0] == total * size


def forked():
    """A child of fork cannot wait for the calls of its parent."""
    other = comm.duplicate()
    buffer = array.array("f", [1.0] * 10_000)
    if rank == 0:
        handle = other.all_reduce(buffer, async_op=True)
        child = os.fork()
        if child == 0:
            try:
                waits = [lambda: handle.wait(1)] if size > 1 else []
                for call in [*waits, lambda: other.barrier(async_op=True)]:
                    try:
                        call()
                        os._exit(1)
                    except ringfold.ForkedError:
                        pass
                del handle, other
                gc.collect()
                os._exit(0)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        comm.barrier()
        handle.wait(60)
    else:
        comm.barrier()
        other.all_reduce(buffer)
    assert buffer[0] == size
    other.close()


def plus(into, other):
    for at, value in enumerate(other):
        into[at] += value


def prepared():
    """Collectives, messages and groups that start many times."""
    buffer, got = array.array("q", [0] * 9), array.array("q", [0])
    parts = array.array("q", [rank] * size)
    group, one = comm.group(), array.array("q", [1])
    group.all_reduce(one)
    window = comm.alloc(4)
    calls = [
        comm.prepare(comm.all_reduce, buffer, op="max"),
        comm.prepare(comm.all_reduce_by, buffer, op=add),
        comm.prepare(comm.all_to_all_v, parts, array.array("q", [0] * size), recv=[1] * size),
        comm.prepare(group.run),
        comm.prepare(comm.recv, got, (rank - 1) % size, 5),
        comm.prepare(comm.all_reduce_window, window, op="max"),
        comm.prepare(comm.send, array.array("q", [rank]), (rank + 1) % size, 5),
    ]
    assert len({id(call) for call in calls}) == 7 and got[0] == 0
    gc.collect()
    for step in range(3):
        buffer[:], one[0], got[0] = array.array("q", [rank + step] * 9), step, -1
        memoryview(window)[3] = rank + step
        # Calls have the order of their starts.
        handles = [call.start() for call in calls]
        for handle in reversed(handles):
            handle.wait(60)
        assert set(buffer) == {(size - 1 + step) * size}, buffer
        assert memoryview(window)[3] == size - 1 + step
        assert one[0] == step * size and got[0] == (rank - 1) % size
        assert handles[4].message.tag == 5
    if size > 1:
        late = comm.prepare(comm.recv, got, (rank - 1) % size, 6)
        handle = late.start()
        assert "active" in repr(late)
        refused(late.start, "is active")
        comm.barrier()
        comm.send(buffer, (rank + 1) % size, 7)
        comm.recv(buffer, (rank - 1) % size, 7)
        # The active call keeps its memory.
        del late
        gc.collect()
        comm.send(array.array("q", [8]), (rank + 1) % size, 6)
        handle.wait(60)
        assert got[0] == 8
    other = comm.duplicate()
    refused(lambda: comm.prepare(other.barrier), "of this communicator")
    refused(lambda: comm.prepare(dict), "starts a call")
    twice = lambda async_op: [comm.barrier(async_op=True) for _ in range(2)]  # noqa: E731
    refused(lambda: comm.prepare(twice), "one call")
    refused(lambda: comm.prepare(comm.all_reduce, buffer, op="nonsense"), "nonsense")
    barrier = other.prepare(other.barrier)
    other.close()
    try:
        barrier.start()
    except ringfold.ClosedError:
        pass
    else:
        raise AssertionError("a closed communicator started a call")


def refused(call, words):
    """A call raises an ArgumentError with these words."""
    try:
        call()
    except ringfold.ArgumentError as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"no error with {words!r}")


no_worker()
add = comm.register_op("add", plus, "int64")
order()
several_threads()
coroutines()
callbacks()
results_of_functions()
prepared()
forgotten()
forked()
comm.close()
print(f"rank {rank} is content", flush=True)
