"""`penstock usage`: node, core and gpu hours by user, queue, project and month."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock._core import topic
from penstock.cli import selection
from penstock.cli.arguments import userid
from penstock.cli.jobs import since
from penstock.cli.text import json_text, safe
from penstock.client import Client

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

SUMMARY = """Show the node, core and gpu hours of jobs, by default by user and month.

A job is counted from its allocation until its resources are free, or until now; one that runs past
the end of a month (local time) is counted in both months, each with its share. Purged jobs are not
counted. An elastic job counts with its last resources for its whole time."""

KEYS = ("user", "queue", "project", "bank", "month")
AMOUNTS = ("node", "core", "gpu")


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    add = parser.add_argument

    def when(text: str) -> float:
        return since(text, parser.get_default("clock").now())

    add(
        "--by",
        type=_keys,
        default=["user", "month"],
        metavar="KEYS",
        help=f"a row for each combination of these: {', '.join(KEYS)} (default user,month)",
    )
    text = "a duration before now (2h), an ISO date, @SECONDS"
    add("--since", type=when, default=0.0, metavar="WHEN", help=f"only time after this: {text}")
    add("--until", type=when, default=math.inf, metavar="WHEN", help="only time before this")
    add("-u", "--user", type=userid, metavar="USER", help="jobs of this user (default: of all)")
    add("-q", "--queue", metavar="NAMES", help="jobs of these queues")
    add("-n", "--no-header", action="store_true", help="without titles")
    add("--json", action="store_true", help="one object a line")


def _keys(text: str) -> list[str]:
    keys = text.split(",")
    if unknown := [key for key in keys if key not in KEYS]:
        raise ArgumentTypeError(f"unknown key `{unknown[0]}`: expected {', '.join(KEYS)}")
    return keys


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    last = min(args.until, args.clock.now())
    months = _months(args.since, last) if "month" in args.by else [("", args.since)]
    labels, begins = zip(*months, strict=True) if args.since < last else ((), ())
    payload: dict[str, Any] = {
        "by": [key for key in args.by if key != "month"],
        "times": [*begins, last],
    }
    if args.user is not None:
        payload["userid"] = args.user
    if args.queue:
        payload["queues"] = args.queue.split(",")
    rows = []
    if labels:
        with Client() as client:
            sums = client.rpc(topic.job_list.USAGE, payload)["sums"]
        rows = sorted(
            (_row(args.by, labels, each) for each in sums),
            key=lambda row: [row[key] or "" for key in args.by],
        )
    if args.json:
        for sums in rows:
            print(json_text(sums))
        return 0
    columns = [*args.by, "jobs", *(f"{name}_hours" for name in AMOUNTS)]
    lines = [] if args.no_header else [[column.upper() for column in columns]]
    lines += [[_text(row[column]) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [
            f"{cell:<{width}}" if place < len(args.by) else f"{cell:>{width}}"
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
    return 0


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    return "-" if value is None else safe(str(value))


def _row(keys: list[str], months: Sequence[str], sums: dict[str, Any]) -> dict[str, Any]:
    """A row of the table: the values of the keys, the number of jobs, and hours."""
    values = {key: sums.get(key) for key in keys}
    if "user" in values:
        values["user"] = selection.username(sums["userid"])
    if "month" in values:
        values["month"] = months[sums["span"]]
    hours = {f"{name}_hours": sums[f"{name}_seconds"] / 3600 for name in AMOUNTS}
    return values | {"jobs": sums["jobs"]} | hours


def _months(begin: float, end: float) -> Iterator[tuple[str, float]]:
    """The months of a time span, each with the time at which it begins or the span does."""
    while begin < end:
        day = datetime.fromtimestamp(begin).astimezone()
        yield f"{day:%Y-%m}", begin
        year, month = (day.year, day.month + 1) if day.month < 12 else (day.year + 1, 1)
        begin = datetime(year, month, 1).astimezone().timestamp()
