"""Predicted times beside measured ones, without namespaces."""

import unittest

from scenarios import model


def cell(measured, predicted, name="broadcast"):
    """Returns a cell of 8 hosts."""
    return 8, name, "chain", 1 << 20, measured, predicted


class Errors(unittest.TestCase):
    """Tests of the errors of predictions."""

    def test_an_error_has_the_sign_of_the_prediction(self):
        self.assertAlmostEqual(model.error(cell(200.0, 250.0)), 0.25)
        self.assertAlmostEqual(model.error(cell(200.0, 100.0)), -0.5)

    def test_a_percentile_is_one_of_the_values(self):
        values = list(range(1, 11))
        found = [model.percentile(values, part) for part in (1, 50, 90, 91, 100)]
        self.assertEqual(found, [1, 5, 9, 10, 10])

    def test_a_tenth_of_the_cells_may_miss_by_more(self):
        good = [cell(100.0, 110.0)] * 9
        lines, is_good = model.summary([*good, cell(100.0, 300.0, "scan")])
        self.assertTrue(is_good)
        self.assertIn("| all | all | 10 | 10.0 % | 10.0 % | +200 %: scan chain, 8 hosts, 1 MiB |", lines)
        for bad in ([*good[:8], *[cell(100.0, 60.0)] * 2], [cell(100.0, 120.0)] * 10):
            self.assertFalse(model.summary(bad)[1])
