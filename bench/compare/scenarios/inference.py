"""Tensor-parallel generation with transformers over ringfold beside Gloo, on this machine.

It needs torch, transformers, accelerate and the package of ringfold. Exit status 2 if the tokens are
not those of Gloo, or if ringfold's counters lack an all-reduce."""

import collections
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import re
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import figures
import install
import machine
import measure
import network
import page
import processes
import table
from command import at_least, numbers, positive
from processes import Failed, say

OPTIONAL = True
PACKAGES = ("torch", "transformers", "accelerate", "ringfold")
# Timed where it is installed.
DEEPSPEED = "deepspeed"
# The layers' other lengths are those of TinyLlama 1.1B, which has 22 of them and more words.
HEAD, KEY_HEADS, WORDS = 64, 4, 4096
WIDER = 2.75
# Where a token differs from Gloo's, its logit may be ahead of the next best by this much.
AHEAD_MOST = 1e-4
# The most seconds until the metrics are written.
METRICS_SECONDS = 10
PROGRAM = install.PROGRAMS / "generation.py"
FIRST, REST = "first token", "tokens/s"
ABOUT = (
    "transformers shards a Llama with random weights over the ranks, by its own plan. It generates\n"
    "greedily in f32. *First token* is the time of the prompts in milliseconds, *tokens/s* that of all\n"
    "later tokens of the batch together. *Reducing* is the time in the layers' all-reduces for a token\n"
    "of each text, in milliseconds, with the waits for the slowest rank. *Windows* lets the row-parallel\n"
    "layers leave the products of a step in windows. Figures are medians of the rounds, in which all\n"
    "cases take turns. A *ratio* is to Gloo's tokens/s: the median of the rounds' ratios. Above 1\n"
    "ringfold is faster. Over *deepspeed*, DeepSpeed's kernel for shared memory sums for the layers, and\n"
    "Gloo for the embedding."
)  # fmt: skip


def flags(add):
    """Adds the flags."""
    add("--ranks", type=numbers(1), default=[2, 4], help="with commas (default: 2,4)")
    add("--hosts", type=at_least(1), default=1,
        help="network namespaces, which the ranks are dealt to (default: 1)")
    add("--batches", type=numbers(1), default=[1, 16], help="with commas (default: 1,16)")
    add("--prompt", type=at_least(1, 4096), default=64, help="tokens of a prompt (default: 64)")
    add("--tokens", type=at_least(2, 4096), default=16, help="tokens to generate (default: 16)")
    add("--layers", type=at_least(1, 128), default=4, help="default: 4")
    add("--hidden", type=at_least(HEAD * KEY_HEADS, 16384), default=2048,
        help="elements of a token in an all-reduce (default: 2048)")
    add("--compile", action="store_true", help="run the model by torch.compile, for minutes more")
    add("--rounds", type=at_least(0, 1000), default=5, help="0 only compares tokens (default: 5)")
    add("--patience", type=positive, default=300.0, help="most seconds of an answer")
    add("--page", type=Path, metavar="FOLDER", help="write this machine's page below FOLDER")
    add("--out", type=Path, default=install.ROOT / "target/inference", help="folder of the results")


def check(args):
    """Refuses shapes that cannot be divided."""
    if args.hidden % (HEAD * KEY_HEADS):
        args.error(f"--hidden {args.hidden}: give a multiple of {HEAD * KEY_HEADS}")
    for ranks in args.ranks:
        if KEY_HEADS % ranks:
            args.error(f"--ranks {ranks}: give divisors of {KEY_HEADS}, the number of key heads")
        if ranks % args.hosts:
            args.error(f"--hosts {args.hosts}: give a divisor of --ranks {ranks}")


def shape(args):
    """Returns the words of LlamaConfig."""
    return {
        "vocab_size": WORDS, "hidden_size": args.hidden, "num_hidden_layers": args.layers,
        "intermediate_size": int(args.hidden * WIDER), "num_attention_heads": args.hidden // HEAD,
        "num_key_value_heads": KEY_HEADS, "max_position_embeddings": args.prompt + args.tokens,
        "tie_word_embeddings": False,
        # The outputs of layers are about as large as their inputs.
        "initializer_range": args.hidden**-0.5,
    }  # fmt: skip


def reductions(layers):
    """Returns the number of all-reduces of a step: two of each layer, and the embedding's."""
    return 2 * layers + 1


class Job:
    """The ranks of a case, which follow orders. A `with` starts them, and ends them."""

    def __init__(self, args, model, case, ranks, hosts):
        self.args, self.model, self.case, self.ranks = args, model, case, ranks
        self.hosts, self.started = hosts, contextlib.ExitStack()

    def __enter__(self):
        with contextlib.ExitStack() as started:
            self.folder = Path(started.enter_context(tempfile.TemporaryDirectory()))
            self.errors = started.enter_context(open(self.folder / "errors", "w+b"))
            port = free_port()
            self.processes = []
            for rank in range(self.ranks):
                process = self._start(rank, port)
                started.callback(process.wait)
                started.callback(process.kill)
                self.processes.append(process)
            self.started = started.pop_all()
        return self

    def __exit__(self, *_):
        self.started.close()

    def _start(self, rank, port):
        host = rank * self.args.hosts // self.ranks
        words = [sys.executable, PROGRAM, self.case, self.model, self.args.prompt, self.args.tokens]
        words += ["compiled"] * self.args.compile
        address = "127.0.0.1"
        if self.hosts:
            words = [self.hosts.enter, self.hosts.names(self.args.hosts)[host], *words]
            address = self.hosts.address(0)
        variables = {
            "MASTER_ADDR": address, "MASTER_PORT": port, "RANK": rank, "WORLD_SIZE": self.ranks,
            "OMP_NUM_THREADS": 1, "DS_ACCELERATOR": "cpu", "LOCAL_SIZE": self.ranks,
            "RINGFOLD_METRICS": self.folder / "metrics",
        }  # fmt: skip
        if self.hosts:
            variables["GLOO_SOCKET_IFNAME"] = "eth0"
        return subprocess.Popen(
            [str(word) for word in words],
            env=os.environ | {name: str(value) for name, value in variables.items()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            stderr=self.errors,
            start_new_session=True,
            preexec_fn=processes.take_precedence,
        )

    def ask(self, *order):
        """Gives all ranks an order, and returns the answer of rank 0."""
        line = " ".join(map(str, order)) + "\n"
        with contextlib.suppress(BrokenPipeError):
            for process in self.processes:
                process.stdin.write(line.encode())
                process.stdin.flush()
        answers = self.processes[0].stdout
        with selectors.DefaultSelector() as selector:
            selector.register(answers, selectors.EVENT_READ)
            found = answers.readline() if selector.select(self.args.patience) else b""
        if not found:
            self.errors.seek(0)
            said = self.errors.read().decode(errors="replace").strip()[-2000:]
            raise Failed(f"{self.case}, {self.ranks} ranks: no answer to {line.strip()}\n{said}")
        return json.loads(found)

    def counters_lack(self, jobs, calls):
        """Returns what is wrong with ringfold's own number of all-reduces, or None. So many jobs of the
        ranks must have it on each rank, since the metrics have all jobs of this user."""
        until = time.monotonic() + METRICS_SECONDS
        while True:
            # Hosts are namespaces of one machine, so one process writes the metrics of all.
            counts = counted((self.folder / "metrics").read_text("utf-8"))
            if counts.count(dict.fromkeys(map(str, range(self.ranks)), calls)) >= jobs:
                return None
            if time.monotonic() > until:
                return f"{jobs} jobs make {calls} all-reduces each, and ringfold counted {counts}"
            time.sleep(0.1)


def free_port():
    """Returns a port that nobody has."""
    with socket.create_server(("", 0)) as server:
        return server.getsockname()[1]


def counted(text):
    """Returns the number of all-reduces of each rank, for every job in some metrics."""
    jobs = collections.defaultdict(collections.Counter)
    name = r'^ringfold_call_duration_seconds_count\{job_id="(\w+)",.*rank="(\d+)"'
    for job, rank, count in re.findall(name + r',collective="allreduce",.*\} (\d+)$', text, re.M):
        jobs[job][rank] += int(count)
    return [dict(ranks) for ranks in jobs.values()]


def differences(expected, found):
    """Yields the first other token of each prompt: the prompt, the token, and how far the best logits
    were ahead."""
    for prompt, (ours, theirs) in enumerate(zip(expected["tokens"], found["tokens"], strict=True)):
        other = next((at for at, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]), None)
        if other is not None:
            yield prompt, other, max(it["ahead"][prompt][other] for it in (expected, found))


class Row:
    """The times of a batch on some ranks, by case and round."""

    def __init__(self, args, ranks, batch):
        self.ranks, self.batch, self.later = ranks, batch, args.tokens - 1
        self.bytes, self.times = batch * args.hidden * 4, {}

    def values(self, case, name):
        """Returns a figure of each round."""
        of = {
            FIRST: lambda it: it["first"] * 1e3,
            REST: lambda it: self.batch * self.later / it["rest"],
            "reducing": lambda it: it["reducing"] / self.later * 1e3,
        }[name]
        return [of(times) for times in self.times[case]]

    def ratio(self, case):
        """Returns the tokens/s of a case over those of Gloo: the median of the rounds' ratios."""
        pairs = zip(self.values(case, REST), self.values("gloo", REST))
        return figures.median([this / that for this, that in pairs])


class Results:
    """All figures of a run."""

    def __init__(self, about):
        self.title, self.about, self.rows, self.checks = machine.name(), about, [], []

    def markdown(self):
        """Returns the page."""
        lines = [f"# {self.title}: inference", ""]
        lines += [f"- {key}: {value}" for key, value in self.about.items()] + ["", ABOUT, ""]
        if self.rows:
            lines += table.head(["ranks", "batch", "bytes of an all-reduce", "over", FIRST, REST,
                "reducing", "ratio"], "rrrlrrrr")  # fmt: skip
        for row in self.rows:
            for case in row.times:
                words = [f"{figures.median(row.values(case, name)):.1f}" for name in (FIRST, REST)]
                words.append(f"{figures.median(row.values(case, 'reducing')):.2f}")
                ratio = f"{row.ratio(case):.2f}"
                over = case.replace("-", ", ")
                lines.append(table.line([row.ranks, row.batch, row.bytes, over, *words, ratio]))
        return "\n".join([*lines, "", *self.checks]) + "\n"

    def write(self, folder, name="inference.md"):
        """Writes the page, and all times as JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(self.markdown(), encoding="utf-8")
        rows = [{"ranks": it.ranks, "batch": it.batch, "seconds": it.times} for it in self.rows]
        document = {"title": self.title, "about": self.about, "rows": rows, "checks": self.checks}
        text = json.dumps(document, indent=1) + "\n"
        (folder / "inference.json").write_text(text, encoding="utf-8")


def compared(args, results, jobs, ranks):
    """Compares the tokens of all cases with those of Gloo. Yields what is wrong."""
    batch = max(8, max(args.batches))
    found = {case: job.ask("tokens", batch) for case, job in jobs.items()}
    for case in list(jobs)[1:]:
        others = list(differences(found["gloo"], found[case]))
        ahead = max((it[2] for it in others), default=0)
        results.checks.append(
            f"- {ranks} ranks, {case}: {batch - len(others)} of {batch} texts are those over Gloo" +
            f"; where one differs, the logit is {ahead:.1e} ahead" * bool(others))  # fmt: skip
        if ahead >= AHEAD_MOST:
            yield f"{ranks} ranks, {case}: other tokens, {AHEAD_MOST:.0e} wanted: {others}"


def timed(args, jobs, ranks):
    """Yields the rows of a number of ranks."""
    for batch in args.batches:
        row = Row(args, ranks, batch)
        for job in jobs.values():
            # The first time is slower.
            job.ask("time", batch)
        ask = lambda job: job.ask("time", batch)  # noqa: E731, B023
        row.times = measure.alternate(jobs, args.rounds, ask)
        say(f"{ranks} ranks, batch {batch}: done")
        yield row


def measured(args, results, model, hosts, ranks):
    """Adds the figures of a number of ranks. Yields what is wrong."""
    ours = ["ringfold", *["ringfold-windows"] * (args.hosts == 1)]
    is_there = args.hosts == 1 and not args.compile and importlib.util.find_spec(DEEPSPEED)
    cases = ["gloo", *[DEEPSPEED] * bool(is_there), *ours]
    with contextlib.ExitStack() as stack:
        jobs = {
            case: stack.enter_context(Job(args, model, case, ranks, hosts)) for case in cases
        }
        yield from compared(args, results, jobs, ranks)
        if args.rounds:
            results.rows += timed(args, jobs, ranks)
        steps = jobs["ringfold"].ask("steps")["steps"]
        calls = steps * reductions(args.layers)
        if lack := jobs["ringfold"].counters_lack(len(ours), calls):
            yield f"{ranks} ranks: {lack}"
        else:
            results.checks.append(f"- {ranks} ranks: ringfold has counted all {calls} all-reduces")


def versions():
    """Returns the versions of the packages, or raises `Missing`."""
    found = []
    there = [DEEPSPEED] * bool(importlib.util.find_spec(DEEPSPEED))
    for name in [*PACKAGES, *there]:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            raise install.Missing(f"there is no {name}") from None
    return ", ".join(found)


def run(args):
    """Returns the exit status."""
    packages = versions()
    about = machine.about(args.rounds) | {
        "ringfold": install.ringfold_version(),
        "packages": packages,
        "model": json.dumps(shape(args)),
        "hosts": args.hosts,
        "prompts": f"{args.prompt} tokens, {args.tokens} generated",
    }
    results, lacks = Results(about), []
    with contextlib.ExitStack() as stack:
        model = stack.enter_context(tempfile.TemporaryDirectory())
        processes.lines([sys.executable, PROGRAM, "make", model, json.dumps(shape(args))], {})
        rates = [None] * args.hosts
        hosts = stack.enter_context(network.Hosts(rates)) if args.hosts > 1 else None
        for ranks in args.ranks:
            lacks += measured(args, results, model, hosts, ranks)
            results.write(args.out)
    if args.page:
        say(f"{page.write(results, args.page.resolve(), 'inference.md')}: written")
    print(results.markdown(), *lacks, sep="\n")
    return 2 if lacks else 0
