"""torchft's process groups with ringfold as their backend. Its child processes import this module."""

import torch
from ringfold.torch import DEVICES
from ringfold.torch._backend import create
from torch.distributed import ProcessGroup
from torch.distributed.distributed_c10d import _DistributedBackendOptions
from torchft.process_group import ProcessGroupBabyGloo, ProcessGroupGloo, ProcessGroupWrapper


def made(store, rank, size, timeout):
    """A process group of torch with the backend of ringfold."""
    options = _DistributedBackendOptions()
    options.store, options.group_rank, options.group_size = store, rank, size
    options.timeout, options.global_ranks_in_group = timeout, list(range(size))
    group, backend = ProcessGroup(store, rank, size), create(options)
    for device in DEVICES:
        group._register_backend(torch.device(device), ProcessGroup.BackendType.CUSTOM, backend)
    group._set_default_backend(ProcessGroup.BackendType.CUSTOM)
    return group


class ProcessGroupRingfold(ProcessGroupGloo):
    # torchft raises for these two in the name of Gloo.
    reduce_scatter = ProcessGroupWrapper.reduce_scatter
    reduce_scatter_tensor_coalesced = ProcessGroupWrapper.reduce_scatter_tensor_coalesced

    def _create_pg(self, store, rank, world_size):
        return made(store, rank, world_size, self._timeout)


class ProcessGroupBabyRingfold(ProcessGroupBabyGloo):
    @classmethod
    def _create_pg(cls, store, rank, world_size):
        return made(store, rank, world_size, store.timeout)
