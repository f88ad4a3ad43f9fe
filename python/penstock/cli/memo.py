"""`penstock memo`: notes on a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.arguments import attribute
from penstock.cli.rows import job_id
from penstock.client import Client

if TYPE_CHECKING:
    import argparse

SUMMARY = """Note something on a job: keys and values, shown with its annotations below `user`.

VALUE is JSON or a string; KEY=null takes a note back."""


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("id", type=job_id, metavar="ID")
    parser.add_argument("memo", nargs="+", type=attribute, metavar="KEY=VALUE")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    with Client() as client:
        client.memo(args.id, dict(args.memo))
    return 0
