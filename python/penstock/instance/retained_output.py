"""The retained output of jobs on disk, in files of their tasks."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

STREAMS = ("stdout", "stderr")


class OutputFiles:
    """The `RetainedOutput` on disk: files `ID.stdout` and `ID.stderr`.

    Args:
        directory: where they are; it may not exist yet.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def jobs(self) -> list[int]:
        paths = self._directory.iterdir() if self._directory.is_dir() else ()
        names = {path.stem for path in paths if path.suffix[1:] in STREAMS}
        return [int(name) for name in names if name.isdecimal()]

    def remove(self, jobs: list[int]) -> None:
        for job in jobs:
            for stream in STREAMS:
                # Redirected output has none. Another file is found at the next start.
                with suppress(OSError):
                    (self._directory / f"{job}.{stream}").unlink()
