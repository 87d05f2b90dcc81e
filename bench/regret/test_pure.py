"""Tests without jobs and network: `python3 -m unittest` in this folder."""

import json
import sys
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "peers"))

import jobs  # noqa: E402
import processes  # noqa: E402, from ../peers
import table  # noqa: E402


def record(chosen, size=8, **times):
    """A record of algorithm-timing."""
    names = {"collective": "allreduce", "type": "f32", "bytes": size, "used": size}
    return names | {"chosen": chosen, "calls": 1, "wrong": 0, "times": times}


def row(ratio, place="shm", failure=None):
    """A row whose choice takes `ratio` times as long as the best algorithm."""
    times = {"choice": [ratio] * 3, "tree": [ratio] * 3, "ring": [1.0] * 3}
    return table.Row(place, "2", record("tree", **times), failure)


class Ratios(unittest.TestCase):
    """The comparison of the choice with the best algorithm."""

    def test_a_ratio_is_the_median_of_those_of_the_rounds(self):
        of = record("tree", choice=[4.0, 3.0, 2.0], tree=[2.0, 3.0, 4.0], ring=[1.0, 2.0, 2.0])
        found = table.Row("shm", "2", of)
        self.assertEqual((found.best, found.ratio, found.noise), ("ring", 1.5, 1.0))

    def test_noise_is_no_regret(self):
        of = record("ring", choice=[3.0], tree=[2.0], ring=[1.0])
        found = table.Row("shm", "2", of)
        self.assertEqual((found.best, found.ratio, found.noise), ("ring", 1.0, 3.0))

    def test_wrong_elements_are_a_failure(self):
        wrong = record("ring", choice=[1.0], ring=[1.0]) | {"wrong": 3}
        self.assertEqual(table.Row("shm", "2", wrong).failure, "3 wrong elements")


class Summary(unittest.TestCase):
    """The limits of the ratios."""

    def test_a_tenth_of_the_cells_may_exceed_the_ratio(self):
        self.assertTrue(table.is_good([row(1.1)] * 9 + [row(1.4)]))
        self.assertFalse(table.is_good([row(1.1)] * 8 + [row(1.4)] * 2))

    def test_no_cell_may_exceed_the_worst_ratio_or_fail(self):
        self.assertFalse(table.is_good([row(1.1)] * 99 + [row(1.6)]))
        self.assertFalse(table.is_good([row(1.1)] * 99 + [row(1.1, failure="hangs")]))
        self.assertFalse(table.is_good([]))

    def test_places_have_a_line_each_and_all_have_one(self):
        lines = table.summary([row(1.0), row(1.2), row(2.0, "1gbit"), row(1, "1gbit", "hangs")])
        self.assertEqual([text.split(" | ")[0] for text in lines[2:]], ["| shm", "| 1gbit", "| all"])
        self.assertIn("| 2 | 50.0 % |", lines[2])
        self.assertIn("| 1 | 0.0 % | 2.000 | 2.00 | 2 allreduce f32 8B |", lines[3])
        self.assertTrue(lines[3].endswith("| 1 |"))

    def test_a_later_run_shows_the_ratios_of_an_earlier_one(self):
        rows = [row(1.25)]
        beside = table.ratios(json.loads(json.dumps(table.document({}, rows))))
        self.assertTrue(table.table(rows, beside)[2].endswith("| 3 | 1.25 |"))


class Cells(unittest.TestCase):
    """The cells of jobs."""

    def test_collectives_have_the_names_of_algorithm_timing(self):
        found = jobs.cells(["all_to_all", "reduce_scatter", "exscan"], ["f32"], [8])
        self.assertEqual(found, ["alltoall:f32:8", "reduce_scatter:f32:8", "exscan:f32:8"])

    def test_sizes_ascend_and_a_barrier_is_one_cell(self):
        wanted = ["allgather:bf16:8", "allgather:bf16:64", "barrier:f32:0"]
        self.assertEqual(jobs.cells(["all_gather", "barrier"], ["bf16"], [64, 8]), wanted)

    def measure(self, outputs):
        """Rows of jobs with these outputs."""
        outputs, cells = iter(outputs), jobs.cells(["reduce"], ["f32"], [8, 64, 512])
        options = mock.Mock(seconds=1, rounds=1, patience=1)

        def start(program, group, variables, patience, read):
            for text in next(outputs):
                read(text)
            return processes.Outcome(1, "it crashed")

        with mock.patch.object(jobs, "start", start):
            group = jobs.Group(4, None, 2)
            some = jobs.measure(Path("."), group, "shm", cells, options, {}, lambda _: None)
            return [(row.record["bytes"], row.group, row.failure) for row in some]

    def test_dealt_ranks_are_those_beyond_the_slots(self):
        hosts = mock.Mock(**{"names.side_effect": lambda count: ["a", "b"][:count]})
        program = jobs.Program(Path("bin"), "algorithm-timing")
        group = jobs.Group(4, hosts, 2)
        words = program.command(group, None)
        self.assertEqual(words[words.index("--host") + 1], "a:2,b:2")
        self.assertNotIn("--oversubscribe", words)
        dealt = jobs.Group(4, hosts, 2, True)
        words = program.command(dealt, None)
        self.assertEqual(words[words.index("--host") + 1], "a:1,b:1")
        self.assertIn("--oversubscribe", words)
        self.assertEqual([group.name, dealt.name], ["2 x 2", "2 x 2 dealt"])

    def test_after_a_failure_the_other_cells_run(self):
        text = lambda size: json.dumps(record("ring", size, choice=[1.0], ring=[1.0]))  # noqa: E731
        rows = self.measure([["noise", text(8)], [text(512)]])
        failed = (64, "2 x 2", "status 1: it crashed")
        self.assertEqual(rows, [(8, "2 x 2", None), failed, (512, "2 x 2", None)])

    def test_two_failures_in_a_row_end_the_job(self):
        failures = [failure for _, _, failure in self.measure([[], []])]
        self.assertEqual(failures, ["status 1: it crashed"] * 2 + ["given up"])


if __name__ == "__main__":
    unittest.main()
