"""Several groups used by several threads at once, and one group by several threads."""

import array
import threading

import ringfold

comm = ringfold.init()
rank, size = comm.rank, comm.size
THREADS, CALLS = 4, 120
failures = []


def run(work):
    """Runs `work` in each of some threads, and reports what it raises."""

    def guarded(number):
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


groups = [comm.duplicate() for _ in range(THREADS)]


def own_group(number):
    """Calls of many kinds on the group of this thread."""
    group, waiting = groups[number], []
    for call in range(CALLS):
        count = 1 + call * 37 % 2000
        buffer = array.array("q", [rank + number] * count)
        if call % 3:
            handle = group.all_reduce(buffer, async_op=True)
            waiting.append((handle, buffer))
        else:
            group.broadcast(buffer, root=call % size)
            assert buffer[-1] == call % size + number, (number, call)
        if call % 8 == 0:
            for handle, done in waiting:
                handle.wait(60)
                assert set(done) == {sum(range(size)) + size * number}, (number, call)
            waiting.clear()
    for handle, _ in waiting:
        handle.wait(60)


def one_group(_):
    """The same call by each thread, so that the order of the threads does not matter."""
    for call in range(CALLS):
        buffer = array.array("f", [1.0] * 100)
        handle = comm.all_reduce(buffer, async_op=bool(call % 2))
        if handle is not None:
            handle.wait(60)
        assert buffer[99] == size


run(own_group)
run(one_group)
for group in groups[1:]:
    group.close()

comm.close()
print(f"rank {rank} is content", flush=True)
