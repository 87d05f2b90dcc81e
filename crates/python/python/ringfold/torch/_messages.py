"""Messages between two ranks, each direction of each pair on a communicator of its own.

A communicator performs its calls one after the other, so a send that waits for its receiver would
hold up a receive behind it. In one direction between two ranks messages are ordered anyway. The
first message makes the communicator, in a thread, since the peer may come later. It ends with the group.
"""

import re
import threading

from torch.distributed import PrefixStore

import ringfold
from ringfold import errors
from ringfold.torch._any_source import AnySource
from ringfold.torch._memory import place
from ringfold.torch._store import Store

#: The largest tag.
TAG_MAX = 2**32 - 1

#: Ranks of a pair in the text of an error.
RANKS = re.compile(r"\branks? (0-1|[01])\b")


class Lock:
    """The lock of a group's messages. Functions of the user run after its release, since they may
    wait for other threads that need it."""

    def __init__(self):
        # A signal handler may send a message.
        self._lock = threading.RLock()
        self._depth = 0
        self._later = []

    def later(self, function):
        """Calls a function after the release. The caller holds the lock."""
        self._later.append(function)

    def __enter__(self):
        self._lock.acquire()
        self._depth += 1

    def __exit__(self, *_):
        self._depth -= 1
        later = []
        if self._depth == 0:
            later, self._later = self._later, later
        self._lock.release()
        for function in later:
            function()


class Message:
    """A message that may still wait for its communicator. It has the methods of a handle."""

    def __init__(self, lock):
        self._lock = lock
        self._begun = threading.Event()
        self._handle = None
        self._error = None
        self._in_group = None
        self._callbacks = []
        #: The rank that sent it, once a receive from any source has found it.
        self.source = None

    def begin(self, handle, error=None, in_group=None):
        """Learns the handle of the call, or that there will be none. `in_group` gives an error of
        the call the words of the group. The caller holds the lock."""
        self._handle, self._error, self._in_group = handle, error, in_group
        self._begun.set()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._lock.later(lambda callback=callback: self.add_done_callback(callback))

    def wait(self, timeout=None):
        if not self._begun.wait(timeout):
            raise TimeoutError(f"the peer has not joined for a message after {timeout} seconds")
        if self._error is not None:
            raise self._error
        try:
            self._handle.wait(timeout)
        except errors.Error as error:
            raise self._in_group(error) from None

    def is_completed(self):
        if not self._begun.is_set():
            return False
        return self._error is not None or self._handle.is_completed()

    def exception(self):
        if not self._begun.is_set():
            return None
        if self._error is not None:
            return self._error
        error = self._handle.exception()
        return error if error is None else self._in_group(error)

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
    """One direction between this rank and a peer: a communicator of two ranks of the group. The
    caller of its methods holds the lock of the group."""

    def __init__(self, group, ends, lock, join):
        self._group = group
        self._ends = ends
        self._is_sender = ends[0] == group.rank
        self._lock = lock
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
            error = self._not_joined(raised)
        with self._lock:
            # The channel may have ended meanwhile.
            if self._error is None:
                self._comm, self._error = comm, error
                self._begin_waiting()

    def _not_joined(self, error):
        """The error of messages for which the two ranks have not joined."""
        peer = self._ends[1 if self._is_sender else 0]
        reason = self._group.failure()
        if reason is None and self._group.has_left(peer):
            reason = f"rank {peer} has left the group"
        verb = "send to" if self._is_sender else "receive from"
        reason = reason or self._named(str(error))
        return errors.Error(f"rank {self._group.rank} cannot {verb} rank {peer}: {reason}")

    def _in_group(self, error):
        """The error with ranks of the group. The communicator numbers its own 0 and 1."""
        found = dict(error.__dict__)
        # The reason of an abort is the words of the one that aborts.
        is_abort = found.get("kind") == "aborted"
        reason = found["cause"].partition(" gave up: ")[2] if is_abort else ""
        if isinstance(error, errors.FailedError):
            found["rank"] = self._ends[error.rank]
            found["peers"] = tuple(self._ends[peer] for peer in error.peers)
            found["operation"] = self._named(error.operation)
            found["cause"] = self._named(error.cause, reason)
        copy = type(error)(self._named(str(error), reason))
        copy.__dict__.update(found)
        return copy

    def _named(self, text, end=""):
        """A text with ranks of the group, but for its end."""
        first, second = self._ends
        both = {"0-1": f"ranks {first} and {second}", "0": f"rank {first}", "1": f"rank {second}"}
        text = text.removesuffix(end)
        return RANKS.sub(lambda found: both[found[1]], text) + end

    def _begin_waiting(self):
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
            handle = call(place(tensor), peer, tag, async_op=True, keep=tensor)
            message.begin(handle, in_group=self._in_group)
        except errors.Error as error:
            message.begin(None, self._in_group(error))

    def start(self, message, tensor, tag):
        """Starts a message behind those before it."""
        self._latest = message
        if self._comm is None and self._error is None:
            self._waiting.append((message, (tensor, tag)))
        else:
            self._begin(message, (tensor, tag))

    def next_tag(self):
        """The tag of the next message, or None if there is none or an earlier receive awaits it."""
        if self._error is not None:
            raise self._error
        if self._comm is None or self._latest and not self._latest.is_completed():
            return None
        try:
            found = self._comm.probe(0)
        except errors.Error as error:
            raise self._in_group(error) from None
        return None if found is None else found[0]

    def set_timeout(self, seconds):
        if self._comm is not None:
            self._comm.set_timeout(seconds)

    def abort(self, reason):
        if self._comm is not None:
            self._comm.abort(reason)
        self._end(errors.Error(reason))

    def close(self):
        """Leaves in the background, after the messages before it."""
        self._end(errors.ClosedError("the process group has been destroyed"))

    def _end(self, error):
        """Lets messages that have not begun fail, and all that follow."""
        if self._comm is not None:
            self._comm.close(wait=False)
        self._comm, self._error = None, self._error or error
        self._begin_waiting()


class Channels:
    """The channels of a group. `comm` is the communicator of the group."""

    def __init__(self, comm, store, seconds):
        self._comm = comm
        self._store = store
        self._seconds = seconds
        self._channels = {}
        self._lock = Lock()
        self._any_source = AnySource(
            comm, self._store_of, lambda: self._seconds, self._from, self._lock
        )

    def _store_of(self, name):
        return Store(PrefixStore(f"messages/{name}/", self._store))

    def send(self, tensor, receiver, tag):
        self._check(receiver, tag)
        message = Message(self._lock)
        with self._lock:
            self._channel(self._comm.rank, receiver).start(message, tensor, tag)
        return message

    def recv(self, tensor, source, tag):
        """Receives a message of a rank, or of any if the source is None."""
        self._check(source, tag)
        message = Message(self._lock)
        with self._lock:
            if source is None or self._any_source.is_waiting():
                self._any_source.post(message, tensor, source, tag)
            else:
                self._from(source).start(message, tensor, tag)
        return message

    def _check(self, peer, tag):
        if not 0 <= tag <= TAG_MAX:
            raise ValueError(f"the tag {tag} is not between 0 and {TAG_MAX}")
        if peer == self._comm.rank:
            raise ValueError(f"rank {peer} cannot send to itself")

    def _from(self, sender):
        """The channel from a rank to this one."""
        return self._channel(sender, self._comm.rank)

    def _channel(self, sender, receiver):
        channel = self._channels.get((sender, receiver))
        if channel is None:
            store, ends = self._store_of(f"{sender}-{receiver}"), (sender, receiver)

            def join():
                if sender == self._comm.rank:
                    self._any_source.announce(receiver)
                return ringfold.subset_with_store(
                    self._comm, store, ends, timeout=self._seconds, join_timeout=self._seconds
                )

            channel = self._channels[ends] = Channel(self._comm, ends, self._lock, join)
        return channel

    def set_timeout(self, seconds):
        """Sets the time of a message, and that in which its two ranks must join."""
        with self._lock:
            self._seconds = seconds
            for channel in self._channels.values():
                channel.set_timeout(seconds)

    def abort(self, reason):
        with self._lock:
            for channel in self._channels.values():
                channel.abort(reason)

    def close(self):
        with self._lock:
            self._any_source.close()
            for channel in self._channels.values():
                channel.close()
            self._channels.clear()
