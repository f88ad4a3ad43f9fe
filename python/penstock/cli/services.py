"""`penstock services`: the services and their processes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from penstock.cli.text import safe
from penstock.client import Client

if TYPE_CHECKING:
    import argparse

SUMMARY = "List the services of an instance and the processes that serve them."


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("--json", action="store_true", help="one object a line")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    with Client() as client:
        rows = client.services()
    if not args.json:
        print(f"{'NAME':<14} {'PID':>8} {'UID':>6}  {'WHERE':<7} STATE")
    for row in rows:
        where = "inside" if row["inside"] else "socket"
        # Guests are not told the processes.
        pid = row.get("pid", "-")
        text = f"{safe(row['name']):<14} {pid:>8} {row['uid']:>6}  {where:<7} {row['state']}"
        print(json.dumps(row) if args.json else text)
    return 0
