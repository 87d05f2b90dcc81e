#!/usr/bin/env python3
"""Runs a suite of torch or torchft with one backend, and writes the result of each test.

    suite.py --backend ringfold --out ringfold.tsv
    suite.py --backend gloo --out gloo.tsv                the baseline
    suite.py --backend gloo --take-over --out over.tsv    ringfold in Gloo's place
    suite.py --suite reconfigure ...                      see SUITES
    suite.py --check gloo.tsv ringfold.tsv exceptions.txt

Each line of a result has the name of a test, its outcome (pass, fail or skip), its seconds, and the
first line of the reason. `--only` names tests, with `*` as a wildcard. A run appends to its file and
omits the tests that are in it, so that `--seconds` can cut a long run into slices.

The processes of a test are forked from this one, which has imported torch. The suite itself spawns
them, and spends most of its time in imports. What needs a GPU is skipped by the suite.
"""

import argparse
import fnmatch
import os
import re
import sys
import tempfile
import time
import unittest
from pathlib import Path

import recovery

WORLD_SIZE = 3
# Seconds after which a test has failed.
TEST_SECONDS = 60


def prepare(backend, take_over):
    """Sets what the suite reads from the environment when it is imported."""
    os.environ["BACKEND"] = backend
    os.environ["WORLD_SIZE"] = str(WORLD_SIZE)
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["TEMP_DIR"] = tempfile.mkdtemp(prefix="ringfold-suite-")
    os.environ["DISTRIBUTED_TESTS_DEFAULT_TIMEOUT"] = str(TEST_SECONDS)
    os.environ["RINGFOLD_TORCH_TAKE_OVER_GLOO"] = "1" if take_over else ""
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def distributed_test(backend, take_over):
    """torch's own suite of its operations, with processes that are forked."""
    import torch
    from torch.testing._internal import common_distributed

    features = common_distributed.DistTestCases.backend_feature
    for feature in ["ddp", "subgroup", "plugin"]:
        features[feature].add(backend)

    from torch.testing._internal.distributed import distributed_test

    if take_over:
        # The suite looks for events of the profiler that Gloo's C++ makes.
        for kind in ["PROFILING", "SEND_RECV_PROFILING"]:
            getattr(distributed_test, f"{kind}_SUPPORTED_BACKENDS").remove(backend)

    class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return [Suite]


#: The classes of the tests of each suite.
SUITES = {
    "distributed": distributed_test,
    "reconfigure": recovery.of_torch,
    "torchft": recovery.of_torchft,
}


def name_of(test):
    """The name of a test, with its class where a suite has several. torchft numbers the tests of a
    set, which has another order each time."""
    group, name = test.id().rsplit(".", 2)[-2:]
    return name if group == "Suite" else f"{group}.{re.sub(r'_[0-9]+_', '_', name)}"


class Report(unittest.TestResult):
    """Writes the outcome of each test as it ends."""

    def __init__(self, file, end):
        super().__init__()
        self.file, self.end = file, end
        self.began = time.monotonic()
        self.counts = {"pass": 0, "fail": 0, "skip": 0}

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()

    def stopTest(self, test):
        super().stopTest(test)
        if time.monotonic() > self.end:
            self.stop()

    def write(self, test, outcome, reason=""):
        self.counts[outcome] += 1
        seconds = time.monotonic() - self.began
        reason = " ".join(reason.split())
        line = f"{name_of(test)}\t{outcome}\t{seconds:.1f}\t{reason}"
        print(line, file=self.file, flush=True)
        print(line[:200], flush=True)

    def addSuccess(self, test):
        self.write(test, "pass")

    def addSkip(self, test, reason):
        self.write(test, "skip", reason)

    def failed(self, test, error):
        # The last line of a rank's traceback names what went wrong.
        lines = [line.strip() for line in str(error[1]).splitlines() if line.strip()]
        wanted = [line for line in lines if "Error" in line and not line.startswith("raise ")]
        reason = (wanted or lines or [""])[-1]
        self.write(test, "fail", f"{type(error[1]).__name__}: {reason}")
        print("\n".join(lines[-40:]), file=sys.stderr, flush=True)

    def addFailure(self, test, err):
        self.failed(test, err)

    def addError(self, test, err):
        self.failed(test, err)


def read(path):
    """The outcome of each test in a file of results."""
    rows = [line.rstrip("\n").split("\t") for line in Path(path).open()]
    return {row[0]: (row[1], row[3] if len(row) > 3 else "") for row in rows if len(row) > 1}


def run(options):
    prepare(options.backend, options.take_over)
    classes = SUITES[options.suite](options.backend, options.take_over)
    done = read(options.out) if Path(options.out).exists() else {}
    with open(options.out, "a") as file:
        report = Report(file, time.monotonic() + options.seconds)
        for tests in classes:
            names = unittest.TestLoader().getTestCaseNames(tests)
            wanted = [n for n in names if any(fnmatch.fnmatch(n, only) for only in options.only)]
            wanted = [test for test in map(tests, wanted) if name_of(test) not in done]
            unittest.TestSuite(wanted).run(report)
    if report.shouldStop:
        print("the time is up: run the same command again for the rest")
        return 3
    print(report.counts)
    return 0


def exceptions(path):
    """The names in a list of exceptions, with their reasons."""
    lines = [line.split("#", 1)[0].strip() for line in Path(path).open()]
    return dict(line.split(": ", 1) for line in lines if line)


def check(baseline, results, listed):
    """Compares results with those of Gloo. Every test that Gloo alone passes must be listed."""
    gloo, ours, listed = read(baseline), read(results), exceptions(listed)
    passed = [name for name, (outcome, _) in gloo.items() if outcome == "pass"]
    skipped = [name for name in passed if ours.get(name, ("", ""))[0] == "skip"]
    print(f"of the tests that Gloo passes, the suite skips {len(skipped)} for this name of a backend")
    passed = [name for name in passed if name not in skipped]
    lost = {name: ours.get(name, ("missing", "")) for name in passed}
    lost = {name: why for name, why in lost.items() if why[0] != "pass"}
    share = 1 - len(lost) / max(len(passed), 1)
    kept = len(passed) - len(lost)
    print(f"Gloo passes {len(passed)} tests, {kept} of which pass here: {share:.1%}")
    for name, (outcome, reason) in lost.items():
        print(f"  {name}: {outcome}: {listed.get(name, 'NOT LISTED: ' + reason)}")
    for name in sorted(listed.keys() - lost.keys()):
        print(f"  {name} is listed as an exception, and passes")
    # Where the suite skips tests, the run in Gloo's place is the measure.
    is_enough = len(lost) <= max(1, len(passed) // 20) or skipped
    return 0 if lost.keys() == listed.keys() and is_enough else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", choices=SUITES, default="distributed")
    parser.add_argument("--backend", default="ringfold")
    parser.add_argument("--take-over", action="store_true")
    parser.add_argument("--out", default="results.tsv")
    parser.add_argument("--only", nargs="*", default=["*"])
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--check", nargs=3, metavar=("GLOO", "RESULTS", "EXCEPTIONS"))
    options = parser.parse_args()
    return check(*options.check) if options.check else run(options)


if __name__ == "__main__":
    sys.exit(main())
