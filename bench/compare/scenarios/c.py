"""An all-reduce of 8 bytes between two ranks by libringfold.so, beside Rust in the same processes."""

import statistics

import install
import libraries
import processes
from command import at_least

# Nanoseconds that a call from C may cost over Rust.
MOST = 50


def flags(add):
    """Adds the flags."""
    add("--rounds", type=at_least(1), default=5, help="default: 5")
    install.program_flags(add)


def run(args):
    """Prints the medians of each round. Returns 1 if the median round costs over 50 ns more in C."""
    names = ["ringrun", "latency", "libringfold_capi.so"]
    folder = install.ringfold(args, *names, more=["ringfold-capi"], example="latency")
    words = [install.program(folder, name) for name in names[1:]]
    over = []
    for _ in range(args.rounds):
        for line in processes.lines([*libraries.ringrun(folder, 2), *words], {})[0]:
            print(line, flush=True)
            over.append(float(line.split()[-2]))
    middle = statistics.median_low(over)
    print(f"the median round: C costs {middle:.1f} ns over Rust, at most {MOST}")
    return int(middle > MOST)
