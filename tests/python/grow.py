"""A running job takes a newcomer in, all reduce, and the newcomer leaves again."""

import array
import subprocess
import sys

import ringfold


def total(comm):
    """The sum of the ranks' numbers from 1 on."""
    mine, sum_of_all = array.array("q", [comm.rank + 1] * 5), array.array("q", [0] * 5)
    comm.all_reduce(mine, sum_of_all)
    return list(sum_of_all)


if sys.argv[1:]:
    comm = ringfold.init_as_newcomer(sys.argv[1])
    assert (comm.rank, comm.size, comm.epoch) == (2, 3, 1), comm
    state = array.array("q", [0])
    comm.broadcast(state, root=0)
    assert state[0] == 17, state
    assert total(comm) == [6] * 5
    comm.close()
    sys.exit(0)

comm = ringfold.init()
assert total(comm) == [3] * 5
id, newcomer = None, None
if comm.rank == 0:
    id = ringfold.unique_id()
    newcomer = subprocess.Popen([sys.executable, __file__, id])
larger = comm.grow(1, id)
assert (larger.rank, larger.size) == (comm.rank, 3), larger
# A newcomer has an identity of its own.
assert [larger.identity(rank) for rank in range(3)] == [0, 1, 2]
state = array.array("q", [17])
larger.broadcast(state, root=0)
assert total(larger) == [6] * 5
if newcomer is not None:
    assert newcomer.wait(60) == 0
try:
    while True:
        larger.barrier()
except ringfold.FailedError as error:
    assert "rank 2 has left the job" in str(error), error
smaller = larger.shrink()
assert (smaller.rank, smaller.size) == (comm.rank, 2)
assert total(smaller) == [3] * 5
# The old communicator was never in the failure.
assert total(comm) == [3] * 5
print("content")
