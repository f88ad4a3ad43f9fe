"""The retained output of jobs on disk, in directories that the execution service makes."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class OutputDirectories:
    """The `RetainedOutput` on disk: a subdirectory for each job.

    Args:
        directory: where they are; it may not exist yet.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def jobs(self) -> list[int]:
        paths = self._directory.iterdir() if self._directory.is_dir() else ()
        return [int(path.name) for path in paths if path.name.isdecimal()]

    def remove(self, jobs: list[int]) -> None:
        for job in jobs:
            # Most jobs have none.
            shutil.rmtree(self._directory / str(job), ignore_errors=True)
