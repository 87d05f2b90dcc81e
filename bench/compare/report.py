"""Writes the results: a table in Markdown, all times as JSON, and plots."""

import json
import re

import figures
import measure
import sizes
import svg
import table
from processes import say

RATIOS = (
    "A ratio is ringfold's time over that of the fastest other library; below 1 ringfold is faster.\n"
    "The mean is geometric. A column with `(f32)` times f32 of the same bytes, because that library\n"
    "lacks the type."
)
# Cells in which ringfold takes longer than the fastest other library by this are listed.
SLOWER = 1 / 0.9
PLACES = {"out": "apart", "in": "in place"}


def compare(args, about, libraries, jobs, title="Peers"):
    """Measures all jobs with the libraries in turn. Writes the report after each, and returns the
    last one. Jobs that differ in the type only have the settings that the first has found."""
    all_series, settings, written = [], {}, None
    for job in jobs:
        if any(library.runs(job) for library in libraries):
            series = measure.Series(job, args.patience)
            known = settings.setdefault((job.transport, job.ranks, job.collective), {})
            series.measure(libraries, args.rounds, known)
            known.update(series.settings)
            all_series.append(series)
            written = Report(about, libraries, all_series, title)
            names = written.write(args.out)
            say(f"{job.collective} x {job.ranks}, {job.transport}, {job.data_type}: done")
    if written:
        say(f"{args.out}: {' '.join(names)}")
    return written


class Report:
    """A report. `about` describes the run; `libraries` are in the order of the columns."""

    def __init__(self, about, libraries, all_series, title="Peers"):
        self.about, self.libraries, self.all_series = about, libraries, all_series
        self.title = title
        self.ours = [library for library in libraries if library.role == "ours"]
        self.peers = [library.name for library in libraries if library.role == "peer"]
        self.limits = [library for library in libraries if library.role == "limit"]
        # The series of each plot, which differ in the type of their elements.
        self.groups = {}
        for series in all_series:
            job = series.job
            key = (job.transport, job.collective, job.ranks)
            self.groups.setdefault(key, []).append(series)
        self.types = list(dict.fromkeys(series.job.data_type for series in all_series))

    def write(self, folder, page="peers.md"):
        """Writes all files in place of an earlier run's, and returns their names."""
        folder.mkdir(parents=True, exist_ok=True)
        for plot in folder.glob("*.svg"):
            plot.unlink()
        texts = {page: self.markdown(), "peers.json": self.json()}
        for group in self.groups.values():
            texts[self._plot_name(group)] = self.plot(group)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        return list(texts)

    def _plot_name(self, group):
        job = group[0].job
        transport = re.sub("[^a-z0-9]+", "-", job.transport.lower())
        return f"{transport}-{job.collective}-{job.ranks}.svg"

    def markdown(self):
        """The tables."""
        lines = [f"# {self.title}", ""]
        lines += [f"- {key}: {value}" for key, value in self.about.items()]
        lines += ["", "## Ratios", "", RATIOS, ""]
        columns = ["by", "collective", "ranks"]
        for name in self.types:
            columns += [f"{name}: mean", "worst", "at"]
        lines += table.head(columns, "llr" + "rrl" * len(self.types))
        for group in self.groups.values():
            for library in [self.ours[0], *self._more(group[0].job)]:
                lines.append(self._summary(group, library))
        lines += self._slower()
        for group in self.groups.values():
            lines += self._section(group)
        return "\n".join(lines) + "\n"

    def _summary(self, group, library):
        """Returns the row of one plot and one variant of ringfold."""
        job = group[0].job
        variant = "" if library is self.ours[0] else f", {library.title}"
        name = job.collective.replace("_", "-") + variant
        words = [job.transport, name, str(job.ranks)]
        of_type = {series.job.data_type: series for series in group}
        for data_type in self.types:
            series = of_type.get(data_type)
            cells = list(series.cells.values()) if series else []
            mean, worst, where = figures.mean_ratio(cells, library.name, self.peers)
            if mean is None:
                words += ["-", "-", "-"]
            else:
                place = f"{sizes.show(where.size)}, {PLACES[where.place]}"
                words += [f"{mean:.2f}", f"{worst:.2f}", place]
        return table.line(words)

    def _slower(self):
        """Returns the table of the cells in which ringfold is slower, the slowest first."""
        ours, rows, count = self.ours[0].name, [], 0
        for series in self.all_series:
            job = series.job
            for cell in series.cells.values():
                ratio = cell.ratio(ours, self.peers)
                count += ratio is not None
                if ratio is None or ratio <= SLOWER:
                    continue
                best = cell.best(self.peers)
                words = [job.transport, job.collective.replace("_", "-"), str(job.ranks)]
                words += [job.data_type, sizes.show(cell.size), PLACES[cell.place]]
                words += [f"{cell.time(ours):.3g}", f"{cell.time(best):.3g}", best]
                rows.append((ratio, table.line([*words, f"{ratio:.2f}"])))
        rows.sort(key=lambda row: -row[0])
        lines = ["", "## Slower cells", ""]
        lines += [f"Cells with a ratio above {SLOWER:.2f}: {len(rows)} of {count}.", ""]
        columns = ["by", "collective", "ranks", "type", "bytes", "place"]
        columns += ["ringfold", "fastest", "library", "ratio"]
        head = table.head(columns, "llrlrlrrlr") if rows else []
        return lines + head + [row for _, row in rows]

    def _section(self, group):
        """Returns the plot of a group, and the tables of its types."""
        title = title_of(group[0].job)
        plot = f"![{title}: time, bus bandwidth, ratio]({self._plot_name(group)})"
        tables = [line for series in group for line in self._table(series)]
        return ["", f"## {title}", "", plot, *tables]

    def _table(self, series):
        job, shown = series.job, self._shown(series.job)
        lines = ["", f"### {title_of(job)}, {job.data_type}", ""]
        lines += [
            f"- {library.shown(job)}: {series.settings[library.name].name}"
            for library in shown if library.role == "peer"
        ]  # fmt: skip
        lines += [
            f"- {library} at {sizes.show(size)} bytes: {reason}"
            for (library, size), reason in series.failures.items()
        ]
        titles = [library.shown(job) for library in shown]
        last = ["ratio", "of the limit", "GB/s"] + (["of the line"] if job.line_rate else [])
        for library in self._more(job):
            last += [f"ratio of {library.title}", "of the limit"]
        lines += ["", "Microseconds per call.", ""]
        lines += table.head(["bytes", "place", *titles, *last], "rl" + "r" * len(titles + last))
        lines += [self._row(cell, job) for cell in series.cells.values()]
        return lines

    def _shown(self, job):
        """The libraries that run a job."""
        return [library for library in self.libraries if library.runs(job)]

    def _more(self, job):
        """The other variants of ringfold beside the first."""
        return [library for library in self.ours[1:] if library.runs(job)]

    def _row(self, cell, job):
        words = [sizes.show(cell.size), PLACES[cell.place]]
        words += [_number(cell.time(library.name)) for library in self._shown(job)]
        first, *more = [
            [_number(cell.ratio(it.name, self.peers)), _percent(self.share_of_limit(cell, it.name))]
            for it in [self.ours[0], *self._more(job)]
        ]
        # A barrier carries nothing.
        rate = self._rate(cell, self.ours[0].name) or None
        words += [*first, _number(rate)]
        words += [_percent(rate and rate / job.line_rate)] if job.line_rate else []
        words += [word for pair in more for word in pair]
        return table.line(words)

    def share_of_limit(self, cell, library):
        """The share of the limit's speed that a library reaches."""
        shares = [cell.compare(limit.name, library) for limit in self.limits]
        return min((share for share in shares if share), default=None)

    def _rate(self, cell, library):
        """Returns the bus bandwidth of a library in GB/s, or None without a time."""
        time, used = cell.time(library), cell.used.get(library, cell.size)
        return time and figures.bus_bandwidth(cell.collective, cell.ranks, used, time)

    def plot(self, group):
        """Plots time, bus bandwidth and ratio by size, for the first measured place: a column for
        each type."""
        job = group[0].job
        place = PLACES[job.places.split(",")[0]]
        where = "" if job.collective in figures.ONE_PLACE else f", buffers {place}"
        columns = [self._column(series) for series in group]
        return svg.document(title_of(job) + where, [list(row) for row in zip(*columns)])

    def _column(self, series):
        """Returns the panels of one type."""
        job = series.job
        place = job.places.split(",")[0]
        cells = [cell for cell in series.cells.values() if cell.place == place]
        times, rates = [], []
        for library in self._shown(job):
            found = [cell for cell in cells if cell.time(library.name)]
            for lines, value in ((times, figures.Cell.time), (rates, self._rate)):
                points = [(cell.size, value(cell, library.name)) for cell in found]
                lines.append(svg.Line(library.title, points, library.role == "limit"))
        if job.line_rate:
            ends = [(cell.size, job.line_rate) for cell in (cells[0], cells[-1])]
            rates.append(svg.Line("line rate", ends, True))
        panels = [svg.Panel(f"{job.data_type}: time per call", "us", times)]
        if figures.bus_factor(job.collective, job.ranks):
            panels.append(svg.Panel(f"{job.data_type}: bus bandwidth", "GB/s", rates))
        if any(library.role == "peer" for library in self._shown(job)):
            panels.append(self._ratios(job, cells))
        return panels

    def _ratios(self, job, cells):
        """Returns the panel of our time over the best peer's, with a line at 1.0."""
        lines = []
        for library in [self.ours[0], *self._more(job)]:
            found = [(cell.size, cell.ratio(library.name, self.peers)) for cell in cells]
            lines.append(svg.Line(library.title, [point for point in found if point[1]]))
        ends = [(cell.size, 1.0) for cell in (cells[0], cells[-1])]
        lines.append(svg.Line("1.0", ends, True))
        return svg.Panel(f"{job.data_type}: time over the best peer's", "ratio", lines)

    def json(self):
        """Every time of every round, with medians and ratios."""
        series = [self._series(series) for series in self.all_series]
        libraries = [
            {"name": library.name, "title": library.title, "role": library.role}
            for library in self.libraries
        ]
        document = {"title": self.title, "about": self.about, "libraries": libraries, "series": series}
        return json.dumps(document, indent=1) + "\n"

    def _series(self, series):
        cells = list(series.cells.values())
        mean, worst, _ = figures.mean_ratio(cells, self.ours[0].name, self.peers)
        return {
            "transport": series.job.transport,
            "collective": series.job.collective,
            "ranks": series.job.ranks,
            "type": series.job.data_type,
            "stand_ins": {
                library.name: library.data_type(series.job)
                for library in self._shown(series.job)
                if library.data_type(series.job) != series.job.data_type
            },
            "calls_per_batch": dict(series.job.cells),
            "batches": series.job.batches,
            "settings": {name: setting.name for name, setting in series.settings.items()},
            "failures": [
                {"library": name, "bytes": size, "reason": reason}
                for (name, size), reason in series.failures.items()
            ],
            "geometric_mean_ratio": mean,
            "worst_ratio": worst,
            "cells": [self._cell(cell) for cell in cells],
        }

    def _cell(self, cell):
        return {
            "bytes": cell.size,
            "buffer_bytes": cell.used,
            "place": cell.place,
            "microseconds_by_round": cell.times,
            "microseconds": {
                library.name: cell.time(library.name) for library in self.libraries
            },
            "best_peer": cell.best(self.peers),
            "ratio": {ours.name: cell.ratio(ours.name, self.peers) for ours in self.ours},
            "share_of_limit": {
                ours.name: self.share_of_limit(cell, ours.name) for ours in self.ours
            },
        }


def title_of(job):
    """Returns the title of a plot."""
    return f"{job.collective.replace('_', '-')}, {job.ranks} ranks, {job.transport}"


def _number(value):
    """Formats a number with three significant digits."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _percent(value):
    return "-" if value is None else f"{100 * value:.0f} %"
