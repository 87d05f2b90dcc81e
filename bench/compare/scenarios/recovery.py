"""The time from a failure until the survivors go on, beside splits of as many ranks.

All ranks are processes of this machine. Exit status 2 if shrinking or growing takes too long."""

import contextlib
import json
import os
import random
import subprocess
import tempfile
from pathlib import Path

import figures
import install
import machine
import page
import processes
import table
from command import at_least, listed, numbers, positive
from processes import Failed, say

# The most that shrinking and growing may take of the time of a split.
WANTED = {"shrink": 1.5, "grow": 2.0}
# The figures of a round, in the order of recovery-timing's output.
ROUND = ("shrink", "detect", "split", "grow", "split")
ABOUT = (
    "In each round a random rank of all kills itself. The others *shrink*, and grow by a newcomer, which\n"
    "already waits. A *split* into one group of as many ranks follows each. Times are milliseconds, and\n"
    "medians of the rounds. They begin with the first rank, and end when the first all-reduce of the new\n"
    "communicator has returned on all ranks. Shrinking begins when a rank knows the cause. *Detected* is\n"
    "the time from the kill until then. A *ratio* is that to the split: the median of the rounds' ratios."
)  # fmt: skip


def flags(add):
    """Adds the flags."""
    add("--ranks", type=numbers(3), default=[8, 64], help="with commas (default: 8,64)")
    add("--transports", type=listed(["shm", "tcp"]), default=["shm", "tcp"],
        help="default: shm,tcp")
    add("--rounds", type=at_least(1, 1000), default=7,
        help="rounds of a job, fewer than its ranks (default: 7)")
    add("--seed", type=int, default=random.randrange(1 << 32), help="default: a new one")
    add("--patience", type=positive, default=120.0, help="most seconds without a figure")
    add("--page", type=Path, metavar="FOLDER", help="write this machine's page below FOLDER")
    add("--out", type=Path, default=install.ROOT / "target/recovery", help="folder of the results")
    install.program_flags(add)


def check(args):
    """Refuses rounds in which all ranks of the launcher could die."""
    if args.rounds >= min(args.ranks):
        args.error(f"--rounds {args.rounds}: give fewer rounds than --ranks {min(args.ranks)}")


class Times:
    """The microseconds of all rounds of a job, by name: the figures of `ROUND`."""

    def __init__(self, transport, ranks, lines):
        self.transport, self.ranks = transport, ranks
        shown = [(words[0], int(words[2])) for words in map(str.split, lines) if words[0] in ROUND]
        names = [name for name, _ in shown]
        if not shown or names != list(ROUND) * (len(shown) // len(ROUND)):
            raise Failed(f"recovery-timing has printed other figures than {ROUND}: {names}")
        values = [value for _, value in shown]
        of = lambda at: values[at :: len(ROUND)]  # noqa: E731
        self.times = {"shrink": of(0), "detect": of(1), "split": of(2), "grow": of(3),
            "split again": of(4)}  # fmt: skip

    def median(self, name):
        """Returns the median milliseconds."""
        return figures.median(self.times[name]) / 1e3

    def ratio(self, name):
        """Returns the time of shrinking or growing over that of the split after it."""
        splits = self.times["split" if name == "shrink" else "split again"]
        return figures.median([this / that for this, that in zip(self.times[name], splits)])

    def lacks(self):
        """Yields the ratios that are too large."""
        for name, most in WANTED.items():
            if (ratio := self.ratio(name)) > most:
                yield (f"{self.ranks} ranks, {self.transport}: {name} takes {ratio:.2f} times as "
                    f"long as a split, {most} wanted")  # fmt: skip


class Results:
    """All figures of a run."""

    def __init__(self, about):
        self.title, self.about, self.jobs = machine.name(), about, []

    def markdown(self):
        """Returns the page."""
        lines = [f"# {self.title}: recovery", ""]
        lines += [f"- {key}: {value}" for key, value in self.about.items()] + ["", ABOUT, ""]
        lines += table.head(["ranks", "transport", "rounds", "detected", "shrink", "split", "ratio",
            "grow", "split", "ratio"], "rl" + "r" * 8)  # fmt: skip
        for job in self.jobs:
            words = [job.ranks, job.transport, len(job.times["shrink"])]
            words.append(f"{job.median('detect'):.1f}")
            for name, split in (("shrink", "split"), ("grow", "split again")):
                times = (job.median(name), job.median(split))
                words += [*(f"{time:.1f}" for time in times), f"{job.ratio(name):.2f}"]
            lines.append(table.line(words))
        return "\n".join(lines) + "\n"

    def write(self, folder, name="recovery.md"):
        """Writes the page, and all times as JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(self.markdown(), encoding="utf-8")
        jobs = [{"ranks": it.ranks, "transport": it.transport, "us": it.times} for it in self.jobs]
        document = {"title": self.title, "about": self.about, "jobs": jobs}
        text = json.dumps(document, indent=1) + "\n"
        (folder / "recovery.json").write_text(text, encoding="utf-8")


def timed(args, folder, transport, ranks):
    """Runs one job, and starts its newcomers. Returns its times."""
    variables = {"RINGFOLD_TRANSPORT": transport}
    with contextlib.ExitStack() as stack:
        door = stack.enter_context(tempfile.TemporaryDirectory())
        words = [folder / "recovery-timing", str(args.seed), str(args.rounds), door]

        def read(line):
            if line.startswith("newcomer "):
                newcomer = subprocess.Popen([*words, *line.split()[1:]], env=os.environ | variables,
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)  # fmt: skip
                stack.callback(newcomer.wait)
                stack.callback(newcomer.kill)

        launch = [folder / "ringrun", "--enable-recovery", "-n", ranks]
        lines, _ = processes.lines([*launch, *words], variables, args.patience, read)
    return Times(transport, ranks, lines)


def run(args):
    """Returns the exit status."""
    folder = install.ringfold(args, "ringrun", "recovery-timing")
    about = machine.about(args.rounds) | {
        "ringfold": install.ringfold_version(),
        "seed": args.seed,
        "compilers": install.compilers(),
    }
    results = Results(about)
    for ranks in args.ranks:
        for transport in args.transports:
            results.jobs.append(timed(args, folder, transport, ranks))
            results.write(args.out)
            say(f"{ranks} ranks, {transport}: done")
    if args.page:
        say(f"{page.write(results, args.page.resolve(), 'recovery.md')}: written")
    lacks = [lack for job in results.jobs for lack in job.lacks()]
    print(results.markdown(), *lacks, sep="\n")
    return 2 if lacks else 0
