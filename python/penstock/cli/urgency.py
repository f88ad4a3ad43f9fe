"""`penstock urgency`: the order of pending jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.arguments import urgency
from penstock.cli.ids import JobIds
from penstock.cli.rows import show_changes
from penstock.client import Client

if TYPE_CHECKING:
    import argparse

SUMMARY = """Change the urgency of pending jobs (RFC 30).

0 holds a job, 16 is the default, 31 expedites it. Only the instance owner may go
above 16."""


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("id", nargs="+", action=JobIds, metavar="ID")
    parser.add_argument(
        "urgency", type=urgency, metavar="URGENCY", help="0 to 31, or hold, default, expedite"
    )


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    with Client() as client:
        response = client.urgency(args.id, args.urgency)
    return show_changes("urgency", args.id, response, "changed")
