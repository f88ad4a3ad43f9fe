"""The progress of a simulation, on a terminal."""

from __future__ import annotations

import datetime
import shutil
from typing import TYPE_CHECKING, TextIO

from penstock.clock import SYSTEM_CLOCK
from penstock.sim.units import DAY, count

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Bar"]

REDRAW_INTERVAL_S = 0.1
BAR_BLOCKS = " ▏▎▍▌▋▊▉█"
BAR_CHARACTERS = 24


class Bar:
    """A line that is written over again: policy, bar, jobs, virtual date, rate.

    Args:
        stream: the terminal.
        unix_start: what time 0 of the trace is, in seconds since the epoch.
        clock: seconds, for the rate and for how often something is written.
    """

    def __init__(
        self,
        stream: TextIO,
        unix_start: float | None = None,
        clock: Callable[[], float] = SYSTEM_CLOCK.monotonic,
    ) -> None:
        self._stream = stream
        self._start = unix_start
        self._clock = clock
        self._next = 0.0
        self._began = (clock(), 0, "")
        self._shown = False

    def update(self, what: str, done: int, total: int, now: float) -> None:
        """Rewrites the line, at most ten times a second."""
        moment = self._clock()
        if what != self._began[2] or done < self._began[1]:
            self._began = (moment, done, what)
            self._next = 0.0
        if moment < self._next:
            return
        self._next = moment + REDRAW_INTERVAL_S
        passed = moment - self._began[0]
        rate = f"  {count((done - self._began[1]) / passed)} jobs/s" if passed > 0 else ""
        part = done / total if total else 0.0
        line = (
            f"{what} {_bar(part)} {100 * part:3.0f} %  {count(done)}/{count(total)} jobs"
            f"  {self._date(now)}{rate}"
        )
        width = shutil.get_terminal_size().columns - 1
        self._stream.write(f"\r{line[:width]}\x1b[K")
        self._stream.flush()
        self._shown = True

    def finish(self) -> None:
        """Takes the line away."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = False

    def _date(self, now: float) -> str:
        if self._start is not None:
            try:
                moment = datetime.datetime.fromtimestamp(self._start + now, datetime.UTC)
            except (OverflowError, OSError, ValueError):
                pass
            else:
                return f"{moment:%Y-%m-%d}"
        return f"day {now / DAY:,.1f}"


def _bar(part: float) -> str:
    eighths = round(min(max(part, 0.0), 1.0) * BAR_CHARACTERS * 8)
    full, rest = divmod(eighths, 8)
    drawn = BAR_BLOCKS[8] * full + (BAR_BLOCKS[rest] if rest else "")
    return drawn.ljust(BAR_CHARACTERS, "·")
