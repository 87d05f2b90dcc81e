"""The command line of all scenarios."""

import contextlib
import io
import os
import shutil
import tempfile
import unittest
from unittest import mock

import command


class CommandLine(unittest.TestCase):
    """Wrong words are refused before anything runs, and a lack is named."""

    def main(self, line, **variables):
        """The exit status, and what was printed."""
        with (
            contextlib.redirect_stderr(io.StringIO()) as said,
            mock.patch.dict(os.environ, variables),
            mock.patch.object(os, "geteuid", lambda: 1),
        ):
            try:
                status = command.main(line.split())
            except SystemExit as ended:
                status = ended.code
        return status, said.getvalue()

    def test_wrong_values_are_refused_with_the_flag_and_the_value(self):
        for line, flag, value in (
            ("peers --types f31", "--types", "f31"),
            ("peers --transport ib", "--transport", "ib"),
            ("peers --ranks 1", "--ranks", "1"),
            ("peers --sizes 8,x", "--sizes", "8,x"),
            ("peers --shape 5", "--shape", "5"),
            ("rails --rounds 0", "--rounds", "0"),
            ("regret --place 1gbit,far", "--place", "far"),
            ("regret --seconds nan", "--seconds", "nan"),
            ("rdma --what sum", "--what", "sum"),
            ("join a b --hosts 3", "--hosts", "3"),
        ):
            status, said = self.main(line)
            last = said.splitlines()[-1]
            self.assertEqual((status, flag in last, value in last), (2, True, True), said)

    def test_a_lack_of_the_machine_skips_unless_it_is_required(self):
        line = f"join {self.programs()} {self.programs()} --hosts 2"
        status, said = self.main(line)
        self.assertEqual((status, said[:15]), (0, "SKIPPED: join ("))
        self.assertEqual(self.main(line, RINGFOLD_TEST_REQUIRE="x,join")[0], 1)

    def programs(self):
        """A folder with the programs of a build."""
        folder = tempfile.mkdtemp()
        for name in ("ringrun", "allreduce-perf"):
            open(f"{folder}/{name}", "w", encoding="utf-8").close()
        self.addCleanup(shutil.rmtree, folder)
        return folder

    def test_missing_programs_are_a_failure(self):
        self.assertEqual(self.main("join /gone /gone")[0], 1)
