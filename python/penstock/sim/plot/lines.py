"""Lines and steps over a continuous axis."""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.sim.plot.frame import COLOUR_COUNT, Frame, Size, pixel, tooltip

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.sim.plot.scale import Axis, Scale

# The width in pixels of a strip with a tooltip, unless a step is wider.
STRIP_PX = 4.0


@dataclass(frozen=True)
class Line:
    """Points that belong together.

    Attributes:
        name: what the legend calls it.
        x: ascending.
        y: as many; NaN interrupts the line.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]


def lines(
    drawn: Sequence[Line],
    *,
    title: str = "",
    x: Axis,
    y: Axis,
    step: bool = False,
    points: bool = False,
    fill: bool = False,
    marks: Sequence[tuple[float, str]] = (),
    size: Size | None = None,
) -> str:
    """A chart of lines.

    Args:
        drawn: the lines; the legend is left out where there is one without a name.
        title: the title above the chart.
        x: the horizontal axis.
        y: the vertical one.
        step: whether a value holds until the next one, rather than being joined with it.
        points: whether points are marked: for measurements, which are few.
        fill: whether the area below is shaded; for a single line.
        marks: heights of dashed lines across, and what they are.
        size: the size of the chart.

    Returns:
        SVG text. Its tooltips have the values of all lines at the pointer.
    """
    names = [line.name for line in drawn if line.name]
    frame = Frame(title, x, y, size or Size(), names)
    xs = [value for line in drawn for value in line.x]
    ys = [value for line in drawn for value in line.y] + [at for at, _ in marks]
    if x.low is None and not x.log and xs:
        # Nothing is to be seen between 0 and the first value.
        frame.x = x = _from(x, min(xs))
    across, up = frame.scales(xs, ys)
    frame.draw_y(up)
    for height, what in marks:
        at = pixel(up(height))
        frame.parts.append(
            f'<path class="dash" d="M{pixel(frame.left)} {at}H{pixel(frame.right)}">'
            f"{tooltip(what)}</path>"
        )
    for n, line in enumerate(drawn):
        path = _path(line, across, up, step=step)
        if fill and path:
            base = pixel(frame.bottom)
            closed = f"{path}V{base}H{pixel(across(line.x[0]))}Z"
            frame.parts.append(f'<path class="area f{n % COLOUR_COUNT}" d="{closed}"/>')
        frame.parts.append(f'<path class="line s{n % COLOUR_COUNT}" d="{path}"/>')
        if points:
            frame.parts += _points(line, n % COLOUR_COUNT, across, up)
    frame.draw_x(across)
    if not points:
        frame.parts += _strips(drawn, frame, across, up, step=step)
    return frame.svg()


def _from(axis: Axis, low: float) -> Axis:
    from dataclasses import replace

    return replace(axis, low=low)


def _path(line: Line, across: Scale, up: Scale, *, step: bool) -> str:
    words: list[str] = []
    new = True
    last = ""
    for value, height in zip(line.x, line.y, strict=True):
        if math.isnan(height):
            new = True
            continue
        x, y = pixel(across(value)), pixel(up(height))
        if new:
            words.append(f"M{x} {y}")
            new = False
        elif not step:
            words.append(f"L{x} {y}")
        elif y != last:
            words.append(f"H{x}V{y}")
        last = y
    if step and words and not new:
        words.append(f"H{pixel(across(line.x[-1]))}")
    return "".join(words)


def _points(line: Line, colour: int, across: Scale, up: Scale) -> list[str]:
    return [
        f'<circle class="f{colour}" cx="{pixel(across(value))}" cy="{pixel(up(height))}" r="3">'
        + tooltip(f"{line.name}: {up.show(height)} at {across.show(value)}")
        + "</circle>"
        for value, height in zip(line.x, line.y, strict=True)
        if not math.isnan(height)
    ]


def _strips(
    drawn: Sequence[Line], frame: Frame, across: Scale, up: Scale, *, step: bool
) -> list[str]:
    """Invisible strips over the plot that tell the values below the pointer."""
    most = round((frame.right - frame.left) / STRIP_PX)
    edges = sorted({across(value) for line in drawn for value in line.x})
    if not step or len(edges) > most + 1:
        wide = (frame.right - frame.left) / most
        edges = [frame.left + n * wide for n in range(most + 1)] if edges else []
    strips = []
    for left, right in pairwise(edges):
        at = (left + right) / 2
        value = _value_at(across, at)
        texts = [across.show(value)]
        for line in drawn:
            height = _height(line, value, at, across, up, step=step)
            if height is not None:
                name = f"{line.name}: " if line.name else ""
                texts.append(f"{name}{up.show(height)}")
        strips.append(
            f'<rect class="hit" x="{pixel(left)}" y="{pixel(frame.top)}"'
            f' width="{pixel(right - left)}" height="{pixel(frame.bottom - frame.top)}">'
            + tooltip("\n".join(texts))
            + "</rect>"
        )
    return strips


def _height(
    line: Line, value: float, at: float, across: Scale, up: Scale, *, step: bool
) -> float | None:
    """The value of a line as it is drawn, above one of the horizontal axis; None beside it."""
    place = bisect.bisect_right(line.x, value) - 1
    if not 0 <= place < len(line.x) - 1:
        return None
    before, after = line.y[place], line.y[place + 1]
    if math.isnan(before):
        return None
    if step:
        return before
    if math.isnan(after):
        return None
    left, right = across(line.x[place]), across(line.x[place + 1])
    part = (at - left) / (right - left) if right > left else 0.0
    return _value_at(up, up(before) + part * (up(after) - up(before)))


def _value_at(scale: Scale, at: float) -> float:
    part = (at - scale.start) / (scale.end - scale.start)
    if scale.axis.log:
        return float(scale.low * (scale.high / scale.low) ** part)
    return scale.low + part * (scale.high - scale.low)
