"""Times the yardsticks of rdma-core and perftest from host 0 to host 1 on rail 0. Prints the time of
one message or of one round trip in the format of timing.c.

    pair.py put|round_trip SETTING BYTES:CALLS...

SETTING holds options of the program at both ends, such as `-e` (sleep until there is an event).
"""

import re
import subprocess
import sys
import time

PORT = 29531
# The client may come before the server listens.
TRIES, PAUSE_S = 50, 0.2
PATIENCE_S = 60
# perftest prints 0 where the machine is too busy to measure the rate of its clock.
CLOCK_TRIES = 5
# The index of the hosts' IPv4 addresses, as in tests/rdma-vm.
GID = "1"


def put(words, size, calls):
    """Returns the microseconds of an RDMA write, with many in flight."""
    both = ["-F", "-x", GID, "-s", str(size), "-n", str(max(calls, 5))]
    for _ in range(CLOCK_TRIES):
        printed = _both("ib_write_bw", [*both, *words, "-p", str(PORT)])
        if found := microseconds_of_write(printed, size):
            return found
    return sys.exit(f"ib_write_bw found no rate: {printed.strip()[-300:]}")


def microseconds_of_write(printed, size):
    """Returns the time from the rate in MiB/s, which perftest calls MB and prints with more digits than
    Gbit. Returns None if there is no rate."""
    row = re.search(rf"^ *{size} +\d+ +[\d.]+ +([\d.]+) ", printed, re.MULTILINE)
    rate = float(row[1]) if row else 0
    return size * 1e6 / (rate * 2**20) if rate else None


def round_trip(words, size, calls):
    """Returns the microseconds from a message to its answer."""
    both = ["-g", GID, "-s", str(size), "-n", str(calls)]
    return microseconds_of_trip(_both("ibv_rc_pingpong", [*both, *words, "-p", str(PORT)]))


def microseconds_of_trip(printed):
    """Returns the time of an iteration, which is one round trip."""
    return float(re.search(r"= ([\d.]+) usec/iter", printed)[1])


def _both(program, words):
    """Returns the output of the client."""
    server = subprocess.Popen(
        ["timeout", str(PATIENCE_S), program, "-d", "rxe_h1r0", *words],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        for _ in range(TRIES):
            client = ["timeout", str(PATIENCE_S), program, "-d", "rxe_h0r0", *words, "127.0.0.1"]
            done = subprocess.run(client, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return done.stdout
            if server.poll() is not None:
                break
            time.sleep(PAUSE_S)
        sys.exit(done.stderr.strip() or done.stdout.strip() or f"{program} failed")
    finally:
        server.terminate()
        server.wait()


def main(words):
    """Prints rows for all sizes."""
    what, setting, *cells = words
    measure = {"put": put, "round_trip": round_trip}[what]
    for cell in cells:
        size, calls = map(int, cell.split(":"))
        microseconds = measure(setting.split(), size, calls)
        print(f"cell out {size} {size} {calls} 1 {microseconds:.4f} 0", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
