"""The last rank kills itself, and the others get the cause, also those with calls in the background."""

import array
import asyncio
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
handles, heard = [], []
if comm.rank == 0:
    for number in range(20):
        buffer = array.array("f", [1.0] * 1000)
        handles.append(comm.all_reduce(buffer, async_op=True))
        handles[-1].add_done_callback(lambda handle: heard.append(handle.exception().kind))
try:
    while True:
        comm.all_reduce(array.array("f", [1.0] * 1000))
except ringfold.FailedError as error:
    assert (error.kind, error.peers) == ("died", (comm.size - 1,)), error
    assert error.rank == comm.rank and "allreduce" in error.operation, error.operation

    async def await_all():
        return await asyncio.gather(*handles, return_exceptions=True)

    for failure in [*asyncio.run(await_all()), *(handle.exception() for handle in handles)]:
        assert isinstance(failure, ringfold.FailedError), failure
        assert failure.cause == error.cause, (failure, error)
    end = time.monotonic() + 30
    while heard != ["died"] * len(handles):
        assert time.monotonic() < end, heard
        time.sleep(0.01)
    assert comm.failed_ranks() == [comm.size - 1], comm.failed_ranks()
    assert comm.agree(~(1 << comm.rank) & 15) == 15 & -(1 << (comm.size - 1))
    survivors = comm.shrink()
    total = array.array("f", [1.0] * 1000)
    survivors.all_reduce(total)
    assert total[0] == survivors.size == comm.size - 1, (total[0], survivors)
    assert (survivors.epoch, survivors.identity(0), survivors.name) == (1, 0, "epoch 1"), survivors
    # All have left the calls before when rank 0 revokes the communicator.
    assert survivors.agree(1) == 1
    if survivors.rank == 0:
        survivors.revoke()
    try:
        while True:
            survivors.barrier()
    except ringfold.FailedError as error:
        assert (error.kind, error.peers, survivors.failed_ranks()) == ("revoked", (), []), error
    print(f"rank {comm.rank} knows", flush=True)
