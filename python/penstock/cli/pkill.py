"""`penstock pkill`: cancel jobs by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import selection
from penstock.cli.pgrep import matching, register_expressions
from penstock.cli.rows import tell
from penstock.client import Client

if TYPE_CHECKING:
    import argparse

SUMMARY = """Cancel jobs whose names match, by default your active ones.

An EXPRESSION is as that of `penstock pgrep`. Exits with 1 if no job matches."""


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("-w", "--wait", action="store_true", help="wait until they have ended")
    parser.add_argument("-m", "--message", default="", metavar="NOTE", help="a note for the record")
    register_expressions(parser)


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    with Client() as client:
        rows = matching(client, "pkill", args, selection.ACTIVE, ["name"])
        if not rows:
            return 1
        ids = [row["id"] for row in rows]
        errors = client.cancel(ids, note=args.message).errors
        if args.wait:
            for _ in client.wait_rows([job for job in ids if job not in errors]):
                pass
    return tell("pkill", errors)
