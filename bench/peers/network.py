"""Several hosts on one machine: network namespaces, each with an eth0 on a switch of their own."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from install import Missing

# Enters a host, with its name: enter HOST COMMAND...
ENTER = """#!/bin/sh
case "$1" in
{cases}
*) echo "no host $1" >&2; exit 255 ;;
esac
shift
exec ip netns exec "$space" unshare --uts --mount sh -c \\
    'mount --bind {folder}/hosts /etc/hosts && hostname "$0" && exec "$@"' "$name" "$@"
"""

# As ENTER, called as ssh is, and with a shell on the other side.
AGENT = """#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do
    case "$1" in -[bcDEeFIiJLlmOopQRSWw]) shift ;; esac
    shift
done
host=$1
shift
exec {folder}/enter "$host" sh -c "$*"
"""


class Hosts:
    """To be used in a `with`; what it makes is gone afterwards."""

    def __init__(self, count, shape=None, mtu=1500):
        self.count, self.shape, self.mtu = count, shape, mtu
        self.prefix = f"rfp{os.getpid()}"
        self.folder = None
        self.clean_up = contextlib.ExitStack()

    def names(self, count):
        """What the first hosts are called."""
        return [f"rfhost{number + 1}" for number in range(count)]

    def address(self, number):
        """Of a host, counted from 0."""
        return f"10.77.0.{number + 1}"

    def addresses(self, count):
        """Of the first hosts."""
        return [self.address(number) for number in range(count)]

    @property
    def enter(self):
        """A program: enter HOST COMMAND..."""
        return str(self.folder / "enter")

    @property
    def agent(self):
        """A program that is called as ssh is."""
        return str(self.folder / "agent")

    def _space(self, number):
        return f"{self.prefix}-{number + 1}"

    def __enter__(self):
        if os.geteuid() != 0:
            raise Missing("hosts are network namespaces, which only root may make")
        for tool in ("ip", "unshare", *(["tc"] if self.shape else [])):
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
        self.folder = Path(self.clean_up.enter_context(tempfile.TemporaryDirectory()))
        self.folder.chmod(0o755)
        self._write_programs()
        switch = f"{self.prefix}-switch"
        self._add(switch)
        _run(f"ip -n {switch} link add switch type bridge")
        _run(f"ip -n {switch} link set switch up")
        for number in range(self.count):
            space, port = self._space(number), f"port{number + 1}"
            self._add(space)
            _run(f"ip -n {space} link add eth0 type veth peer name {port} netns {switch}")
            _run(f"ip -n {space} addr add {self.address(number)}/24 dev eth0")
            for inside, link in ((space, "eth0"), (switch, port)):
                _run(f"ip -n {inside} link set {link} mtu {self.mtu} up")
                if self.shape:
                    # 256 KiB lets whole segments of 64 KiB through, and is 2 ms at 1 Gbit/s.
                    limits = f"tbf rate {self.shape} burst 256kb latency 50ms"
                    _run(f"tc -n {inside} qdisc add dev {link} root {limits}")
            _run(f"ip -n {space} link set lo up")
            _run(f"ip -n {switch} link set {port} master switch")
        self._wait_for_carrier()

    def _add(self, space):
        _run(f"ip netns add {space}")
        self.clean_up.callback(_run, f"ip netns del {space}")

    def _write_programs(self):
        names = self.names(self.count)
        table = [(names[i], self.address(i), self._space(i)) for i in range(self.count)]
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address, _ in table)]
        (self.folder / "hosts").write_text("\n".join(lines) + "\n", encoding="utf-8")
        cases = [f"{name}|{at}) name={name} space={space} ;;" for name, at, space in table]
        text = ENTER.format(cases="\n".join(cases), folder=self.folder)
        for name, text in (("enter", text), ("agent", AGENT.format(folder=self.folder))):
            (self.folder / name).write_text(text, encoding="utf-8")
            (self.folder / name).chmod(0o755)

    def _wait_for_carrier(self):
        until = time.monotonic() + 10
        for number in range(1, self.count):
            while " state UP " not in _run(f"ip -n {self._space(number)} link show eth0"):
                if time.monotonic() > until:
                    raise Missing(f"the link of host {number + 1} stays dead")
                time.sleep(0.01)


def _run(line):
    done = subprocess.run(line.split(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Missing(f"{line}: {done.stderr.strip()}")
    return done.stdout


def bytes_per_second(rate):
    """What tc's way to write a rate means."""
    units = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
    for unit, factor in units.items():
        if rate.lower().endswith(unit):
            return float(rate[: -len(unit)]) * factor / 8
    raise ValueError(f"{rate}: a rate is a number and kbit, mbit or gbit")
