"""Loses a rank in its first attempt. torchrun starts all ranks again, and they resume."""

import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
from common import begin, say

STEPS = 10


def main():
    options = begin()
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    saved = Path(options.folder, "saved.pt")
    step, value = torch.load(saved) if saved.exists() else (0, torch.zeros(1000))
    say(f"attempt {attempt} begins at step {step}")
    while step < STEPS:
        if attempt == 0 and step == 4 and dist.get_rank() == dist.get_world_size() - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        gradient = torch.full((1000,), float(step))
        dist.all_reduce(gradient, op=dist.ReduceOp.AVG)
        value, step = value + gradient, step + 1
        if dist.get_rank() == 0:
            torch.save((step, value), saved.with_suffix(".new"))
            saved.with_suffix(".new").rename(saved)
        dist.barrier()
    say(f"sum {value[0].item()}")
    dist.destroy_process_group()


main()
