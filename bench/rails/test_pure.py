"""Tests without namespaces: `python3 -m unittest` in this folder."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "peers"))

import rails  # noqa: E402
from install import Missing  # noqa: E402, from ../peers

# Log lines of ringfold, with and without colours.
AT, DIM, OFF = "2026-01-02T03:04:0", "\x1b[2m", "\x1b[0m"
LOG = f"""
{AT}1.000000Z  INFO ringfold::join: ringfold 0.1.0: rank 1 of 2, launcher ringrun
{DIM}{AT}2.000000Z{OFF} {DIM} INFO{OFF} {DIM}ringfold::join{OFF}{DIM}:{OFF} ringfold 0.1: rank 0 of 2, x
{AT}2.100000Z  INFO ringfold::join: rank 0: 2 ranks on 2 CPUs of this machine
{AT}2.250000Z  INFO ringfold::join: rank 0: rank 1 by shm
{AT}2.240000Z  INFO ringfold::join: rank 1: rank 0 by shm
{AT}9.000000Z  INFO ringfold::communicator: rank 0: leaves
"""
PRINTED = """
#       size  count   type  redop  root     time   algbw   busbw  wrong
  67108864  16777216  float    sum    -1   1234.5   54.36   81.54      0
"""


class Joining(unittest.TestCase):
    """Tests of the join time from logs."""

    def test_it_lasts_from_the_last_beginning_to_the_last_route(self):
        self.assertAlmostEqual(rails.milliseconds_of_joining(LOG), 250)

    def test_a_log_without_times_is_an_error(self):
        for line in (" of 2, ", "by shm"):
            rest = "\n".join(text for text in LOG.splitlines() if line not in text)
            with self.assertRaises(rails.NoTimes):
                rails.milliseconds_of_joining(rest)


class Printed(unittest.TestCase):
    """Tests of reading allreduce-perf's table."""

    def test_the_time_of_separate_buffers_counts(self):
        self.assertEqual(rails.microseconds(PRINTED), 1234.5)

    def test_one_row_is_wanted(self):
        for text in ("", PRINTED * 2):
            with self.assertRaises(Missing):
                rails.microseconds(text)


if __name__ == "__main__":
    unittest.main()
