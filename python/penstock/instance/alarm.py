"""Alarms by the clock of the instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from penstock.clock import Clock


class Alarm:
    """Wakes one task at a deadline that can be changed at any time.

    Args:
        clock: tells when the deadline has come.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deadline: float | None = None
        # When the task wakes by itself.
        self._wakes_at: float | None = None
        self._changed = trio.Event()

    def set(self, deadline: float | None) -> None:
        """Sets the deadline, in seconds since the epoch; None for no deadline."""
        self._deadline = deadline
        # A task that wakes too early finds the later deadline: most are postponed before.
        wakes_at = self._wakes_at
        if deadline is not None and (wakes_at is None or deadline < wakes_at):
            self._changed.set()

    def is_due(self) -> bool:
        """Whether the task is about to run: the deadline has come, or an earlier one was set."""
        if self._deadline is None:
            return False
        return self._changed.is_set() or self._deadline <= self._clock.now()

    async def wait(self) -> None:
        """Returns at the deadline, and unsets it."""
        while True:
            self._changed = trio.Event()
            self._wakes_at = self._deadline
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
