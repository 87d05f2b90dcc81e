"""Hosts and an aggregator's host as network namespaces: with limited links, or with a delay."""

import contextlib
import fcntl
import heapq
import os
import select
import socket
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path

import network  # from ../peers
from network import run

TUNSETIFF = 0x400454CA
IFF_TUN_WITHOUT_HEAD = 0x0001 | 0x1000
# Seconds of a link's rate that may pass at once. Calls are thousands of times longer. Shorter packets
# would make this machine's CPUs the limit.
AT_ONCE = 4e-3


class Limited(network.Spaces):
    """Hosts on a switch whose links have a rate, and an aggregator's host with the rate of all."""

    tools = ("ip", "tc")

    def __init__(self, count, rate):
        super().__init__()
        self.count, self.rate = count, rate
        self.names = [f"rfa{os.getpid()}-{number}" for number in range(count + 1)]
        self.home = None

    def address(self, number):
        """Returns the address of a host. The last one is the aggregator's."""
        return f"10.79.0.{number + 1}"

    def _rate(self, number):
        rate = network.bytes_per_second(self.rate) * 8
        return f"{round(rate * self.count if number == self.count else rate)}bit"

    def _make(self):
        self.home = Path(self.clean_up.enter_context(tempfile.TemporaryDirectory()))
        switch = f"rfa{os.getpid()}-s"
        self._add_switch(switch)
        for number, name in enumerate(self.names):
            self._add(name)
            self._plug(name, "eth0", switch, f"port{number}", rate=self._rate(number),
                seconds=AT_ONCE)
            # The aggregator's packets pass the links of hosts too.
            longest = network.most_at_once(self.rate, AT_ONCE)
            run(f"ip -n {name} link set eth0 gso_max_size {longest}")
            run(f"ip -n {name} addr add {self.address(number)}/24 dev eth0")
            run(f"ip -n {name} link set lo up")
        network.wait_for_carrier((name, "eth0") for name in self.names)


class Delayed(network.Spaces):
    """Hosts whose packets a thread of this program passes on after a delay."""

    tools = ("ip",)

    def __init__(self, count, delay):
        super().__init__()
        self.count, self.delay = count, delay
        self.names = [f"rfd{os.getpid()}-{number}" for number in range(count + 1)]
        self.home, self.is_over = None, False

    def address(self, number):
        """Returns the address of a host. The last one is the aggregator's."""
        return f"10.80.0.{number + 1}"

    def _make(self):
        self.home = Path(self.clean_up.enter_context(tempfile.TemporaryDirectory()))
        tunnels = {}
        for number, name in enumerate(self.names):
            self._add(name)
            interface = f"rfd{os.getpid() % 100000}-{number}"
            tunnel = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            self.clean_up.callback(os.close, tunnel)
            wanted = struct.pack("16sH22x", interface.encode(), IFF_TUN_WITHOUT_HEAD)
            fcntl.ioctl(tunnel, TUNSETIFF, wanted)
            run(f"ip link set {interface} netns {name}")
            run(f"ip -n {name} addr add {self.address(number)}/24 dev {interface}")
            run(f"ip -n {name} link set {interface} up")
            run(f"ip -n {name} link set lo up")
            tunnels[socket.inet_aton(self.address(number))] = tunnel
        passing = threading.Thread(target=self._pass_on, args=(tunnels,), daemon=True)
        passing.start()
        self.clean_up.callback(passing.join)
        self.clean_up.callback(setattr, self, "is_over", True)

    def _pass_on(self, tunnels):
        """Passes packets on, each after the delay."""
        sys.setswitchinterval(1e-4)
        waiting, order = [], 0
        while not self.is_over:
            left = waiting[0][0] - time.monotonic() if waiting else 0.1
            ready, _, _ = select.select(tunnels.values(), [], [], max(left, 0))
            now = time.monotonic()
            for tunnel in ready:
                with contextlib.suppress(BlockingIOError):
                    packet = os.read(tunnel, 65536)
                    order += 1
                    heapq.heappush(waiting, (now + self.delay, order, packet))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, packet = heapq.heappop(waiting)
                # The destination of an IPv4 packet. Others have none here.
                to = tunnels.get(packet[16:20]) if packet[0] >> 4 == 4 else None
                if to is not None:
                    with contextlib.suppress(OSError):
                        os.write(to, packet)
