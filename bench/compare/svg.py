"""Plots with two logarithmic axes, as SVG for light and dark backgrounds."""

import math
from dataclasses import dataclass
from xml.sax.saxutils import escape

import sizes

# Okabe and Ito's colours, which colour-blind readers can distinguish.
COLOURS = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c8c2c"]
LIMIT_COLOUR = "#888888"
STYLE = """
text { font: 12px sans-serif; fill: #57606a }
.title { font-size: 15px; font-weight: bold }
.grid { stroke: #888; stroke-opacity: .25 }
.axis { stroke: #888 }
polyline { fill: none; stroke-linejoin: round }
polyline, .key { stroke-width: 2 }
.limit { stroke-dasharray: 5 4; stroke-width: 1.5 }
.dotted { stroke-dasharray: 1 4 }
@media (prefers-color-scheme: dark) { text { fill: #b1bac4 } }
"""
WIDTH, HEIGHT = 460, 330
LEFT, TOP, BETWEEN, BELOW = 62, 66, 84, 90
LEGEND_LINE = 22


@dataclass
class Line:
    """A library's points. The order of lines sets their colours."""

    name: str
    points: list
    is_limit: bool = False


@dataclass
class Panel:
    """A pair of axes: sizes at the bottom, `unit` on the left."""

    title: str
    unit: str
    lines: list

    def points(self):
        """Returns the points of all lines."""
        return [point for line in self.lines for point in line.points]


def document(title, rows):
    """Returns the picture as text. `rows` are lists of panels; those of a row share their vertical
    axis, and those of a column their horizontal one."""
    full_width = LEFT + max(map(len, rows), default=1) * (WIDTH + BETWEEN)
    fullest = max((panel.lines for row in rows for panel in row), key=len, default=[])
    legend_at = TOP + len(rows) * (HEIGHT + BELOW)
    legend, full_height = _legend(fullest, legend_at, full_width)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {full_width} {full_height}"'
        f' width="{full_width}" height="{full_height}">',
        f"<style>{STYLE}</style>",
        _text(LEFT, 24, title, "start", "title"),
    ]
    across = [x for row in rows for panel in row for x, _ in panel.points()]
    for row_number, row in enumerate(rows):
        top = TOP + row_number * (HEIGHT + BELOW)
        up = [y for panel in row for _, y in panel.points()]
        for number, panel in enumerate(row):
            parts += _panel(panel, LEFT + number * (WIDTH + BETWEEN), top, across, up)
    return "\n".join([*parts, *legend, "</svg>", ""])


def _text(x, y, text, anchor="middle", kind=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">' + (
        f"{escape(text)}</text>"
    )


def _rule(x1, y1, x2, y2, kind):
    at = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {at} class="{kind}"/>'


def _panel(panel, left, top, all_x, all_y):
    """Returns a panel with axes that have room for `all_x` and `all_y`."""
    parts = [_text(left, top - 14, f"{panel.title} ({panel.unit})", "start")]
    if not panel.points():
        return parts + [_text(left + WIDTH / 2, top + HEIGHT / 2, "nothing was measured")]
    low_x, high_x = _bounds(all_x, 2)
    low_y, high_y = _bounds(all_y, 10)

    def place(x, y):
        across = (math.log2(x) - low_x) / (high_x - low_x)
        up = (math.log10(y) - low_y) / (high_y - low_y)
        return left + across * WIDTH, top + HEIGHT - up * HEIGHT

    for power in range(low_x, high_x + 1):
        if (power - 3) % 4 == 0:
            x, _ = place(2.0**power, 10.0**low_y)
            parts.append(_rule(x, top, x, top + HEIGHT, "grid"))
            parts.append(_text(x, top + HEIGHT + 18, sizes.show(2**power)))
    steps = (1, 2, 5) if high_y - low_y <= 2 else (1,)
    marks = (step * 10.0**power for power in range(low_y, high_y + 1) for step in steps)
    for mark in (mark for mark in marks if mark <= 10.0**high_y):
        _, y = place(2.0**low_x, mark)
        parts.append(_rule(left, y, left + WIDTH, y, "grid"))
        parts.append(_text(left - 6, y + 4, f"{mark:g}", "end"))
    parts.append(_rule(left, top + HEIGHT, left + WIDTH, top + HEIGHT, "axis"))
    parts.append(_text(left + WIDTH / 2, top + HEIGHT + 36, "bytes"))
    for line, (colour, kind) in zip(panel.lines, _looks(panel.lines)):
        places = [place(x, y) for x, y in sorted(line.points)]
        if not places:
            continue
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{text}" stroke="{colour}" class="{kind}"/>')
        if not line.is_limit:
            dots = (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places)
            parts.extend(dots)
    return parts


def _looks(lines):
    """Returns the colour and class of each line."""
    colours = iter(COLOURS * (1 + len(lines) // len(COLOURS)))
    kinds = iter(["limit", *["limit dotted"] * len(lines)])
    return [
        (LIMIT_COLOUR, next(kinds)) if line.is_limit else (next(colours), "") for line in lines
    ]


def _bounds(values, base):
    low = math.floor(math.log(min(values), base) + 1e-9)
    high = math.ceil(math.log(max(values), base) - 1e-9)
    return low, max(high, low + 1)


def _legend(lines, y, width):
    """Returns the legend, in as many lines as it needs, and the position of its lower end."""
    parts, x = [], LEFT
    for line, (colour, kind) in zip(lines, _looks(lines)):
        if x > LEFT and x + 58 + 7 * len(line.name) > width:
            x, y = LEFT, y + LEGEND_LINE
        ends = f'x1="{x}" y1="{y - 4}" x2="{x + 24}" y2="{y - 4}"'
        parts.append(f'<line {ends} stroke="{colour}" class="key {kind}"/>')
        parts.append(_text(x + 30, y, line.name, "start"))
        x += 58 + 7 * len(line.name)
    return parts, y + LEGEND_LINE
