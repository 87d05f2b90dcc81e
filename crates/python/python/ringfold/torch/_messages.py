"""Messages between two ranks, each direction of each pair on a communicator of its own.

A communicator performs its calls one after the other, so a send that waits for its receiver would
hold up a receive behind it. In one direction between two ranks messages are ordered anyway. The
first message makes the communicator, in a thread, since the peer may come later.
"""

import threading

import ringfold
from ringfold import errors
from ringfold.torch._memory import place

#: The largest tag.
TAG_MAX = 2**32 - 1


class Message:
    """A message that may still wait for its communicator. It has the methods of a handle."""

    def __init__(self):
        self._begun = threading.Event()
        self._handle = None
        self._error = None
        self._callbacks = []
        self._lock = threading.Lock()

    def begin(self, handle, error=None):
        """Learns the handle of the call, or that there will be none."""
        with self._lock:
            self._handle, self._error = handle, error
            self._begun.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self.add_done_callback(callback)

    def wait(self, timeout=None):
        if not self._begun.wait(timeout):
            raise TimeoutError(f"the peer has not joined for a message after {timeout} seconds")
        if self._error is not None:
            raise self._error
        self._handle.wait(timeout)

    def is_completed(self):
        if not self._begun.is_set():
            return False
        return self._error is not None or self._handle.is_completed()

    def exception(self):
        if not self._begun.is_set():
            return None
        return self._error or self._handle.exception()

    def add_done_callback(self, callback):
        with self._lock:
            if not self._begun.is_set():
                self._callbacks.append(callback)
                return
        if self._handle is None:
            callback(self)
        else:
            self._handle.add_done_callback(callback)


class Channel:
    """One direction between this rank and a peer."""

    def __init__(self, join, is_sender):
        self._is_sender = is_sender
        self._lock = threading.Lock()
        self._waiting = []
        self._comm = None
        self._error = None
        threading.Thread(target=self._join, args=(join,), daemon=True).start()

    def _join(self, join):
        comm, error = None, None
        try:
            comm = join()
        except Exception as raised:
            error = raised
        with self._lock:
            self._comm, self._error = comm, error
            waiting, self._waiting = self._waiting, []
            for message, arguments in waiting:
                self._begin(message, arguments)

    def _begin(self, message, arguments):
        if self._comm is None:
            message.begin(None, self._error)
            return
        tensor, tag = arguments
        call, peer = (self._comm.send, 1) if self._is_sender else (self._comm.recv, 0)
        try:
            message.begin(call(place(tensor), peer, tag, async_op=True, keep=tensor))
        except errors.Error as error:
            message.begin(None, error)

    def start(self, tensor, tag):
        """Starts a message behind those before it."""
        message = Message()
        with self._lock:
            if self._comm is None and self._error is None:
                self._waiting.append((message, (tensor, tag)))
            else:
                self._begin(message, (tensor, tag))
        return message

    def abort(self, reason):
        if self._comm is not None:
            self._comm.abort(reason)

    def close(self):
        """Leaves in the background."""
        with self._lock:
            self._comm, self._error = None, errors.ClosedError("the group is closed")


class Channels:
    """The channels of a group."""

    def __init__(self, store_of, rank, seconds):
        self._store_of = store_of
        self._rank = rank
        self._seconds = seconds
        self._channels = {}

    def start(self, tensor, sender, receiver, tag):
        """Starts a message from one rank to another, one of which is this rank."""
        if not 0 <= tag <= TAG_MAX:
            raise ValueError(f"the tag {tag} is not between 0 and {TAG_MAX}")
        if sender == receiver:
            raise ValueError(f"rank {sender} cannot send to itself")
        channel = self._channels.get((sender, receiver))
        if channel is None:
            is_sender = sender == self._rank
            store = self._store_of(f"messages/{sender}-{receiver}/")

            def join():
                return ringfold.init_with_store(
                    store, 0 if is_sender else 1, 2,
                    timeout=self._seconds, join_timeout=self._seconds,
                )

            channel = self._channels[sender, receiver] = Channel(join, is_sender)
        return channel.start(tensor, tag)

    def abort(self, reason):
        for channel in self._channels.values():
            channel.abort(reason)

    def close(self):
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
