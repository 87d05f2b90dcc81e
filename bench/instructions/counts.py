"""Reads the dumps of callgrind, and prepares a process for valgrind."""

import ctypes
import struct

# Dumps before the first block: the start and the warm-up.
PARTS_BEFORE = 2
# The lowest count is valid if ALIKE blocks have it to within the share NEARLY.
ALIKE, NEARLY = 3, 0.005
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, PR_GET_AUXV = 22, 38, 0x41555856
SECCOMP_MODE_FILTER, SYS_PRCTL, EINVAL = 2, 157, 22


def of_blocks(dumps, beginning):
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


def per_call(calls, least):
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
