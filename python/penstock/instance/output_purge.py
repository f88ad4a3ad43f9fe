"""The retained output of a job is removed with the job's record.

Output of jobs that the store does not know stays, because the store may be the part that is lost.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import trio

from penstock._core import fluid_f58

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock._core import JobManager
    from penstock.instance.system import RetainedOutput


log = logging.getLogger("penstock")

# Jobs that the store forgets in one call: a millisecond's work. Others are served between two.
JOBS_PER_SLICE = 500


class OutputPurge:
    """Removes the retained output of purged jobs.

    Args:
        output: the retained output.
        manager: knows the jobs, and those that were purged before a crash.
        in_thread: runs the removal, which can take long.
    """

    def __init__(
        self,
        output: RetainedOutput,
        manager: JobManager,
        in_thread: Callable[[Callable[[], None]], Awaitable[None]],
    ) -> None:
        self._output = output
        self._manager = manager
        self._in_thread = in_thread
        self._purged = manager.purged_jobs()
        if unknown := set(manager.missing(output.jobs())) - set(self._purged):
            log.warning(
                "the store does not know %d jobs with retained output, such as %s: it stays",
                len(unknown),
                fluid_f58(min(unknown)),
            )
        self._wake = trio.Event()

    def schedule(self, jobs: list[int]) -> None:
        """Schedules the removal of these jobs' output."""
        self._purged += jobs
        self._wake.set()

    async def run(self) -> None:
        """Removes output of purged jobs until cancelled."""
        try:
            while True:
                jobs, self._purged = self._purged, []
                await self._in_thread(partial(self._output.remove, jobs))
                for first in range(0, len(jobs), JOBS_PER_SLICE):
                    self._manager.forget_purged(jobs[first : first + JOBS_PER_SLICE])
                    await trio.lowlevel.checkpoint()
                await self._wake.wait()
                self._wake = trio.Event()
        finally:
            # The record is gone: the next start would find it by its directory only.
            self._output.remove(self._purged)
