"""`penstock run`: submit, show the output, end with the job's exit code."""

from __future__ import annotations

import base64
import os
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from penstock._core import fluid_f58, topic
from penstock.cli import joboptions
from penstock.cli.rows import exit_code, reason
from penstock.cli.submit import submit
from penstock.cli.text import safe
from penstock.client import Client
from penstock.errors import RpcError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from penstock.rows import JobRow

SUMMARY = """Run a job: submit it, show its output, end with its exit code. Ctrl-C cancels the job.

The exit code is that of the task with the greatest wait status (RFC 21), 128 + N if signal N
ended it. There an exit code other than 0 is greater than any signal: if one task exits with 1 and
another is killed, it is 1."""


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    joboptions.register(parser)


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    specs = joboptions.jobspecs(args)
    with Client() as client:
        ids, code = submit(client, specs, args.urgency)
        with _interruptible(client.uri, ids):
            rows = _show(client, ids)
    for row in rows:
        text = reason(row)
        if row.get("exception_occurred") and text:
            print(f"penstock run: {fluid_f58(row['id'])}: {safe(text)}", file=sys.stderr)
    return max([code, *map(exit_code, rows)])


def _show(client: Client, ids: list[int]) -> list[JobRow]:
    """Shows the jobs' output until they have ended; returns their rows."""
    requests: dict[int | None, tuple[str, dict[str, Any]]] = {
        job: (topic.job_exec.OUTPUT, {"id": job, "follow": True, "streams": ["stdout", "stderr"]})
        for job in ids
    }
    requests[None] = (topic.job_list.WAIT, {"ids": ids})
    rows: list[JobRow] = []
    for job, part in client.merge(requests):
        if job is not None:
            # An error means that nothing is kept: the output went to a file, or execution is
            # simulated.
            if not isinstance(part, RpcError):
                _write(client.uri, ids, part)
        elif isinstance(part, RpcError):
            raise part
        else:
            rows += part["jobs"]
    return rows


def _write(uri: str, ids: list[int], part: dict[str, Any]) -> None:
    file = (sys.stdout if part["stream"] == "stdout" else sys.stderr).buffer
    try:
        file.write(base64.b64decode(part["data"]))
        file.flush()
    except BrokenPipeError:
        # The reader of the output is gone: the jobs end as a pipeline would.
        _cancel(uri, ids, "the reader of the output has gone")
        raise


@contextmanager
def _interruptible(uri: str, ids: list[int]) -> Iterator[None]:
    """The first interrupt cancels the jobs, whose end is then waited for; a second ends that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # Not by print: the interrupt may have come in the middle of one.
        with suppress(OSError):
            os.write(2, b"penstock run: interrupted: cancelling (again to give up)\n")
        _cancel(uri, ids, "interrupted")

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _cancel(uri: str, ids: list[int], note: str) -> None:
    """Cancels the jobs over a connection of its own: the other one is in use."""
    with Client(uri) as client:
        client.cancel(ids, note=note)
