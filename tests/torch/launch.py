"""Starts programs under torchrun, or each rank by itself."""

import os
import shutil
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SECONDS = 120

#: For jobs in which processes start one after the other.
LONG_SECONDS = 600


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


def ringrun():
    """The path of ringrun, or None: that of PATH, or one that cargo has built here."""
    target = Path(__file__).resolve().parents[2] / "target"
    built = [target / profile / "ringrun" for profile in ("release", "debug")]
    return shutil.which("ringrun") or next((str(path) for path in built if path.exists()), None)


def under_ringrun(ranks, program, *arguments, options=()):
    """Runs a program on this many ranks, some of which may end, and returns what it printed."""
    command = [ringrun(), "-n", ranks, *options, sys.executable, program, *arguments]
    ended = subprocess.run(
        list(map(str, command)), env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True,
        text=True, timeout=LONG_SECONDS,
    )
    if ended.returncode:
        raise AssertionError(f"{program} failed:\n{ended.stdout}\n{ended.stderr}")
    return ended.stdout


def numbers(text, word="loss"):
    """The numbers of the lines that begin with a word."""
    lines = [line.split() for line in text.splitlines()]
    return [float(line[1]) for line in lines if line and line[0] == word]


def spread(ranks, program, *arguments):
    """Runs a program on this many ranks, each of which may end in its own way. Returns the status,
    the output and the seconds of each."""
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks)}
    command, began = [sys.executable, str(program), *map(str, arguments)], time.monotonic()

    def run(rank):
        environment = {**os.environ, **common, "RANK": str(rank), "OMP_NUM_THREADS": "1"}
        ended = subprocess.run(
            command, env=environment, text=True, timeout=SECONDS,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        return ended.returncode, ended.stdout, time.monotonic() - began

    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(run, range(ranks)))
