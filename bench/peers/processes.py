"""Runs programs for a bounded time, and leaves none of their processes behind."""

import contextlib
import ctypes
import os
import selectors
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass

PR_SET_CHILD_SUBREAPER = 36
# As nice counts: with ten times the share of a session that has 0.
PRECEDENCE = -10


@dataclass
class Outcome:
    """How a program ended: its status, or None if it was stopped, and its last words."""

    status: int | None
    complaint: str

    def reason(self):
        """Why it is no success, in a few words."""
        if self.status is None:
            return "no progress in time"
        last = self.complaint.strip().splitlines()[-1:] or ["no message"]
        return f"status {self.status}: {last[0][:160]}"


def adopt_orphans():
    """Daemons that launchers leave become our children, so that we can end them."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def take_precedence():
    """Gives this session more of the CPUs than others get, where Linux deals them by session and we
    may change that; else the other programs of a busy machine share them with what is measured."""
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w", encoding="ascii") as nice:
        nice.write(str(PRECEDENCE))


def run(argv, environment, patience, on_line, precedence=False):
    """Starts `argv` and calls `on_line` for each line it prints; ends it and all it has started
    when there is no line for `patience` seconds."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [str(word) for word in argv],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            preexec_fn=take_precedence if precedence else None,
        )
        try:
            finished = _read(process, patience, on_line)
            if finished:
                finished = _wait(process, patience)
        finally:
            end_all_below(os.getpid(), process.pid)
            process.stdout.close()
            process.wait()
        errors.seek(0)
        complaint = errors.read()[-4000:].decode(errors="replace")
    return Outcome(process.returncode if finished else None, complaint)


def _read(process, patience, on_line):
    """True at the end of output, False when it took too long."""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        rest, until = b"", time.monotonic() + patience
        while True:
            left = until - time.monotonic()
            if left <= 0 or not selector.select(left):
                return False
            some = os.read(process.stdout.fileno(), 65536)
            if not some:
                return True
            *lines, rest = (rest + some).split(b"\n")
            for line in lines:
                until = time.monotonic() + patience
                on_line(line.decode(errors="replace"))


def _wait(process, patience):
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        return False
    return True


def end_all_below(root, spared):
    """Kills every descendant of `root`, by its id, until there is none, and takes leave of those
    that became our children; that of `spared` is its owner's to take."""
    for _ in range(200):
        alive, dead = _below(root)
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for pid in dead:
            if pid != spared:
                _reap(pid)
        if not alive:
            return
        time.sleep(0.01)


def _below(root):
    """The descendants of `root` that live, and its own children that have ended."""
    children = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as stat:
                state, parent = stat.read().rsplit(")", 1)[1].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(int(parent), []).append((int(name), state in "ZX"))
    alive, fresh = [], [root]
    while fresh:
        for pid, is_dead in children.get(fresh.pop(), []):
            fresh.append(pid)
            if not is_dead:
                alive.append(pid)
    return alive, [pid for pid, is_dead in children.get(root, []) if is_dead]


def _reap(pid):
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass
