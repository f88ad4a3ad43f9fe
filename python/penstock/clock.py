"""The clock: the only module that reads the time of the operating system."""

from __future__ import annotations

import time
from typing import Protocol

# The monotonic clock of Linux stops while the system is suspended, and this one does not.
_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Tells the time; the two readings go forward together, but for steps of the first one."""

    def now(self) -> float:
        """Seconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds since some fixed time."""


class SystemClock:
    """The clock of the operating system."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since the start of the system, the time in suspension included."""
        return time.clock_gettime(_MONOTONIC)


SYSTEM_CLOCK = SystemClock()
"""The clock of functions that are called without one."""
