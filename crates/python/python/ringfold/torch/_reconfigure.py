"""Process groups whose ranks may change, by torch's `reconfigure`."""

import re
from typing import NamedTuple

import torch
from torch import distributed
from torch.distributed import ProcessGroup, distributed_c10d

from ringfold.torch import DEVICES


class Handle(NamedTuple):
    """What a rank tells the others of itself. They sort a set of handles by it."""

    #: The rank in the group before, and the uuid of that group, or -1 if there was none.
    rank: int
    uuid: int
    #: A unique id, by which the others join if this rank becomes the first one.
    id: str

    def __str__(self):
        return f"ringfold:{self.rank}:{self.uuid}:{self.id}"


def read(text):
    """The handle with this text."""
    found = re.fullmatch(r"ringfold:(-?\d+):(-?\d+):(\S+)", text)
    if found is None:
        raise ValueError(f"{text!r} is not a handle of ringfold, as get_reconfigure_handle gives it")
    return Handle(int(found[1]), int(found[2]), found[3])


def read_all(texts):
    """The handles of a new group by rank. In a set they keep the order of their old ranks."""
    handles = [read(text) for text in texts]
    if not isinstance(texts, list):
        handles.sort()
    if not handles or len(set(handles)) < len(handles):
        raise ValueError(f"a group needs a handle for each rank, each once, not {len(handles)}")
    return handles


class Absent:
    """In place of a communicator, until the first `reconfigure`."""

    def __getattr__(self, name):
        raise distributed.DistBackendError(
            f"the process group has no ranks yet, so it cannot do {name}: call reconfigure"
        )

    def failure(self):
        return None

    def set_timeout(self, seconds):
        """`reconfigure` takes the timeout of the group."""

    def abort(self, reason):
        """No other rank waits."""

    def close(self, wait):
        """There is nothing to leave."""


class Group(ProcessGroup):
    """A process group of a backend whose rank and size change. torch's C++ has those of the
    backend's birth."""

    def __init__(self, store, backend):
        super().__init__(store, backend.rank(), backend.size())
        self._backend = backend
        for device in DEVICES:
            self._register_backend(torch.device(device), self.BackendType.CUSTOM, backend)
        self._set_default_backend(self.BackendType.CUSTOM)

    def getRank(self):
        return self._backend.rank()

    def getSize(self):
        return self._backend.size()

    def get_reconfigure_handle(self):
        config = distributed_c10d._world.pg_backend_config.get(self, "")
        names = {part.split(":")[-1] for part in config.split(",")}
        if len(names) > 1:
            raise RuntimeError(f"torch reconfigures no group with multiple backends, as {config}")
        return super().get_reconfigure_handle()

    def reconfigure(self, opts):
        work = super().reconfigure(opts)
        if distributed.group.WORLD is self:
            # torch keeps the rank for its logs, and all ranks of the default group.
            distributed_c10d._world.pg_group_ranks[self] = {it: it for it in range(self.size())}
            distributed_c10d._update_default_pg(self)
        return work
