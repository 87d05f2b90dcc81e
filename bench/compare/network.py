"""Several hosts on one machine: network namespaces, and links between them."""

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import install
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
TUNSETIFF, TUN_WITHOUT_HEAD = 0x400454CA, 0x0001 | 0x1000


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


class Hosts:
    """Hosts as network namespaces, with names that programs on them can look up. Each has an
    interface, `eth0` and so on, on the switch of each rail. A `with` makes the hosts, and removes
    them at its end.

    `rates` has the rate of each host's links in each direction, or None. Bytes of `seconds` may
    pass at once. `per_connection` limits each connection instead."""

    def __init__(self, rates, rails=1, per_connection=None, mtu=1500, seconds=5e-4):
        self.rates, self.rails, self.count = rates, rails, len(rates)
        self.per_connection, self.mtu, self.seconds = per_connection, mtu, seconds
        self.clean_up = contextlib.ExitStack()
        self.prefix = f"rf{os.getpid()}"
        self.folder = None

    def __enter__(self):
        tools = ["nft", "tc"] if self.per_connection else ["tc"] if any(self.rates) else []
        if os.geteuid() != 0:
            raise Missing("hosts are network namespaces, which only root may make")
        for tool in ["ip", "sysctl", "unshare", *tools]:
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

    def names(self, count):
        """Returns the names of the first `count` hosts."""
        return [f"rfhost{number + 1}" for number in range(count)]

    def address(self, number, rail=0):
        """Returns the address of a host on a rail, both counted from 0."""
        return f"10.77.{rail}.{number + 1}"

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

    def space(self, number):
        """Returns the name of a host's namespace."""
        return f"{self.prefix}-{number + 1}"

    def _make(self):
        self.folder = Path(self.clean_up.enter_context(tempfile.TemporaryDirectory()))
        self.folder.chmod(0o755)
        self._write_programs()
        for number in range(self.count):
            self._add(self.space(number))
            run(f"ip -n {self.space(number)} link set lo up")
            # BBR paces by a rate that it guesses anew in each run: 64 KiB take 22 us in one, and 110
            # in the next.
            control = "net.ipv4.tcp_congestion_control=reno"
            run(f"ip netns exec {self.space(number)} sysctl -qw {control}")
        self._connect()

    def _add(self, space):
        run(f"ip netns add {space}")
        self.clean_up.callback(run, f"ip netns del {space}")

    def _connect(self):
        for rail in range(self.rails):
            switch, link = f"{self.prefix}-switch{rail}", f"eth{rail}"
            self._add(switch)
            run(f"ip -n {switch} link add switch type bridge")
            run(f"ip -n {switch} link set switch up")
            for number, rate in enumerate(self.rates):
                space, port = self.space(number), f"port{number + 1}"
                run(f"ip -n {space} link add {link} type veth peer name {port} netns {switch}")
                self._limit(space, link, rate)
                self._limit(switch, port, rate)
                run(f"ip -n {switch} link set {port} master switch")
                run(f"ip -n {space} addr add {self.address(number, rail)}/24 dev {link}")
                if self.per_connection:
                    self._limit_connections(space)
            for number in range(self.count):
                wait_for_carrier(self.space(number), link)

    def _limit(self, space, link, rate):
        """Brings an end of a link up, with its rate."""
        run(f"ip -n {space} link set {link} mtu {self.mtu} up")
        if rate:
            # Packets pass the links of other hosts too.
            slowest = min(filter(None, self.rates), key=bytes_per_second)
            longest = most_at_once(slowest, self.seconds)
            run(f"ip -n {space} link set {link} gso_max_size {longest}")
            limits = f"tbf rate {rate} burst {burst(rate, self.seconds)} latency 50ms"
            run(f"tc -n {space} qdisc add dev {link} root {limits}")

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
        table = [(names[i], self.address(i), self.space(i)) for i in range(self.count)]
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address, _ in table)]
        (self.folder / "hosts").write_text("\n".join(lines) + "\n", encoding="utf-8")
        cases = [f"{name}|{at}) name={name} space={space} ;;" for name, at, space in table]
        text = ENTER.format(cases="\n".join(cases), folder=self.folder)
        for name, text in (("enter", text), ("agent", AGENT.format(folder=self.folder))):
            (self.folder / name).write_text(text, encoding="utf-8")
            (self.folder / name).chmod(0o755)


def wait_for_carrier(space, link):
    """Waits until an interface of a namespace is up."""
    until = time.monotonic() + 10
    while " state UP " not in run(f"ip -n {space} link show {link}"):
        if time.monotonic() > until:
            raise Missing(f"{link} of {space} stays down")
        time.sleep(0.01)


class Delayed(Hosts):
    """Hosts with a tunnel each instead of an `eth0`, and `programs/switch.c` between them. A packet
    arrives after a delay in seconds, and also takes its time by a rate in tc's notation. No packet is
    lost, so the windows of TCP grow as those of Reno do."""

    def __init__(self, count, delay, rate=None, mtu=1500):
        super().__init__([None] * count, mtu=mtu)
        self.delay, self.rate = delay, rate

    def _connect(self):
        switch = install.own_program("switch", self.folder)
        byte = 1 / bytes_per_second(self.rate) if self.rate else 0.0
        words = [switch, round(self.delay * 1e9), round(byte * 1e12)]
        tunnels = []
        for number, address in enumerate(self.addresses(self.count)):
            space, link = self.space(number), f"rfd{os.getpid() % 100000}-{number}"
            tunnel = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            self.clean_up.callback(os.close, tunnel)
            fcntl.ioctl(tunnel, TUNSETIFF, struct.pack("16sH22x", link.encode(), TUN_WITHOUT_HEAD))
            run(f"ip link set {link} netns {space}")
            run(f"ip -n {space} addr add {address}/24 dev {link}")
            run(f"ip -n {space} link set {link} mtu {self.mtu} up")
            if self.rate:
                # A tunnel takes packets out of the account of their socket. So they wait here, where
                # a socket has two or three at most, and not in the tunnel's queue of 500.
                limits = f"tbf rate {self.rate} burst {4 * self.mtu} limit 16mb"
                run(f"tc -n {space} qdisc add dev {link} root {limits}")
            tunnels.append(tunnel)
            words.append(f"{tunnel}:{address}")
        process = subprocess.Popen([str(word) for word in words], pass_fds=tunnels)
        self.clean_up.callback(process.wait)
        self.clean_up.callback(process.kill)


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
