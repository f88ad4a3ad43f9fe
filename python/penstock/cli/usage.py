"""`penstock usage`: node, core and gpu hours by user, queue, project and month."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from collections import defaultdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.cli import selection
from penstock.cli.arguments import userid
from penstock.cli.jobs import since
from penstock.cli.text import json_text, safe
from penstock.client import Client

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from penstock.rows import JobRow

SUMMARY = """Show the node, core and gpu hours of jobs, by default by user and month.

A job is counted from its allocation until its resources are free, or until now; one that runs past
the end of a month (local time) is counted in both months, each with its share. Purged jobs are not
counted. An elastic job counts with its last resources for its whole time."""

KEYS = ("user", "queue", "project", "bank", "month")
AMOUNTS = ("node", "core", "gpu")
ATTRIBUTES = "userid queue project bank t_run t_inactive nnodes ncores ngpus".split()


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
    parts: list[dict[str, Any]] = []
    if args.user is not None:
        parts.append({"userid": [args.user]})
    if args.queue:
        parts.append({"queue": args.queue.split(",")})
    usage = Usage(args.by, args.since, args.until, args.clock.now())
    with Client() as client:
        for row in client.iter_job_rows(
            constraint={"and": parts}, since=args.since, attrs=ATTRIBUTES
        ):
            usage.add(row)
    rows = usage.rows()
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


class Usage:
    """Sums of hours by the values of keys.

    Args:
        keys: of `KEYS`.
        first: the start of the period, seconds since the epoch.
        last: its end.
        now: the current time, until which a running job is counted.
    """

    def __init__(self, keys: list[str], first: float, last: float, now: float) -> None:
        self._keys = keys
        self._first = first
        self._last = min(last, now)
        # By the values of the keys: the number of jobs, and seconds of nodes, cores and gpus.
        self._sums: dict[tuple[str | None, ...], list[float]] = defaultdict(lambda: [0.0] * 4)

    def add(self, row: JobRow) -> None:
        """Adds the usage of a job, whose row has `ATTRIBUTES`."""
        begin = row.get("t_run")
        if begin is None:
            return
        begin = max(begin, self._first)
        end = min(row.get("t_inactive", math.inf), self._last)
        if end <= begin:
            return
        fixed: dict[str, str | None] = {
            "user": str(row["userid"]),
            "queue": row.get("queue"),
            "project": row.get("project"),
            "bank": row.get("bank"),
        }
        amounts = [row.get("nnodes", 0), row["ncores"], row.get("ngpus", 0)]
        spans = _months(begin, end) if "month" in self._keys else [(None, end - begin)]
        for month, seconds in spans:
            values = fixed | {"month": month}
            sums = self._sums[tuple(values[key] for key in self._keys)]
            sums[0] += 1
            for place, amount in enumerate(amounts, 1):
                sums[place] += amount * seconds

    def rows(self) -> list[dict[str, Any]]:
        """A row for each combination of values, in their order."""
        rows = []
        for values, (jobs, *seconds) in self._sums.items():
            row: dict[str, Any] = dict(zip(self._keys, values, strict=True))
            if "user" in row:
                row["user"] = selection.username(int(row["user"]))
            row["jobs"] = int(jobs)
            row |= {
                f"{name}_hours": part / 3600 for name, part in zip(AMOUNTS, seconds, strict=True)
            }
            rows.append(row)
        return sorted(rows, key=lambda row: [row[key] or "" for key in self._keys])


def _months(begin: float, end: float) -> Iterator[tuple[str, float]]:
    """The months of a time span, each with its seconds of the span."""
    while begin < end:
        day = datetime.fromtimestamp(begin).astimezone()
        year, month = (day.year, day.month + 1) if day.month < 12 else (day.year + 1, 1)
        following = min(datetime(year, month, 1).astimezone().timestamp(), end)
        yield f"{day:%Y-%m}", following - begin
        begin = following
