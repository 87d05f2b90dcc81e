"""`python3 -m unittest` in this folder: what needs no peers, no network and no time."""

import os
import sys
import unittest
import xml.etree.ElementTree as xml

import figures
import gate
import processes
import sizes
import svg


class Figures(unittest.TestCase):
    """Ratios and means."""

    def cell(self):
        cell = figures.Cell("all_reduce", 2, "out", 8)
        for round_number, times in enumerate([(1.0, 2.0, 9.0), (3.0, 4.0, 9.0), (2.0, 8.0, 1.0)]):
            for library, time in zip(("ours", "a", "b"), times):
                cell.add(library, round_number, time)
        return cell

    def test_the_best_peer_has_the_least_median(self):
        self.assertEqual(self.cell().best(["a", "b"]), "a")
        self.assertEqual(self.cell().best(["nobody"]), None)

    def test_a_ratio_is_the_median_of_those_of_the_rounds(self):
        self.assertEqual(self.cell().ratio("ours", ["a", "b"]), 0.5)

    def test_failed_rounds_do_not_count(self):
        cell = figures.Cell("all_reduce", 2, "out", 8)
        cell.add("ours", 0, 1.0)
        cell.add("a", 2, 5.0)
        self.assertEqual(cell.times["a"], [None, None, 5.0])
        self.assertEqual(cell.ratio("ours", ["a"]), None)

    def test_means(self):
        self.assertAlmostEqual(figures.geometric_mean([1, 4]), 2)
        self.assertIsNone(figures.geometric_mean([]))
        self.assertEqual(figures.mean_ratio([self.cell()], "ours", ["a"])[:2], (0.5, 0.5))

    def test_bus_bandwidth_is_that_of_nccl_tests(self):
        self.assertAlmostEqual(figures.bus_bandwidth("all_reduce", 4, 1000, 1.0), 1.5)
        self.assertAlmostEqual(figures.bus_bandwidth("all_gather", 4, 1000, 1.0), 0.75)
        self.assertAlmostEqual(figures.bus_bandwidth("broadcast", 4, 1000, 1.0), 1.0)


class Gate(unittest.TestCase):
    """When a second build counts as slower."""

    def test_five_percent_are_allowed(self):
        self.assertFalse(gate.Run(100, 104.9, 100).is_slower())
        self.assertTrue(gate.Run(100, 105.1, 100).is_slower())
        self.assertFalse(gate.Run(100, 105.1, 100).is_slower(allowed=0.06))

    def test_the_difference_of_a_and_a_is_allowed_beside_it(self):
        for again in (93, 107):
            self.assertFalse(gate.Run(100, 111.9, again).is_slower())
            self.assertTrue(gate.Run(100, 112.1, again).is_slower())

    def test_a_cell_fails_if_it_is_slower_in_all_runs(self):
        slow, good = gate.Run(1, 2, 1), gate.Run(1, 1, 1)
        self.assertTrue(gate.fails([slow] * gate.RUNS))
        self.assertFalse(gate.fails([slow] * (gate.RUNS - 1)))
        self.assertFalse(gate.fails([slow, slow, good]))

    def test_only_slow_cells_run_again(self):
        slow, good = gate.Run(1, 2, 1), gate.Run(1, 1, 1)
        self.assertTrue(gate.needs_more([slow]))
        self.assertFalse(gate.needs_more([good]))
        self.assertFalse(gate.needs_more([slow, good]))
        self.assertFalse(gate.needs_more([slow] * gate.RUNS))

    def test_the_mean_may_be_above_one_by_as_much_as_noise_moves_it(self):
        quiet = gate.mean([gate.Run(1, 1.02, 1)] * 9)
        self.assertAlmostEqual(quiet.ratio, 1.02)
        self.assertTrue(quiet.is_slower)
        noisy = gate.mean([gate.Run(1, 1.02, 1.2), gate.Run(1.2, 1.224, 1)])
        self.assertFalse(noisy.is_slower)
        self.assertFalse(gate.mean([gate.Run(1, 1, 1)]).is_slower)
        self.assertIsNone(gate.mean([]))

    def test_a_and_a_count_alike_in_the_mean(self):
        first, second = gate.Run(1, 1.5, 4), gate.Run(4, 1.5, 1)
        self.assertAlmostEqual(gate.mean([first]).ratio, 0.75)
        self.assertAlmostEqual(gate.mean([second]).ratio, 0.75)


class Sizes(unittest.TestCase):
    """What is written on the command line and in tables."""

    def test_sizes_are_read_and_shown(self):
        self.assertEqual([sizes.parse(text) for text in ("8", "4K", "1m")], [8, 4096, 1 << 20])
        self.assertEqual([sizes.show(size) for size in (8, 4096, 1 << 20)], ["8", "4 Ki", "1 Mi"])
        self.assertEqual(sizes.ALL[-1], 128 << 20)

    def test_calls_have_bounds(self):
        self.assertEqual(sizes.calls(8, 500), 500)
        self.assertEqual(sizes.calls(1 << 30, 500), 1)


class Plots(unittest.TestCase):
    """The picture is well-formed and has a line per library."""

    def test_a_plot(self):
        line = svg.Line("a & b", [(8, 1.0), (1024, 30.0)])
        text = svg.document("title", [svg.Panel("time", "us", [line, svg.Line("empty", [])])])
        tree = xml.fromstring(text)
        paths = [node for node in tree.iter() if node.tag.endswith("polyline")]
        self.assertEqual(len(paths), 1)
        self.assertIn("a &amp; b", text)


class Processes(unittest.TestCase):
    """Nothing outlives its run."""

    def run_shell(self, script, patience):
        lines = []
        outcome = processes.run(["sh", "-c", script], dict(os.environ), patience, lines.append)
        return outcome, lines

    def test_output_and_status_come_back(self):
        outcome, lines = self.run_shell("echo a; echo b; echo why >&2; exit 3", 10)
        self.assertEqual(lines, ["a", "b"])
        self.assertEqual(outcome.reason(), "status 3: why")

    @unittest.skipUnless(sys.platform == "linux", "reads /proc")
    def test_orphans_of_a_hung_program_are_ended(self):
        processes.adopt_orphans()
        outcome, lines = self.run_shell("(setsid sleep 1000 & echo $!); sleep 1000", 1)
        self.assertIsNone(outcome.status)
        with self.assertRaises(ProcessLookupError):
            os.kill(int(lines[0]), 0)


if __name__ == "__main__":
    unittest.main()
