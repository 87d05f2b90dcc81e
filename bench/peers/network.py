"""Several hosts on one machine: network namespaces, and links between them."""

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

# As ENTER, with the command line of ssh and a shell on the other side.
AGENT = """#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do
    case "$1" in -[bcDEeFIiJLlmOopQRSWw]) shift ;; esac
    shift
done
host=$1
shift
exec {folder}/enter "$host" sh -c "$*"
"""


# Number of rate-limited classes that connections are spread over.
CLASSES = 256


def burst(rate, seconds=5e-4):
    """The bytes that a link may send at once, which take so many seconds at its rate: at least two
    packets. A message within them travels at the speed of memory. Fewer bytes would cost a part of
    the rate, since timers are late."""
    return max(round(bytes_per_second(rate) * seconds), 2 * 1514)


def most_at_once(rate, seconds=5e-4):
    """The bytes of the longest packet that a host makes for its interface to cut. One beyond the
    burst would be cut by the limiter instead, at so many cycles for each 1500 bytes that the CPUs
    would be the limit. Headers of the pieces count too."""
    return min(burst(rate, seconds) * 15 // 16, 1 << 16)


class Spaces:
    """Network namespaces. A `with` makes them by `_make`, and removes them at its end."""

    # Programs that `_make` needs.
    tools = ("ip",)

    def __init__(self):
        self.clean_up = contextlib.ExitStack()

    def __enter__(self):
        if os.geteuid() != 0:
            raise Missing("hosts are network namespaces, which only root may make")
        for tool in self.tools:
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
        raise NotImplementedError

    def _add(self, space):
        run(f"ip netns add {space}")
        self.clean_up.callback(run, f"ip netns del {space}")

    def _add_switch(self, space):
        self._add(space)
        run(f"ip -n {space} link add switch type bridge")
        run(f"ip -n {space} link set switch up")

    def _plug(self, host, interface, switch, port, mtu=1500, rate=None, seconds=5e-4):
        """Links an interface of a host to a port of a switch, with `rate` in each direction. The
        bytes of so many seconds may pass at once."""
        run(f"ip -n {host} link add {interface} type veth peer name {port} netns {switch}")
        for space, link in ((host, interface), (switch, port)):
            run(f"ip -n {space} link set {link} mtu {mtu} up")
            if rate:
                run(f"ip -n {space} link set {link} gso_max_size {most_at_once(rate, seconds)}")
                limits = f"tbf rate {rate} burst {burst(rate, seconds)} latency 50ms"
                run(f"tc -n {space} qdisc add dev {link} root {limits}")
        run(f"ip -n {switch} link set {port} master switch")


class Hosts(Spaces):
    """Hosts with an eth0 each, on one switch, with names that programs on them can look up."""

    def __init__(self, count, shape=None, per_connection=None, mtu=1500):
        super().__init__()
        self.count, self.mtu = count, mtu
        self.shape, self.per_connection = shape, per_connection
        shaping = ["tc", "nft"] if self.per_connection else ["tc"] if self.shape else []
        self.tools = ("ip", "unshare", *shaping)
        self.prefix = f"rfp{os.getpid()}"
        self.folder = None

    def names(self, count):
        """Returns the names of the first `count` hosts."""
        return [f"rfhost{number + 1}" for number in range(count)]

    def address(self, number):
        """Returns the address of a host, counted from 0."""
        return f"10.77.0.{number + 1}"

    def addresses(self, count):
        """Returns the addresses of the first `count` hosts."""
        return [self.address(number) for number in range(count)]

    @property
    def enter(self):
        """Returns the program that runs a command on a host: enter HOST COMMAND..."""
        return str(self.folder / "enter")

    @property
    def agent(self):
        """Returns a program with the command line of ssh."""
        return str(self.folder / "agent")

    def _space(self, number):
        return f"{self.prefix}-{number + 1}"

    def _make(self):
        self.folder = Path(self.clean_up.enter_context(tempfile.TemporaryDirectory()))
        self.folder.chmod(0o755)
        self._write_programs()
        switch = f"{self.prefix}-switch"
        self._add_switch(switch)
        for number in range(self.count):
            space, port = self._space(number), f"port{number + 1}"
            self._add(space)
            self._plug(space, "eth0", switch, port, self.mtu, self.shape)
            run(f"ip -n {space} addr add {self.address(number)}/24 dev eth0")
            if self.per_connection:
                self._limit_connections(space)
            run(f"ip -n {space} link set lo up")
        wait_for_carrier((self._space(number), "eth0") for number in range(self.count))

    def _limit_connections(self, space):
        """Assigns connections to classes by a hash of their ports, as multipath networks do. Two
        connections rarely share a class."""
        classes = {number: f"1:{number + 16:x}" for number in range(CLASSES)}
        run(f"tc -n {space} qdisc add dev eth0 root handle 1: htb")
        for name in classes.values():
            limits = f"rate {self.per_connection} burst 256kb cburst 256kb quantum 65536"
            run(f"tc -n {space} class add dev eth0 parent 1: classid {name} htb {limits}")
        table = ", ".join(f"{number} : {name}" for number, name in classes.items())
        place = f"jhash tcp sport . tcp dport mod {CLASSES}"
        rule = f"ip protocol tcp meta priority set {place} map {{ {table} }};"
        chain = f"chain out {{ type filter hook output priority 0; {rule} }}"
        run(f"ip netns exec {space} nft -f -", f"table ip paths {{ {chain}; }}")

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


def wait_for_carrier(links):
    """Waits until each link, which is a namespace and an interface, is up."""
    until = time.monotonic() + 10
    for space, link in links:
        while " state UP " not in run(f"ip -n {space} link show {link}"):
            if time.monotonic() > until:
                raise Missing(f"{link} of {space} stays down")
            time.sleep(0.01)


def run(line, text=None):
    """Returns the output of a program, or raises `Missing`."""
    done = subprocess.run(line.split(), input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Missing(f"{line}: {done.stderr.strip()}")
    return done.stdout


def bytes_per_second(rate):
    """Parses a rate in tc's notation."""
    units = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "bit": 1}
    for unit, factor in units.items():
        if rate.lower().endswith(unit):
            return float(rate[: -len(unit)]) * factor / 8
    raise ValueError(f"{rate}: a rate is a number and bit, kbit, mbit or gbit")
