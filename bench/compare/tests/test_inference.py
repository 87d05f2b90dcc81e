"""The inference scenario without torch and ranks."""

import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

import command
from scenarios import inference

COUNT = "ringfold_call_duration_seconds_count"
METRICS = "\n".join([
    f'{COUNT}{{job_id="aa",job_name="unique id",rank="0",collective="allreduce",size="4KiB",algorithm="tree"}} 3',
    f'{COUNT}{{job_id="aa",job_name="unique id",rank="0",collective="allreduce",size="64KiB",algorithm="ring"}} 4',
    f'{COUNT}{{job_id="aa",job_name="unique id",rank="0",collective="barrier",size="256B",algorithm="x"}} 9',
    f'{COUNT}{{job_id="aa",job_name="unique id",rank="1",collective="allreduce",size="4KiB",algorithm="tree"}} 7',
    f'{COUNT}{{job_id="bb",job_name="other",rank="0",collective="allreduce",size="4KiB",algorithm="tree"}} 1',
    "# EOF",
])  # fmt: skip


def answer(tokens, ahead):
    """Returns what rank 0 answers to `tokens`."""
    return {"tokens": tokens, "ahead": ahead}


class Inference(unittest.TestCase):
    """Tests of reading, of the comparison, and of the page."""

    def test_the_counters_of_a_rank_are_added_up_by_job(self):
        self.assertEqual(inference.counted(METRICS), [{"0": 7, "1": 7}, {"0": 1}])
        self.assertEqual(inference.counted("# EOF"), [])

    def test_another_job_is_no_excuse_for_a_missing_count(self):
        job = inference.Job(None, None, "ringfold", 2, None)
        with tempfile.TemporaryDirectory() as folder:
            job.folder = Path(folder)
            (job.folder / "metrics").write_text(METRICS, encoding="utf-8")
            with mock.patch.object(inference, "METRICS_SECONDS", 0):
                self.assertIsNone(job.counters_lack(1, 7))
                self.assertIn("2 jobs make 7", job.counters_lack(2, 7))
                self.assertIn("1 jobs make 8", job.counters_lack(1, 8))

    def test_only_the_first_other_token_of_a_text_counts(self):
        gloo = answer([[1, 2, 3], [4, 5, 6]], [[1.0, 1e-5, 1.0], [1.0, 1.0, 1.0]])
        same = answer([[1, 2, 3], [4, 5, 6]], [[1.0, 1e-5, 1.0], [1.0, 1.0, 1.0]])
        other = answer([[1, 9, 9], [4, 5, 6]], [[1.0, 2e-5, 5.0], [1.0, 1.0, 1.0]])
        self.assertEqual(list(inference.differences(gloo, same)), [])
        self.assertEqual(list(inference.differences(gloo, other)), [(0, 1, 2e-5)])

    def test_other_tokens_are_wrong_where_a_logit_was_ahead(self):
        gloo = answer([[1, 2]] * 8, [[1.0, 1.0]] * 8)
        for ahead, wrong in ((9e-5, 0), (2e-4, 1)):
            near = answer([[1, 2]] * 7 + [[1, 9]], [[1.0, 1.0]] * 7 + [[1.0, ahead]])
            gloo["ahead"][7][1] = ahead
            jobs = {"gloo": mock.Mock(ask=lambda *_: gloo),
                "ringfold": mock.Mock(ask=lambda *_, near=near: near)}  # fmt: skip
            results = inference.Results({})
            args = types.SimpleNamespace(batches=[1, 8])
            self.assertEqual(len(list(inference.compared(args, results, jobs, 2))), wrong)
            self.assertIn("7 of 8 texts are those over Gloo", results.checks[0])

    def test_the_page_has_medians_and_the_ratio_to_gloo(self):
        args = types.SimpleNamespace(tokens=11, hidden=2048)
        results, row = inference.Results({"hosts": 1}), inference.Row(args, 2, 16)
        times = lambda rest: {"first": 0.25, "rest": rest, "reducing": rest / 10}  # noqa: E731
        row.times = {"gloo": [times(4), times(2), times(8)],
            "ringfold-windows": [times(2), times(2), times(2)]}  # fmt: skip
        results.rows.append(row)
        lines = results.markdown().splitlines()
        self.assertIn("| 2 | 16 | 131072 | gloo | 250.0 | 40.0 | 40.00 | 1.00 |", lines)
        self.assertIn("| 2 | 16 | 131072 | ringfold, windows | 250.0 | 80.0 | 20.00 | 2.00 |", lines)

    def test_shapes_that_cannot_be_divided_are_refused(self):
        for line, flag in (
            ("inference --ranks 3", "--ranks 3"),
            ("inference --ranks 2 --hosts 3", "--hosts 3"),
            ("inference --hidden 300", "--hidden 300"),
        ):
            with mock.patch("argparse.ArgumentParser.error", side_effect=SystemExit) as refuse:
                with self.assertRaises(SystemExit):
                    command.arguments(line.split())
                self.assertIn(flag, refuse.call_args[0][0])


if __name__ == "__main__":
    unittest.main()
