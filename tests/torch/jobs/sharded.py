"""Trains with FSDP2 on CPU: fully sharded, and sharded within pairs of ranks if there are four.
Saves a distributed checkpoint in the middle, and repeats the rest from it."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from common import begin, digits, mean, part, say
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

BATCH, STEPS = 64, 8


def new_model(mesh, policy):
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 30), nn.ReLU(), nn.Linear(30, 10))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def steps(model, optimizer, data, of):
    images, labels = data
    losses = []
    for step in of:
        rows = part(torch.arange(step * BATCH, (step + 1) * BATCH))
        loss = nn.functional.cross_entropy(model(images[rows]).float(), labels[rows])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(mean(loss))
    return losses


def train(mesh, policy, data, folder):
    model, optimizer = new_model(mesh, policy)
    losses = steps(model, optimizer, data, range(STEPS // 2))
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=folder)
    rest = steps(model, optimizer, data, range(STEPS // 2, STEPS))

    again, fresh = new_model(mesh, policy)
    steps(again, fresh, data, range(1))
    weights, state = get_state_dict(again, fresh)
    dcp.load({"model": weights, "optimizer": state}, checkpoint_id=folder)
    set_state_dict(again, fresh, model_state_dict=weights, optim_state_dict=state)
    repeated = steps(again, fresh, data, range(STEPS // 2, STEPS))
    if repeated != rest:
        sys.exit(f"the checkpoint gave {repeated}, not {rest}")
    return losses + rest


def main():
    options = begin()
    world = dist.get_world_size()
    meshes = {"all": init_device_mesh("cpu", (world,))}
    if world == 4:
        meshes["pairs"] = init_device_mesh("cpu", (2, 2), mesh_dim_names=("copy", "shard"))
    short = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for name, mesh in meshes.items():
        for kind, policy in [("float", MixedPrecisionPolicy()), ("bfloat", short)]:
            folder = Path(options.folder, f"{name}-{kind}")
            for loss in train(mesh, policy, digits(), folder):
                say(f"loss {loss:.9g}")
    # An asynchronous save uses the group in a thread of its own.
    weights = {"x": torch.arange(100) + dist.get_rank()}
    dcp.async_save({str(dist.get_rank()): weights}, checkpoint_id=Path(options.folder, "async")).result()
    dist.destroy_process_group()


main()
