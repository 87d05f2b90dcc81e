"""Join times, without namespaces."""

import unittest

from processes import Failed
from scenarios import join

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


class Joining(unittest.TestCase):
    """Tests of the join time from logs."""

    def test_it_lasts_from_the_last_beginning_to_the_last_route(self):
        self.assertAlmostEqual(join.milliseconds(LOG), 250)

    def test_a_log_without_times_is_an_error(self):
        for line in (" of 2, ", "by shm"):
            rest = "\n".join(text for text in LOG.splitlines() if line not in text)
            with self.assertRaises(Failed):
                join.milliseconds(rest)
