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


#: Before 2.1 numpy makes capsules that cannot say whether they may be written.
IS_VERSIONED = numpy.lib.NumpyVersion(numpy.__version__) >= "2.1.0"
total = sum(range(size))
for dtype in TYPES:
    for wrap in [lambda array: array, Lent][: 1 + IS_VERSIONED]:
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

# Plain data of every kind moves as it is.
FIELDS = [("rank", "i4"), ("in", [("x", "f8"), ("y", ">i2")]), ("name", "U3"), ("raw", "V16")]
PLAIN = [
    "S5", "U3", "V6", ">f8", ">i4", "int16", "uint16", "complex64", "complex128", "longdouble",
    "clongdouble", "bool", "longlong", FIELDS, numpy.dtype(FIELDS, align=True),
    [("grid", "f4", (2, 3)), ("flag", "?"), ("z", "c8")], [("in", FIELDS, 2)],
]
for dtype in map(numpy.dtype, PLAIN):
    own, wanted = (bytearray([byte]) * (3 * dtype.itemsize) for byte in (rank + 1, size))
    comm.broadcast(numpy.frombuffer(own, dtype), root=size - 1)
    assert own == wanted, dtype
    # The type also serves to name that of an address.
    data = numpy.full(3 * dtype.itemsize, rank + 1, dtype="uint8")
    comm.broadcast((data.ctypes.data, data.nbytes), root=size - 1, dtype=dtype)
    assert data.tobytes() == wanted, dtype
if hasattr(numpy, "float128"):
    refused(lambda: comm.all_reduce(numpy.ones(2, "longdouble")), "can be moved, not combined")
for dtype in ["float32", numpy.float32, numpy.dtype("float32"), "<f4", "=f4"]:
    data = numpy.ones(4, dtype="float32")
    comm.all_reduce((data.ctypes.data, data.nbytes), dtype=dtype)
    assert (data == size).all(), dtype
flags = numpy.array([rank == 0])
comm.all_reduce((flags.ctypes.data, 1), op="lor", dtype=numpy.bool_)
assert flags.all()

# Memory that holds pointers, or may hold some, stays where it is.
objects = numpy.array([[rank] * 3, {"rank": rank}, "text %d" % rank], dtype=object)
records = numpy.zeros(3, dtype=[("rank", "i4"), ("what", "O")])
gapped = numpy.zeros(3, dtype=[("rank", "i4"), ("what", "O"), ("end", "i4")])
nested = numpy.zeros(3, dtype=[("rank", "i4"), ("in", [("x", "f8"), ("what", "O", 2)])])
HOLDERS = [
    (objects, "objects of Python"), (records, "objects of Python"),
    (nested, "objects of Python"), (records[["rank"]], "does not describe them all"),
    (gapped[["rank", "end"]], "a gap of 8 bytes"),
    (numpy.zeros(3, "M8[ns]"), "gives no view"), (numpy.zeros(3, "m8[s]"), "gives no view"),
]
if hasattr(numpy.dtypes, "StringDType"):
    HOLDERS.append((numpy.array(["a", "b"], numpy.dtypes.StringDType()), "gives no view"))
for array, words in HOLDERS:
    copy = array.copy() if array.dtype.hasobject else array
    for call in [
        lambda: comm.broadcast(array, root=size - 1),
        lambda: comm.broadcast(array, root=size - 1, dtype="uint8"),
        lambda: comm.send(array, (rank + 1) % size),
        lambda: comm.all_gather(array, numpy.empty(1 << 20, "uint8")),
        lambda: comm.all_gather(numpy.empty(8, "uint8"), array),
        lambda: comm.recv(array, (rank + 1) % size),
        lambda: comm.group().send(array, 0),
    ]:
        refused(call, words)
    assert (array == copy).all(), array
refused(lambda: comm.broadcast((1 << 20, 0), dtype=objects.dtype), "has objects of Python")
refused(lambda: comm.broadcast((1 << 20, 0), dtype=records.dtype), "has objects of Python")
refused(lambda: comm.broadcast((1 << 20, 0), dtype="|O"), "is no data type")
times = numpy.full(3, rank, dtype="M8[ns]")
comm.broadcast(times.view("int64"), root=size - 1)
assert times.view("int64").tolist() == [size - 1] * 3

blocks = numpy.arange(3.0 * size) + 100 * rank
into = numpy.empty_like(blocks)
comm.all_to_all(blocks, into)
assert (into.reshape(size, 3) == numpy.arange(3) + 3 * rank + 100 * numpy.arange(size)[:, None]).all()

matrix = numpy.ones((4, 6))
refused(lambda: comm.all_reduce(matrix[:, ::2]), "not contiguous in C order")
refused(lambda: comm.all_reduce(matrix.T), "not contiguous in C order")
if IS_VERSIONED:
    refused(lambda: comm.all_reduce(Lent(matrix[:, ::2])), "not contiguous in C order")
refused(lambda: comm.all_reduce(numpy.frombuffer(b"12345678")), "read-only")
refused(lambda: comm.all_reduce(matrix.astype(complex)), "can be moved, not combined")
refused(lambda: comm.all_reduce(matrix.astype(">f8")), "can be moved, not combined")
refused(lambda: comm.all_reduce(matrix.astype("longdouble")), "can be moved, not combined")
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
