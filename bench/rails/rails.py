"""Hosts with several interfaces, each on its own switch, as network namespaces."""

import datetime
import os
import re
import tempfile
from pathlib import Path

import network  # from ../peers
from install import Missing
from network import run

# The log lines of a rank at its start, and when it can reach another rank.
STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+)Z.* INFO.*?: (rank .*|ringfold .*)")
BEGUN = re.compile(r"ringfold \S+: rank \d+ of \d+,")
JOINED = re.compile(r"rank \d+: rank \d+ by ")


class NoTimes(Exception):
    """Raised after a job that failed or logged no times."""


class Hosts(network.Spaces):
    """Hosts with the interfaces eth0, eth1 and so on, each with an address and a rate."""

    tools = ("ip", "tc")

    def __init__(self, count, rails, rate):
        super().__init__()
        self.count, self.rails, self.rate = count, rails, rate
        self.names = [f"rfr{os.getpid()}-{number}" for number in range(count)]
        self.home = None

    def address(self, number, rail):
        """Returns the address of a host on a rail, both counted from 0."""
        return f"10.78.{rail}.{number + 1}"

    def _make(self):
        self.home = Path(self.clean_up.enter_context(tempfile.TemporaryDirectory()))
        for name in self.names:
            self._add(name)
            run(f"ip -n {name} link set lo up")
        for rail in range(self.rails):
            switch = f"rfr{os.getpid()}-s{rail}"
            self._add_switch(switch)
            for number, name in enumerate(self.names):
                self._plug(name, f"eth{rail}", switch, f"port{number}", rate=self.rate)
                run(f"ip -n {name} addr add {self.address(number, rail)}/24 dev eth{rail}")
        rails = range(self.rails)
        network.wait_for_carrier((name, f"eth{rail}") for name in self.names for rail in rails)


def microseconds(output):
    """Returns the out-of-place time in the single row of allreduce-perf's output."""
    rows = [line.split() for line in output.splitlines() if line.strip()[:1].isdigit()]
    if len(rows) != 1 or len(rows[0]) < 6:
        raise Missing(f"allreduce-perf printed no single row: {output}")
    return float(rows[0][5])


def milliseconds_of_joining(log):
    """Returns the time from the start of the last rank until all ranks can reach each other."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", log)
    found = [match.groups() for match in map(STAMP.search, plain.splitlines()) if match]
    times = []
    for line in (BEGUN, JOINED):
        stamps = [datetime.datetime.fromisoformat(at) for at, text in found if line.match(text)]
        if not stamps:
            raise NoTimes(f"no rank logged its join: {plain[-2000:]}")
        times.append(max(stamps))
    return (times[1] - times[0]).total_seconds() * 1e3
