"""A guest with RDMA devices, or another such place, in which a scenario starts itself."""

import argparse
import shlex
import subprocess
import sys

import install
import processes

# The flag of the part in the guest. The flags after it replace those of the user.
INSIDE = "--inside"
GUEST = shlex.quote(str(install.ROOT / "tests/rdma-vm/run"))


def flags(add, guest, names):
    """Adds the flags of the place. `guest` are the words for tests/rdma-vm, with the `names`."""
    add("--lab", default=f"{GUEST} {guest} --",
        help=f"another place with these devices: words that run a command there, with {names}")
    add(INSIDE, action="store_true", help=argparse.SUPPRESS)


def enter(args, values, *more):
    """Runs the same command line in the guest, with `more` flags. Returns its exit status."""
    lab = [word.format(**values) for word in shlex.split(args.lab)]
    words = [*lab, sys.executable, install.ROOT / "bench/compare/run", *sys.argv[1:], INSIDE, *more]
    # A session of its own takes precedence. This process passes ^C on to it.
    with subprocess.Popen(
        list(map(str, words)), start_new_session=True, preexec_fn=processes.take_precedence
    ) as guest:
        try:
            return guest.wait()
        except (KeyboardInterrupt, SystemExit):
            guest.terminate()
            raise
