"""Tensors with a bit that negates the elements in their memory.

Before torch calls a backend, it replaces such a tensor by a copy without the bit. It leaves the result
in the copy. The kernels here note the tensor, so that ringfold brings the result to it.
"""

import functools
import threading

import torch
from torch.utils import _pytree


class Copies(threading.local):
    """The copies of the operation that this thread calls, and the tensors that they replace."""

    pairs = ()


copies = Copies()


def replaced(outputs):
    """The outputs that are copies, each with the tensor that it replaces."""
    return [pair for pair in copies.pairs if any(pair[0] is output for output in outputs)]


@functools.cache
def note_copies():
    """Registers the kernels for all operations of torch.distributed. They live as long as the
    library that it returns."""
    library = torch.library.Library("c10d", "IMPL")
    for name in torch._C._dispatch_get_all_op_names():
        if name.startswith("c10d::"):
            operation = getattr(torch.ops.c10d, name.removeprefix("c10d::")).default
            library.impl(name, kernel(operation), "Negative")
    return library


def kernel(operation):
    """A kernel that calls the operation with copies without the bit."""

    def call(*arguments):
        flat, form = _pytree.tree_flatten(arguments)
        pairs = []
        with torch.no_grad():
            for at, tensor in enumerate(flat):
                if isinstance(tensor, torch.Tensor) and tensor.is_neg():
                    flat[at] = tensor.resolve_neg()
                    pairs.append((flat[at], tensor))
        outer, copies.pairs = copies.pairs, pairs
        try:
            return operation(*_pytree.tree_unflatten(flat, form))
        finally:
            copies.pairs = outer

    return call
