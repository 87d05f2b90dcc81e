"""torch.distributed over ringfold beside Gloo, on this machine.

It needs torch and the package of ringfold."""

import json
import sys
from pathlib import Path

import figures
import install
import processes
import table
from command import at_least, some_sizes

# Rows that are no single collective do not count in the mean.
BESIDES = ("DDP step", "DDP communication", "all_reduce async", "ping-pong", "isend and irecv")


def flags(add):
    """Adds the flags."""
    add("--ranks", type=at_least(1), default=2, help="default: 2")
    add("--sizes", type=some_sizes, default=[8 << shift for shift in (0, 6, 10, 13, 17, 21)],
        help="default: 8,512,8K,64K,1M,16M")
    add("--out", type=Path, default=install.ROOT / "target/torch-bench",
        help="folder of the figures (default: target/torch-bench)")


def run(args):
    """Prints a table, and writes the figures."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone",
        f"--nproc-per-node={args.ranks}", install.PROGRAMS / "torch_timing.py",
        ",".join(map(str, args.sizes))]  # fmt: skip
    found, _ = processes.lines(command, {"OMP_NUM_THREADS": "1"})
    rows = [json.loads(line) for line in found if line.startswith("{")]
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / f"{args.ranks}.json"
    file.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    heads = ["Operation", "Bytes", "Gloo, us", "ringfold, us", "Ratio", "A backend without work, us"]
    print("\n".join(table.head(heads)))
    ratios = []
    for row in rows:
        ratio = row["gloo"] / row["ringfold"]
        times = [f"{row[name]:.1f}" for name in ("gloo", "ringfold")]
        idle = f"{row['nothing']:.1f}" if "nothing" in row else ""
        print(table.line([row["operation"], row["bytes"], *times, f"{ratio:.2f}", idle]))
        if row["operation"] not in BESIDES:
            ratios.append(ratio)
    mean = figures.geometric_mean(ratios)
    print(f"\nGeometric mean of the ratios of collectives: {mean:.2f}, least {min(ratios):.2f}")
    least = {row["operation"]: row for row in rows if row["bytes"] == min(args.sizes)}
    blocking, background = least["all_reduce"], least["all_reduce async"]
    print(f"An all-reduce of {blocking['bytes']} bytes takes "
        f"{blocking['ringfold'] / blocking['nothing']:.2f} times as long as without work, and with "
        f"async_op {background['ringfold'] / blocking['ringfold']:.2f} times as long as without")  # fmt: skip
    return 0
