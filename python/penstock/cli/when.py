"""Times and durations in words."""

from __future__ import annotations

import time

UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def clock(when: float, now: float) -> str:
    """A time of day, with its date unless that is today.

    Args:
        when: seconds since the epoch.
        now: the current time, seconds since the epoch.
    """
    try:
        there, here = time.localtime(when), time.localtime(now)
    except (OverflowError, ValueError, OSError):
        # Out of the range of local times.
        return f"{when:g}"
    same = there[:3] == here[:3]
    return time.strftime("%H:%M:%S" if same else "%Y-%m-%d %H:%M", there)


def span(seconds: float) -> str:
    """A duration in the largest unit of which it has at least two: `45 s`, `12 min`, `3 h`."""
    for size, unit in UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0.0):.0f} s"
