"""Tensors in windows: memory that all ranks of the host have mapped."""

import weakref

import torch


class Windows:
    """The windows of a group."""

    def __init__(self, comm):
        self._comm = comm
        self._places = []

    def allocate(self, count, dtype):
        """Makes a tensor of `count` elements, all zero. Every rank must call it alike."""
        window = self._comm.alloc(max(count, 1) * dtype.itemsize, "uint8")
        start = window.address

        def forget(ended):
            self._places = [place for place in self._places if place[2] is not ended]

        self._places.append((start, start + window.nbytes, weakref.ref(window, forget)))
        # The tensor keeps the window.
        return torch.frombuffer(window, dtype=torch.uint8).view(dtype)[:count]

    def find(self, tensor):
        """The window of a contiguous tensor and the number of elements before it, or None."""
        if not self._places:
            return None
        start, size = tensor.data_ptr(), tensor.dtype.itemsize
        for begin, end, window in self._places:
            if begin <= start and start + tensor.nbytes <= end and (start - begin) % size == 0:
                return window(), (start - begin) // size
        return None
