"""A line on the terminal that shows how many of several jobs have ended."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from penstock.cli.rows import exit_code

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator

    from penstock.clock import Clock
    from penstock.rows import JobRow

ERASE_LINE = "\r\x1b[K"
MAX_BAR_COLUMNS = 40


class Progress:
    """The numbers of jobs that have ended and failed.

    Args:
        total: the number of jobs.
        clock: the time.
        write: shows text; None shows nothing.
        shows_rate: whether the jobs per second are shown, and not the elapsed time.
        columns: the width of the line.
    """

    def __init__(
        self,
        total: int,
        clock: Clock,
        write: Callable[[str], object] | None,
        *,
        shows_rate: bool = False,
        columns: int = 80,
    ) -> None:
        self._total = total
        self._clock = clock
        self._write = write
        self._shows_rate = shows_rate
        self._columns = columns
        self._began = clock.monotonic()
        self._ended = self._failed = 0
        self._is_shown = False

    @staticmethod
    def register(parser: argparse.ArgumentParser) -> None:
        """Adds the options `--progress` and `--jps`."""
        add = parser.add_argument
        add(
            "--progress",
            action="store_true",
            help="in a terminal: show on stderr how many jobs have ended",
        )
        add("--jps", action="store_true", help="with --progress: show jobs per second, too")

    @classmethod
    @contextmanager
    def of(cls, args: argparse.Namespace, total: int) -> Iterator[Progress]:
        """The progress that the options request; without a terminal nothing is shown."""
        shows = args.progress and sys.stderr.isatty()
        columns = 80
        with suppress(OSError):
            columns = os.get_terminal_size(2).columns

        def write(text: str) -> None:
            print(text, end="", file=sys.stderr, flush=True)

        progress = cls(
            total, args.clock, write if shows else None, shows_rate=args.jps, columns=columns
        )
        progress.count([])
        try:
            yield progress
        finally:
            progress.end()

    def count(self, rows: Iterable[JobRow]) -> None:
        """Counts jobs that have ended."""
        for row in rows:
            self._ended += 1
            self._failed += exit_code(row) != 0
        if self._write is not None:
            self._write(ERASE_LINE + self._line())
            self._is_shown = True

    def clear(self) -> None:
        """Removes the line, for other output."""
        if self._write is not None and self._is_shown:
            self._write(ERASE_LINE)
            self._is_shown = False

    def end(self) -> None:
        """Shows the line for the last time."""
        if self._write is not None:
            self._write(f"{ERASE_LINE}{self._line()}\n")

    def _line(self) -> str:
        elapsed = self._clock.monotonic() - self._began
        rate = f"{self._ended / elapsed if elapsed > 0 else 0.0:.1f} jobs/s"
        failed = f", {self._failed} failed" if self._failed else ""
        time = rate if self._shows_rate else f"{elapsed:.0f} s"
        text = f" {self._ended}/{self._total} ended{failed}, {time}"
        columns = min(self._columns - len(text) - 3, MAX_BAR_COLUMNS)
        if columns < 1:
            return text.strip()
        filled = columns * self._ended // max(self._total, 1)
        return f"[{'#' * filled}{'-' * (columns - filled)}]{text}"
