"""The lines of the log about the connections of users, and their rate limit."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from penstock.clock import Clock

log = logging.getLogger("penstock.broker")

# The most lines about the connections of one user in a period, and its length in seconds.
MAX_USER_LINES = 20
USER_LINES_PERIOD_S = 60.0


@dataclass
class _Period:
    """The lines about a user since the first one of a period, by the monotonic clock."""

    end: float
    lines: int = 0


class ConnectionLog:
    """Logs what happens to the connections of users, at most some lines for each in a period.

    The number of the other lines follows at the end of the period.

    Args:
        clock: measures the periods.

    Attributes:
        suppressed_faults: the number of lines with an exception that were not logged.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._periods: dict[int, _Period] = {}
        self.suppressed_faults = 0

    def write(
        self,
        nursery: trio.Nursery,
        uid: int,
        level: int,
        text: str,
        *args: object,
        exc_info: bool = False,
    ) -> None:
        """Writes a line, unless there were too many about the user.

        Args:
            nursery: runs the period.
            uid: the user.
            level: the level of the line.
            text: the line, in which `args` are inserted.
            args: what is inserted.
            exc_info: whether the current exception is shown.
        """
        period = self._periods.get(uid)
        if period is None:
            period = _Period(self._clock.monotonic() + USER_LINES_PERIOD_S)
            self._periods[uid] = period
            nursery.start_soon(self._end_period, uid, period)
        period.lines += 1
        if period.lines <= MAX_USER_LINES:
            log.log(level, text, *args, exc_info=exc_info)
        else:
            self.suppressed_faults += exc_info

    async def _end_period(self, uid: int, period: _Period) -> None:
        left = USER_LINES_PERIOD_S
        while left > 0:
            await trio.sleep(left)
            left = period.end - self._clock.monotonic()
        del self._periods[uid]
        more = period.lines - MAX_USER_LINES
        if more > 0:
            log.warning("user %d: %d more lines about connections were suppressed", uid, more)
