"""`penstock dmesg`: the instance's log."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.client import Client

if TYPE_CHECKING:
    import argparse

    from penstock.rows import LogRow

SUMMARY = "Show the newest lines of the instance's log, which it keeps in memory."


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    add = parser.add_argument
    add("-f", "--follow", action="store_true", help="go on with what comes, until Ctrl-C")
    add("-n", "--new", action="store_true", help="with -f: only what comes")
    clear = parser.add_mutually_exclusive_group()
    clear.add_argument("-c", "--read-clear", action="store_true", help="forget what was shown")
    clear.add_argument("-C", "--clear", action="store_true", help="forget all, show nothing")
    add("--json", action="store_true", help="one object a line")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    with Client() as client:
        if not args.clear:
            with client.dmesg(follow=args.follow, backlog=not args.new) as lines:
                for row in lines:
                    text = json.dumps(row, ensure_ascii=False) if args.json else _line(row)
                    print(text, flush=args.follow)
        if args.clear or args.read_clear:
            client.log_clear()
    return 0


def _line(row: LogRow) -> str:
    when = datetime.fromtimestamp(row["timestamp"]).astimezone()
    stamp = when.isoformat(sep=" ", timespec="milliseconds")
    return f"{stamp} {row['component']} {row['level']}: {row['text']}"
