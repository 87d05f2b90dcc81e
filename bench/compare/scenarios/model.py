"""The times that `ringfold simulate` predicts, beside those of calls between hosts."""

import contextlib
import json
import os
import tempfile
from pathlib import Path

import figures
import install
import network
import processes
import sizes
import table
from command import at_least, listed, numbers, positive, rate, some_sizes
from processes import Failed, say
from scenarios import regret

OPTIONAL = True
# Prices that were measured between two hosts. They are older than the runs that they predict.
PRICES = Path(__file__).resolve().parents[1] / "model.prices"
# A barrier has no size.
COLLECTIVES = [name for name in regret.COLLECTIVES if name != "barrier"]
SIZES = [64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20]
# The most that the errors may be in the median and at the 90th percentile.
MEDIAN, MOST = 0.15, 0.30
# So many that each has one call: the next call of several, by another root, would begin earlier.
ROUNDS = 1000
# Bytes of a packet: the load of this machine's CPUs grows with the number of packets.
MTU = 9000


def flags(add):
    """Adds the flags."""
    add("what", nargs="?", choices=["check", "prices"], default="check",
        help="compare, or measure the prices between two hosts (default: check)")
    add("--prices", type=Path, default=PRICES, metavar="FILE",
        help="to predict by, or to write (default: model.prices beside the program)")
    add("--hosts", type=numbers(2), default=[8, 16], help="numbers of hosts (default: 8,16)")
    add("--rate", type=rate, default="100mbit",
        help="of each link in each direction, in tc's notation (default: 100mbit)")
    add("--delay", type=positive, default=0.5, help="milliseconds of a packet (default: 0.5)")
    add("--sizes", type=some_sizes, default=SIZES, help="default: 64K,256K,1M,4M,16M")
    add("--collectives", type=listed(COLLECTIVES), default=COLLECTIVES, help="default: all")
    add("--seconds", type=positive, default=1.0, help="for the rounds of a cell (default: 1)")
    add("--patience", type=positive, default=120.0, help="most seconds without a result")
    add("--times", type=Path, nargs="+", default=[], metavar="FILE",
        help="times of earlier runs, in place of measuring")
    add("--out", type=Path, metavar="FILE", help="write all times as lines of JSON")
    install.program_flags(add)


def measure_prices(args, folder):
    """Writes the prices of links between two hosts."""
    with network.Delayed(2, args.delay / 1e3, args.rate, MTU) as hosts:
        file = hosts.folder / "prices"
        words = ["ringfold", "tune", "--machine", "-o", file]
        outcome = regret.Group(2, hosts).start(words, folder, {}, args.patience)
        if outcome.status != 0:
            raise Failed(f"ringfold tune --machine: {outcome.reason()}")
        text = file.read_text(encoding="utf-8")
    # Simulated hosts are machines, and no containers of one.
    args.prices.write_text(text.replace("container ", "tcp "), encoding="utf-8")
    print(f"{args.prices}:\n{args.prices.read_text(encoding='utf-8')}", end="")


def times(args, folder):
    """Yields the records of algorithm-timing, with the number of hosts."""
    for file in args.times:
        yield from map(json.loads, file.read_text(encoding="utf-8").splitlines())
    if args.times:
        return
    args.rounds, wanted = ROUNDS, regret.cells(args.collectives, ["f32"], args.sizes)
    for count in args.hosts:
        with network.Delayed(count, args.delay / 1e3, args.rate, MTU) as hosts:
            # Programs depend on prices, and here the hosts are containers of a machine.
            file, text = hosts.folder / "prices", args.prices.read_text(encoding="utf-8")
            own = [line.replace("tcp ", "container ") for line in text.splitlines()
                if line.startswith("tcp ")]  # fmt: skip
            file.write_text("\n".join([text, *own, ""]), encoding="utf-8")
            group, variables = regret.Group(count, hosts), {"RINGFOLD_PRICES": str(file)}
            for row in regret.rows_of(args, folder, group, args.rate, wanted, variables):
                if row.failure:
                    raise Failed(f"{row.key}: {row.failure}")
                yield {"hosts": count} | row.record
        say(f"{count} hosts: done")


def predicted(folder, prices, hosts, collective, size):
    """Returns the predicted microseconds by algorithm."""
    # A port has the rate of its class of links, if that is lower.
    words = [folder / "ringfold", "simulate", collective, "--fabric", f"switch:{hosts}x1:100G",
        "--tcp", "--prices", prices, "-b", size, "--json"]
    found = json.loads("\n".join(processes.lines(words, {})[0]))["cells"]
    return {cell["algorithm"]: cell["seconds"] * 1e6 for cell in found}


def cells(folder, prices, records):
    """Yields hosts, collective, algorithm, size, and the measured and predicted microseconds."""
    for record in records:
        hosts, name, size = record["hosts"], record["collective"], record["bytes"]
        known = predicted(folder, prices, hosts, name, size)
        for algorithm, measured in sorted(record["times"].items()):
            if algorithm in known:
                yield hosts, name, algorithm, size, figures.median(measured), known[algorithm]


def error(cell):
    """Returns by how much the predicted time is longer, as a part of the measured one."""
    return cell[5] / cell[4] - 1


def percentile(values, part):
    """Returns the least value that so large a part of the values does not exceed."""
    return sorted(values)[max(-(-len(values) * part // 100) - 1, 0)]


def summary(found):
    """Returns the lines of the summary, and whether all errors together are small enough."""
    lines = table.head(["hosts", "collective", "cells", "median error", "90 % within", "worst"])
    groups = {("all", "all"): found}
    for key in [lambda cell: (cell[0], "all"), lambda cell: ("all", cell[1])]:
        for cell in found:
            groups.setdefault(key(cell), []).append(cell)
    for (hosts, name), group in groups.items():
        sizes_of = [abs(error(cell)) for cell in group]
        worst = max(group, key=lambda cell: abs(error(cell)))
        words = [hosts, name, len(group), f"{figures.median(sizes_of) * 100:.1f} %",
            f"{percentile(sizes_of, 90) * 100:.1f} %",
            f"{error(worst) * 100:+.0f} %: {worst[1]} {worst[2]}, {worst[0]} hosts, "
            f"{sizes.show(worst[3])}B"]  # fmt: skip
        lines.append(table.line(words))
    errors = [abs(error(cell)) for cell in found]
    return lines, figures.median(errors) <= MEDIAN and percentile(errors, 90) <= MOST


def run(args):
    """Prints the tables. Returns 0 if the predictions are good enough, and 2 if not."""
    names = ["ringfold"] if args.times else ["ringrun", "ringfold", "algorithm-timing"]
    folder = install.ringfold(args, *names, more=["ringfold-cli"])
    if args.what == "prices":
        measure_prices(args, folder)
        return 0
    with contextlib.ExitStack() as stack:
        prices = args.prices
        file = stack.enter_context(open(args.out or os.devnull, "a", encoding="utf-8"))
        records = []
        for record in times(args, folder):
            records.append(record)
            print(json.dumps(record), file=file, flush=True)
    found = list(cells(folder, prices, records))
    head = ["hosts", "collective", "algorithm", "size", "measured ms", "predicted ms", "error"]
    lines = table.head(head, "rllrrrr")
    for cell in found:
        hosts, name, algorithm, size, measured, known = cell
        lines.append(table.line([hosts, name, algorithm, f"{sizes.show(size)}B",
            f"{measured / 1e3:.2f}", f"{known / 1e3:.2f}", f"{error(cell) * 100:+.1f} %"]))
    totals, is_good = summary(found)
    print("\n".join([*lines, "", *totals]))
    return 0 if is_good else 2
