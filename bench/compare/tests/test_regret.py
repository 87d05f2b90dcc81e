"""Regret, without jobs and network."""

import json
import unittest
from pathlib import Path
from unittest import mock

import libraries
import processes
from scenarios import regret


def record(chosen, size=8, **times):
    """A record of algorithm-timing."""
    names = {"collective": "allreduce", "type": "f32", "bytes": size, "used": size}
    return names | {"chosen": chosen, "calls": 1, "wrong": 0, "times": times}


def row(ratio, place="shm", failure=None):
    """A row whose choice takes `ratio` times as long as the best algorithm."""
    times = {"choice": [ratio] * 3, "tree": [ratio] * 3, "ring": [1.0] * 3}
    return regret.Row(place, "2", record("tree", **times), failure)


class Ratios(unittest.TestCase):
    """The comparison of the choice with the best algorithm."""

    def test_a_ratio_is_the_median_of_those_of_the_rounds(self):
        of = record("tree", choice=[4.0, 3.0, 2.0], tree=[2.0, 3.0, 4.0], ring=[1.0, 2.0, 2.0])
        found = regret.Row("shm", "2", of)
        self.assertEqual((found.best, found.ratio, found.noise), ("ring", 1.5, 1.0))

    def test_noise_is_no_regret(self):
        of = record("ring", choice=[3.0], tree=[2.0], ring=[1.0])
        found = regret.Row("shm", "2", of)
        self.assertEqual((found.best, found.ratio, found.noise), ("ring", 1.0, 3.0))

    def test_wrong_elements_are_a_failure(self):
        wrong = record("ring", choice=[1.0], ring=[1.0]) | {"wrong": 3}
        self.assertEqual(regret.Row("shm", "2", wrong).failure, "3 wrong elements")


class Summary(unittest.TestCase):
    """The limits of the ratios."""

    def test_a_tenth_of_the_cells_may_exceed_the_ratio(self):
        self.assertTrue(regret.is_good([row(1.1)] * 9 + [row(1.4)]))
        self.assertFalse(regret.is_good([row(1.1)] * 8 + [row(1.4)] * 2))

    def test_no_cell_may_exceed_the_worst_ratio_or_fail(self):
        self.assertFalse(regret.is_good([row(1.1)] * 99 + [row(1.6)]))
        self.assertFalse(regret.is_good([row(1.1)] * 99 + [row(1.1, failure="hangs")]))
        self.assertFalse(regret.is_good([]))

    def test_places_have_a_line_each_and_all_have_one(self):
        lines = regret.summary([row(1.0), row(1.2), row(2.0, "1gbit"), row(1, "1gbit", "hangs")])
        self.assertEqual([text.split(" | ")[0] for text in lines[2:]], ["| shm", "| 1gbit", "| all"])
        self.assertIn("| 2 | 50.0 % |", lines[2])
        self.assertIn("| 1 | 0.0 % | 2.000 | 2.00 | 2 allreduce f32 8B |", lines[3])
        self.assertTrue(lines[3].endswith("| 1 |"))

    def test_a_later_run_shows_the_ratios_of_an_earlier_one(self):
        rows = [row(1.25)]
        beside = regret.ratios(json.loads(json.dumps(regret.document({}, rows))))
        self.assertTrue(regret.all_cells(rows, beside)[2].endswith("| 3 | 1.25 |"))


class Cells(unittest.TestCase):
    """The cells of jobs."""

    def test_collectives_have_the_names_of_algorithm_timing(self):
        found = regret.cells(["all_to_all", "reduce_scatter", "exscan"], ["f32"], [8])
        self.assertEqual(found, ["alltoall:f32:8", "reduce_scatter:f32:8", "exscan:f32:8"])

    def test_sizes_ascend_and_a_barrier_is_one_cell(self):
        wanted = ["allgather:bf16:8", "allgather:bf16:64", "barrier:f32:0"]
        self.assertEqual(regret.cells(["all_gather", "barrier"], ["bf16"], [64, 8]), wanted)

    def measure(self, outputs):
        """Rows of jobs with these outputs."""
        outputs, wanted = iter(outputs), regret.cells(["reduce"], ["f32"], [8, 64, 512])

        def run(argv, environment, patience, read):
            for text in next(outputs):
                read(text)
            return processes.Outcome(1, "it crashed")

        with mock.patch.object(processes, "run", run), mock.patch.object(regret, "say"):
            args = mock.Mock(seconds=1, rounds=1, patience=1)
            some = regret.rows_of(args, Path("."), regret.Group(4, None, 2), "shm", wanted, {})
            return [(row.record["bytes"], row.group, row.failure) for row in some]

    def test_dealt_ranks_are_those_beyond_the_slots(self):
        hosts = mock.Mock(**{"names.side_effect": lambda count: ["a", "b"][:count]})
        for is_dealt, slots, name in ((False, "a:2,b:2", "2 x 2"), (True, "a:1,b:1", "2 x 2 dealt")):
            group = regret.Group(4, hosts, 2, is_dealt)
            words = libraries.Ringfold(Path("bin")).launch(group)
            self.assertEqual(words[words.index("--host") + 1], slots)
            self.assertEqual("--oversubscribe" in words, is_dealt)
            self.assertEqual(group.name, name)

    def test_after_a_failure_the_other_cells_run(self):
        text = lambda size: json.dumps(record("ring", size, choice=[1.0], ring=[1.0]))  # noqa: E731
        rows = self.measure([["noise", text(8)], [text(512)]])
        failed = (64, "2 x 2", "status 1: it crashed")
        self.assertEqual(rows, [(8, "2 x 2", None), failed, (512, "2 x 2", None)])

    def test_two_failures_in_a_row_end_the_job(self):
        failures = [failure for _, _, failure in self.measure([[], []])]
        self.assertEqual(failures, ["status 1: it crashed"] * 2 + ["given up"])
