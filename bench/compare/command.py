"""Compares ringfold with other programs, builds and settings. README.md beside it describes all."""

import argparse
import contextlib
import importlib
import math
import os
import signal
import sys

import network
import processes
import sizes
from install import Missing
from processes import Failed, say

# Each is a module of `scenarios`: its comment, `flags`, `run`, and `check` where flags depend on
# others. It is OPTIONAL if it is skipped where the machine lacks something.
SCENARIOS = ("peers", "rdma", "failover", "rails", "join", "regret", "innetwork", "instructions",
    "overlap", "recovery", "model", "torch", "inference", "c", "python")  # fmt: skip


def listed(known=None):
    """Returns a parser of names with commas, each one of `known`."""

    def parse(text):
        for name in text.split(","):
            if known and name not in known:
                raise argparse.ArgumentTypeError(
                    f"there is no {name}; give some of {','.join(known)}"
                )
        return text.split(",")

    return parse


def at_least(least, most=1 << 40):
    """Returns a parser of a number."""

    def parse(text):
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text}: give a number from {least} to {most}")
        return int(text)

    return parse


def positive(text):
    """Parses seconds, or another number above 0."""
    with contextlib.suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text}: give a number above 0")


def share(text):
    """Parses a share from 0."""
    return 0.0 if text == "0" else positive(text)


def numbers(least):
    """Returns a parser of numbers with commas."""
    return lambda text: [at_least(least)(word) for word in text.split(",")]


def some_sizes(text):
    """Parses sizes with commas."""
    try:
        return [sizes.parse(word) for word in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: give sizes as in 8,4K,1M") from None


def rate(text):
    """Checks a rate in tc's notation."""
    try:
        network.bytes_per_second(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def arguments(words):
    """Parses the command line. The scenario's module is `scenario` of the result."""
    parser = argparse.ArgumentParser(prog="bench/compare/run", description=__doc__)
    names = parser.add_subparsers(dest="name", metavar="SCENARIO", required=True)
    for name in SCENARIOS:
        scenario = importlib.import_module(f"scenarios.{name}")
        one = names.add_parser(name, help=scenario.__doc__.split("\n")[0],
            description=scenario.__doc__)  # fmt: skip
        scenario.flags(one.add_argument)
        one.set_defaults(scenario=scenario, error=one.error)
    args = parser.parse_args(words)
    getattr(args.scenario, "check", lambda _: None)(args)
    return args


def main(words):
    """Runs a scenario, and returns the exit status."""
    args = arguments(words)
    processes.adopt_orphans()
    # As after ^C: end the started processes, and remove the hosts.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return args.scenario.run(args)
    except Missing as why:
        if getattr(args.scenario, "OPTIONAL", False):
            say(f"SKIPPED: {args.name} ({why})")
            return int(args.name in os.environ.get("RINGFOLD_TEST_REQUIRE", "").split(","))
        say(f"error: {why}")
    except Failed as why:
        say(f"error: {why}")
    return 1
