"""Starts programs under torchrun."""

import os
import subprocess
import sys

SECONDS = 120


def torchrun(ranks, program, *arguments, options=(), take_over=False):
    """Runs a program on this many ranks, and returns what it printed."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={ranks}", *options, str(program), *map(str, arguments)]
    take_over = {"RINGFOLD_TORCH_TAKE_OVER_GLOO": "1" if take_over else ""}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **take_over}
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    if ended.returncode:
        raise AssertionError(f"{program} failed:\n{ended.stdout}\n{ended.stderr}")
    return ended.stdout


def numbers(text, word="loss"):
    """The numbers of the lines that begin with a word."""
    lines = [line.split() for line in text.splitlines()]
    return [float(line[1]) for line in lines if line and line[0] == word]
