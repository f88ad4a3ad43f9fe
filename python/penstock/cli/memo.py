"""`penstock memo`: annotations of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.cli.arguments import attribute, key_value
from penstock.cli.ids import OneJobId
from penstock.client import Client

if TYPE_CHECKING:
    import argparse

SUMMARY = """Set annotations of a job: keys and values, shown below `user`.

VALUE is JSON or a string; KEY=null removes a key."""


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("id", action=OneJobId, metavar="ID")
    parser.add_argument("memo", nargs="+", type=assignment, metavar="KEY=VALUE")


def assignment(text: str) -> tuple[str, Any]:
    """`KEY=VALUE`.

    Raises:
        ArgumentTypeError: one of them is missing; that is bad usage.
    """
    key_value(text)
    return attribute(text)


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    with Client() as client:
        client.memo(args.id, dict(args.memo))
    return 0
