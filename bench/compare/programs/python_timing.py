"""Times a blocking all-reduce of a numpy array in place.

    ringrun -n 2 python python_timing.py BYTES CALLS

Rank 0 prints the microseconds of a call, on the mean of the ranks as the perf programs do.
"""

import sys
import time

import numpy
import ringfold

size, calls = map(int, sys.argv[1:])
comm = ringfold.init()
array = numpy.zeros(size // 4, dtype="float32")
for _ in range(max(1, calls // 10)):
    comm.all_reduce(array)
comm.barrier()
began = time.perf_counter()
for _ in range(calls):
    comm.all_reduce(array)
taken = numpy.array([time.perf_counter() - began])
comm.all_reduce(taken, op="avg")
if comm.rank == 0:
    sys.stdout.write(f"{taken[0] / calls * 1e6}\n")
