"""The instructions of an 8-byte all-reduce of two ranks, of one build or of two.

Valgrind's callgrind counts them in a `peer-timing` of the profile `profiling`."""

import ctypes
import os
import platform
import secrets
import shutil
import socket
import struct
import subprocess
import tempfile
from pathlib import Path

import install
import processes
from command import at_least, share
from processes import Failed

# Calls of a block in the two kinds of jobs.
CALLS = (2000, 4000)
TIMEOUT_SECONDS = 300
# Each block of peer-timing begins with this function.
BEGINNING = "peer_timing::Timer::time_batch"
# Dumps before the first block: the start and the warm-up.
PARTS_BEFORE = 2
# The lowest count is valid if ALIKE blocks have it to within the share NEARLY.
ALIKE, NEARLY = 3, 0.005
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, PR_GET_AUXV = 22, 38, 0x41555856
SECCOMP_MODE_FILTER, SYS_PRCTL, EINVAL = 2, 157, 22


def flags(add):
    """Adds the flags."""
    add("before", type=Path, help="folder with peer-timing of a build")
    add("after", type=Path, nargs="?", help="folder of a second build, which must not need more")
    add("--blocks", type=at_least(1), default=100, help="blocks of calls in a job (default: 100)")
    add("--jobs", type=at_least(1), default=3, help="jobs of each kind (default: 3)")
    add("--allowed", type=share, default=0.02, help="share that AFTER may need more (default: 0.02)")


def of_blocks(program, rank, calls, blocks):
    """Returns the instructions of the calling thread for each block of one job."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "RINGFOLD_TRANSPORT": "shm", "RINGFOLD_SECRET": secrets.token_hex(32)}
    environment = lambda number: os.environ | common | {"RANK": str(number)}  # noqa: E731
    words = [program, "all_reduce", "out", "1e9", str(blocks), f"8:{calls}"]
    with tempfile.TemporaryDirectory() as folder:
        valgrind = ["valgrind", "--tool=callgrind", "--separate-threads=yes",
            f"--dump-before={BEGINNING}", f"--callgrind-out-file={folder}/out"]
        peer = subprocess.Popen(words, env=environment(1 - rank), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
            preexec_fn=processes.take_precedence)  # fmt: skip
        try:
            done = subprocess.run([*valgrind, *words], env=environment(rank), text=True,
                capture_output=True, timeout=TIMEOUT_SECONDS, check=False,
                start_new_session=True, preexec_fn=_prepare)  # fmt: skip
        except subprocess.TimeoutExpired as slow:
            raise Failed(f"not done within {TIMEOUT_SECONDS} s") from slow
        finally:
            peer.kill()
            peer.wait()
        if done.returncode != 0:
            raise Failed(f"{words[0]} under valgrind: {done.stderr[-2000:]}")
        files = Path(folder).glob("out.*-01")
        blocks = counts_of_blocks([file.read_text(encoding="utf-8") for file in files], BEGINNING)
        if not blocks:
            raise Failed(f"{words[0]} has no symbol {BEGINNING}: build the profile `profiling`")
        return blocks


def _prepare():
    processes.take_precedence()
    hide_vdso()


def per_call(program, rank, options):
    """Returns the instructions of a call on this rank."""
    least = []
    for calls in CALLS:
        jobs = [of_blocks(program, rank, calls, options.blocks) for _ in range(options.jobs)]
        least.append(without_waits([count for job in jobs for count in job]))
    if None in least:
        raise Failed("too few blocks without long waits: the machine is too busy")
    return between(CALLS, least)


def counts_of_blocks(dumps, beginning):
    """Returns the instructions of the blocks in callgrind's dumps. A block begins and ends with a
    call of the function `beginning`."""
    found = []
    for dump in dumps:
        lines = dump.splitlines()
        number = _number(lines, "part: ")
        ends = any(line.startswith("desc: Trigger:") and beginning in line for line in lines)
        if ends and number > PARTS_BEFORE:
            found.append(_number(lines, "totals: "))
    return found


def _number(lines, name):
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def without_waits(blocks):
    """Returns the lowest count if enough blocks nearly have it, else None. Each wait adds to a
    count."""
    least = min(blocks, default=0)
    alike = sum(count <= (1 + NEARLY) * least for count in blocks)
    return least if alike >= ALIKE else None


def between(calls, least):
    """Returns the instructions per call, from two block lengths and their lowest counts."""
    return (least[1] - least[0]) / (calls[1] - calls[0])


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def hide_vdso():
    """Makes `prctl(PR_GET_AUXV)` fail in this process and its children. A program would otherwise
    find the vDSO, which valgrind hides."""
    load, equal, give = 0x20, 0x15, 0x06
    refuse, allow = 0x0005_0000 | EINVAL, 0x7FFF_0000
    steps = [
        (load, 0, 0, 0),  # the number of the system call
        (equal, 0, 3, SYS_PRCTL),
        (load, 0, 0, 16),  # its first argument
        (equal, 0, 1, PR_GET_AUXV),
        (give, 0, 0, refuse),
        (give, 0, 0, allow),
    ]
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    memory = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(steps), ctypes.addressof(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    seccomp = (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0)
    for words in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), seccomp):
        if libc.prctl(*words) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


def run(args):
    """Prints the counts. Returns 1 if the second build needs more instructions than allowed."""
    if shutil.which("valgrind") is None or platform.machine() != "x86_64":
        raise install.Missing("this needs valgrind on x86-64")
    folders = [it for it in (args.before, args.after) if it]
    programs = [install.program(it, "peer-timing") for it in folders]
    found = [[per_call(program, rank, args) for rank in (0, 1)] for program in programs]
    for folder, by_rank in zip(folders, found):
        shown = ", ".join(f"{count:.1f} of rank {rank}" for rank, count in enumerate(by_rank))
        print(f"{folder}: {shown}")
    if len(found) == 1:
        return 0
    ratios = [after / before for before, after in zip(*found)]
    fails = max(ratios) > 1 + args.allowed
    shown = ", ".join(f"{ratio:.4f}" for ratio in ratios)
    print(f"after/before by rank: {shown}; {'FAILED' if fails else 'passed'}")
    return int(fails)
