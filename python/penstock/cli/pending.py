"""A notice at a terminal: why the job is pending for which a command waits."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from penstock._core import job_state
from penstock.cli.rows import reason
from penstock.cli.text import id_text, safe
from penstock.client import Client
from penstock.errors import Error

if TYPE_CHECKING:
    from collections.abc import Iterator

DELAY_S = 1.0
PENDING = (job_state.DEPEND, job_state.PRIORITY, job_state.SCHED)


@contextmanager
def pending_notice(verb: str, uri: str, job: int, *, is_raw: bool = False) -> Iterator[None]:
    """Tells the reason once if the job is pending after a second, and standard error a terminal.

    Args:
        verb: the command, for the message.
        uri: of the instance.
        job: its id.
        is_raw: the terminal is in raw mode, where a newline does not return to the first column.
    """
    if not sys.stderr.isatty():
        yield
        return
    timer = threading.Timer(DELAY_S, _tell, [verb, uri, job, "\r\n" if is_raw else "\n"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _tell(verb: str, uri: str, job: int, end: str) -> None:
    with suppress(Error, OSError), Client(uri) as client:
        (row,) = client.job_rows(ids=[job])
        if row["state"] in PENDING:
            text = safe(reason(row) or "no reason is known yet")
            line = f"penstock {verb}: {id_text(job)}: pending: {text}"
            print(line, end=end, file=sys.stderr, flush=True)
