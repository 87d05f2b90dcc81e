"""Writes the results: a table in Markdown, all times as JSON, and plots."""

import json

import figures
import sizes
import svg

TITLES = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "barrier": "barrier",
    # Of ../rdma.
    "put": "put",
    "round_trip": "round trip",
}
PLACES = {"out": "apart", "in": "in place"}


class Report:
    """A report. `about` describes the run; `libraries` are in the order of the columns."""

    def __init__(self, about, libraries, all_series, line_rate=None):
        self.about, self.libraries, self.all_series = about, libraries, all_series
        # In GB/s, where the network has one.
        self.line_rate = line_rate
        self.ours = [library for library in libraries if library.role == "ours"]
        self.peers = [library.name for library in libraries if library.role == "peer"]
        self.limits = [library for library in libraries if library.role == "limit"]

    def write(self, folder):
        """Writes all files, and returns their names."""
        folder.mkdir(parents=True, exist_ok=True)
        texts = {"peers.md": self.markdown(), "peers.json": self.json()}
        for series in self.all_series:
            texts[self._plot_name(series)] = self.plot(series)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        return list(texts)

    def _plot_name(self, series):
        return f"{series.job.collective}-{series.job.ranks}.svg"

    def markdown(self):
        """The tables."""
        lines = ["# Peers", ""]
        lines += [f"- {key}: {value}" for key, value in self.about.items()]
        lines += ["", "## Ratios", "", "Our time over the best peer's; below 1 we are faster.", ""]
        lines += ["| collective | ranks | cells | geometric mean | worst | where |"]
        lines += ["|---|--:|--:|--:|--:|---|"]
        for series in self.all_series:
            for library in [self.ours[0], *self._more(series.job)]:
                lines.append(self._summary(series, library))
        for series in self.all_series:
            lines += self._tables(series)
        return "\n".join(lines) + "\n"

    def _summary(self, series, library):
        cells = list(series.cells.values())
        mean, worst, where = figures.mean_ratio(cells, library.name, self.peers)
        name = TITLES[series.job.collective]
        if library is not self.ours[0]:
            name += f", {library.title}"
        if mean is None:
            return f"| {name} | {series.job.ranks} | 0 | | | |"
        counted = sum(cell.ratio(library.name, self.peers) is not None for cell in cells)
        place = f"{sizes.show(where.size)}, {PLACES[where.place]}"
        ranks = series.job.ranks
        return f"| {name} | {ranks} | {counted} | {mean:.2f} | {worst:.2f} | {place} |"

    def _tables(self, series):
        job = series.job
        lines = ["", f"## {TITLES[job.collective]}, {job.ranks} ranks", ""]
        lines += [f"![times and bus bandwidth]({self._plot_name(series)})", ""]
        for library in self.libraries:
            if library.role == "peer" and library.runs(job):
                lines.append(f"- {library.title}: {series.settings[library.name].name}")
        lines += [
            f"- {library} at {sizes.show(size)} bytes: {reason}"
            for (library, size), reason in series.failures.items()
        ]
        titles = [library.title for library in self.libraries if library.runs(job)]
        last = ["ratio", "of the limit", "GB/s"] + (["of the line"] if self.line_rate else [])
        for library in self._more(job):
            last += [f"ratio of {library.title}", "of the limit"]
        lines += ["", "Microseconds per call.", ""]
        lines += ["| " + " | ".join(["bytes", "place", *titles, *last]) + " |"]
        lines += ["|--:|---|" + "--:|" * (len(titles) + len(last))]
        lines += [self._row(cell, job) for cell in series.cells.values()]
        return lines

    def _more(self, job):
        """The other variants of ringfold beside the first."""
        return [library for library in self.ours[1:] if library.runs(job)]

    def _row(self, cell, job):
        words = [sizes.show(cell.size), PLACES[cell.place]]
        shown = [library for library in self.libraries if library.runs(job)]
        words += [_number(cell.time(library.name)) for library in shown]
        ours = self.ours[0].name
        words.append(_number(cell.ratio(ours, self.peers)))
        words.append(_percent(self.share_of_limit(cell, ours)))
        time = cell.time(ours)
        # A barrier carries nothing.
        rate = time and figures.bus_bandwidth(cell.collective, cell.ranks, cell.used, time) or None
        words.append(_number(rate))
        if self.line_rate:
            words.append(_percent(rate and rate / self.line_rate))
        for library in self._more(job):
            words.append(_number(cell.ratio(library.name, self.peers)))
            words.append(_percent(self.share_of_limit(cell, library.name)))
        return "| " + " | ".join(words) + " |"

    def share_of_limit(self, cell, library):
        """The share of the limit's speed that a library reaches."""
        shares = [cell.compare(limit.name, library) for limit in self.limits]
        return min((share for share in shares if share), default=None)

    def plot(self, series):
        """Plots time, bus bandwidth and ratio by size, for the first measured place."""
        job = series.job
        place = job.places.split(",")[0]
        cells = [cell for cell in series.cells.values() if cell.place == place]
        times, rates = [], []
        for library in [it for it in self.libraries if it.runs(job)]:
            found = [(cell, cell.time(library.name)) for cell in cells]
            found = [(cell, time) for cell, time in found if time]
            is_limit = library.role == "limit"
            points = [(cell.size, time) for cell, time in found]
            times.append(svg.Line(library.title, points, is_limit))
            points = [
                (cell.size, figures.bus_bandwidth(job.collective, job.ranks, cell.used, time))
                for cell, time in found
            ]
            rates.append(svg.Line(library.title, points, is_limit))
        if self.line_rate:
            ends = [(cell.size, self.line_rate) for cell in (cells[0], cells[-1])]
            rates.append(svg.Line("line rate", ends, True))
        where = "" if job.collective in ("broadcast", "barrier") else f", buffers {PLACES[place]}"
        title = f"{TITLES[job.collective]}, {job.ranks} ranks, {self.about['transport']}{where}"
        panels = [svg.Panel("time per call", "us", times)]
        if figures.bus_factor(job.collective, job.ranks):
            panels.append(svg.Panel("bus bandwidth", "GB/s", rates))
        panels += self._ratios(job, cells)
        return svg.document(title, panels)

    def _ratios(self, job, cells):
        """Returns the panel of our time over the best peer's, with a line at 1.0."""
        lines = []
        for library in [self.ours[0], *self._more(job)]:
            found = [(cell.size, cell.ratio(library.name, self.peers)) for cell in cells]
            lines.append(svg.Line(library.title, [point for point in found if point[1]]))
        points = [point for line in lines for point in line.points]
        if not points:
            return []
        ends = [(cell.size, 1.0) for cell in (cells[0], cells[-1])]
        lines.append(svg.Line("1.0", ends, True))
        return [svg.Panel("time over the best peer's", "ratio", lines)]

    def json(self):
        """Every time of every round, with medians and ratios."""
        series = [self._series(series) for series in self.all_series]
        libraries = [
            {"name": library.name, "title": library.title, "role": library.role}
            for library in self.libraries
        ]
        document = {"about": self.about, "libraries": libraries, "series": series}
        return json.dumps(document, indent=1) + "\n"

    def _series(self, series):
        cells = list(series.cells.values())
        mean, worst, _ = figures.mean_ratio(cells, self.ours[0].name, self.peers)
        return {
            "collective": series.job.collective,
            "ranks": series.job.ranks,
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


def _number(value):
    """Formats a number with three significant digits."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _percent(value):
    return "-" if value is None else f"{100 * value:.0f} %"
