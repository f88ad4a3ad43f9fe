"""Output that the instance keeps, and what becomes of it when its job is purged."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from pathlib import Path

    from penstock._core import JobManager


class OutputRetention:
    """The directories of kept output, one a job.

    Args:
        directory: where they are.
        manager: knows which jobs there are. What a crash has left of others is removed.
    """

    def __init__(self, directory: Path, manager: JobManager) -> None:
        self._directory = directory
        names = [path.name for path in directory.iterdir()] if directory.is_dir() else []
        kept = [int(name) for name in names if name.isdecimal()]
        self._purged = manager.missing(kept)
        self._wake = trio.Event()

    def forget(self, jobs: list[int]) -> None:
        """Has the output of purged jobs removed, in a while."""
        self._purged += jobs
        self._wake.set()

    async def run(self) -> None:
        """Removes what is to be forgotten, in a thread: there may be much of it."""
        try:
            while True:
                jobs, self._purged = self._purged, []
                await trio.to_thread.run_sync(partial(self._remove, jobs))
                await self._wake.wait()
                self._wake = trio.Event()
        finally:
            # Nobody would come to think of it again.
            self._remove(self._purged)

    def _remove(self, jobs: list[int]) -> None:
        for job in jobs:
            # Most jobs keep none, and what somebody else has removed is removed.
            shutil.rmtree(self._directory / str(job), ignore_errors=True)
