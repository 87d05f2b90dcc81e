"""The section "Two hosts" of docs/pytorch.md, run as it stands: on two network namespaces that have a
cable between them, names, and homes of their own, each with a new Python, torch, and nothing else.

Needs root, `ip`, `unshare` and a wheel in target/wheels, by `crates/python/build-wheel`. Without them
it is SKIPPED, and `RINGFOLD_TEST_REQUIRE=netns,wheel` makes that a failure.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: Commands from an empty place to a running job, on both hosts together.
COMMANDS_MAX = 5

SECONDS = 120

#: Enters a host: its network, its name and its home, which has the same path on both hosts.
ENTER = """
lab=$0 host=$1 netns=$2; shift 2
exec ip netns exec "$netns" unshare --uts --mount sh -c '
    lab=$0 host=$1; shift
    hostname "$host" && mount --bind "$lab/hosts" /etc/hosts || exit 1
    mount --bind "$lab/$host" "$lab/home" || exit 1
    cd "$lab/home" && exec "$@"' "$lab" "$host" sh -euc "$1"
"""


def needed(name, is_there):
    """Skips the test, or fails it if the requirement must be there."""
    if is_there:
        return
    if name in os.environ.get("RINGFOLD_TEST_REQUIRE", "").split(","):
        raise AssertionError(f"{name} is missing")
    raise unittest.SkipTest(f"SKIPPED {name}: it is missing")


def page():
    """The program and the commands of each host."""
    text = (ROOT / "docs/pytorch.md").read_text()
    program = next(p for p in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "import" in p)
    section = text.split("\n## Two hosts\n")[1].split("\n## ")[0]
    return program, re.search(r"```sh\n(.*?)```", section, re.DOTALL)[1].strip()


class Lab:
    """Two hosts, `node1` and `node2`."""

    def __init__(self, folder, wheel, program):
        self.folder, self.names = Path(folder), [f"rf{os.getpid()}{side}" for side in "ab"]
        (self.folder / "home").mkdir()
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n10.0.0.1 node1\n10.0.0.2 node2\n")
        self.lend_packages()
        for host in ["node1", "node2"]:
            home = self.folder / host
            home.mkdir()
            shutil.copy(wheel, home)
            (home / "train.py").write_text(program)
        self.join()

    def lend_packages(self):
        """The packages beside torch, but for ringfold."""
        packages = self.folder / "packages"
        packages.mkdir()
        for entry in Path(importlib.util.find_spec("torch").origin).parents[1].iterdir():
            if not entry.name.startswith(("ringfold", "pip", "__pycache__")):
                (packages / entry.name).symlink_to(entry)

    def join(self):
        a, b = self.names
        ip(f"netns add {a}")
        ip(f"netns add {b}")
        ip(f"-n {a} link add eth0 type veth peer name eth0 netns {b}")
        for name, address in zip(self.names, ["10.0.0.1", "10.0.0.2"]):
            ip(f"-n {name} addr add {address}/24 dev eth0")
            ip(f"-n {name} link set eth0 up")
            ip(f"-n {name} link set lo up")
        until = time.monotonic() + SECONDS
        while any(" state UP " not in ip(f"-n {name} link show eth0") for name in self.names):
            assert time.monotonic() < until, "the cable stays dead"
            time.sleep(0.01)

    def start(self, number, lines):
        """Starts lines of shell on a host."""
        home = self.folder / "home"
        clean = {key: value for key, value in os.environ.items() if key in ("LANG", "TMPDIR")}
        clean |= {"HOME": str(home), "PATH": f"{home}/python/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        command = ["sh", "-c", ENTER, self.folder, f"node{number}", self.names[number - 1], lines]
        return subprocess.Popen(
            command, env=clean, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, lines):
        """Runs lines on both hosts, and returns what each has printed."""
        jobs, found = [self.start(number, lines) for number in (1, 2)], []
        try:
            for job in jobs:
                found.append(job.communicate(timeout=SECONDS)[0])
        finally:
            for job in jobs:
                if job.poll() is None:
                    os.killpg(job.pid, 9)
                    found.append(job.communicate()[0])
        assert all(job.returncode == 0 for job in jobs), "\n".join(found)
        return found

    def close(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)


def ip(arguments):
    return subprocess.run(
        ["ip", *arguments.split()], check=True, capture_output=True, text=True
    ).stdout


class TwoHosts(unittest.TestCase):
    def test_the_commands_of_the_page(self):
        needed("netns", os.geteuid() == 0 and shutil.which("ip") and shutil.which("unshare"))
        wheels = sorted((ROOT / "target/wheels").glob("ringfold-*.whl"), key=os.path.getmtime)
        needed("wheel", wheels)
        program, commands = page()
        self.assertLessEqual(2 * len(commands.splitlines()), COMMANDS_MAX)
        self.assertNotRegex(commands, "RINGFOLD|export|=")
        with tempfile.TemporaryDirectory(prefix="ringfold-hosts-") as folder:
            lab = Lab(folder, wheels[-1], program)
            try:
                # The hosts as the page finds them: a Python with torch.
                lab.run(
                    f"{sys.executable} -m venv python\n"
                    "for packages in python/lib/python3.*/site-packages; do\n"
                    f"    echo {folder}/packages > $packages/torch.pth\n"
                    "done\n"
                    "printf '#!/bin/sh\\nexec python -m torch.distributed.run \"$@\"\\n' > torchrun\n"
                    "chmod +x torchrun && mv torchrun python/bin\n"
                    "python -c 'import torch, importlib.util as u; assert not u.find_spec(\"ringfold\")'"
                )
                first, second = lab.run(commands)
                self.assertIn("4 ranks, loss", first + second)
                self.assertEqual((first + second).count("4 ranks, loss"), 1)
                self.assertFalse((Path(folder) / "node1/.ringfold").exists())
            finally:
                lab.close()


if __name__ == "__main__":
    unittest.main()
