"""The stores by which the ranks of a group meet."""

import time
import weakref

from torch import distributed
from torch.distributed import PrefixStore, distributed_c10d

#: The shortest and the longest pause between two looks at a store, in seconds. It is an eighth of
#: the wait.
PAUSES = (1e-4, 0.02)


#: A connection of its own to the store of each world, by the world's group.
_connections = weakref.WeakKeyDictionary()


class Store:
    """torch's store, as ringfold uses stores.

    A store of torch serves one thread at a time, also while that waits for a key. So the waits of
    ringfold look again and again.
    """

    def __init__(self, store):
        self._store = store

    def set(self, key, value):
        self._store.set(key, value)

    def get(self, key):
        return self._store.get(key) if self._store.check([key]) else None

    def wait(self, key, timeout):
        """The value of the key, or None if there is none within the timeout."""
        began = time.monotonic()
        while (value := self.get(key)) is None:
            waited = time.monotonic() - began
            if waited >= timeout:
                return None
            time.sleep(min(max(waited / 8, PAUSES[0]), PAUSES[1]))
        return value


def connect(opts):
    """A store for the ranks of a new group. Groups of one world share a connection, since a new one
    takes longer than all else, and cannot be had when the store's host has left."""
    world = distributed.group.WORLD
    if world is None or not opts.global_ranks_in_group:
        store = opts.store.clone()
        if opts.process_group is not None:
            _connections[opts.process_group] = store
        return store
    if world not in _connections:
        _connections[world] = distributed_c10d._get_default_store().clone()
    return PrefixStore(f"ringfold/{opts.group_id}", _connections[world])
