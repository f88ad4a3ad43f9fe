"""`penstock run`: submit, show the output, end with the job's exit code."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

from penstock._core import fluid_f58
from penstock.cli import joboptions
from penstock.cli.rows import exit_code, reason
from penstock.cli.submit import submit
from penstock.client import Client
from penstock.errors import RpcError

if TYPE_CHECKING:
    import argparse

SUMMARY = "Run a job: submit it, show its output, end with its exit code. Ctrl-C cancels the job."


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    joboptions.register(parser)


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    specs = joboptions.jobspecs(args)
    with Client() as client:
        ids, code = submit(client, specs, args.urgency)
        try:
            rows = _show(client, ids)
        except KeyboardInterrupt:
            # A second one ends this wait, too.
            print("penstock run: interrupted: cancelling (again to give up)", file=sys.stderr)
            rows = _cancel(client.uri, ids)
    for row in rows:
        text = reason(row)
        if row.get("exception_occurred") and text:
            print(f"penstock run: {fluid_f58(row['id'])}: {text}", file=sys.stderr)
    return max([code, *map(exit_code, rows)])


def _show(client: Client, ids: list[int]) -> list[dict[str, Any]]:
    """Shows the jobs' output until they are over; returns their rows."""
    followers = [
        threading.Thread(target=_follow, args=(client.uri, job), daemon=True) for job in ids
    ]
    for follower in followers:
        follower.start()
    rows = list(client.wait(ids))
    for follower in followers:
        follower.join()
    return rows


def _cancel(uri: str, ids: list[int]) -> list[dict[str, Any]]:
    """Cancels the jobs and waits for them, over a connection that nothing has interrupted."""
    with Client(uri) as client:
        client.cancel(ids, note="interrupted")
        return list(client.wait(ids))


def _follow(uri: str, job: int) -> None:
    files = {"stdout": sys.stdout.buffer, "stderr": sys.stderr.buffer}
    try:
        with Client(uri) as client:
            for stream, data in client.output(job, follow=True):
                files[stream].write(data)
                files[stream].flush()
    except (RpcError, OSError):
        # Nothing is kept (the output went to a file, or execution is simulated), the instance has
        # gone (the main thread tells that), or nobody reads our own output any more.
        return
