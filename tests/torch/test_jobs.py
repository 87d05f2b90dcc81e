"""Real training jobs under torchrun. Losses equal those of Gloo up to the order of summation."""

import importlib.util
import re
import sys
import tempfile
import unittest
from pathlib import Path

from launch import numbers, ringrun, spread, torchrun, under_ringrun

JOBS = Path(__file__).parent / "jobs"

#: The relative difference of losses that the order of summation explains.
TOLERANCE = 2e-4

#: How often ringrun starts a rank again, at most.
RESTARTS = 12


def replaced(case, deaths, *options):
    """A job of four ranks loses some, and ringrun replaces them. Its loss is that without deaths."""
    if ringrun() is None:
        case.skipTest("ringrun is not built")

    def end(deaths):
        text = under_ringrun(
            4, JOBS / "survive.py", "--replace", 60, "--deaths", deaths, *options,
            options=[f"--restart={RESTARTS}"],
        )
        processes = {}
        for process, step in re.findall(r"process (\d+) goes on at step (\d+) as rank . of 4", text):
            processes.setdefault(int(step), set()).add(process)
        (loss,) = numbers(text)
        return loss, processes

    expected, _ = end("")
    loss, processes = end(",".join(f"{step}:{rank}" for step, rank in deaths))
    case.assertEqual(list(processes), [0, *(step for step, _ in deaths)])
    groups = list(processes.values())
    for before, after in zip(groups, groups[1:]):
        # All but one process live on.
        case.assertEqual([len(after), len(before & after)], [4, 3], groups)
    case.assertLessEqual(abs(loss - expected), TOLERANCE * expected, (loss, expected))


class Jobs(unittest.TestCase):
    def losses(self, job, ranks, backend, **how):
        with tempfile.TemporaryDirectory() as folder:
            text = torchrun(
                ranks, JOBS / f"{job}.py", "--backend", backend, "--folder", folder, **how
            )
        return numbers(text)

    def same_as_gloo(self, job, ranks):
        expected = self.losses(job, ranks, "gloo")
        self.assertGreater(len(expected), 4)
        names = [("ringfold", False), ("cpu:ringfold", False), ("gloo", True)]
        for backend, take_over in names if ranks == 2 else names[:1]:
            found = self.losses(job, ranks, backend, take_over=take_over)
            self.assertEqual(len(found), len(expected))
            for one, other in zip(found, expected):
                self.assertLessEqual(abs(one - other), TOLERANCE * abs(other), (found, expected))

    def test_ddp_of_digits(self):
        for ranks in [1, 2, 4]:
            self.same_as_gloo("digits", ranks)

    def test_ddp_goes_on_without_the_dead(self):
        def end(deaths, dead):
            ended = spread(4, JOBS / "survive.py", "--deaths", deaths)
            statuses = [-9 if rank in dead else 0 for rank in range(4)]
            texts = [text for _, text, _ in ended]
            self.assertEqual([status for status, _, _ in ended], statuses, texts)
            (loss,) = [loss for text in texts for loss in numbers(text)]
            lasting = [re.findall(r"process (\d+) goes on", text) for text in texts]
            return loss, [lines for rank, lines in enumerate(lasting) if rank not in dead]

        expected, _ = end("", [])
        # Rank 0 had the store by which the ranks met. Rank 1 of the last two was rank 2.
        loss, (one,) = end("20:3,40:0,60:1", [0, 2, 3])
        self.assertEqual([len(one), len(set(one))], [3, 1], one)
        self.assertLessEqual(abs(loss - expected), TOLERANCE * expected, (loss, expected))

    def test_ddp_goes_on_with_new_processes(self):
        replaced(self, [(20, 3), (40, 0), (60, 2)])

    def test_ddp_of_a_transformer(self):
        for ranks in [1, 2, 4]:
            self.same_as_gloo("transformer", ranks)

    def test_fsdp_and_checkpoints(self):
        for ranks in [2, 4]:
            self.same_as_gloo("sharded", ranks)

    def test_forked_workers_load_data(self):
        self.same_as_gloo("loader", 2)

    def test_frameworks_that_refuse_the_name(self):
        for way, package in [("accelerate", "accelerate"), ("trainer", "transformers")]:
            if importlib.util.find_spec(package) is None:
                print(f"SKIPPED {package}: it is missing", file=sys.stderr)
                continue
            program, expected = JOBS / "accelerated.py", None
            for arguments, take_over, name in [
                ([], False, "gloo"),
                (["--make-group", "ringfold"], False, "ringfold"),
                ([], True, "ringfold"),
            ]:
                text = torchrun(2, program, way, *arguments, take_over=take_over)
                self.assertIn(f"performed by {name}", text)
                losses = numbers(text)
                self.assertGreater(len(losses), 4)
                expected = expected or losses
                for one, other in zip(losses, expected, strict=True):
                    self.assertLessEqual(abs(one - other), 1e-2 * abs(other), (losses, expected))

    def test_a_killed_rank_comes_back(self):
        with tempfile.TemporaryDirectory() as folder:
            text = torchrun(
                2, JOBS / "restart.py", "--folder", folder, options=["--max-restarts=1"]
            )
        self.assertIn("attempt 1 begins at step 4", text)
        self.assertEqual(numbers(text, "sum"), [45.0])


if __name__ == "__main__":
    unittest.main()
