"""Receives from any source, over channels that each have one sender.

A sender that opens a channel announces it in the store. While a receive from any source waits, a
thread opens these channels and probes them. Receives that are posted meanwhile wait behind it, so
each message goes to the receive that was posted first.
"""

import threading
import time
from collections import deque
from dataclasses import dataclass

import torch

from ringfold import errors

#: The shortest and the longest pause between two probes, in seconds. It is an eighth of the wait.
PAUSES = (5e-5, 0.02)

#: Seconds in which messages of ranks that have left may still arrive.
LEFT_SECONDS = 1.0


@dataclass(eq=False)
class Receive:
    """A receive that waits for its message. Its source is None if any will do."""

    message: object
    tensor: torch.Tensor
    source: int | None
    tag: int
    deadline: float

    def takes(self, sender, tag):
        return self.source == sender or self.source is None and self.tag == tag


class AnySource:
    """The receives of a group that wait for a message of any source, and those behind them.

    The caller holds the lock when it calls `is_waiting`, `post` and `close`.
    """

    def __init__(self, comm, store_of, seconds, channel_from, lock):
        self._comm = comm
        self._store_of = store_of
        self._seconds = seconds
        self._channel_from = channel_from
        self._lock = lock
        self._receives = []
        self._is_matching = False
        # The senders whose channels are open. The next look begins with the first.
        self._senders = deque()
        self._announced = None
        self._all_left_since = None

    def announce(self, receiver):
        """Announces that this rank opens a channel."""
        store = self._store_of(f"to-{receiver}")
        store.set(str(store.count("channels")), str(self._comm.rank))

    def is_waiting(self):
        return bool(self._receives)

    def post(self, message, tensor, source, tag):
        deadline = time.monotonic() + self._seconds()
        self._receives.append(Receive(message, tensor, source, tag, deadline))
        if not self._is_matching:
            self._is_matching = True
            threading.Thread(target=self._match, daemon=True).start()

    def close(self):
        self._fail(errors.ClosedError("the group is closed"))

    def _match(self):
        """Gives messages to receives until none waits."""
        began = time.monotonic()
        while True:
            with self._lock:
                try:
                    self._open()
                    if self._look():
                        began = time.monotonic()
                    self._check_group()
                except Exception as error:
                    is_ours = isinstance(error, errors.Error)
                    self._fail(error if is_ours else errors.Error(f"the store failed: {error}"))
                if not self._receives:
                    self._is_matching = False
                    return
            time.sleep(min(max((time.monotonic() - began) / 8, PAUSES[0]), PAUSES[1]))

    def _open(self):
        """Opens the channels that were announced, and those of named sources."""
        if self._announced is None:
            self._announced = self._store_of(f"to-{self._comm.rank}")
        named = [it.source for it in self._receives if it.source is not None]
        while (sender := self._announced.get(str(len(self._senders) + 1))) is not None:
            self._senders.append(int(sender))
        for sender in {*named, *self._senders}:
            self._channel_from(sender)

    def _look(self):
        """Starts receives whose messages have come. Returns whether there are any."""
        found = False
        for _ in range(len(self._senders)):
            sender = self._senders[0]
            self._senders.rotate(-1)
            channel = self._channel_from(sender)
            try:
                tag = channel.next_tag()
            except Exception as error:
                # Others may still send to a receive from any source.
                self._fail(error, lambda it, sender=sender: it.source == sender)
                continue
            first = next((it for it in self._receives if it.takes(sender, tag)), None)
            if tag is not None and first is not None:
                self._receives.remove(first)
                first.message.source = sender
                channel.start(first.message, first.tensor, first.tag)
                found = True
        return found

    def _check_group(self):
        """Fails the receives for which there is no hope."""
        comm, now = self._comm, time.monotonic()
        failure = comm.failure()
        if failure is not None:
            raise errors.Error(f"rank {self._comm.rank} receives from any source: {failure}")
        others = [rank for rank in range(comm.size) if rank != self._comm.rank]
        if not all([comm.has_left(rank) for rank in others]):
            self._all_left_since = None
        elif now - (self._all_left_since or now) > LEFT_SECONDS:
            raise errors.Error(
                f"rank {self._comm.rank} receives from any source, and all other ranks have left"
            )
        else:
            self._all_left_since = self._all_left_since or now
        late = errors.Error(
            f"The timeout has passed: no message for rank {self._comm.rank} within {self._seconds()} s"
        )
        self._fail(late, lambda it: it.deadline <= now)

    def _fail(self, error, which=lambda it: True):
        for receive in [it for it in self._receives if which(it)]:
            self._receives.remove(receive)
            receive.message.begin(None, error)
