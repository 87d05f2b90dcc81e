"""Hosts with several interfaces, each on a switch of its own: network namespaces."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from install import Missing


class Hosts:
    """To be used in a `with`; everything that it makes is gone afterwards."""

    def __init__(self, count, rails, rate):
        self.count, self.rails, self.rate = count, rails, rate
        self.names = [f"rfr{os.getpid()}-{number}" for number in range(count)]
        self.home = None
        self.clean_up = contextlib.ExitStack()

    def address(self, number, rail):
        """Of a host on a rail, both counted from 0."""
        return f"10.78.{rail}.{number + 1}"

    def __enter__(self):
        if os.geteuid() != 0:
            raise Missing("hosts are network namespaces, which only root may make")
        for tool in ("ip", "tc"):
            if shutil.which(tool) is None:
                raise Missing(f"hosts need the program {tool}")
        try:
            self._make()
        except BaseException:
            self.clean_up.close()
            raise
        return self

    def __exit__(self, *_):
        self.clean_up.close()

    def _make(self):
        self.home = Path(self.clean_up.enter_context(tempfile.TemporaryDirectory()))
        for name in self.names:
            self._add(name)
            _run(f"ip -n {name} link set lo up")
        for rail in range(self.rails):
            switch = f"rfr{os.getpid()}-s{rail}"
            self._add(switch)
            _run(f"ip -n {switch} link add switch type bridge")
            _run(f"ip -n {switch} link set switch up")
            for number, name in enumerate(self.names):
                self._join(name, f"eth{rail}", switch, f"port{number}")
                _run(f"ip -n {name} addr add {self.address(number, rail)}/24 dev eth{rail}")
        self._wait_for_carrier()

    def _join(self, host, interface, switch, port):
        _run(f"ip -n {host} link add {interface} type veth peer name {port} netns {switch}")
        for inside, link in ((host, interface), (switch, port)):
            _run(f"ip -n {inside} link set {link} up")
            # 256 KiB lets whole segments of 64 KiB through.
            limits = f"tbf rate {self.rate} burst 256kb latency 50ms"
            _run(f"tc -n {inside} qdisc add dev {link} root {limits}")
        _run(f"ip -n {switch} link set {port} master switch")

    def _add(self, space):
        _run(f"ip netns add {space}")
        self.clean_up.callback(_run, f"ip netns del {space}")

    def _wait_for_carrier(self):
        until = time.monotonic() + 10
        for name in self.names:
            for rail in range(self.rails):
                while " state UP " not in _run(f"ip -n {name} link show eth{rail}"):
                    if time.monotonic() > until:
                        raise Missing(f"eth{rail} of {name} stays down")
                    time.sleep(0.01)


def microseconds(output):
    """The time of a call with separate buffers in the one row that allreduce-perf prints."""
    rows = [line.split() for line in output.splitlines() if line.strip()[:1].isdigit()]
    if len(rows) != 1 or len(rows[0]) < 6:
        raise Missing(f"allreduce-perf printed no single row: {output}")
    return float(rows[0][5])


def _run(line):
    done = subprocess.run(line.split(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Missing(f"{line}: {done.stderr.strip()}")
    return done.stdout
