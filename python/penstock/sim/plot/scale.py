"""Axes: the mapping of values to pixels, and the ticks."""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass
from typing import Literal

from penstock.sim.units import DAY, HOUR, MINUTE, duration, number, three

Unit = Literal["number", "duration", "share", "date"]

# Steps between ticks of durations, in seconds; above the last one decimal steps of days.
TICK_STEPS_S = (
    *(1, 2, 5, 10, 15, 30),
    *(MINUTE * n for n in (1, 2, 5, 10, 15, 30)),
    *(HOUR * n for n in (1, 2, 3, 6, 12)),
    *(DAY * n for n in (1, 2, 5, 7, 14, 30, 60, 90, 180, 365)),
)
# Ticks of a duration on a logarithmic axis.
LOG_TICKS_S = (
    *(1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, MINUTE, 10 * MINUTE),
    *(HOUR, 6 * HOUR, DAY, 7 * DAY, 30 * DAY, 365 * DAY, 3650 * DAY, 36500 * DAY),
)


@dataclass(frozen=True)
class Axis:
    """The label, unit and scale of an axis.

    Attributes:
        label: its name, with the unit if ticks do not show it.
        unit: the unit of the values; `duration` and `date` are in seconds.
        log: whether equal ratios are equally far apart.
        low: the least value shown; by default that of the data (linear: or 0).
        high: the greatest value shown.
        origin: for `date`, what 0 is, in seconds since the epoch (UTC).
    """

    label: str = ""
    unit: Unit = "number"
    log: bool = False
    low: float | None = None
    high: float | None = None
    origin: float = 0.0


@dataclass(frozen=True)
class Scale:
    """An axis whose ends are known, laid over pixels."""

    axis: Axis
    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The pixel of a value; values outside are clamped to the nearer end."""
        value = min(max(value, self.low), self.high)
        if self.axis.log:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """Values and their labels, in order."""
        room = abs(self.end - self.start)
        vertical = self.end < self.start
        about = max(2, int(room / (48 if vertical else 95)))
        if self.axis.log:
            values = _log_ticks(self.axis.unit, self.low, self.high, about)
            return [(value, self._label(value, 0.0)) for value in values]
        values, step = _linear_ticks(self.axis, self.low, self.high, about)
        return [(value, self._label(value, step)) for value in values]

    def _label(self, value: float, step: float) -> str:
        unit = self.axis.unit
        if unit == "share":
            return f"{100 * value:.{0 if step >= 0.01 else 1}f} %"
        if unit == "duration":
            return _log_duration(value) if self.axis.log else _parts(value)
        if unit == "date":
            return _date(self.axis.origin + value, step)
        return _short(value)

    def show(self, value: float) -> str:
        """A value as a tooltip names it."""
        unit = self.axis.unit
        if unit == "share":
            return f"{100 * value:.1f} %"
        if unit == "duration":
            return duration(value)
        if unit == "date":
            return f"{_moment(self.axis.origin + value):%Y-%m-%d %H:%M}"
        return f"{value:,.0f}" if value == int(value) else number(value)


def fit(axis: Axis, values: list[float], start: float, end: float) -> Scale:
    """A scale with round ends on which all finite values lie.

    Args:
        axis: the axis; its `low` and `high` are not rounded.
        values: the values to show; on a logarithmic axis only those above 0 count.
        start: the pixel of the low end.
        end: the pixel of the high end.
    """
    finite = [value for value in values if math.isfinite(value) and not (axis.log and value <= 0)]
    if axis.log:
        low = axis.low or min(finite, default=1.0)
        high = axis.high or max(finite, default=10.0)
        if axis.low is None and axis.unit == "number":
            low = 10 ** math.floor(math.log10(low) + 1e-9)
        if axis.high is None and axis.unit == "number":
            high = 10 ** math.ceil(math.log10(high) - 1e-9)
        if high < low * (1 + 1e-9):
            high = low * 10
        return Scale(axis, low, high, start, end)
    low = axis.low if axis.low is not None else min(0.0, *finite, 0.0)
    high = axis.high if axis.high is not None else max(finite, default=1.0)
    if high <= low:
        high = low + 1.0
    if axis.high is None and axis.unit in ("number", "share"):
        # A little room above, and the tick there.
        step = _step(high - low, 5)
        high = step * math.ceil(high / step - 1e-9)
    return Scale(axis, low, high, start, end)


def _step(span: float, about: int) -> float:
    raw = span / about
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * n for n in (1, 2, 5, 10) if power * n >= raw * (1 - 1e-9))


def _linear_ticks(axis: Axis, low: float, high: float, about: int) -> tuple[list[float], float]:
    span = high - low
    if axis.unit in ("duration", "date"):
        step = next((step for step in TICK_STEPS_S if span / step <= about), 0.0)
        step = step or DAY * _step(span / DAY, about)
        if span < about:
            step = _step(span, about)
    else:
        step = _step(span, about)
    offset = axis.origin if axis.unit == "date" else 0.0
    first = math.ceil((low + offset) / step - 1e-9)
    last = math.floor((high + offset) / step + 1e-9)
    return [n * step - offset for n in range(first, last + 1)], step


def _log_ticks(unit: Unit, low: float, high: float, about: int) -> list[float]:
    if unit == "duration":
        found = [mark for mark in LOG_TICKS_S if low * (1 - 1e-9) <= mark <= high * (1 + 1e-9)]
    else:
        first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
        found = [10.0**n for n in range(first, last + 1)]
        if len(found) < 3:
            more = [digit * 10.0**n for n in range(first - 1, last + 1) for digit in (1, 2, 5)]
            found = [value for value in more if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]
    every = max(1, math.ceil(len(found) / max(about, 2)))
    return found[::every]


def _short(value: float) -> str:
    size = abs(value)
    for unit, name in ((1e9, "G"), (1e6, "M")):
        if size >= unit:
            return f"{value / unit:,.10g}{name}"
    return f"{value:,.10g}"


def _parts(seconds: float) -> str:
    """A duration in whole units, as `1d 6h`; for ticks, which lie on such."""
    if seconds == 0:
        return "0"
    if abs(seconds) < 1:
        return duration(seconds)
    sign, rest = ("-" if seconds < 0 else ""), abs(seconds)
    words = []
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (1.0, "s")):
        number_of = int(rest // unit) if unit > 1 else rest
        rest -= number_of * unit
        if number_of:
            words.append(f"{number_of:,.10g} {name}")
    return sign + " ".join(words[:2])


def _log_duration(seconds: float) -> str:
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (1.0, "s"), (1e-3, "ms")):
        if seconds >= unit * (1 - 1e-9):
            return f"{seconds / unit:,.10g} {name}"
    for unit, name in ((1e-6, "µs"), (1e-9, "ns")):
        if seconds >= unit * (1 - 1e-9):
            return f"{seconds / unit:,.6g} {name}"
    return three(seconds)


def _moment(timestamp: float) -> datetime.datetime:
    try:
        return datetime.datetime.fromtimestamp(timestamp, datetime.UTC)
    except (OverflowError, OSError, ValueError):
        return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def _date(timestamp: float, step: float) -> str:
    moment = _moment(timestamp)
    if step < DAY:
        if moment.hour == moment.minute == moment.second == 0:
            return f"{moment:%b} {moment.day}"
        return f"{moment:%H:%M}" if step >= MINUTE else f"{moment:%H:%M:%S}"
    if step < 60 * DAY:
        return f"{moment:%b} {moment.day}"
    return f"{moment:%b %Y}"
