"""Trains a classifier of digits with DDP, and goes on when ranks die.

By `--deaths 40:0,80:2` the rank that is then rank 0 kills itself at step 40, and rank 2 at step 80.
The survivors go on with the model, the optimizer and the step of one of them. The batches do not depend on the ranks.

With `--replace SECONDS`, under `ringrun --restart`, they wait for a new process in place of a dead
one, and give it the state. With `--pause SECONDS` each step takes longer.
"""

import os
import signal
import sys
import time

import ringfold
import ringfold.torch
import torch
import torch.distributed as dist
from common import begin, digits, part, say
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 64


def batch(step, count):
    """The rows of a step, which are the same on all ranks."""
    generator = torch.Generator().manual_seed(step)
    return torch.randperm(count, generator=generator)[:BATCH]


def others(comm, seconds):
    """Makes the group of the survivors, and of the processes that replace the dead."""
    if comm is None:
        ringfold.torch.shrink()
        return None
    comm = comm.shrink()
    while comm.size < int(os.environ["RINGFOLD_SIZE"]):
        larger = comm.wait_for_replacement(seconds)
        if larger is None:
            break
        comm = larger
    ringfold.torch.adopt(comm)
    return comm


def share(model, optimizer, step):
    """Gives all ranks the state of the rank that has come furthest."""
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
    defaults = {"deaths": "", "replace": "0", "pause": "0", "steps": "100"}
    if "--replace" in sys.argv:
        comm = ringfold.init()
        ringfold.torch.adopt(comm)
        options = begin(make=False, **defaults)
    else:
        comm, options = None, begin(**defaults)
    deaths = [tuple(map(int, entry.split(":"))) for entry in options.deaths.split(",") if entry]
    images, labels = digits()
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    # A new process has lost nothing, and the others have come further.
    step = 0 if comm is None else share(model, optimizer, 0)
    begun, parallel = step, None
    while step < int(options.steps):
        # A step that a death has interrupted begins again.
        if (step, dist.get_rank()) in deaths and step > begun:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(float(options.pause))
        rows = part(batch(step, len(images)))
        try:
            parallel = parallel or DistributedDataParallel(model, bucket_cap_mb=0.005)
            # DDP takes the mean over ranks of the sums of their rows.
            loss = nn.functional.cross_entropy(parallel(images[rows]), labels[rows], reduction="sum")
            optimizer.zero_grad()
            (loss * dist.get_world_size() / BATCH).backward()
        except RuntimeError as error:
            print(f"rank {dist.get_rank()}: {error}", file=sys.stderr, flush=True)
            comm, parallel = others(comm, float(options.replace)), None
            step = begun = share(model, optimizer, step)
            continue
        optimizer.step()
        step += 1
    loss = nn.functional.cross_entropy(model(images), labels)
    say(f"loss {loss.item():.9g}")
    dist.destroy_process_group()


main()
