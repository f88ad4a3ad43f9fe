"""`penstock cancel`: end jobs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from penstock._core import fluid_f58
from penstock.cli.rows import job_id
from penstock.client import Client

if TYPE_CHECKING:
    import argparse

SUMMARY = "Cancel jobs, pending or running."


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("--all", action="store_true", help="all active jobs")
    parser.add_argument("-u", "--user", type=int, metavar="UID", help="with --all: of this user")
    parser.add_argument("-m", "--message", default="", metavar="NOTE", help="a note for the record")
    parser.add_argument("id", nargs="*", type=job_id, metavar="ID")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    if args.all == bool(args.id):
        print("penstock cancel: expected job ids, or --all", file=sys.stderr)
        return 2
    with Client() as client:
        if args.all:
            count, errors = client.cancel(note=args.message, userid=args.user)
            print(f"{count} {'job' if count == 1 else 'jobs'} cancelled")
        else:
            _count, errors = client.cancel(args.id, note=args.message)
    for job, text in errors.items():
        print(f"penstock cancel: {fluid_f58(job)}: {text}", file=sys.stderr)
    return 1 if errors else 0
