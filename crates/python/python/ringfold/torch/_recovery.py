"""Process groups of the ranks that survive a failure."""

import os
import socket

import torch
from torch import distributed
from torch.distributed import PrefixStore, ProcessGroup, TCPStore, distributed_c10d

from ringfold.torch import DEVICES, register
from ringfold.torch._backend import RingfoldBackend, keep

#: The length of the name of a host, in bytes, with the port.
ADDRESS_BYTES = 256


def shrink(group=None):
    """See `ringfold.torch.shrink`."""
    world = distributed_c10d._get_default_group()
    group = group or world
    backend = backend_of(group)
    if backend is None:
        raise TypeError(f"ringfold is not the backend of {group}; it shrinks its own groups only")
    is_world = group is world
    comm = backend.survive()
    ranks = distributed.get_process_group_ranks(group)
    members = [ranks[former] for former in backend.former_ranks(comm)]
    store = meet(comm, backend.options._timeout)
    child = backend.successor(comm, store)
    name, _ = distributed_c10d._world.pg_map[group]
    config = distributed_c10d._world.pg_backend_config[group]
    tag = distributed_c10d._get_process_group_name(group)
    distributed.destroy_process_group(group)
    # The default group has the numbers that all others refer to.
    return enter(child, store, tag, name, config, None if is_world else members)


def adopt(comm, timeout):
    """See `ringfold.torch.adopt`."""
    if not hasattr(distributed.Backend, "RINGFOLD"):
        register()
    if distributed.is_initialized():
        distributed.destroy_process_group()
    comm.set_timeout(timeout.total_seconds())
    store = meet(comm, timeout)
    backend = RingfoldBackend(store, comm.rank, comm.size, timeout, True, comm)
    config = ",".join(f"{device}:ringfold" for device in DEVICES)
    return enter(keep(backend), store, "ringfold", "ringfold", config)


def enter(backend, store, tag, name, config, members=None):
    """Makes a process group known to torch: the default one, or one of these members of it."""
    comm = backend._comm
    new = ProcessGroup(PrefixStore(f"{tag}/{comm.epoch}/", store), comm.rank, comm.size)
    for device in devices_of(config):
        new._register_backend(torch.device(device), ProcessGroup.BackendType.CUSTOM, backend)
    new._set_default_backend(ProcessGroup.BackendType.CUSTOM)
    new._set_group_name(f"{tag.split('/epoch')[0]}/epoch {comm.epoch}")
    new._set_group_desc(f"{tag}, as its ranks are in epoch {comm.epoch}")
    if members is None:
        distributed_c10d._update_default_pg(new)
        members = range(comm.size)
    distributed_c10d._register_pg_in_world(
        pg=new, backend_name=name, store=store, group_name=new.group_name, backend_config=config,
        rank_mapping={rank: place for place, rank in enumerate(members)}, add_to_default_tag=True,
    )
    return new


def backend_of(group):
    """The backend of ringfold of a group, or None."""
    return next((it for it in backends_of(group) if isinstance(it, RingfoldBackend)), None)


def backends_of(group):
    """The backends of a group, each of which serves a device."""
    for device in group._device_types:
        yield group._get_backend(device)


def devices_of(config):
    """The devices that a configuration names, as in `cpu:ringfold,cuda:ringfold`."""
    return [part.split(":")[0] for part in config.split(",")]


def meet(comm, timeout):
    """A store on the first of these ranks."""
    address = torch.zeros(ADDRESS_BYTES, dtype=torch.uint8)
    if comm.rank == 0:
        host = own_address()
        store = TCPStore(host, 0, comm.size, True, timeout, wait_for_workers=False)
        text = f"{host} {store.port}".encode()
        address[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    comm.broadcast(address, root=0)
    if comm.rank > 0:
        host, port = bytes(address.tolist()).rstrip(b"\0").decode().split()
        store = TCPStore(host, int(port), comm.size, False, timeout)
    return store


def own_address():
    """The address from which this host reaches the first rank of the job."""
    launcher = os.environ.get("RINGFOLD_RENDEZVOUS", "127.0.0.1").rpartition(":")[0]
    first = os.environ.get("MASTER_ADDR", launcher.strip("[]") or "127.0.0.1")
    family, kind, _, _, address = socket.getaddrinfo(first, 1, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)
        return probe.getsockname()[0]
