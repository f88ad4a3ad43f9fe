"""Quantities of jobs, and numbers as people read them: durations, counts, shares."""

from __future__ import annotations

import math

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0

__all__ = [
    "DAY",
    "HOUR",
    "MINUTE",
    "bounded_slowdown",
    "count",
    "duration",
    "number",
    "plain",
    "share",
]

SLOWDOWN_BOUND_S = 10.0


def bounded_slowdown(wait: float, run: float) -> float:
    """The bounded slowdown of a job (Feitelson and Rudolph 1998).

    Wait and run time, divided by the run time, which counts as `SLOWDOWN_BOUND_S` at least. Both
    are in seconds.
    """
    return max((wait + run) / max(run, SLOWDOWN_BOUND_S), 1.0)


def duration(seconds: float | None) -> str:
    """Seconds in the unit that fits, such as `42.0 s`, `17.3 min`, `5.20 h`, `3.41 d`.

    Three digits count; what is not known is `-`.
    """
    if seconds is None or math.isnan(seconds):
        return "-"
    size = abs(seconds)
    if size == 0:
        return "0 s"
    if size < 1e-3:
        return f"{three(seconds * 1e6)} µs"
    if size < 1:
        return f"{three(seconds * 1e3)} ms"
    for unit, name, most in ((1, "s", 120), (MINUTE, "min", 2 * HOUR), (HOUR, "h", 2 * DAY)):
        if size < most:
            return f"{three(seconds / unit)} {name}"
    return f"{three(seconds / DAY)} d"


def three(value: float) -> str:
    """A number with three digits, or as many as it has before the point."""
    size = abs(value)
    digits = 2 if size < 9.995 else 1 if size < 99.95 else 0
    return f"{value:,.{digits}f}"


def count(value: float | None) -> str:
    """A whole number with its thousands apart."""
    return "-" if value is None or math.isnan(value) else f"{value:,.0f}"


def number(value: float | None) -> str:
    """A number of no unit, such as a slowdown."""
    return "-" if value is None or math.isnan(value) else three(value)


def share(value: float | None) -> str:
    """A share as a percentage."""
    return "-" if value is None or math.isnan(value) else f"{100 * value:.1f} %"


def plain(value: float) -> str:
    """A number for a file: whole ones without a point, others with every digit they have."""
    return str(int(value)) if value == int(value) else repr(value)
