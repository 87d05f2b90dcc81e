"""Handles of operations in the background, as torch wants them."""

import itertools
import threading
import weakref

import torch
from torch import distributed

from ringfold import errors

#: Held while a thread makes the future of a handle.
_making = threading.Lock()

#: A weak reference to the handle whose future was asked for last in this thread.
_asked = threading.local()


def as_torch(error):
    """The exception that torch's users expect, with the text of ringfold's."""
    if isinstance(error, errors.ArgumentError):
        return ValueError(str(error))
    if getattr(error, "kind", None) in ("absent", "stalled"):
        # Programs look for these words of Gloo, and for those of torch.
        text = f"Timed out waiting: the timeout has passed: {error}"
        return distributed.DistBackendError(text)
    if isinstance(error, (errors.Error, TimeoutError)):
        return distributed.DistBackendError(str(error))
    return error


def are_completed(handles):
    """Whether all calls of an operation are done."""
    for handle in handles:
        if not handle.is_completed():
            return False
    return True


class Work(distributed._Work):
    """An operation of some calls in the background.

    `finish` copies results to where the user wants them. It runs once, at the latest when the calls
    are done, whether or not anybody has kept this handle. `ended` runs behind it, or behind the
    failure of a call, and also before a wait ends.
    """

    _finish = _ended = _error = _future = _lock = None

    def __init__(self, handles, tensors, finish=None, ended=None):
        super().__init__()
        self._handles = handles
        self._tensors = tensors
        if finish is not None or ended is not None:
            self._finish, self._ended = finish, ended
            self._lock = threading.Lock()
            self._at_end(self._complete)

    def _at_end(self, function):
        """Calls a function when the calls are done. They keep it until then."""
        left = itertools.count(1)
        last = max(len(self._handles), 1)

        def done(_=None):
            if next(left) == last:
                function()

        if not self._handles:
            done()
        for handle in self._handles:
            handle.add_done_callback(done)

    def wait(self, timeout=None):
        seconds = timeout.total_seconds() if timeout else None
        try:
            for handle in self._handles:
                handle.wait(seconds)
        except Exception as error:
            # Completes what is done.
            self.is_completed()
            raise as_torch(error) from error
        if self._lock is not None:
            self._complete()
            if self._error is not None:
                raise self._error
        return True

    def _complete(self):
        """Copies the results of calls that are done, unless a call has failed, and ends."""
        # Another thread may copy them just now.
        if self._finish is not None or self._ended is not None:
            with self._lock:
                try:
                    if self._finish is not None and self._failure() is None:
                        self._finish()
                except Exception as error:
                    self._error = error
                if self._ended is not None:
                    self._ended()
                self._finish = self._ended = None

    def _failure(self):
        """The first exception of the calls, or None."""
        found = (handle.exception() for handle in self._handles)
        return next((as_torch(error) for error in found if error is not None), None)

    def is_completed(self):
        if not are_completed(self._handles):
            return False
        self._complete()
        return True

    def is_success(self):
        return self.is_completed() and self.exception() is None

    def exception(self):
        return self._error or self._failure()

    def synchronize(self):
        self.wait()

    def result(self):
        self.wait()
        return self._tensors

    def _source_rank(self):
        """The sender of a message that was received from any source."""
        self.wait()
        return self._handles[0].message.source

    def get_future(self):
        """A future of the list of tensors, as the hooks of DDP want it."""
        _asked.work = weakref.ref(self)
        with _making:
            if self._future is not None:
                return self._future
            ended = torch.futures.Future()

            def result(_):
                error = self.exception()
                if error is not None:
                    raise error
                return self._tensors

            # torch's C++, as in DDP, knows only errors that callbacks of `then` raise. It takes an
            # exception that `set_exception` has set for a list of tensors.
            future = self._future = ended.then(result)

        def done():
            self._complete()
            ended.set_result(None)

        self._at_end(done)
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
