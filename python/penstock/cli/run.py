"""`penstock run`: submit, show the output, end with the job's exit code."""

from __future__ import annotations

import base64
import os
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from errno import EHOSTUNREACH, ENOSYS
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

# Attempts to read the output of a job whose execution service has ended.
MAX_ATTEMPTS, RETRY_PAUSE_S = 50, 0.1

SUMMARY = """Run a job: submit it, show its output, end with its exit code. Ctrl-C cancels the job.

The exit code is that of the task with the greatest wait status (RFC 21), 128 + N if signal N
ended it. There an exit code other than 0 is greater than any signal: if one task exits with 1 and
another is killed, it is 1."""


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    joboptions.register_streams(parser)
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
    # The errors of streams that have lost the execution service, by job.
    interrupted: dict[int, int] = {}
    # Bytes that were written, by job and stream.
    written: Counter[tuple[int, str]] = Counter()
    for job, part in client.merge(requests):
        if job is None:
            if isinstance(part, RpcError):
                raise part
            rows += part["jobs"]
        elif not isinstance(part, RpcError):
            data = base64.b64decode(part["data"])
            written[job, part["stream"]] += len(data)
            _write(client.uri, ids, part["stream"], data)
        elif part.errno in (EHOSTUNREACH, ENOSYS):
            interrupted[job] = part.errno
        # Another error means that nothing is retained, because the output went to a file.
    for job, errnum in interrupted.items():
        # ENOSYS: simulated execution, which retains nothing, or the service was being started.
        attempts = MAX_ATTEMPTS if errnum == EHOSTUNREACH else 1
        _show_rest(client, ids, job, written, attempts)
    return rows


def _show_rest(
    client: Client, ids: list[int], job: int, written: Counter[tuple[int, str]], attempts: int
) -> None:
    """Shows the output of a job from where the connection to its execution service was lost."""
    for attempt in range(attempts):
        time.sleep(RETRY_PAUSE_S if attempt else 0.0)
        read: Counter[str] = Counter()
        try:
            for stream, data in client.output(job):
                new = data[max(written[job, stream] - read[stream], 0) :]
                read[stream] += len(data)
                written[job, stream] += len(new)
                _write(client.uri, ids, stream, new)
        except RpcError as error:
            if error.errno not in (EHOSTUNREACH, ENOSYS):
                return
        else:
            return


def _write(uri: str, ids: list[int], stream: str, data: bytes) -> None:
    file = (sys.stdout if stream == "stdout" else sys.stderr).buffer
    try:
        file.write(data)
        file.flush()
    except BrokenPipeError:
        # The reader of the output has closed it: the jobs end as a pipeline would.
        _cancel(uri, ids, "the reader of the output has gone")
        raise


@contextmanager
def _interruptible(uri: str, ids: list[int]) -> Iterator[None]:
    """The first interrupt cancels the jobs, whose end is awaited; the second ends the wait."""
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
