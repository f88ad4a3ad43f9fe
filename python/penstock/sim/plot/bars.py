"""Bars over groups, boxes over groups, and histograms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.sim.plot.frame import COLOUR_COUNT, Frame, Size, pixel, text_width, tooltip
from penstock.sim.plot.scale import Axis

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.sim.plot.scale import Scale


@dataclass(frozen=True)
class Box:
    """The distribution of values: five quantiles and the number of values.

    Attributes:
        low: 5 %.
        quarter: 25 %.
        middle: the median.
        three_quarters: 75 %.
        high: 95 %.
        mean: the mean.
        count: of values; 0 draws nothing.
    """

    low: float
    quarter: float
    middle: float
    three_quarters: float
    high: float
    mean: float
    count: int


def bars(
    groups: Sequence[str],
    rows: Sequence[tuple[str, Sequence[float]]],
    *,
    title: str = "",
    x: Axis | None = None,
    y: Axis,
    size: Size | None = None,
) -> str:
    """A bar for each group and row, those of a group side by side.

    Args:
        groups: what the groups are called.
        rows: for each colour its name and a value a group; NaN draws nothing.
        title: the title above the chart.
        x: what the groups are (only the label counts).
        y: the vertical axis.
        size: the size of the chart.

    Returns:
        SVG text.
    """
    names = [name for name, _ in rows if name]
    frame = Frame(title, x or Axis(), y, size or Size(), names, shape="bar")
    _, up = frame.scales([], [value for _, values in rows for value in values])
    frame.draw_y(up)
    base = frame.bottom
    for left, wide, group, row in _cells(frame, len(groups), len(rows)):
        name, values = rows[row]
        value = values[group]
        if math.isnan(value):
            continue
        top = up(value)
        said = " ".join(word for word in (name, groups[group]) if word)
        frame.parts.append(
            f'<rect class="bar f{row % COLOUR_COUNT}" x="{pixel(left)}" y="{pixel(top)}"'
            f' width="{pixel(wide)}" height="{pixel(max(base - top, 0.5))}">'
            + tooltip(f"{said}: {up.show(value)}")
            + "</rect>"
        )
    _name_groups(frame, groups)
    return frame.svg()


def boxes(
    groups: Sequence[str],
    rows: Sequence[tuple[str, Sequence[Box]]],
    *,
    title: str = "",
    x: Axis | None = None,
    y: Axis,
    size: Size | None = None,
) -> str:
    """A box for each group and row: 25 to 75 %, the median, 5 and 95 %, and the mean as a dot.

    Args:
        groups: what the groups are called.
        rows: for each colour its name and a box a group.
        title: the title above the chart.
        x: what the groups are (only the label counts).
        y: the vertical axis.
        size: the size of the chart.

    Returns:
        SVG text.
    """
    names = [name for name, _ in rows if name]
    frame = Frame(title, x or Axis(), y, size or Size(), names, shape="bar")
    some = [box for _, row in rows for box in row if box.count]
    _, up = frame.scales([], [value for box in some for value in (box.low, box.high, box.mean)])
    frame.draw_y(up)
    for left, wide, group, row in _cells(frame, len(groups), len(rows)):
        name, row_boxes = rows[row]
        if row_boxes[group].count:
            said = " ".join(word for word in (name, groups[group]) if word)
            frame.parts.append(_box(row_boxes[group], said, row % COLOUR_COUNT, left, wide, up))
    _name_groups(frame, groups)
    return frame.svg()


def histogram(
    edges: Sequence[float],
    rows: Sequence[tuple[str, Sequence[float]]],
    *,
    title: str = "",
    x: Axis,
    y: Axis,
    size: Size | None = None,
) -> str:
    """The distributions of values over a continuous axis, as outlines that may overlap.

    Args:
        edges: of the bins, ascending, one more than there are bins.
        rows: for each colour its name and the height of each bin.
        title: the title above the chart.
        x: the horizontal axis.
        y: the vertical one.
        size: the size of the chart.

    Returns:
        SVG text.
    """
    frame = Frame(title, x, y, size or Size(), [name for name, _ in rows if name], shape="bar")
    across, up = frame.scales(list(edges), [value for _, values in rows for value in values])
    frame.draw_y(up)
    for n, (name, values) in enumerate(rows):
        outline = f"M{pixel(across(edges[0]))} {pixel(frame.bottom)}"
        for place, value in enumerate(values):
            outline += f"V{pixel(up(value))}H{pixel(across(edges[place + 1]))}"
        outline += f"V{pixel(frame.bottom)}"
        frame.parts.append(
            f'<path class="area f{n % COLOUR_COUNT}" d="{outline}Z"/>'
            f'<path class="line s{n % COLOUR_COUNT}" d="{outline}">{tooltip(name)}</path>'
        )
    for place in range(len(edges) - 1):
        left, right = across(edges[place]), across(edges[place + 1])
        texts = [f"{across.show(edges[place])} to {across.show(edges[place + 1])}"]
        texts += [f"{name}: {up.show(values[place])}" for name, values in rows]
        frame.parts.append(
            f'<rect class="hit" x="{pixel(left)}" y="{pixel(frame.top)}"'
            f' width="{pixel(right - left)}" height="{pixel(frame.bottom - frame.top)}">'
            + tooltip("\n".join(texts))
            + "</rect>"
        )
    frame.draw_x(across)
    return frame.svg()


def _cells(frame: Frame, groups: int, rows: int) -> list[tuple[float, float, int, int]]:
    """The place of each bar: its left side, its width, its group and its row."""
    each = (frame.right - frame.left) / max(groups, 1)
    inner = min(each * 0.78, 46.0 * max(rows, 1))
    wide = inner / max(rows, 1)
    return [
        (frame.left + each * group + (each - inner) / 2 + wide * row, wide * 0.9, group, row)
        for group in range(groups)
        for row in range(rows)
    ]


def _name_groups(frame: Frame, groups: Sequence[str]) -> None:
    each = (frame.right - frame.left) / max(len(groups), 1)
    free = -math.inf
    for place, group in enumerate(groups):
        at, half = frame.left + each * (place + 0.5), text_width(group) / 2
        if at - half > free:
            frame.parts.append(frame.below(at, group))
            free = at + half + 4
    frame.draw_base()


def _box(box: Box, name: str, colour: int, left: float, wide: float, up: Scale) -> str:
    middle, right = left + wide / 2, left + wide
    top, base = up(box.three_quarters), up(box.quarter)
    low, high = up(box.low), up(box.high)
    text = "\n".join(
        [
            f"{name}: {box.count:,} jobs",
            f"median {up.show(box.middle)}, mean {up.show(box.mean)}",
            f"25 to 75 %: {up.show(box.quarter)} to {up.show(box.three_quarters)}",
            f"5 to 95 %: {up.show(box.low)} to {up.show(box.high)}",
        ]
    )
    return (
        f'<g><path class="line s{colour}" d="M{pixel(middle)} {pixel(high)}V{pixel(top)}'
        f"M{pixel(middle)} {pixel(base)}V{pixel(low)}"
        f'M{pixel(left + wide * 0.25)} {pixel(high)}h{pixel(wide / 2)}"/>'
        f'<rect class="box f{colour} s{colour}" x="{pixel(left)}" y="{pixel(top)}"'
        f' width="{pixel(wide)}" height="{pixel(max(base - top, 1.0))}" rx="2"/>'
        f'<path class="line middle s{colour}" d="M{pixel(left)} {pixel(up(box.middle))}'
        f'H{pixel(right)}"/>'
        f'<circle class="f{colour}" cx="{pixel(middle)}" cy="{pixel(up(box.mean))}" r="3"/>'
        f'<rect class="hit" x="{pixel(left)}" y="{pixel(min(high, top) - 4)}"'
        f' width="{pixel(wide)}" height="{pixel(max(low, base) - min(high, top) + 8)}">'
        + tooltip(text)
        + "</rect></g>"
    )
