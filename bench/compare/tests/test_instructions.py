"""Instructions of a call, without valgrind."""

import platform
import subprocess
import sys
import unittest

from scenarios import instructions

DUMP = """# callgrind format
creator: callgrind-3.19.0
part: {part}
thread: 1
desc: Trigger: {trigger}

events: Ir
summary: 1
fn=(1) a::Timer::measure
7 30
totals: 30943
"""
BEGINNING = "a::Timer::time_batch"


class Dumps(unittest.TestCase):
    """The files that callgrind writes."""

    def read(self, part, trigger):
        return instructions.counts_of_blocks([DUMP.format(part=part, trigger=trigger)], BEGINNING)

    def test_a_block_ends_where_the_next_one_begins(self):
        self.assertEqual(self.read(3, f"--dump-before={BEGINNING}"), [30943])

    def test_the_start_the_warm_up_and_the_end_do_not_count(self):
        for part in (1, 2):
            self.assertEqual(self.read(part, f"--dump-before={BEGINNING}"), [])
        self.assertEqual(self.read(9, "Program termination"), [])


class Blocks(unittest.TestCase):
    """The blocks without a wait."""

    def test_the_least_count_counts_if_three_blocks_have_it(self):
        self.assertEqual(instructions.without_waits([9000, 5000, 5000, 70000, 5020]), 5000)

    def test_fewer_are_not_enough(self):
        self.assertIsNone(instructions.without_waits([5000, 5000, 5100, 9000]))
        self.assertIsNone(instructions.without_waits([]))

    def test_the_overhead_of_a_block_cancels_out(self):
        self.assertEqual(instructions.between((50, 100), (5700, 10700)), 100)


@unittest.skipUnless(platform.machine() == "x86_64", "numbers of x86-64")
class Hidden(unittest.TestCase):
    """A program does not find the vDSO."""

    ASK = "import ctypes; b = ctypes.create_string_buffer(4096); " \
        f"print(ctypes.CDLL(None).prctl({instructions.PR_GET_AUXV}, b, 4096, 0, 0))"

    def ask(self, **how):
        words = [sys.executable, "-c", self.ASK]
        return int(subprocess.run(words, capture_output=True, text=True, check=True, **how).stdout)

    def test_it_cannot_ask_for_the_auxiliary_vector(self):
        if self.ask() < 0:
            self.skipTest("this kernel has no PR_GET_AUXV")
        self.assertEqual(self.ask(preexec_fn=instructions.hide_vdso), -1)
