"""`penstock wait`: returns once jobs have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.ids import JobIds
from penstock.cli.rows import exit_code, job_row
from penstock.cli.text import json_text, safe
from penstock.client import Client
from penstock.errors import UsageError

if TYPE_CHECKING:
    import argparse

SUMMARY = "Wait for jobs to end; exit with the greatest of their exit codes."


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("--all", action="store_true", help="all jobs that are active now")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="print each job's status as it ends"
    )
    parser.add_argument("--json", action="store_true", help="print each job's row as it ends")
    parser.add_argument("id", nargs="*", action=JobIds, metavar="ID")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    if args.all == bool(args.id):
        raise UsageError("expected job ids, or --all")
    code = 0
    with Client() as client:
        if args.all:
            ids = [row["id"] for row in client.job_rows(constraint={"states": ["active"]})]
        else:
            ids = args.id
        for row in client.wait_rows(ids):
            code = max(code, exit_code(row))
            shown = job_row(row)
            if args.json:
                print(json_text(shown), flush=True)
            elif args.verbose:
                why = f": {shown['reason']}" if shown["reason"] else ""
                print(f"{shown['id']}: {shown['status']}{safe(why)}", flush=True)
    return code
