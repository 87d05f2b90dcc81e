"""Tests without namespaces: `python3 -m unittest` in this folder."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "peers"))

import times  # noqa: E402
from install import Missing  # noqa: E402, from ../peers


def document(algorithm="ring", wrong=0):
    """Returns allreduce-perf's document of one size."""
    half = lambda time: {"time": time, "nwrong": wrong}  # noqa: E731
    result = {"algorithm": algorithm, "out_of_place": half(7.5), "in_place": half(8.0)}
    return {"results": [result]}


class Times(unittest.TestCase):
    """Tests of reading times."""

    def test_the_faster_half_counts(self):
        self.assertEqual(times.of_document(document(), "ring"), 7.5)

    def test_another_algorithm_and_wrong_sums_are_refused(self):
        for wrong in (document("tree"), document(wrong=3), {"results": []}):
            with self.assertRaises(Missing):
                times.of_document(wrong, "ring")

    def test_the_ideal_gain_is_that_of_bytes(self):
        self.assertEqual([times.ideal_gain(hosts) for hosts in (2, 4, 8)], [1.0, 1.5, 1.75])


if __name__ == "__main__":
    unittest.main()
