"""A child of fork ends, whatever locks the threads of its parent held."""

import array
import os
import signal
import sys
import time

import ringfold


def fork_during_release(delay):
    """Forks while a thread of ringfold starts the one that releases the memory of a call."""
    comm = ringfold.init()
    comm.all_reduce(array.array("f", [1.0]), async_op=True)
    time.sleep(delay)
    child = os.fork()
    if child == 0:
        return
    end = time.monotonic() + 10
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            sys.exit(f"a child that was made after {delay} s hangs")
        time.sleep(0.001)


for turn in range(60):
    # Each turn has a fresh process.
    child = os.fork()
    if child == 0:
        fork_during_release(turn % 20 * 1e-5)
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0, turn
print("content", flush=True)
