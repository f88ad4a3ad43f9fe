"""`penstock kill`: signals for running jobs."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from penstock.cli.arguments import signum
from penstock.cli.ids import JobIds
from penstock.cli.rows import show_changes
from penstock.client import Client

if TYPE_CHECKING:
    import argparse

SUMMARY = """Send a signal to every task of running jobs.

`penstock cancel` ends jobs, running or not."""


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument(
        "-s",
        "--signal",
        type=signum,
        default=signal.SIGTERM,
        metavar="SIGNAL",
        help="number or name (default TERM)",
    )
    parser.add_argument("id", nargs="+", action=JobIds, metavar="ID")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    with Client() as client:
        response = client.kill(args.id, args.signal)
    return show_changes("kill", args.id, response, "signalled")
