"""Starts a program once per rank, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; for those
that bring no launcher.

    start.py RANKS ADDRESS PORT [--hosts ENTER NAME...] -- PROGRAM ARGUMENT...
"""

import os
import subprocess
import sys


def main(words):
    """Runs the ranks, and returns their worst exit status."""
    ranks, address, port, *rest = words
    at = rest.index("--")
    place, program = rest[:at], rest[at + 1 :]
    started = []
    for rank in range(int(ranks)):
        names = {"RANK": str(rank), "WORLD_SIZE": ranks, "MASTER_ADDR": address}
        enter = [place[1], place[2 + rank]] if place else []
        environment = os.environ | names | {"MASTER_PORT": port}
        started.append(subprocess.Popen([*enter, *program], env=environment))
    return max(abs(process.wait()) for process in started)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
