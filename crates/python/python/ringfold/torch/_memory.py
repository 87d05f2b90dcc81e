"""Tensors as ringfold wants them: contiguous memory of the host, and the names of types and operations.

The tensors of a device are copied to pinned memory before a call, and the results back after it. Each
copy waits for its end on the stream of the caller, so no further synchronisation is needed.
"""

import functools

import torch
from torch.distributed import ReduceOp

import ringfold

_Op = ReduceOp.RedOpType

#: The types that ringfold combines.
TYPES = {
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.bool: "uint8",
    torch.int32: "int32",
    torch.uint32: "uint32",
    torch.int64: "int64",
    torch.uint64: "uint64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
    torch.float8_e4m3fn: "float8_e4m3fn",
    torch.float8_e5m2: "float8_e5m2",
}

#: Types that are combined in a wider one. The low bits of the sum are the same.
WIDER = {torch.int16: torch.int32, torch.uint16: torch.int32}

#: The operations by torch's numbers, which are faster to look up than its enumeration.
OPS = {
    int(_Op.SUM): "sum",
    int(_Op.AVG): "avg",
    int(_Op.PRODUCT): "prod",
    int(_Op.MIN): "min",
    int(_Op.MAX): "max",
    int(_Op.BAND): "band",
    int(_Op.BOR): "bor",
    int(_Op.BXOR): "bxor",
}

#: Booleans are bytes of 0 or 1, and stay such.
BOOLEAN_OPS = {**OPS, int(_Op.SUM): "max", int(_Op.PRODUCT): "min"}

#: The operations that combine complex numbers as pairs of floats.
COMPLEX_OPS = (int(_Op.SUM), int(_Op.AVG), int(_Op.PREMUL_SUM))

BIT_OPS = (int(_Op.BAND), int(_Op.BOR), int(_Op.BXOR))
AVG, PREMUL_SUM = int(_Op.AVG), int(_Op.PREMUL_SUM)


def operation(op, dtype):
    """ringfold's operation for torch's, for elements of this type."""
    # The hash of an operation of torch is its number, and the fastest way to it.
    kind = hash(op)
    if kind == PREMUL_SUM:
        return ringfold.PreMulSum(float(op.factor))
    return name_of(kind, dtype)


@functools.cache
def name_of(kind, dtype):
    """The name of an operation of this number, for elements of this type."""
    if dtype == torch.bool:
        if kind == AVG:
            raise ValueError("ringfold has no average of booleans; convert them first")
        return BOOLEAN_OPS[kind]
    if dtype.is_complex and kind not in COMPLEX_OPS:
        raise ValueError(f"ringfold does not combine complex numbers by {_Op(kind).name}")
    if kind in BIT_OPS and (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(f"Cannot use ReduceOp.{_Op(kind).name} with non-integral dtype {dtype}")
    return OPS[kind]


def is_memory(tensor):
    """Whether the tensor is contiguous memory of the host as it stands."""
    if not tensor.is_cpu or not tensor.is_contiguous() or tensor.is_neg():
        return False
    return not tensor.dtype.is_complex or not tensor.is_conj()


def empty_like(tensor):
    """Contiguous memory of the host, pinned for the tensor of a device."""
    is_pinned = not tensor.is_cpu and torch.cuda.is_available()
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=is_pinned)


def readable(tensor):
    """The tensor itself or a copy that is contiguous memory of the host."""
    return tensor if is_memory(tensor) else empty_like(tensor).copy_(tensor.detach())


def on_stream(tensor, finish):
    """A function that other threads call, behind the work of the tensor's stream in this one."""
    if not tensor.is_cuda:
        return finish
    stream = torch.cuda.current_stream(tensor.device)

    def run():
        with torch.cuda.stream(stream):
            finish()

    return run


def fill(tensor, memory):
    """Copies the result of a call to the tensor on the current stream."""
    memory = memory.detach()
    # A tensor of inference mode can only be written in that mode, which belongs to a thread.
    with torch.inference_mode(tensor.is_inference()):
        # The memory has the result of a call, which autograd does not follow.
        tensor = tensor.detach()
        for dim, stride in enumerate(tensor.stride()):
            # All elements of an expanded dimension are one in memory.
            if stride == 0 and tensor.shape[dim] > 1:
                tensor, memory = tensor.narrow(dim, 0, 1), memory.narrow(dim, 0, 1)
        tensor.copy_(memory)


def writable(tensor, is_read):
    """Memory for a result of this shape, and what copies it to the tensor, if that is needed."""
    if is_memory(tensor):
        return tensor, None
    memory = readable(tensor) if is_read else empty_like(tensor)
    return memory, on_stream(tensor, lambda: fill(tensor, memory))


def combinable(tensor):
    """A view or copy whose type ringfold combines."""
    dtype = tensor.dtype
    if dtype in TYPES:
        return tensor
    if dtype.is_complex:
        return torch.view_as_real(tensor)
    if dtype in WIDER:
        return tensor.to(WIDER[dtype])
    raise ValueError(f"ringfold does not combine elements of type {dtype}")


def place(tensor):
    """The memory of a contiguous tensor."""
    return (tensor.data_ptr(), tensor.nbytes)


def are_adjacent(tensors):
    """Whether tensors follow one another in memory, so that they are one buffer."""
    if not tensors or not all(map(is_memory, tensors)):
        return False
    ends = [t.data_ptr() + t.nbytes for t in tensors]
    return all(t.data_ptr() == end for t, end in zip(tensors[1:], ends))


def joined(tensors):
    """The bytes of some tensors, one after the other: their own memory where possible."""
    if are_adjacent(tensors):
        return (tensors[0].data_ptr(), sum(t.nbytes for t in tensors)), tensors
    flat = torch.cat([as_bytes(readable(t)) for t in tensors])
    return place(flat), flat


def room(tensors):
    """Memory for some tensors one after the other, what keeps it, and what copies it to them."""
    if are_adjacent(tensors):
        return (tensors[0].data_ptr(), sum(t.nbytes for t in tensors)), tensors, None
    flat = torch.empty(sum(t.nbytes for t in tensors), dtype=torch.uint8)

    def finish():
        start = 0
        for tensor in tensors:
            piece = flat[start : start + tensor.nbytes].clone()
            start += tensor.nbytes
            fill(tensor, piece.view(tensor.dtype).view(tensor.shape))

    return place(flat), flat, on_stream(tensors[0], finish)


def as_bytes(tensor):
    """The bytes of a contiguous tensor."""
    return tensor.reshape(-1).view(torch.uint8)
