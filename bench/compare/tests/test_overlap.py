"""Overlap of calls and computations, without MPIs and namespaces."""

import argparse
import tempfile
import unittest
from pathlib import Path

import libraries
import measure
import network
import page
from libraries import Library
from scenarios import overlap

ARGS = argparse.Namespace(patience=1.0, ranks=2)
# Of allreduce-perf --overlap.
LINE = ("      262144         65536     float     sum      -1   212.3    1.23    1.23       0"
    "   211.9    1.24    1.24     {wrong}   2.1e+3   2.16e+3     97.1")  # fmt: skip


def job(place="1gbit", size=256 << 10):
    """Returns a job of one size."""
    return overlap.job(ARGS, place, None, "all_reduce", size)


NAMES = {"a": "a: x", "b": "b: y"}


def row(size=256 << 10, place="1gbit", **times):
    """Returns a row with pairs of times by library."""
    series = measure.Series(job(place, size), 1.0)
    for half, cell in enumerate(series.cells.values()):
        for name, pairs in times.items():
            for number, pair in enumerate(pairs):
                cell.add(NAMES.get(name, name), number, pair[half])
    return overlap.Row(series)


COMPARED = [Library("ringfold", "ringfold", "ours", ""), Library("a: x", "A", "peer", ""),
    Library("b: y", "B", "peer", "")]  # fmt: skip


class Overlap(unittest.TestCase):
    """Tests of reading, of the figures, and of what is wanted."""

    def results(self, one):
        made = overlap.Results({"taken": "today", "ringfold": "ringfold 1"})
        made.add("all-reduce", [one], COMPARED)
        return made

    def test_the_hidden_share_is_that_of_osu(self):
        for computing, share in ((90, 100), (100, 100), (125, 75), (200, 0), (250, 0)):
            self.assertEqual(overlap.hidden(100, computing), share)

    def test_both_programs_print_the_same_figures(self):
        at, used = ("alone", 256 << 10), 256 << 10
        ringfold = overlap.Ringfold(Path("x"), "thread")
        found = dict(ringfold.read(LINE.format(wrong=0), job()))
        self.assertEqual(found[at], (used, 2100.0, 0))
        self.assertEqual(found[("computing", used)], (used, 2160.0, 0))
        wrong = dict(ringfold.read(LINE.format(wrong=7), job()))
        self.assertEqual(wrong[at], (used, 2100.0, 7))
        setting = libraries.Setting("plain")
        mpi = overlap.Mpi(Library("mpi", "MPI 1", "peer", ""), "", setting)
        self.assertEqual(dict(mpi.read("overlap 262144 2100.00 2160.00 0", job())), found)
        for other in ("# comment", "", "overlapping"):
            self.assertEqual(list(ringfold.read(other, job())) + list(mpi.read(other, job())), [])

    def test_ratios_are_to_the_fastest_mpi_with_the_computation(self):
        one = row(ringfold=[(10, 11)] * 3, a=[(8, 16)] * 3, b=[(12, 12), (12, 13), (12, 14)])
        self.assertEqual(one.best(None, COMPARED), "b: y")
        self.assertEqual(one.best("A", COMPARED), "a: x")
        self.assertAlmostEqual(one.ratio("ringfold", COMPARED), 11 / 13)
        self.assertEqual(one.columns("gone"), ["-", "-", "-"])

    def test_lacks_are_named_only_at_a_rate_and_for_long_calls(self):
        slow = {"ringfold": [(10, 15)], "a": [(10, 14)]}
        lacks = list(self.results(row(**slow)).lacks())
        self.assertEqual([lack.split(": ")[1] for lack in lacks],
            ["50.0 % hidden, 80 wanted", "1.071 times as long as the fastest MPI"])  # fmt: skip
        self.assertEqual(len(list(self.results(row(size=64 << 10, **slow)).lacks())), 1)
        self.assertEqual(list(self.results(row(place="tcp", **slow)).lacks()), [])
        nothing = list(self.results(row(ringfold=[])).lacks())
        self.assertEqual(len(nothing), 1)

    def test_more_hosts_have_no_settings_that_differ_in_nothing(self):
        launcher = Library("mpich", "MPICH", "peer", "")
        launcher.progress = "ASYNC"
        launcher.settings = lambda _: [libraries.Setting(name) for name in ("ofi", "ofi, yield")]
        found = overlap.settings(launcher, job())
        self.assertEqual([it.name for it in found], ["ofi", "ofi, thread"])
        self.assertEqual([it.variables for it in found], [{}, {"ASYNC": "1"}])

    def test_the_page_is_listed_beside_the_machines(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "benchmarks"
            (folder.parent / "SUMMARY.md").write_text("- [B](benchmarks/README.md)\n")
            made = self.results(row(ringfold=[(10, 11)], a=[(8, 16)]))
            made.title = "Machine 1"
            written = page.write(made, folder, "overlap.md")
            self.assertEqual(written, folder / "machine-1" / "overlap.md")
            self.assertIn("| 256 Ki | 50 | 10 | 11 | 90 % | x | 8 | 16 | 0 % | - |", written.read_text())
            self.assertIn("[Machine 1: overlap](machine-1/overlap.md)", (folder / "README.md").read_text())
            self.assertIn("(benchmarks/machine-1/overlap.md)", (folder.parent / "SUMMARY.md").read_text())


class Rates(unittest.TestCase):
    """A place is a transport or a rate."""

    def test_calls_and_rates_follow_from_size_and_place(self):
        self.assertEqual([job(size=size).cells[0][1] for size in (64 << 10, 1 << 20, 16 << 20)],
            [50, 16, 4])  # fmt: skip
        self.assertEqual(job().line_rate, network.bytes_per_second("1gbit") / 1e9)
        self.assertIsNone(job("shm").line_rate)
