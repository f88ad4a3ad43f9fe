"""Charts as paths (SVG): lines over time, with the ticks of both axes."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.cli.text import span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.web.figures import Period, Spread

WIDTH, HEIGHT = 1100, 200
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 10, 24
TICK_COUNT = 4
MAX_SHORT_PERIOD_S = 2 * 86400.0


@dataclass(frozen=True)
class Tick:
    """A value at an axis: its place on the axis, and its text."""

    place: float
    text: str


@dataclass(frozen=True)
class Line:
    """A line of a chart: its class (CSS), and its path."""

    name: str
    path: str


@dataclass(frozen=True)
class Chart:
    """A chart in a drawing of `WIDTH` times `HEIGHT`."""

    lines: Sequence[Line]
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


def step_chart(values: Sequence[float], limit: float, period: Period) -> Chart:
    """An area below steps, one for each bucket, from 0 to a limit."""
    most = max([limit, *values, 1.0])
    y = _linear(most)
    width = (WIDTH - LEFT - RIGHT) / len(values)
    path = [f"M{LEFT} {HEIGHT - BOTTOM}"]
    path += [f"V{y(value):.1f}h{width:.3f}" for value in values]
    path.append(f"V{HEIGHT - BOTTOM}z")
    lines = [Line("area", "".join(path))]
    if limit > 0:
        lines.append(Line("limit", f"M{LEFT} {y(limit):.1f}H{WIDTH - RIGHT}"))
    ticks = [most * part / TICK_COUNT for part in range(TICK_COUNT + 1)]
    return Chart(lines, _time_ticks(period), [Tick(y(each), number_text(each)) for each in ticks])


def spread_chart(
    spreads: Sequence[Spread], period: Period, least: float, text: Callable[[float], str]
) -> Chart:
    """Median and 90th percentile over time, on a logarithmic axis.

    Args:
        spreads: the values.
        period: the time.
        least: the lower end of the axis, above 0; lesser values are drawn there.
        text: writes a value.
    """
    most = max([least * 10, *(spread.high for spread in spreads)])
    first, last = math.floor(math.log10(least)), math.ceil(math.log10(most))
    height = HEIGHT - TOP - BOTTOM

    def y(value: float) -> float:
        return TOP + height * (last - math.log10(max(value, 10.0**first))) / (last - first)

    def x(when: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (when - period.begin) / (period.end - period.begin)

    lines = [
        Line("high", _points((x(each.time), y(each.high)) for each in spreads)),
        Line("median", _points((x(each.time), y(each.median)) for each in spreads)),
    ]
    stride = max(1, -(-(last - first) // TICK_COUNT))
    ticks = [Tick(y(10.0**power), text(10.0**power)) for power in range(first, last + 1, stride)]
    return Chart(lines, _time_ticks(period), ticks)


def _points(points: Iterable[tuple[float, float]]) -> str:
    """A line through points. A single one is drawn twice, so that the round end of a line shows."""
    found = [f"{x:.1f} {y:.1f}" for x, y in points]
    return f"M{'L'.join(found * 2 if len(found) == 1 else found)}" if found else ""


def _linear(most: float) -> Callable[[float], float]:
    return lambda value: TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / most)


def _time_ticks(period: Period) -> list[Tick]:
    length = period.end - period.begin
    layout = "%H:%M" if length <= MAX_SHORT_PERIOD_S else "%m-%d"
    width = WIDTH - LEFT - RIGHT
    return [
        Tick(
            LEFT + width * part / TICK_COUNT,
            time.strftime(layout, time.localtime(period.begin + length * part / TICK_COUNT)),
        )
        for part in range(TICK_COUNT + 1)
    ]


def number_text(value: float) -> str:
    """A number with spaces between thousands, and a fraction if it is small."""
    if value < 10 and value != int(value):
        return f"{value:.2g}"
    return f"{value:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def wait_text(seconds: float) -> str:
    """A wait at an axis."""
    return f"{seconds:g} s" if seconds < 1 else span(seconds)
