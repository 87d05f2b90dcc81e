"""Tensors by DLPack, from an exporter written here: every type, and every tensor that cannot serve."""

import ctypes
import struct
import sys
import time
import types as modules

import ringfold

comm = ringfold.init()
size = comm.size

api = ctypes.pythonapi
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
api.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

CPU, CUDA, CUDA_HOST, ROCM_HOST, CUDA_MANAGED = 1, 2, 3, 11, 13


class Dl(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Old(ctypes.Structure):
    _fields_ = [("tensor", Dl), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Dl),
    ]


class Tensor:
    """A tensor over some bytes. `major` is the version of its capsule, 0 for one without."""

    def __init__(self, values, kind, shape, strides=None, **more):
        self.memory = ctypes.create_string_buffer(bytes(values), len(values) or 1)
        self.kind, self.shape, self.strides = kind, shape, strides
        self.major, self.flags, self.device, self.offset = 1, 0, CPU, 0
        self.is_early, self.capsule_name, self.error = False, None, None
        self.capsule_device, self.is_cached, self.capsule = None, False, None
        self.__dict__.update(more)
        #: The addresses that consumers have given to the deleter.
        self.deleted = []
        self.deleter = DELETER(self.deleted.append)

    def __dlpack_device__(self):
        return (self.device, 0)

    def __dlpack__(self, **options):
        if self.error is not None:
            raise self.error
        if self.is_early and options:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        if self.is_cached and self.capsule is not None:
            return self.capsule
        numbers = ctypes.c_int64 * len(self.shape)
        shape = numbers(*self.shape)
        strides = numbers(*self.strides) if self.strides is not None else None
        tensor = Dl(
            ctypes.addressof(self.memory), self.capsule_device or self.device, 0,
            len(self.shape), *self.kind, shape, strides, self.offset,
        )
        deleter = ctypes.cast(self.deleter, ctypes.c_void_p)
        if self.major and not self.is_early:
            made = Versioned(self.major, 0, None, deleter, self.flags, tensor)
            name = b"dltensor_versioned"
        else:
            made, name = Old(tensor, None, deleter), b"dltensor"
        # Names and structures live as long as this object.
        self.name = ctypes.create_string_buffer(self.capsule_name or name)
        self.made = (made, shape, strides)
        self.capsule = api.PyCapsule_New(ctypes.addressof(made), self.name, None)
        return self.capsule

    def has_capsule(self, name):
        return api.PyCapsule_IsValid(self.capsule, name) == 1

    def is_freed(self):
        """Whether the deleter was called, once and with the structure of the capsule."""
        assert len(self.deleted) < 2, self.deleted
        return self.deleted == [ctypes.addressof(self.made[0])]

    def values(self):
        return self.memory.raw


def refused(call, words, kind=ringfold.ArgumentError):
    try:
        call()
    except kind as error:
        assert words in str(error), (words, str(error))
        return
    raise AssertionError(f"no {kind.__name__} with {words!r}")


#: The code, bits and lanes of each type, the bytes of 1 in it, and the bytes of the number of ranks
#: for up to 4 of them.
TYPES = {
    "int8": ((0, 8, 1), "b"),
    "int32": ((0, 32, 1), "i"),
    "int64": ((0, 64, 1), "q"),
    "uint8": ((1, 8, 1), "B"),
    "uint32": ((1, 32, 1), "I"),
    "uint64": ((1, 64, 1), "Q"),
    "float16": ((2, 16, 1), "e"),
    "float32": ((2, 32, 1), "f"),
    "float64": ((2, 64, 1), "d"),
    "bfloat16": ((4, 16, 1), [0x3F80, 0x4000, 0x4040, 0x4080]),
    "float8_e4m3fn": ((10, 8, 1), [0x38, 0x40, 0x44, 0x48]),
    "float8_e5m2": ((12, 8, 1), [0x3C, 0x40, 0x42, 0x44]),
}


def number(form, value):
    """The bytes of a small whole number."""
    if isinstance(form, str):
        return struct.pack("=" + form, value)
    return form[value - 1].to_bytes(2 if form[0] > 255 else 1, "little")


def types():
    for name, (kind, form) in TYPES.items():
        ones = number(form, 1) * 15
        for version in [{}, {"major": 0}, {"is_early": True}, {"strides": (5, 1)}]:
            tensor = Tensor(ones, kind, (3, 5), **version)
            output = Tensor(bytes(len(ones)), kind, (3, 5))
            comm.all_reduce(tensor, output)
            assert output.values() == number(form, size) * 15, (name, version, output.values())
            assert tensor.values() == ones and tensor.is_freed() and output.is_freed()
        comm.all_reduce(tensor)
        assert tensor.values() == number(form, size) * 15, (name, tensor.values())
        refused(lambda: comm.all_reduce(tensor, Tensor(ones, (9, 8, 1), (15,))), "different types")
    flags = Tensor(bytes([comm.rank == 0, 1, 0]), (6, 8, 1), (3,))
    comm.all_reduce(flags, op="max")
    assert flags.values() == b"\1\1\0"
    refused(lambda: comm.all_reduce(flags), "does not combine booleans")
    # Complex numbers move, and their sum needs the name of a type.
    pair = Tensor(struct.pack("=2f", comm.rank, 1), (5, 64, 1), (1,))
    comm.broadcast(pair, root=size - 1)
    assert pair.values() == struct.pack("=2f", size - 1, 1)
    refused(lambda: comm.all_reduce(pair), "elements of 8 bytes of this type can be moved, not")
    comm.all_reduce(pair, dtype="float32")
    assert pair.values() == struct.pack("=2f", size * (size - 1), size)
    # Other plain data moves too: short integers, vectors, pairs of 4 bits.
    for kind, count in [((0, 16, 1), 2), ((1, 16, 1), 2), ((2, 32, 2), 8), ((17, 4, 2), 1)]:
        data = Tensor(bytes([comm.rank]) * count, kind, (1,))
        comm.broadcast(data, root=size - 1)
        assert data.values() == bytes([size - 1]) * count, kind


def places():
    F32 = (2, 32, 1)
    data = Tensor(struct.pack("=4f", 9, 1, 1, 9), F32, (2,), offset=4)
    comm.all_reduce(data)
    assert data.values() == struct.pack("=4f", 9, size, size, 9), "an offset"
    for shape, strides in [((1, 2, 1), (7, 1, 9)), ((), ()), ((0, 3), (1, 1)), ((2, 0), None)]:
        count = 1
        for length in shape:
            count *= length
        data = Tensor(struct.pack("=f", 1) * count, F32, shape, strides)
        comm.all_reduce(data)
        assert data.values()[: 4 * count] == struct.pack("=f", size) * count, shape
    for device in [CUDA_HOST, ROCM_HOST]:
        data = Tensor(struct.pack("=f", 1), F32, (1,), device=device)
        comm.all_reduce(data)
        assert data.values() == struct.pack("=f", size), "pinned memory"
    ones = struct.pack("=4f", 1, 1, 1, 1)
    constant = Tensor(ones, F32, (4,), flags=1)
    output = Tensor(bytes(16), F32, (4,))
    comm.all_reduce(constant, output)
    assert output.values() == struct.pack("=f", size) * 4, "a read-only input"


def wrong():
    F32, ones = (2, 32, 1), struct.pack("=4f", 1, 1, 1, 1)
    cases = [
        ({"flags": 1}, "the input is read-only"),
        ({"flags": 2}, "the input lends a copy of its memory"),
        ({"major": 0}, "cannot say that the call may write it; pass a numpy array"),
        ({"is_early": True}, "cannot say that the call may write it; pass a numpy array"),
        ({"kind": (3, 64, 1), "shape": (2,)}, "with opaque handles"),
        ({"kind": (18, 32, 1)}, "does not know to be plain data"),
        ({"capsule_device": CUDA}, "the input is in the memory of a device"),
        ({"capsule_name": b"a tensor"}, "a capsule without a tensor"),
        ({"strides": (2,), "shape": (2,)}, "not contiguous in C order"),
        ({"strides": (-1,)}, "not contiguous in C order"),
        ({"strides": (1, 2), "shape": (2, 2)}, "not contiguous in C order"),
        ({"device": CUDA}, "in the memory of a device"),
        ({"device": CUDA_MANAGED}, "in the memory of a device"),
        ({"major": 2}, "a version of DLPack that ringfold does not know"),
        ({"kind": (2, 4, 1)}, "does not know to be plain data"),
        ({"capsule_name": b"used_dltensor"}, "another consumer has taken over"),
        ({"shape": (1 << 40, 1 << 40)}, "longer than the address space"),
        ({"shape": (-1,)}, "longer than the address space"),
        ({"error": BufferError("requires gradients")}, "does not lend its memory: requires"),
    ]
    for change, words in cases:
        how = {"kind": F32, "shape": (4,), **change}
        tensor = Tensor(ones, how.pop("kind"), how.pop("shape"), **how)
        refused(lambda: comm.all_reduce(tensor), words)
        assert tensor.values() == ones
        # The capsule stays as it was, and its owner frees the tensor.
        assert tensor.capsule is None or tensor.has_capsule(tensor.name.value)
        assert tensor.deleted == []
    # Memory that cannot be written can be sent, but handles of another process mean nothing.
    refused(lambda: comm.send(Tensor(ones, (3, 64, 1), (2,)), 0), "with opaque handles")
    broken = Tensor(ones, F32, (4,), error=ZeroDivisionError("a defect"))
    refused(lambda: comm.all_reduce(broken), "a defect", ZeroDivisionError)


def taken_over():
    """A call owns its tensors until it ends. Then it frees each, once."""
    F32, ones = (2, 32, 1), struct.pack("=f", 1)
    other = comm.duplicate()
    for version, used in [(1, b"used_dltensor_versioned"), (0, b"used_dltensor")]:
        for is_waited in [True, False]:
            data = Tensor(ones, F32, (1,), major=version, is_cached=True)
            output = Tensor(bytes(4), F32, (1,))
            if comm.rank > 0:
                other.barrier()
            handle = comm.all_reduce(data, output, async_op=True)
            assert data.has_capsule(used)
            refused(lambda: comm.all_reduce(data, output), "another consumer has taken over")
            if comm.rank == 0:
                if size > 1:
                    time.sleep(0.1)
                    assert data.deleted == [], "the call still runs"
                other.barrier()
            if is_waited:
                handle.wait(60)
                assert data.is_freed() and output.is_freed()
            del handle
            # Nobody makes a call of ringfold meanwhile.
            end = time.monotonic() + 30
            while not data.is_freed() or not output.is_freed():
                assert time.monotonic() < end, "the memory of a finished call is kept"
                time.sleep(0.001)
            assert output.values() == struct.pack("=f", size)


def of_torch():
    """Tensors of torch before DLPack 1 may be written: torch has none that are read-only."""
    torch = sys.modules["torch"] = modules.ModuleType("torch")
    try:
        torch.Tensor = type("Tensor", (Tensor,), {})
        data = torch.Tensor(struct.pack("=f", 1), (2, 32, 1), (1,), is_early=True)
        comm.all_reduce(data)
        assert data.values() == struct.pack("=f", size)
        refused(
            lambda: comm.all_reduce(Tensor(bytes(4), (2, 32, 1), (1,), is_early=True)),
            "cannot say that the call may write it",
        )
        data.is_neg = lambda: True
        refused(lambda: comm.all_reduce(data), "pass tensor.resolve_neg()")
    finally:
        del sys.modules["torch"]


def out():
    """A window lends its memory to others, and no longer than that is needed."""
    window = comm.alloc(4, "float32")
    view = memoryview(window)
    comm.all_reduce(Tensor(struct.pack("=4f", 1, 2, 3, 4), (2, 32, 1), (4,)), window)
    assert list(view) == [size * value for value in (1, 2, 3, 4)]
    del window
    assert view[3] == 4 * size, "the view keeps the memory"


types()
places()
wrong()
taken_over()
of_torch()
out()
comm.all_reduce(Tensor(struct.pack("=f", 1), (2, 32, 1), (1,)))
comm.close()
print("content", flush=True)
