"""Runs programs with a time limit, and ends all their processes."""

import contextlib
import ctypes
import os
import selectors
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

PR_SET_CHILD_SUBREAPER = 36
# A nice value with ten times the CPU share of a session at 0.
PRECEDENCE = -10


class Failed(Exception):
    """Raised after a program that failed, with its last words."""


def say(message):
    """Prints a line of progress. The results go elsewhere."""
    print(message, file=sys.stderr, flush=True)


@dataclass
class Outcome:
    """The end of a program: its status, or None if it was stopped, and its error output."""

    status: int | None
    complaint: str

    def reason(self):
        """A short reason for the failure."""
        if self.status is None:
            return "no progress in time"
        last = self.complaint.strip().splitlines()[-1:] or ["no message"]
        return f"status {self.status}: {last[0][:160]}"


def adopt_orphans():
    """Makes daemons that launchers leave our children, so we can end them."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def take_precedence(level=PRECEDENCE):
    """Gives this session a higher CPU share than other sessions, if Linux schedules by session and
    permits the change. Level 0 gives it back."""
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w", encoding="ascii") as nice:
        nice.write(str(level))


def run(argv, environment, patience, on_line):
    """Starts `argv`, with precedence, and calls `on_line` for each line of its output. Ends it and
    its child processes after `patience` seconds without a line."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [str(word) for word in argv],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            preexec_fn=take_precedence,
        )
        try:
            finished = _read(process, patience, on_line)
            if finished:
                process.wait(patience)
        except subprocess.TimeoutExpired:
            finished = False
        finally:
            end_all_below(os.getpid(), process.pid)
            process.stdout.close()
            process.wait()
        errors.seek(0)
        complaint = errors.read().decode(errors="replace")
    return Outcome(process.returncode if finished else None, complaint)


def lines(argv, variables, patience=300, on_line=lambda _: None, shows_log=False):
    """Runs a program with further variables. Returns the lines of its output and its error output,
    or raises `Failed`."""
    found = []

    def read(line):
        found.append(line)
        on_line(line)

    environment = os.environ | {name: str(value) for name, value in variables.items()}
    outcome = run(argv, environment, patience, read)
    if shows_log:
        say(outcome.complaint)
    if outcome.status != 0:
        words = "\n".join([*found, outcome.complaint])[-2000:].strip()
        raise Failed(f"{shlex.join(map(str, argv))}: {outcome.reason()}\n{words}")
    return found, outcome.complaint


def _read(process, patience, on_line):
    """Returns True at the end of the output, and False after too long a pause."""
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


def end_all_below(root, spared):
    """Kills every descendant of `root` by its id until there is none, and reaps those that became
    our children. The owner of `spared` reaps that process."""
    for _ in range(200):
        alive, dead = _below(root)
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in set(dead) - {spared}:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if not alive:
            return
        time.sleep(0.01)


def _below(root):
    """Returns the living descendants of `root`, and its own children that have ended."""
    children = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with (
            contextlib.suppress(FileNotFoundError, ProcessLookupError),
            open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as stat,
        ):
            state, parent = stat.read().rsplit(")", 1)[1].split()[:2]
            children.setdefault(int(parent), []).append((int(name), state in "ZX"))
    alive, fresh = [], [root]
    while fresh:
        for pid, is_dead in children.get(fresh.pop(), []):
            fresh.append(pid)
            if not is_dead:
                alive.append(pid)
    return alive, [pid for pid, is_dead in children.get(root, []) if is_dead]
