"""In-network reduction beside the ranks' own steps, without namespaces."""

import unittest

import libraries
from processes import Failed
from scenarios import innetwork


def result(wrong=0):
    """Returns allreduce-perf's result of one size."""
    half = lambda time: {"time": time, "nwrong": wrong}  # noqa: E731
    return {"algorithm": "ring", "out_of_place": half(7.5), "in_place": half(8.0)}


class Times(unittest.TestCase):
    """Tests of reading times."""

    def test_the_faster_half_counts(self):
        found = libraries.single([result()])
        self.assertEqual(innetwork.microseconds(found, "ring"), 7.5)

    def test_another_algorithm_is_refused(self):
        with self.assertRaises(Failed):
            innetwork.microseconds(result(), "tree")

    def test_wrong_sums_and_other_than_one_result_are_refused(self):
        for results in ([result(wrong=3)], [], [result()] * 2):
            with self.assertRaises(Failed):
                libraries.single(results)

    def test_the_ideal_gain_is_that_of_bytes(self):
        self.assertEqual([innetwork.ideal_gain(hosts) for hosts in (2, 4, 8)], [1.0, 1.5, 1.75])
