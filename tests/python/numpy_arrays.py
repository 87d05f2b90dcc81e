"""Arrays of numpy: all types, orders and layouts, by the buffer protocol and DLPack."""

import numpy
import ringfold

comm = ringfold.init()
rank, size = comm.rank, comm.size
TYPES = ["int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]


def refused(call, words):
    try:
        call()
    except ringfold.ArgumentError as error:
        assert words in str(error), (words, str(error))
        return
    raise AssertionError(f"no error with {words!r}")


class Lent:
    """An array that lends its memory by DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


total = sum(range(size))
for dtype in TYPES:
    for wrap in [lambda array: array, Lent]:
        matrix = numpy.full((3, 5), rank, dtype=dtype)
        comm.all_reduce(wrap(matrix))
        assert (matrix == total).all(), dtype
        ones, sums = numpy.ones(7, dtype=dtype), numpy.zeros(7, dtype=dtype)
        comm.scan(wrap(ones), wrap(sums))
        assert (sums == rank + 1).all(), dtype
        comm.all_reduce(wrap(ones), wrap(sums), dtype=ones.dtype, async_op=True).wait()
        assert (sums == size).all() and (ones == 1).all(), dtype

bits = numpy.full(9, 0x3F80, dtype="uint16")
comm.all_reduce(bits, dtype="bfloat16")
assert ((bits.astype("uint32") << 16).view("float32") == size).all(), "bfloat16"
for name, one in [("float8_e4m3fn", 0x38), ("float8_e5m2", 0x3C)]:
    small = numpy.full(9, one, dtype="uint8")
    comm.all_reduce(small, op="max", dtype=name)
    assert (small == one).all(), name

flags = numpy.array([rank == 0, True, False])
comm.all_reduce(flags, op="lor")
assert flags.tolist() == [True, True, False]
names = numpy.zeros(size, dtype=[("rank", "int32"), ("name", "S4")])
own = numpy.array((rank, b"n%d" % rank), dtype=names.dtype)
comm.all_gather(own, names)
assert names["rank"].tolist() == list(range(size)) and names["name"][0] == b"n0"

blocks = numpy.arange(3.0 * size) + 100 * rank
into = numpy.empty_like(blocks)
comm.all_to_all(blocks, into)
assert (into.reshape(size, 3) == numpy.arange(3) + 3 * rank + 100 * numpy.arange(size)[:, None]).all()

matrix = numpy.ones((4, 6))
refused(lambda: comm.all_reduce(matrix[:, ::2]), "not contiguous in C order")
refused(lambda: comm.all_reduce(matrix.T), "not contiguous in C order")
refused(lambda: comm.all_reduce(Lent(matrix[:, ::2])), "not contiguous in C order")
refused(lambda: comm.all_reduce(numpy.frombuffer(b"12345678")), "read-only")
refused(lambda: comm.all_reduce(matrix.astype(complex)), "unknown format")
refused(lambda: comm.all_reduce(matrix.astype(">f8")), "unknown format")
refused(lambda: comm.all_reduce(matrix.astype("longdouble")), "unknown format")
refused(lambda: comm.all_reduce(numpy.array([None])), "unknown format")
constant = numpy.ones(4)
constant.flags.writeable = False
refused(lambda: comm.all_reduce(constant), "read-only")
output = numpy.empty(4)
comm.all_reduce(constant, output)
assert (output == size).all()

window = comm.alloc(100, "float64")
view = numpy.asarray(window)
view[:] = rank
comm.all_reduce_window(window)
assert (view == total).all() and view.ctypes.data == window.address

largest = comm.register_op("largest", lambda into, other: numpy.maximum(
    numpy.asarray(into), numpy.asarray(other), out=numpy.asarray(into)), "float64")
row = numpy.array([rank, -rank], dtype="float64")
comm.all_reduce_by(row, op=largest)
assert row.tolist() == [size - 1, 0]

# Memory lives until its call is done, even if nothing else refers to it.
handles = [comm.all_reduce(numpy.ones(100_000), async_op=True) for _ in range(20)]
for handle in handles:
    handle.wait(60)
comm.close()
print("content", flush=True)
