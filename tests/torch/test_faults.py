"""Ranks that end, tensors that are rare, and what groups leave behind."""

import os
import pickle
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from launch import spread, torchrun

PROGRAM = Path(__file__).parent / "faults.py"

#: Where a fault makes a rank wait, it waits for half an hour, the timeout of a group.
SOON = 20


class Faults(unittest.TestCase):
    def run_ranks(self, ranks, name, statuses=None):
        """The lines of each rank of a program, which ends with these statuses."""
        ended = spread(ranks, PROGRAM, name)
        found = [status for status, _, _ in ended]
        self.assertEqual(found, statuses or [0] * ranks, [text for _, text, _ in ended])
        return [text.splitlines() for _, text, _ in ended]

    def all_right(self, ranks, name):
        for lines in self.run_ranks(ranks, name):
            self.assertEqual(lines, ["end"])

    def failed(self, lines, name, words, seconds=SOON):
        """A call has failed with these words, soon, in the words of the group, and once."""
        line = next((line for line in lines if line.startswith(f"{name} ")), None)
        self.assertIsNotNone(line, lines)
        found = re.match(rf"{name} ([\d.]+) DistBackendError (.*)", line)
        self.assertIsNotNone(found, line)
        self.assertLess(float(found[1]), seconds, line)
        self.assertRegex(found[2], words)
        self.assertNotIn("timeout", found[2])
        return found[2]

    # Tensors.

    def test_results_arrive_without_handles(self):
        for ranks in [2, 3]:
            self.all_right(ranks, "dropped")

    def test_leaves_of_any_strides(self):
        self.all_right(2, "grads")

    def test_views_have_their_own_values(self):
        for ranks in [2, 3]:
            self.all_right(ranks, "views")

    def test_splits_on_some_ranks(self):
        for ranks in [2, 3]:
            self.all_right(ranks, "splits")

    def test_an_operation_keeps_nothing(self):
        for lines in self.run_ranks(2, "freed"):
            found = [line for line in lines if line.startswith(("waited", "destroyed"))]
            self.assertEqual(len(found), 6, lines)
            for line in found:
                self.assertTrue(line.endswith(" freed"), line)

    def test_groups_leave_no_descriptors(self):
        for lines in self.run_ranks(2, "descriptors"):
            for line in lines[:2]:
                self.assertEqual(line, "descriptors closed")

    # Ranks that end.

    def test_a_first_message_fails_with_its_rank(self):
        for lines in self.run_ranks(3, "killed", [0, 0, -9])[:2]:
            for name in ["all_reduce", "irecv", "isend", "later", "others"]:
                self.failed(lines, name, "the process of rank 2 is gone")

    def test_a_later_message_fails_with_its_rank(self):
        lines = self.run_ranks(3, "killed_again", [0, 0, -9])[0]
        for name in ["recv", "send"]:
            text = self.failed(lines, name, "the process of rank 2 is gone")
            self.assertNotIn("rank 1", text)

    def test_a_first_message_fails_when_its_rank_has_left(self):
        lines = self.run_ranks(2, "left")[0]
        for name in ["send", "recv"]:
            self.failed(lines, name, "from rank 0 to rank 1 failed: the rank has left the job", 12)

    def test_an_abort_reaches_a_first_message(self):
        first, _, last = self.run_ranks(3, "aborted")
        self.failed(first, "own irecv", "rank 0 aborted its process group", 5)
        self.failed(last, "irecv", "rank 0 aborted its process group")

    def test_a_destroyed_group_ends_a_first_message(self):
        lines = self.run_ranks(2, "destroyed")[0]
        self.failed(lines, "irecv", "the communicator left before the message came", 5)

    def test_receives_choose_messages(self):
        self.all_right(3, "matched")

    def test_an_abort_keeps_its_words_in_messages(self):
        lines = self.run_ranks(3, "aborted_pair")[2]
        text = self.failed(lines, "recv", "rank 1 gave up: rank 1 aborted its process group")
        self.assertIn("recv [12 bytes from rank 1, tag 0] on rank 2", text)
        self.assertIn(
            "attributes 2 (1,) recv [12 bytes from rank 1, tag 0] "
            "rank 1 gave up: rank 1 aborted its process group",
            lines,
        )

    def test_a_callback_of_a_message_may_wait_for_an_abort(self):
        self.assertEqual(self.run_ranks(2, "callbacks")[0], ["callback ended"])

    def test_threads_have_timeouts_of_their_own(self):
        self.assertEqual(self.run_ranks(2, "own_times")[0], ["both are done", "end"])

    def test_an_operation_has_a_timeout_of_its_own(self):
        line = self.run_ranks(2, "own_time")[0][0]
        found = re.match(r"allreduce ([\d.]+) DistBackendError Timed out waiting: ", line)
        self.assertIsNotNone(found, line)
        self.assertLess(float(found[1]), 10, line)

    def test_a_rank_that_ended_is_no_timeout(self):
        lines = self.run_ranks(2, "ended")[0]
        self.failed(lines, "all_reduce", "rank 1 has left the job")

    # Groups.

    def test_a_split_follows_one_that_was_interrupted(self):
        for lines in self.run_ranks(2, "split_again"):
            found = [line for line in lines if line.startswith(("split", "wrong", "end"))]
            self.assertRegex(found[0], r"^split [\d.]+ \w+Error ")
            self.assertEqual(found[1:], ["end"])

    def test_groups_share_a_connection_to_the_store(self):
        for lines in self.run_ranks(2, "connections"):
            self.assertEqual(lines, ["connections 0", "end"])

    def test_a_group_outlives_the_host_of_the_store(self):
        lines = self.run_ranks(4, "host_ends")
        for rank in [2, 3]:
            self.assertIn("reduced 2.0", lines[rank])

    def test_a_store_without_its_host_fails_at_once(self):
        for lines in self.run_ranks(3, "host_ended")[1:]:
            line = next(line for line in lines if line.startswith("new_group "))
            self.assertNotIn("did not fail", line)
            self.assertLess(float(line.split()[1]), SOON, line)

    def test_a_group_loses_its_first_rank(self):
        dead, *alive = self.run_ranks(4, "reconfigured", [-9, 0, 0, 0])
        for first, lines in enumerate([dead, *alive]):
            self.failed(lines, "before", "no ranks yet, so it cannot do all_reduce: call reconfigure")
            self.assertEqual(lines[1], f"rank {3 - first} of 4")
            for line, pattern in zip(lines[2:8], [
                r"stale [\d.]+ ValueError the handle of this rank is not among those",
                r"nonsense [\d.]+ ValueError 'nonsense' is not a handle of ringfold",
                r"twice [\d.]+ ValueError a group needs a handle for each rank, each once",
                r"without [\d.]+ ValueError ",
                r"reused [\d.]+ RuntimeError the uuid 7 was already used",
                "sum 6.0",
            ], strict=True):
                self.assertRegex(line, pattern)
        for first, lines in enumerate(alive, 1):
            self.failed(lines, "killed", "the process of rank 3 is gone")
            self.assertEqual(lines[9:12], [
                f"rank {3 - first} of 3", "ranks [3, 2, 1]", "gradient [[2.0, 2.0]]",
            ])

    def test_half_of_the_ranks_go_on_by_the_vote_of_torchruns_store(self):
        lines = torchrun(4, PROGRAM, "halved").splitlines()
        for line in ["reduced 2.0", "end"]:
            self.assertEqual(lines.count(line), 2, lines)
        out = [line for line in lines if line.startswith("shrink ")]
        self.assertEqual(len(out), 2, lines)
        for line in out:
            self.assertIn("the other ranks have formed a group without this one", line)

    def test_the_flight_recorder_names_a_rank_that_hangs(self):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["FLIGHTS"] = folder
            self.run_ranks(3, "flights")
            files = [pickle.loads((Path(folder) / f"rank_{rank}").read_bytes()) for rank in range(3)]
            module = "torch.distributed.flight_recorder.fr_trace"
            command = [sys.executable, "-m", module, folder]
            ended = subprocess.run(command, capture_output=True, text=True, check=True)
        text = ended.stdout + ended.stderr
        self.assertIn("Not all ranks joining collective, sequence number: 4", text)
        self.assertIn("missing ranks: {1}", text)
        for rank, file in enumerate(files):
            entries = file["entries"]
            states = [entry["state"] for entry in entries]
            self.assertEqual(states, ["completed"] * 3 + ["started"] * (rank != 1))
            for entry in entries[:3]:
                begin, end = (
                    entry[f"time_discovered_{name}_ns"] for name in ["started", "completed"]
                )
                self.assertLessEqual(entry["time_created_ns"], begin)
                self.assertLess(begin, end)
                self.assertAlmostEqual(entry["duration_ms"], (end - begin) / 1e6)
            (status,) = file["pg_status"].values()
            self.assertEqual(status["last_completed_collective"], 3)
            self.assertEqual(status["last_started_collective"], 3 + (rank != 1))

    def test_events_of_the_profiler(self):
        first, second = self.run_ranks(2, "profiled")
        common = [
            "event ringfold:all_reduce [[3, 2]]",
            "event ringfold:all_reduce [[3, 2]]",
            "event ringfold:all_gather [[1, 3]]",
            "event ringfold:broadcast [[4]]",
            "event ringfold:barrier []",
        ]
        for lines, message in [(first, "send"), (second, "recv")]:
            found = [line for line in lines if line.startswith("event")]
            self.assertEqual(found, [*common, f"event ringfold:{message} [[5]]"])


if __name__ == "__main__":
    unittest.main()
