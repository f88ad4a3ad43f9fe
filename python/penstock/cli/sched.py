"""`penstock sched`: the scheduler as a process of its own."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

SUMMARY = """Run a scheduler as a process of its own, attached to an instance that has none
(`penstock start --sched none`). It can be killed and started again while jobs run."""


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("--uri", help="the instance (default: PENSTOCK_URI)")
    parser.add_argument(
        "--limit", type=int, metavar="N", help="take at most N requests at a time (default: all)"
    )
    parser.add_argument(
        "--no-grow",
        action="store_true",
        help="do not ask to be told of new nodes (where resource.acquire may have no payload)",
    )


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    from penstock import sched
    from penstock.cli.logformat import log_to_stderr

    if args.limit is not None and not 1 <= args.limit <= 0x7FFFFFFF:
        print("penstock sched: --limit: expected 1 to 2147483647", file=sys.stderr)
        return 2
    log_to_stderr(logging.INFO, "penstock sched: %(message)s")
    return sched.run(args.uri, args.limit, grow=not args.no_grow)
