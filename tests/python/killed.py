"""The last rank kills itself, and the others get the cause."""

import array
import os
import signal
import time

import ringfold

comm = ringfold.init()
comm.barrier()
if comm.rank == comm.size - 1:
    # The others leave the barrier before, and wait in the next call.
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
try:
    while True:
        comm.all_reduce(array.array("f", [1.0] * 1000))
except ringfold.FailedError as error:
    assert (error.kind, error.peers) == ("died", (comm.size - 1,)), error
    assert error.rank == comm.rank and "allreduce" in error.operation, error.operation
    print(f"rank {comm.rank} knows", flush=True)
