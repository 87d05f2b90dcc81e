"""What the training jobs of this folder share."""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist

DIGITS = Path(__file__).parents[3] / "crates/ringfold/examples/digits/digits.txt"


def begin(make=True, **more):
    """Joins the process group of the backend that the command line names, unless the program has
    made it. Programs may have more options, each with its default."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="ringfold")
    parser.add_argument("--folder", default=".")
    for name, default in more.items():
        parser.add_argument(f"--{name}", default=default)
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    if make:
        dist.init_process_group(options.backend)
    return options


def say(*words):
    """Prints a line on rank 0."""
    if dist.get_rank() == 0:
        print(*words, flush=True)


def digits():
    """The images and labels of handwritten digits, each image a row of 64 floats."""
    rows = [line.split() for line in DIGITS.read_text().splitlines()]
    ink = [["0123456789abcdefg".index(pixel) for pixel in row[0]] for row in rows]
    return torch.tensor(ink, dtype=torch.float32) / 16, torch.tensor([int(row[1]) for row in rows])


def part(tensor):
    """This rank's rows of a batch that all ranks have."""
    return tensor[dist.get_rank() :: dist.get_world_size()]


def mean(loss):
    """The mean of all ranks' losses."""
    loss = loss.detach().clone()
    dist.all_reduce(loss)
    return loss.item() / dist.get_world_size()
