"""Handles of operations in the background, as torch wants them."""

import threading
import weakref

import torch
from torch import distributed

from ringfold import errors

#: A weak reference to the handle whose future was asked for last in this thread.
_asked = threading.local()


def as_torch(error):
    """The exception that torch's users expect, with the text of ringfold's."""
    if isinstance(error, errors.ArgumentError):
        return ValueError(str(error))
    if getattr(error, "kind", None) in ("absent", "stalled"):
        return distributed.DistBackendError(f"The timeout has passed: {error}")
    if isinstance(error, (errors.Error, TimeoutError)):
        return distributed.DistBackendError(str(error))
    return error


class Work(distributed._Work):
    """An operation of some calls in the background.

    It keeps the tensors alive. `finish` copies results to where the user wants them. It runs once:
    in the first wait, or before the future is complete.
    """

    def __init__(self, handles, tensors, finish=None):
        super().__init__()
        self._handles = handles
        self._tensors = tensors
        self._finish = finish
        self._lock = threading.Lock()
        self._future = None

    def wait(self, timeout=None):
        seconds = timeout.total_seconds() if timeout else None
        try:
            for handle in self._handles:
                handle.wait(seconds)
        except Exception as error:
            raise as_torch(error) from error
        self._complete()
        return True

    def _complete(self):
        if self._finish is not None:
            with self._lock:
                finish, self._finish = self._finish, None
                if finish is not None:
                    finish()

    def is_completed(self):
        return all(handle.is_completed() for handle in self._handles)

    def is_success(self):
        return self.is_completed() and self.exception() is None

    def exception(self):
        found = (handle.exception() for handle in self._handles)
        return next((as_torch(error) for error in found if error is not None), None)

    def synchronize(self):
        self.wait()

    def result(self):
        self.wait()
        return self._tensors

    def _source_rank(self):
        """The sender of a message that was received from any source."""
        self.wait()
        return self._handles[0].source

    def get_future(self):
        """A future of the list of tensors, as the hooks of DDP want it."""
        _asked.work = weakref.ref(self)
        with self._lock:
            if self._future is not None:
                return self._future
            future = self._future = torch.futures.Future()
        left = [len(self._handles)]
        counting = threading.Lock()

        def done(_=None):
            with counting:
                left[0] -= 1
                if left[0] > 0:
                    return
            error = self.exception()
            if error is None:
                try:
                    self._complete()
                except Exception as raised:
                    error = raised
            if error is None:
                future.set_result(self._tensors)
            else:
                future.set_exception(error)

        if not self._handles:
            left[0] = 1
            done()
        for handle in self._handles:
            handle.add_done_callback(done)
        return future


def behind(work):
    """The handle behind one that torch has wrapped, or None if it is not ours.

    torch wraps the handles of backends in Python, and its wrapper passes on only `wait` and
    `get_future`.
    """
    _asked.work = None
    try:
        work.get_future()
    except (RuntimeError, NotImplementedError):
        return None
    return _asked.work and _asked.work()


def forward_polls():
    """Lets torch's wrapper pass on `is_completed` and its relatives, and the sender of a message.

    Without this a program that polls `work.is_completed()` would never end.
    """
    if getattr(distributed.Work, "_ringfold_polls", False):
        return
    distributed.Work._ringfold_polls = True
    for name in ["is_completed", "is_success", "exception", "result", "_source_rank"]:
        forward(name, getattr(distributed.Work, name))


def forward(name, original):
    """Replaces one method of torch's class."""

    def method(work):
        ours = behind(work) if type(work) is distributed.Work else None
        return original(work) if ours is None else getattr(ours, name)()

    method.__name__, method.__doc__ = name, original.__doc__
    setattr(distributed.Work, name, method)
