"""An all-reduce from Python beside the same call from Rust, on two ranks of this machine.

It needs numpy and the package of ringfold, whose wheel has `ringrun` and `allreduce-perf`."""

import shutil
import statistics
import sys
from pathlib import Path

import install
import libraries
import measure
import processes
import table
from command import at_least

# Bytes, and calls of a round.
SIZES = [(8, 100_000), (16 << 20, 40)]


def flags(add):
    """Adds the flags."""
    add("--rounds", type=at_least(1), default=7, help="default: 7")


def rust(folder, size, calls):
    """Returns the microseconds of a call of allreduce-perf in place."""
    words = ["-b", size, "-e", size, "-n", calls, "-w", max(1, calls // 10), "-c", 0]
    result = libraries.perf(libraries.ringrun(folder, 2), folder, words, {})
    return float(result["in_place"]["time"])


def python(folder, size, calls):
    """Returns the microseconds of a call from Python."""
    program = [sys.executable, install.PROGRAMS / "python_timing.py", size, calls]
    found, _ = processes.lines([*libraries.ringrun(folder, 2), *program], {})
    return float(found[-1])


def run(args):
    """Prints a row for each size, with the medians of the rounds."""
    beside = Path(sys.executable).parent
    elsewhere = Path(shutil.which("ringrun") or beside / "ringrun").parent
    folder = install.with_programs(
        beside if (beside / "ringrun").exists() else elsewhere, "ringrun", "allreduce-perf"
    )
    print("\n".join(table.head(["Bytes", "Rust, us", "Python, us", "Difference, us", "Ratio"])))
    for cell in SIZES:
        cases = {"Rust": rust, "Python": python}
        times = measure.alternate(cases, args.rounds, lambda case: case(folder, *cell))
        one, other = map(statistics.median, times.values())
        words = [f"{one:.2f}", f"{other:.2f}", f"{other - one:.2f}", f"{other / one:.3f}"]
        print(table.line([cell[0], *words]), flush=True)
    return 0
