"""The last rank kills itself. The others check what docs/recovery.md says of the old communicator."""

import array
import os
import signal
import time

import ringfold

comm = ringfold.init()
pair = comm.split(comm.rank // 2)
window = comm.alloc(100, "f32")
values = memoryview(window)
values[:] = array.array("f", [comm.rank] * 100)
comm.barrier()
if comm.rank == comm.size - 1:
    # The others leave the barrier before, and wait in the next call.
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)


def failed(call):
    """Makes a call until it fails."""
    try:
        while True:
            call()
    except ringfold.FailedError as error:
        return error


# Inputs of calls out of place, long ones too.
given = array.array("f", range(100_000))
found = array.array("f", [0.0] * len(given))
error = failed(lambda: comm.all_reduce(given, found))
assert (error.kind, error.peers) == ("died", (comm.size - 1,)), error
assert given == array.array("f", range(100_000)), "the input is unchanged"

# Windows stay mapped. The next communicator has none of them.
assert list(values) == [comm.rank] * 100
survivors = comm.shrink()
try:
    survivors.all_reduce_window(window)
    raise AssertionError("a window of the old communicator")
except ringfold.ArgumentError:
    pass
again = survivors.alloc(10, "f32")
memoryview(again)[:] = array.array("f", [1.0] * 10)
survivors.all_reduce_window(again)
assert list(memoryview(again)) == [survivors.size] * 10
assert list(values) == [comm.rank] * 100

# Groups fail by themselves, and go on without the dead.
if comm.rank // 2 == (comm.size - 1) // 2:
    error = failed(pair.barrier)
    assert (error.kind, error.peers) == ("died", (1,)), error
    pair = pair.shrink()
    assert (pair.size, pair.identity(0)) == (1, comm.rank)
total = array.array("f", [1.0])
pair.all_reduce(total)
assert total[0] == pair.size
print(f"rank {comm.rank} knows", flush=True)
