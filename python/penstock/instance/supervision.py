"""Supervision: contains faults, and restarts failed services with exponential backoff."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

import trio

from penstock.errors import PanicException

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.clock import Clock

log = logging.getLogger("penstock")

# The exceptions that a defect in a service raises; a Rust panic is not an `Exception`.
FAULTS = (Exception, PanicException)

MIN_PAUSE_S, MAX_PAUSE_S = 0.1, 30.0
# A run of at least this length did not fail at its start.
LONG_RUN_S = 5.0
# A service is suspended for this long after as many short runs in a row.
MAX_SHORT_RUNS = 8
SUSPENSION_S = 600.0


class Backoff:
    """Pauses between runs: none after a long run, doubling ones after short runs.

    Args:
        clock: measures the runs.
        max_pause_s: the longest pause, in seconds.
    """

    def __init__(self, clock: Clock, max_pause_s: float = MAX_PAUSE_S) -> None:
        self._clock = clock
        self._max_pause_s = max_pause_s
        self._short_runs = 0
        self._start = clock.monotonic()

    def begin(self) -> None:
        """Records the start of a run."""
        self._start = self._clock.monotonic()

    def end(self) -> float:
        """Records the end of a run. Returns the seconds until the next one may start."""
        is_short = self._clock.monotonic() - self._start < LONG_RUN_S
        self._short_runs = self._short_runs + 1 if is_short else 0
        if not self._short_runs:
            return 0.0
        # The exponent is bounded: there can be any number of runs.
        return min(math.ldexp(MIN_PAUSE_S, min(self._short_runs - 1, 60)), self._max_pause_s)

    @property
    def short_runs(self) -> int:
        """The number of short runs in a row."""
        return self._short_runs

    async def pause(self) -> None:
        """Returns when the next run may start, the last one having ended now."""
        await trio.sleep(self.end())


async def supervise(name: str, run: Callable[[], Awaitable[None]], clock: Clock) -> None:
    """Runs a task until it returns; restarts it with backoff whenever a fault ends it.

    Args:
        name: what to call it in the log.
        run: the task.
        clock: measures the runs.
    """
    backoff = Backoff(clock)
    while True:
        failed = False
        backoff.begin()
        try:
            await run()
        except* FAULTS:
            log.exception("%s has failed and is restarted", name)
            failed = True
        if not failed:
            return
        await backoff.pause()


async def contain(name: str, run: Callable[..., Awaitable[None]], *args: object) -> None:
    """Runs a task once; a fault in it is logged and goes no further."""
    try:
        await run(*args)
    except* FAULTS:
        log.exception("%s has failed", name)
