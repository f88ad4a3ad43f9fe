"""Plots how the engine's cost grows: `make bench-curves`.

Runs the example `curves` of the engine, or reads a table that it has written
(`python bench/curves.py TABLE.tsv`), and writes `bench/curves/curves.tsv` and an SVG for each
curve. Prints the slope of each series: the least squares of log y over log x, so that 0 is a cost
that does not grow and 1 one that grows with x.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.sim.plot import Axis, Line, Size, lines

if TYPE_CHECKING:
    from collections.abc import Sequence

OUT = Path(__file__).parent / "curves"
COMMAND = "cargo run --release --locked --quiet -p penstock-engine --example curves".split()

# The title of a curve, what is on its horizontal axis, and whether that is logarithmic.
Curve = tuple[str, str, bool]

CURVES: dict[str, Curve] = {
    "nodes": ("A match on an empty machine of 64-core nodes", "nodes", True),
    "selection": ("A match of one core, by selection policy", "nodes of 64 cores", True),
    "fill": (
        "A one-core job ends and one starts, 10,000 nodes of 64 cores",
        "cores in use, in percent",
        False,
    ),
    "shapes": (
        "A job ends and a pass: 10,000 full nodes, 20,000 pending jobs",
        "shapes among the pending jobs",
        True,
    ),
    "depth": (
        "A job ends and a pass: 10,000 full nodes, 100 shapes",
        "pending jobs",
        True,
    ),
    "conservative": (
        "A job of the first pass, by node: 10,000 empty nodes of 64 cores",
        "pending jobs",
        True,
    ),
    "explain": (
        "Why the job in the middle of the queue is pending, and when it starts: 1,000 full nodes",
        "pending jobs",
        True,
    ),
}

Table = dict[str, dict[str, list[tuple[float, float]]]]


def parse(text: str) -> Table:
    """The series of each curve as (x, nanoseconds), from tab-separated text."""
    table: Table = defaultdict(lambda: defaultdict(list))
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("\t")
        if len(words) != 4:
            raise SystemExit(f"line {number}: expected curve, series, x and ns, found `{line}`")
        curve, series, x, nanoseconds = words
        table[curve][series].append((float(x), float(nanoseconds)))
    return table


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The exponent of x with which y grows; NaN where there are not two points above 0."""
    logs = [(math.log(x), math.log(y)) for x, y in points if x > 0 and y > 0]
    if len({x for x, _ in logs}) < 2:
        return math.nan
    mean_x = sum(x for x, _ in logs) / len(logs)
    mean_y = sum(y for _, y in logs) / len(logs)
    across = sum((x - mean_x) * (y - mean_y) for x, y in logs)
    return across / sum((x - mean_x) ** 2 for x, _ in logs)


def plot(curve: Curve, series: dict[str, list[tuple[float, float]]]) -> str:
    """One curve as an SVG file."""
    title, label, log = curve
    drawn = []
    for name, points in series.items():
        xs, ys = zip(*sorted(points), strict=True)
        drawn.append(Line(name, xs, [nanoseconds / 1e9 for nanoseconds in ys]))
    every = [y for line in drawn for y in line.y if y > 0]
    # Whole decades, so that the slope can be seen; a flat curve is not drawn as a steep one.
    low = 10.0 ** math.floor(math.log10(min(every)) - 0.05)
    high = 10.0 ** math.ceil(math.log10(max(every)) + 0.05)
    return lines(
        drawn,
        title=title,
        x=Axis(label, log=log),
        y=Axis("time", unit="duration", log=True, low=low, high=high),
        points=True,
        size=Size(720, 400, standalone=True),
    )


def main() -> None:
    if len(sys.argv) > 1:
        text = Path(sys.argv[1]).read_text()
    else:
        text = subprocess.run(COMMAND, check=True, stdout=subprocess.PIPE, text=True).stdout
    table = parse(text)
    OUT.mkdir(exist_ok=True)
    (OUT / "curves.tsv").write_text(text)
    for curve, series in table.items():
        (OUT / f"{curve}.svg").write_text(plot(CURVES.get(curve, (curve, "x", True)), series))
        for name, points in series.items():
            first, last = min(points), max(points)
            ends = (
                f"{first[1]:>12,.0f} ns at {first[0]:<9,.0f} {last[1]:>14,.0f} ns at {last[0]:,.0f}"
            )
            print(f"{curve:<10} {name:<12} slope {slope(points):6.2f} {ends}")


if __name__ == "__main__":
    main()
