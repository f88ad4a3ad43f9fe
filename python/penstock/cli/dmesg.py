"""`penstock dmesg`: the instance's log."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from penstock.cli.text import json_text, safe_lines
from penstock.client import Client

if TYPE_CHECKING:
    import argparse

    from penstock.rows import LogRow

SUMMARY = "Show the newest lines of the instance's log, which it keeps in memory."


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    add = parser.add_argument
    add("-f", "--follow", action="store_true", help="follow new lines until Ctrl-C")
    add("-n", "--new", action="store_true", help="with -f: only new lines")
    clear = parser.add_mutually_exclusive_group()
    clear.add_argument(
        "-c", "--read-clear", action="store_true", help="clear the lines that were shown"
    )
    clear.add_argument("-C", "--clear", action="store_true", help="clear all lines, show none")
    add("--json", action="store_true", help="one object a line")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    with Client() as client:
        if args.clear:
            client.log_clear()
            return 0
        shown = 0
        try:
            with client.dmesg(follow=args.follow, backlog=not args.new) as lines:
                for row in lines:
                    print(json_text(row) if args.json else _line(row), flush=args.follow)
                    shown = row["sequence"]
        except KeyboardInterrupt:
            if args.read_clear:
                client.log_clear(shown)
            raise
        if args.read_clear:
            # Lines logged since then have not been shown.
            client.log_clear(shown)
    return 0


def _line(row: LogRow) -> str:
    when = datetime.fromtimestamp(row["timestamp"]).astimezone()
    stamp = when.isoformat(sep=" ", timespec="milliseconds")
    # Continuation lines are indented, so that a text cannot forge a row.
    text = safe_lines(row["text"], indent="    ")
    return f"{stamp} {row['component']} {row['level']}: {text}"
