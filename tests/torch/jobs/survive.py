"""Trains a classifier of digits with DDP, and goes on without the ranks that die.

`--deaths 40:0,80:2` has rank 0 kill itself at step 40, and rank 2 at step 80. The survivors go on
with the model, the optimizer and the step of one of them. The batches do not depend on the ranks.
"""

import os
import signal
import sys

import ringfold.torch
import torch
import torch.distributed as dist
from common import begin, digits, part, say
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 100
BATCH = 64


def batch(step, count):
    """The rows of a step, which are the same on all ranks."""
    generator = torch.Generator().manual_seed(step)
    return torch.randperm(count, generator=generator)[:BATCH]


def survivors(model, optimizer, step):
    """Makes the group of the survivors, with the state of the rank that has come furthest."""
    ringfold.torch.shrink()
    steps = [None] * dist.get_world_size()
    dist.all_gather_object(steps, step)
    root = steps.index(max(steps))
    state = [(model.state_dict(), optimizer.state_dict(), step)]
    dist.broadcast_object_list(state, root)
    of_model, of_optimizer, step = state[0]
    model.load_state_dict(of_model)
    optimizer.load_state_dict(of_optimizer)
    print(f"process {os.getpid()} goes on at step {step} as rank {dist.get_rank()} of {len(steps)}",
          flush=True)
    return step


def main():
    options = begin(deaths="")
    first = dist.get_rank()
    deaths = [entry.split(":") for entry in options.deaths.split(",") if entry]
    ends = {int(step) for step, rank in deaths if int(rank) == first}
    images, labels = digits()
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step, parallel = 0, None
    while step < STEPS:
        if step in ends:
            os.kill(os.getpid(), signal.SIGKILL)
        rows = part(batch(step, len(images)))
        try:
            parallel = parallel or DistributedDataParallel(model, bucket_cap_mb=0.005)
            # DDP takes the mean over ranks of the sums of their rows.
            loss = nn.functional.cross_entropy(parallel(images[rows]), labels[rows], reduction="sum")
            optimizer.zero_grad()
            (loss * dist.get_world_size() / BATCH).backward()
        except RuntimeError as error:
            print(f"rank {dist.get_rank()}: {error}", file=sys.stderr, flush=True)
            step, parallel = survivors(model, optimizer, step), None
            continue
        optimizer.step()
        step += 1
    loss = nn.functional.cross_entropy(model(images), labels)
    say(f"loss {loss.item():.9g}")
    dist.destroy_process_group()


main()
