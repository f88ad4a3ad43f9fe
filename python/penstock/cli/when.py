"""Times and spans as people say them."""

from __future__ import annotations

import time

UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def clock(when: float, now: float) -> str:
    """A time of day, with its date where that is not today's.

    Args:
        when: seconds since the epoch.
        now: the same, for what today is.
    """
    try:
        there, here = time.localtime(when), time.localtime(now)
    except (OverflowError, ValueError, OSError):
        # Whoever told that means no time of this world.
        return f"{when:g}"
    same = there[:3] == here[:3]
    return time.strftime("%H:%M:%S" if same else "%Y-%m-%d %H:%M", there)


def span(seconds: float) -> str:
    """A length of time, in the largest unit of which there are two: `45 s`, `12 min`, `3 h`."""
    for size, unit in UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0.0):.0f} s"
