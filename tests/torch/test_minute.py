"""A training job that loses a rank after each 5 s of work, for a minute."""

import unittest

from test_jobs import replaced


class Minute(unittest.TestCase):
    def test_ddp_goes_on_for_a_minute(self):
        deaths = [(50 * (number + 1), number % 4) for number in range(12)]
        replaced(self, deaths, "--pause", 0.1, "--steps", 650)


if __name__ == "__main__":
    unittest.main()
