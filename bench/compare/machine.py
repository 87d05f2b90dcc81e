"""The machine of a run, for the head of its report."""

import datetime
import itertools
import os
import platform
import re
import shlex
import sys

import guest

KIB = 1 << 10


def read(path):
    """Returns the text of a file of the system, or nothing where there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def processor(cpuinfo):
    """Returns the processor's name from /proc/cpuinfo, or else its architecture."""
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return re.sub(r"\((R|TM)\)", "", found[1]).strip() if found else platform.machine()


def memory(meminfo):
    """Returns the memory from /proc/meminfo in GiB, rounded, or None."""
    found = re.search(r"^MemTotal:\s*(\d+) kB$", meminfo, re.MULTILINE)
    return round(int(found[1]) * KIB / 2**30) if found else None


def name():
    """Returns the title of the machine's page."""
    return f"{processor(read('/proc/cpuinfo'))}, {len(os.sched_getaffinity(0))} cores"


def describe():
    """Returns the lines about the machine."""
    size = memory(read("/proc/meminfo"))
    return {
        "machine": name() + (f", {size} GiB of memory" if size else ""),
        "kernel": f"{platform.system()} {platform.release()}",
    }


def about(rounds):
    """Returns the head of every report. The command is that of the user, within a guest too."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    now = datetime.datetime.now(datetime.timezone.utc)
    words = list(itertools.takewhile(lambda word: word != guest.INSIDE, sys.argv[1:]))
    return describe() | {
        "taken": now.strftime("%Y-%m-%d %H:%M UTC"),
        "load before": load,
        "rounds": rounds,
        "command": f"`bench/compare/run {shlex.join(words)}`".replace(" `", "`"),
    }
