"""ringfold as a backend of torch.distributed, for tensors of the CPU and copies of a GPU's.

`torch.distributed.init_process_group("ringfold")` finds it by an entry point of the package. It
needs torch 2.14 or later, which has backends in Python.
"""

import datetime
import re

#: The first version of torch with backends in Python.
TORCH_NEEDED = (2, 14)

#: The names of `torch.distributed.init_process_group` for the devices that the backend serves.
DEVICES = ["cpu", "cuda"]


def unsupported():
    """The reason why this version of torch cannot use the backend, or None."""
    # Torch runs `autoload` when it is imported, which may be here.
    import torch

    found = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if found and tuple(map(int, found.groups())) >= TORCH_NEEDED:
        return None
    needed = ".".join(map(str, TORCH_NEEDED))
    return (
        f"ringfold needs torch {needed} or later as its backend, and this is torch "
        f"{torch.__version__}; install a later torch, or call the methods of ringfold itself"
    )


def shrink(group=None):
    """Makes a process group of the ranks of `group` that survive a failure, in their old order.

    Every survivor must call it, once for a group. Without an argument it takes the default group:
    the new group becomes the default one, its ranks get the numbers from 0 on, and all other groups
    end. It may be called without a failure. Ranks that have ended, are stopped or disconnected are
    left out. Blocks until the survivors have joined. The old group ends. The new group has a store
    of its own on its first rank. Raises `torch.distributed.DistBackendError` if too few ranks come,
    or the others have left this one out.
    """
    from ringfold.torch._recovery import shrink

    return shrink(group)


def adopt(comm, timeout=datetime.timedelta(minutes=30)):
    """Makes the ranks of a `ringfold.Communicator` the default process group, in place of one that
    exists, which ends with all its groups.

    Every rank of the communicator must call it. Blocks until all have, for at most the timeout,
    which is also that of the operations. The process group owns the communicator: the program may
    `shrink` it after a failure, and makes no other call of it. Raises what the communicator raises.
    """
    from ringfold.torch._recovery import adopt

    return adopt(comm, timeout)


def dump_flights(folder):
    """Writes what torch's Flight Recorder has of this process to the file `rank_N` of a folder,
    which it makes, and returns its path. N is the rank in the default process group.

    torch's recorder does not learn when operations of a backend in Python end. So this adds to
    those of ringfold their states and times. Any thread may call it at any time, also while an
    operation hangs. It does not wait for other ranks. Then
    `python -m torch.distributed.flight_recorder.fr_trace FOLDER` compares the files of all ranks.
    Raises `OSError` if the file cannot be written.
    """
    from ringfold.torch._flights import dump
    from ringfold.torch._recovery import backend_of

    return dump(folder, backend_of)


def register(name="ringfold"):
    """Makes the backend known to torch, under this name. torch calls it through an entry point.

    Under the name "gloo" it takes Gloo's place.
    """
    from torch import distributed

    reason = unsupported()
    if reason:
        raise RuntimeError(reason)
    from ringfold.torch._backend import create
    from ringfold.torch._bits import note_copies
    from ringfold.torch._work import forward_polls

    forward_polls()
    note_copies()
    # torch's C++ casts what has the type GLOO to its own class, so Gloo's place has the type CUSTOM.
    distributed.Backend.register_backend(name, create, extended_api=True, devices=DEVICES)
