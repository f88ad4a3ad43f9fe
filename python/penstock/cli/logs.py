"""`penstock logs`: a job's output, as the instance stored it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from penstock.cli.rows import job_id
from penstock.client import Client

if TYPE_CHECKING:
    import argparse

SUMMARY = "Show a job's output: its stdout on stdout, its stderr on stderr."


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("-f", "--follow", action="store_true", help="follow until the job ends")
    parser.add_argument(
        "--stream", choices=["stdout", "stderr"], help="only this stream (default: both)"
    )
    parser.add_argument("id", type=job_id, metavar="ID")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    files = {"stdout": sys.stdout.buffer, "stderr": sys.stderr.buffer}
    streams = [args.stream] if args.stream else list(files)
    with Client() as client:
        for stream, data in client.output(args.id, follow=args.follow, streams=streams):
            files[stream].write(data)
            files[stream].flush()
    return 0
