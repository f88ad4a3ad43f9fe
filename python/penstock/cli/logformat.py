"""The log of the daemon and the scheduler on a terminal."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.cli.text import safe, safe_lines

if TYPE_CHECKING:
    from types import TracebackType

    Raised = tuple[type[BaseException], BaseException, TracebackType | None]
    Nothing = tuple[None, None, None]


class LogFormatter(logging.Formatter):
    """Formats records so that the text of others in them is safe for a terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """A record's line."""
        return safe(super().formatMessage(record))

    def formatException(self, ei: Raised | Nothing) -> str:  # noqa: N802 - logging's name
        """The traceback below it."""
        return safe_lines(super().formatException(ei))


def log_to_stderr(level: int, form: str) -> None:
    """Writes log records from this level on to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter(form))
    logging.basicConfig(level=level, handlers=[handler])
