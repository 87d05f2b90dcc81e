"""Times of recovery, without ranks."""

import unittest
from unittest import mock

import command
from processes import Failed
from scenarios import recovery

# Two rounds of recovery-timing, with an id.
LINES = """shrink 7 9000
detect 7 1000
split 7 6000
newcomer 0 ringfold-id-1/127.0.0.1:9/5e
grow 8 14000
split 8 7000
shrink 7 20000
detect 7 3000
split 7 8000
newcomer 1 ringfold-id-1/127.0.0.1:9/5e
grow 8 10000
split 8 5000
""".splitlines()


class Recovery(unittest.TestCase):
    """Tests of reading, of the page, and of the gates."""

    def times(self, lines=LINES):
        return recovery.Times("shm", 8, lines)

    def test_each_time_is_compared_with_the_split_after_it(self):
        times = self.times()
        self.assertEqual((times.median("detect"), times.median("shrink")), (2.0, 14.5))
        self.assertAlmostEqual(times.ratio("shrink"), (9 / 6 + 20 / 8) / 2)
        self.assertAlmostEqual(times.ratio("grow"), 2)

    def test_only_ratios_above_the_gates_are_named(self):
        lacks = list(self.times().lacks())
        self.assertEqual(len(lacks), 1, lacks)
        self.assertIn("8 ranks, shm: shrink takes 2.00 times", lacks[0])
        slower = [line.replace("10000", "10001") for line in LINES]
        self.assertEqual(len(list(self.times(slower).lacks())), 2)

    def test_the_page_has_a_row_for_each_job(self):
        results = recovery.Results({"seed": 7})
        results.jobs.append(self.times())
        self.assertIn("- seed: 7\n", results.markdown())
        row = "| 8 | shm | 2 | 2.0 | 14.5 | 7.0 | 2.00 | 12.0 | 6.0 | 2.00 |"
        self.assertEqual(results.markdown().splitlines()[-1], row)

    def test_a_job_that_prints_other_figures_is_an_error(self):
        for lines in ([], LINES[:-1], LINES[1:]):
            with self.assertRaises(Failed):
                self.times(lines)

    def test_some_rank_of_the_launcher_must_live(self):
        with mock.patch("argparse.ArgumentParser.error", side_effect=SystemExit) as refuse:
            with self.assertRaises(SystemExit):
                command.arguments("recovery --ranks 8,64 --rounds 8".split())
            self.assertIn("--rounds 8", refuse.call_args[0][0])
