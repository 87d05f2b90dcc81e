"""Rank 0 ends its program during a call that its peers never make: it ends soon, and they learn why."""

import array
import os
import sys
import threading
import time

import ringfold

how = sys.argv[1]
comm = ringfold.init(timeout=300)
start, word = array.array("d", [0.0, 0.0]), array.array("f", [0.0])
if comm.rank == 0:
    start[:] = array.array("d", [os.getpid(), time.time()])
    comm.broadcast(start)
    if how == "thread":

        def wait():
            try:
                comm.recv(word, 1)
            except ringfold.FailedError as error:
                print("the thread knows:", error.cause, flush=True)

        threading.Thread(target=wait, daemon=True).start()
        time.sleep(0.2)
    elif how == "background":
        comm.recv(word, 1, async_op=True)
    elif how == "started":
        handles = [comm.all_reduce(word, async_op=True) for _ in range(3)]
        handles[2].add_done_callback(lambda handle: print("done:", handle.exception(), flush=True))
        del handles[1:]
    else:
        handles = [comm.recv(word, 1, tag, async_op=True) for tag in range(2)]
        handles[1].add_done_callback(lambda handle: print("done:", handle.exception(), flush=True))
    sys.exit(0)

comm.broadcast(start)
pid, began = int(start[0]), start[1]
try:
    # A collective would be another one than rank 0's.
    comm.recv(word, 0) if how == "started" else comm.barrier()
except ringfold.FailedError as error:
    assert error.kind == "aborted" and "the program ended during a call" in error.cause, error
    assert error.peers == (0,), error
else:
    raise AssertionError("no failure")
while os.path.exists(f"/proc/{pid}"):
    assert time.time() - began < 10, "rank 0 has not ended"
    time.sleep(0.01)
print(f"rank 0 ended after {time.time() - began:.1f} s", file=sys.stderr)
print("content", flush=True)
