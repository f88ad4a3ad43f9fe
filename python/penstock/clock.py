"""The clock: the only module that reads the time of the operating system."""

from __future__ import annotations

import time
from typing import Protocol


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
        """Seconds since the start of the system."""
        return time.monotonic()


SYSTEM_CLOCK = SystemClock()
"""The clock of functions that are called without one."""
