"""Messages between two ranks, each direction of each pair on a communicator of its own.

A communicator performs its calls one after the other, so a send that waits for its receiver would
hold up a receive behind it. In one direction between two ranks messages are ordered anyway. The
first message makes the communicator, in a thread, since the peer may come later.
"""

import threading

import ringfold
from ringfold import errors
from ringfold.torch._any_source import AnySource
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
        #: The rank that sent it, once a receive from any source has found it.
        self.source = None

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
        # A callback of a message may start others.
        self._lock = threading.RLock()
        self._waiting = []
        self._comm = None
        self._error = None
        self._latest = None
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

    def start(self, message, tensor, tag):
        """Starts a message behind those before it."""
        with self._lock:
            self._latest = message
            if self._comm is None and self._error is None:
                self._waiting.append((message, (tensor, tag)))
            else:
                self._begin(message, (tensor, tag))

    def next_tag(self):
        """The tag of the next message, or None if there is none or an earlier receive awaits it."""
        with self._lock:
            if self._error is not None:
                raise self._error
            if self._comm is None or self._latest and not self._latest.is_completed():
                return None
            found = self._comm.probe(0)
            return None if found is None else found[0]

    def abort(self, reason):
        if self._comm is not None:
            self._comm.abort(reason)

    def close(self):
        """Leaves in the background."""
        with self._lock:
            self._comm, self._error = None, errors.ClosedError("the group is closed")


class Channels:
    """The channels of a group. `comm` gives the communicator of the group."""

    def __init__(self, comm, store_of, rank, seconds):
        self._store_of = store_of
        self._rank = rank
        self._seconds = seconds
        self._channels = {}
        self._lock = threading.RLock()
        self._any_source = AnySource(comm, store_of, rank, seconds, self._from, self._lock)

    def send(self, tensor, receiver, tag):
        self._check(receiver, tag)
        message = Message()
        with self._lock:
            self._channel(self._rank, receiver).start(message, tensor, tag)
        return message

    def recv(self, tensor, source, tag):
        """Receives a message of a rank, or of any if the source is None."""
        self._check(source, tag)
        message = Message()
        with self._lock:
            if source is None or self._any_source.is_waiting():
                self._any_source.post(message, tensor, source, tag)
            else:
                self._from(source).start(message, tensor, tag)
        return message

    def _check(self, peer, tag):
        if not 0 <= tag <= TAG_MAX:
            raise ValueError(f"the tag {tag} is not between 0 and {TAG_MAX}")
        if peer == self._rank:
            raise ValueError(f"rank {peer} cannot send to itself")

    def _from(self, sender):
        """The channel from a rank to this one."""
        return self._channel(sender, self._rank)

    def _channel(self, sender, receiver):
        channel = self._channels.get((sender, receiver))
        if channel is None:
            is_sender = sender == self._rank
            store = self._store_of(f"messages/{sender}-{receiver}/")

            def join():
                if is_sender:
                    self._any_source.announce(receiver)
                return ringfold.init_with_store(
                    store, 0 if is_sender else 1, 2,
                    timeout=self._seconds, join_timeout=self._seconds,
                )

            channel = self._channels[sender, receiver] = Channel(join, is_sender)
        return channel

    def abort(self, reason):
        for channel in self._channels.values():
            channel.abort(reason)

    def close(self):
        with self._lock:
            self._any_source.close()
            for channel in self._channels.values():
                channel.close()
            self._channels.clear()
