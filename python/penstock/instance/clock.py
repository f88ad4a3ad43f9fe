"""The instance's clock, and alarms by it."""

from __future__ import annotations

import time
from typing import Protocol

import trio


class Clock(Protocol):
    """Tells the time; the two readings go forward together, but for steps of the first one."""

    def now(self) -> float:
        """Seconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds since some fixed time."""


class SystemClock:
    """The clock of the operating system."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class Alarm:
    """Wakes one task at a deadline that can be changed at any time.

    Args:
        clock: tells when the deadline has come.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deadline: float | None = None
        self._changed = trio.Event()

    def set(self, deadline: float | None) -> None:
        """Sets the deadline, in seconds since the epoch; None for no deadline."""
        if deadline != self._deadline:
            self._deadline = deadline
            self._changed.set()

    async def wait(self) -> None:
        """Returns at the deadline, and unsets it."""
        while True:
            self._changed = trio.Event()
            if self._deadline is None:
                await self._changed.wait()
                continue
            left = self._deadline - self._clock.now()
            if left <= 0:
                await trio.lowlevel.checkpoint()
                self._deadline = None
                return
            with trio.move_on_after(left):
                await self._changed.wait()
