"""`penstock memo`: annotations of a job."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import TYPE_CHECKING, Any

from penstock.cli.arguments import attribute
from penstock.cli.rows import job_id
from penstock.client import Client

if TYPE_CHECKING:
    import argparse

SUMMARY = """Set annotations of a job: keys and values, shown below `user`.

VALUE is JSON or a string; KEY=null removes a key."""


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("id", type=job_id, metavar="ID")
    parser.add_argument("memo", nargs="+", type=note, metavar="KEY=VALUE")


def note(text: str) -> tuple[str, Any]:
    """`KEY=VALUE`.

    Raises:
        ArgumentTypeError: one of them is missing; that is bad usage.
    """
    key, separator, _ = text.partition("=")
    if not key or not separator:
        raise ArgumentTypeError(f"expected KEY=VALUE, found `{text}`")
    return attribute(text)


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    with Client() as client:
        client.memo(args.id, dict(args.memo))
    return 0
