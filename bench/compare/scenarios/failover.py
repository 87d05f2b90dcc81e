"""All-reduces of two ranks over RDMA while one rail of two goes down, and comes back, again and again.

Every other call is in registered memory and followed by a broadcast. NIC or cable, host, rail and
moment are random."""

import os
import random
import re
import shlex
import signal
import statistics
import subprocess
import threading
import time
from pathlib import Path

import guest
import install
from command import at_least, positive

STOP = Path("/tmp/ringfold-stop")
# Bytes that a rail carries before it counts as back, and calls whose median is the usual time.
BACK_BYTES, USUAL_CALLS = 1 << 20, 5


def flags(add):
    """Adds the flags."""
    add("--cuts", type=at_least(1), default=10, help="in one guest (default: 10)")
    add("--seed", type=int, default=random.randrange(1 << 32), help="default: a new one")
    add("--bytes", type=at_least(1), default=16 << 20, help="of a call (default: 16 MiB)")
    add("--timeout", type=at_least(0), default=18, help="RINGFOLD_IB_TIMEOUT (default: 18)")
    add("--retries", type=at_least(0), default=6, help="RINGFOLD_IB_RETRY_CNT (default: 6)")
    add("--silent", action="store_true", help="the switch stops forwarding, and no port reports it")
    add("--patience", type=positive, default=60.0, help="seconds without a call that are a hang")
    add("--limit", type=at_least(1), default=280, help="seconds for everything (default: 280)")
    guest.flags(add, "--hosts 2 --rails 2 --limit {limit}", "{limit}")
    install.program_flags(add)


class Job:
    """Two ranks that all-reduce until they are told to stop."""

    def __init__(self, args):
        STOP.unlink(missing_ok=True)
        own = "export RINGFOLD_IB_HCA=rxe_h$RINGFOLD_RANK; exec "
        rank = shlex.join([str(args.bin / "rank"), "checked", str(args.bytes), str(STOP)])
        settings = {
            "HOME": "/tmp",
            "RINGFOLD_TRANSPORT": "rdma",
            "RINGFOLD_DEBUG": os.environ.get("RINGFOLD_DEBUG", "ERROR"),
            "RINGFOLD_IB_TIMEOUT": str(args.timeout),
            "RINGFOLD_IB_RETRY_CNT": str(args.retries),
        }
        self.calls, self.wrong, self.patience = [], [], args.patience
        self.process = subprocess.Popen(
            [args.bin / "ringrun", "-n", "2", "sh", "-c", own + rank],
            env=os.environ | settings, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        """Collects the times of calls from rank 0, and wrong sums from any rank."""
        for line in self.process.stdout:
            if found := re.search(r"call (\d+) (\d+)$", line):
                self.calls.append(int(found[2]) / 1e6)
            elif "wrong" in line or "failed" in line:
                self.wrong.append(line.strip())

    def wait(self, calls):
        """Waits for so many calls. Returns whether they ended."""
        end = time.monotonic() + self.patience
        while len(self.calls) < calls:
            if self.wrong or self.process.poll() is not None or time.monotonic() > end:
                return False
            time.sleep(0.002)
        return True

    def end(self):
        """Ends the job. Returns whether every sum was right."""
        STOP.touch()
        try:
            self.process.wait(self.patience)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.returncode == 0 and not self.wrong


def ip(*words):
    """Changes the network."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


def carried(host, rail):
    """Returns the bytes of the switch's port, in the direction with fewer."""
    counts = Path(f"/sys/class/net/p{host}r{rail}/statistics")
    return min(int((counts / name).read_text()) for name in ("rx_bytes", "tx_bytes"))


def restore(host, rail):
    """Restores the route that was removed with a NIC."""
    nic = f"h{host}r{rail}"
    rules = subprocess.run(["ip", "rule"], check=True, capture_output=True, text=True).stdout
    table = re.search(rf"oif {nic} lookup (\d+)", rules)[1]
    source = f"10.{10 + rail}.0.{host + 1}"
    ip("route", "replace", f"10.{10 + rail}.0.0/24", "dev", nic, "src", source, "table", table)


def cut(job, dice, is_silent):
    """Returns the seconds of delay, and those until bytes flowed again, or None after a failure."""
    done = len(job.calls)
    if not job.wait(done + USUAL_CALLS):
        return None
    usual = statistics.median(job.calls[-USUAL_CALLS:])
    host, rail = dice.randrange(2), dice.randrange(2)
    kind = "p" if is_silent else dice.choice("ph")
    port, moment, pause = f"{kind}{host}r{rail}", dice.uniform(0, usual), dice.uniform(0, 1)
    time.sleep(moment)
    under_way = len(job.calls)
    ip("link", "set", port, *(["nomaster"] if is_silent else ["down"]))
    if not job.wait(under_way + 2):
        print(f"{port}: no call ended after call {under_way}", flush=True)
        return None
    time.sleep(pause)
    if is_silent:
        ip("link", "set", port, "master", f"rail{rail}")
    else:
        ip("link", "set", port, "up")
        restore(host, rail)
    start, before = time.monotonic(), carried(host, rail)
    while carried(host, rail) < before + BACK_BYTES:
        if job.wrong or time.monotonic() > start + job.patience + 60:
            print(f"{port}: carries no bytes again", flush=True)
            return None
        time.sleep(0.01)
    back = time.monotonic() - start
    delay = max(0.0, sum(job.calls[under_way : under_way + 2]) - 2 * usual)
    print(f"{port} {moment * 1e3:.0f} ms after a call ended: {delay * 1e3:.0f} ms beyond the usual "
        f"{usual * 1e3:.0f} ms; up after {pause:.1f} s, bytes {back:.1f} s later", flush=True)  # fmt: skip
    return delay, back


def inside(args):
    """Runs the cuts in the guest. Returns 0 if the job survived all of them."""
    dice, job, cuts = random.Random(args.seed), Job(args), []
    for _ in range(args.cuts):
        if (result := cut(job, dice, args.silent)) is None:
            break
        cuts.append(result)
    is_right = job.end()
    print("\n".join(job.wrong), end="")
    if cuts:
        delays, backs = zip(*cuts)
        print(f"{len(cuts)} cuts, {len(job.calls)} calls, {'all right' if is_right else 'NOT RIGHT'}; "
            f"delay: median {statistics.median(delays) * 1e3:.0f} ms, worst {max(delays) * 1e3:.0f}; "
            f"bytes again: median {statistics.median(backs):.1f} s, worst {max(backs):.1f}")  # fmt: skip
    return int(not is_right or len(cuts) < args.cuts)


def run(args):
    """Starts the guest, and returns its exit status."""
    if args.inside:
        return inside(args)
    folder = install.ringfold(args, "ringrun", "rank", more=["ringfold-tests"])
    silent = " --silent" * args.silent
    print(f"bench/compare/run failover --seed {args.seed} --cuts {args.cuts} --bytes {args.bytes} "
        f"--timeout {args.timeout} --retries {args.retries}{silent}", flush=True)  # fmt: skip
    return guest.enter(args, {"limit": args.limit}, "--seed", args.seed, "--bin", folder)
