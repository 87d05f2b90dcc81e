"""The parts of all scenarios, and peers, without peers and network."""

import contextlib
import dataclasses
import io
import json
import os
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path

import builds
import command
import figures
import gate
import install
import libraries
import machine
import measure
import network
import page
import processes
import peers
import report
import sizes
import svg
from scenarios import peers as scenario


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
        self.assertAlmostEqual(figures.bus_bandwidth("all_to_all_v", 4, 1000, 1.0), 0.75)
        self.assertAlmostEqual(figures.bus_bandwidth("send_recv", 4, 1000, 1.0), 1.0)


class Gate(unittest.TestCase):
    """Tests of the rule for a slower build."""

    def test_five_percent_are_allowed(self):
        self.assertFalse(gate.Run(100, 104.9, 100).is_slower())
        self.assertTrue(gate.Run(100, 105.1, 100).is_slower())
        self.assertFalse(gate.Run(100, 105.1, 100).is_slower(allowed=0.06))

    def test_the_difference_of_a_and_a_is_allowed_beside_it(self):
        for again in (93, 107):
            self.assertFalse(gate.Run(100, 111.9, again).is_slower())
            self.assertTrue(gate.Run(100, 112.1, again).is_slower())

    def test_noise_is_a_difference_above_what_is_allowed(self):
        self.assertTrue(gate.Run(100, 100, 94).is_noisy)
        self.assertFalse(gate.Run(100, 100, 104).is_noisy)

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


class Printer(libraries.Library):
    """A build that prints its times. `by_start` are the microseconds that each start prints for 8
    bytes, the last one for ever; `long` are those of 1024 bytes."""

    def __init__(self, folder, by_start, long):
        super().__init__("", "", "ours", folder)
        self.by_start, self.long, self.jobs = list(by_start), long, []

    def command(self, job, setting):
        self.jobs.append(job)
        time = self.by_start[min(len(self.jobs), len(self.by_start)) - 1]
        times = {8: time, 1024: self.long}
        lines = [f"cell out {size} {size} 1 1 {times[size]} 0" for size, _ in job.cells if time]
        return ["echo", "\n".join(lines)]


class Builds(unittest.TestCase):
    """Two builds in turn, played by programs that print times."""

    ROUNDS = 3

    def compare(self, before, after, long_after=1000):
        """The comparison, the exit status, and the libraries that played A, B and A'."""
        made = {"a": (before, 1000), "b": (after, long_after)}
        three = builds.three(lambda folder: Printer(folder, *made[folder]), "a", "b")
        comparison = builds.Comparison({}, self.ROUNDS, 9.0, 10)
        job = libraries.Job("all_reduce", 2, "out", ((8, 1), (1024, 1)), 1, 1, 2)
        self.said = io.StringIO()
        with (
            tempfile.TemporaryDirectory() as folder,
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(self.said),
        ):
            status = comparison.all([("shm", three, job)], Path(folder))
            self.json = json.loads((Path(folder) / "builds.json").read_text(encoding="utf-8"))
        return comparison, status, three

    def test_the_same_build_passes_in_one_run(self):
        comparison, status, three = self.compare([10], [10])
        self.assertEqual(status, 0)
        self.assertEqual([len(cell.runs) for cell in comparison.cells], [1, 1])
        self.assertEqual([len(library.jobs) for library in three], [4, 3, 3])
        self.assertTrue(self.json["passes"])

    def test_a_slow_build_fails_after_three_runs_of_the_slow_cell(self):
        comparison, status, three = self.compare([10], [12], long_after=500)
        self.assertFalse(comparison.mean().is_slower)
        self.assertEqual(status, 1)
        self.assertEqual([len(cell.runs) for cell in comparison.cells], [3, 1])
        self.assertEqual([cell["fails"] for cell in self.json["cells"]], [True, False])
        repeated = three[1].jobs[self.ROUNDS :]
        self.assertEqual([[size for size, _ in job.cells] for job in repeated], [[8]] * 6)

    def test_a_cell_that_is_slow_once_passes(self):
        slow_once = [12] * self.ROUNDS + [10]
        comparison, _, _ = self.compare([10], slow_once)
        self.assertEqual([len(cell.runs) for cell in comparison.cells], [2, 1])
        self.assertFalse(comparison.cells[0].fails)

    def test_a_cell_without_times_fails(self):
        comparison, status, _ = self.compare([10], [0])
        self.assertEqual(status, 1)
        self.assertTrue(all(cell.fails for cell in comparison.cells))
        self.assertIn("FAILED: after: ", comparison.markdown())

    def test_a_mean_that_is_slower_fails_though_no_cell_does(self):
        comparison, status, _ = self.compare([10], [10.4])
        self.assertFalse(any(cell.fails for cell in comparison.cells))
        self.assertEqual(status, 1)

    def test_calls_fill_the_time(self):
        _, _, three = self.compare([10], [10])
        # A second for each build and round, in five batches: of 10 us, and of 1000.
        self.assertEqual(three[0].jobs[1].cells, ((8, 20_000), (1024, 200)))
        self.assertEqual(three[0].jobs[1].cells, three[1].jobs[0].cells)

    def test_the_time_is_foretold(self):
        self.compare([10], [10])
        self.assertEqual(self.said.getvalue().split(",")[0], "2 cells: about 1 min")


class Sizes(unittest.TestCase):
    """Tests of sizes on the command line and in tables."""

    def test_sizes_are_read_and_shown(self):
        self.assertEqual([sizes.parse(text) for text in ("8", "4K", "1m")], [8, 4096, 1 << 20])
        self.assertEqual([sizes.show(size) for size in (8, 4096, 1 << 20)], ["8", "4 Ki", "1 Mi"])
        self.assertEqual(sizes.ALL[-1], 128 << 20)

    def test_calls_have_bounds(self):
        self.assertEqual(sizes.calls(8, 500), 500)
        self.assertEqual(sizes.calls(1 << 30, 500), 1)


class Networks(unittest.TestCase):
    """Rates of links."""

    def test_a_burst_is_half_a_millisecond_and_at_least_two_packets(self):
        self.assertEqual(network.burst("1gbit"), 62_500)
        self.assertEqual(network.burst("100000000bit"), 6_250)
        self.assertEqual(network.burst("1mbit"), 3_028)

    def test_no_packet_is_longer_than_a_burst(self):
        for rate in ("1mbit", "100mbit", "1gbit", "40gbit"):
            bytes_of_packet = network.most_at_once(rate)
            headers = 66 * -(-bytes_of_packet // 1448)
            self.assertLessEqual(bytes_of_packet + headers, network.burst(rate))
            self.assertGreaterEqual(bytes_of_packet, 1514)


class Plots(unittest.TestCase):
    """The picture is well-formed and has a line per library."""

    def test_a_plot(self):
        line = svg.Line("a & b", [(8, 1.0), (1024, 30.0)])
        text = svg.document("title", [[svg.Panel("time", "us", [line, svg.Line("empty", [])])]])
        tree = xml.fromstring(text)
        paths = [node for node in tree.iter() if node.tag.endswith("polyline")]
        self.assertEqual(len(paths), 1)
        self.assertIn("a &amp; b", text)

    def test_panels_of_a_row_share_their_axes(self):
        panels = [svg.Panel("", "us", [svg.Line("a", [(8, time)])]) for time in (2.0, 700.0)]
        tree = xml.fromstring(svg.document("title", [panels]))
        shown = [node.text for node in tree.iter() if node.tag.endswith("text")]
        self.assertEqual([shown.count(mark) for mark in ("1", "1000")], [2, 2])

    def test_a_long_legend_has_more_lines(self):
        lines = [svg.Line(f"library {number}", [(8, 1.0)]) for number in range(9)]
        _, low = svg._legend(lines, 0, 500)
        self.assertEqual(low, 3 * svg.LEGEND_LINE)


class Played(libraries.Library):
    """A library that measures nothing, with a time for each size."""

    def __init__(self, name, role, times, types=("f32",)):
        super().__init__(name, name, role, None)
        self.times, self.types = times, types


def series(job, played):
    """Returns a series in which each library has its times."""
    made = measure.Series(job, 1)
    for cell in made.cells.values():
        for library in played:
            cell.add(library.name, 0, library.times[cell.size])
            cell.used[library.name] = cell.size
            made.settings[library.name] = libraries.Setting("default")
    return made


class Reports(unittest.TestCase):
    """A report of two types."""

    def make(self):
        ours = Played("ours", "ours", {8: 1.0, 1024: 3.0}, ("f32", "bf16"))
        theirs = Played("theirs", "peer", {8: 2.0, 1024: 2.0})
        job = libraries.Job("all_reduce", 2, "out", ((8, 1), (1024, 1)), 1, 1, 2)
        jobs = [job, dataclasses.replace(job, data_type="bf16")]
        about = {"taken": "today", "ringfold": "ringfold 1"}
        all_series = [series(job, [ours, theirs]) for job in jobs]
        return report.Report(about, [ours, theirs], all_series, "Machine 1, 2 cores")

    def test_types_are_beside_each_other_in_plots(self):
        made = self.make()
        self.assertEqual(len(made.groups), 1)
        tree = xml.fromstring(made.plot(made.all_series))
        paths = [node for node in tree.iter() if node.tag.endswith("polyline")]
        # For each type two lines of times, two of bandwidths, and the ratio with its line at 1.0.
        self.assertEqual(len(paths), 12)
        shown = [node.text for node in tree.iter() if node.tag.endswith("text")]
        for data_type in ("f32", "bf16"):
            self.assertIn(f"{data_type}: time over the best peer's (ratio)", shown)

    def test_types_are_beside_each_other_in_ratios(self):
        text = self.make().markdown()
        row = "| shm | all-reduce | 2 | 0.87 | 1.50 | 1 Ki, apart | 0.87 | 1.50 | 1 Ki, apart |"
        self.assertIn(row, text)

    def test_slower_cells_are_listed(self):
        text = self.make().markdown()
        self.assertIn("Cells with a ratio above 1.11: 2 of 4.", text)
        row = "| shm | all-reduce | 2 | f32 | 1 Ki | apart | 3 | 2 | theirs | 1.50 |"
        self.assertEqual(text.count(row), 1)

    def test_tables_name_the_type_that_stands_in(self):
        text = self.make().markdown()
        self.assertIn("| bytes | place | ours | theirs | ratio |", text)
        self.assertIn("| bytes | place | ours | theirs (f32) | ratio |", text)
        stand_ins = [one["stand_ins"] for one in json.loads(self.make().json())["series"]]
        self.assertEqual(stand_ins, [{}, {"theirs": "f32"}])

    def test_a_page_replaces_that_of_the_run_before(self):
        with tempfile.TemporaryDirectory() as name:
            docs = Path(name)
            folder, book = docs / "benchmarks", docs / "SUMMARY.md"
            book.write_text("- [Benchmarks](benchmarks/README.md)\n- [Last](last.md)\n")
            (folder / "machine-1-2-cores").mkdir(parents=True)
            (folder / "machine-1-2-cores" / "gone.svg").write_text("")
            for _ in range(2):
                path = page.write(self.make(), folder)
            self.assertEqual(path, folder / "machine-1-2-cores" / "README.md")
            names = sorted(file.name for file in path.parent.iterdir())
            self.assertEqual(names, ["README.md", "peers.json", "shm-all_reduce-2.svg"])
            listed = "[Machine 1, 2 cores](machine-1-2-cores/README.md),\n  taken today with ringfold 1"
            self.assertEqual((folder / "README.md").read_text().count(listed), 1)
            self.assertEqual(
                book.read_text(),
                "- [Benchmarks](benchmarks/README.md)\n"
                "  - [Machine 1, 2 cores](benchmarks/machine-1-2-cores/README.md)\n"
                "- [Last](last.md)\n",
            )


class Types(unittest.TestCase):
    """Each library times the job's type, or f32 of the same bytes."""

    JOB = libraries.Job("all_reduce", 2, "out", ((8, 1),), 1.0, 1, 2, data_type="bf16")

    def test_the_type_is_a_flag(self):
        own = Played("own", "peer", {}, ("f32", "bf16"))
        self.assertEqual(own.words(self.JOB)[:3], ["--type", "bf16", "all_reduce"])

    def test_f32_stands_in_and_takes_no_flag(self):
        other = Played("other", "peer", {})
        self.assertEqual(other.words(self.JOB)[0], "all_reduce")
        self.assertEqual(other.shown(self.JOB), "other (f32)")

    def test_the_limit_of_one_host_is_that_of_few_operations(self):
        limit = peers.Limit("limit")
        self.assertTrue(limit.runs(self.JOB))
        self.assertFalse(limit.runs(dataclasses.replace(self.JOB, collective="send_recv")))

    def test_settings_of_another_type_are_taken(self):
        library = Printer("x", [10], 1000)
        library.settings = lambda _: self.fail("a trial")
        made = measure.Series(self.JOB, 10)
        made.measure([library], 1, {library.name: libraries.Setting("known")})
        self.assertEqual(made.settings[library.name].name, "known")


class CommandLine(unittest.TestCase):
    """Presets give what the command line does not."""

    def test_a_page_has_its_own_defaults(self):
        args = command.arguments(["peers", "--page", "x"])
        self.assertEqual(args.types, ["f32", "bf16"])
        self.assertEqual(args.ranks, {"shm": [2, 4], "tcp": [2]})
        args = command.arguments(["peers", "--page", "x", "--ranks", "3", "--sizes", "8,1K"])
        self.assertEqual(args.ranks, {"shm": [3], "tcp": [3]})
        self.assertEqual(args.sizes, [8, 1024])

    def test_other_runs_have_one_transport_and_type(self):
        args = command.arguments(["peers", "--quick"])
        self.assertEqual((args.transports, args.types, args.rounds), (["shm"], ["f32"], 3))
        self.assertEqual(command.arguments(["peers"]).seconds, 2.0)
        self.assertEqual(command.arguments(["peers", "--builds", "a", "b"]).transports, ["shm", "tcp"])

    def test_all_operations_are_timed_in_the_places_that_they_have(self):
        args = command.arguments(["peers", "--quick", "--place", "out,in"])
        places = {name: scenario.job(args, name, 2, None, "f32").places for name in args.collectives}
        self.assertEqual(places["send_recv"], "out")
        self.assertEqual(places["broadcast"], "in")
        self.assertEqual(places["all_to_all_v"], "out,in")
        timed = (install.PROGRAMS / "timing.c").read_text(encoding="utf-8")
        self.assertEqual([name for name in places if f'"{name}"' not in timed], [])


class Machine(unittest.TestCase):
    """The description of the machine."""

    def test_processor_and_memory(self):
        self.assertEqual(machine.processor("x : y\nmodel name\t: Ab(R) C(TM) 1\n"), "Ab C 1")
        self.assertEqual(machine.memory("MemTotal:       24576000 kB\n"), 23)
        self.assertIsNone(machine.memory(""))

    def test_folders_have_plain_names(self):
        self.assertEqual(page.folder_name("Ab C @ 2.0GHz, 2 cores"), "ab-c-2-0ghz-2-cores")


class Processes(unittest.TestCase):
    """Tests that no process outlives its run."""

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
