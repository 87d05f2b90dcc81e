"""The time of a blocking all-reduce of a numpy array, per call: ringrun -n 2 python all_reduce.py

Compare it with `allreduce-perf` of the same wheel, under the same launcher.
"""

import sys
import time

import numpy
import ringfold

comm = ringfold.init()
for count, calls in ((2, 20_000), (4 << 20, 30)):
    array = numpy.zeros(count, dtype="float32")
    best = float("inf")
    for _ in range(7):
        comm.barrier()
        began = time.perf_counter()
        for _ in range(calls):
            comm.all_reduce(array)
        best = min(best, (time.perf_counter() - began) / calls)
    if comm.rank == 0:
        sys.stdout.write(f"{array.nbytes} bytes: {best * 1e6:.2f} us\n")
