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


# Severities of syslog (RFC 5424).
SEVERITIES = {logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6, logging.DEBUG: 7}


class SeverityFormatter(LogFormatter):
    """Formats records as lines that begin with their severity, such as `<6>` (sd-daemon(3))."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """A record's line."""
        return f"<{SEVERITIES.get(record.levelno, 3)}>{super().formatMessage(record)}"


def log_to_stderr(level: int, form: str, *, severities: bool = False) -> None:
    """Writes log records from this level on to stderr, each after its severity if asked for."""
    handler = logging.StreamHandler()
    handler.setFormatter((SeverityFormatter if severities else LogFormatter)(form))
    logging.basicConfig(level=level, handlers=[handler])
