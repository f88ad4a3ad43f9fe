"""`penstock explain`: why a job is not running."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.cli import planned
from penstock.cli.arguments import whole
from penstock.cli.ids import JobIds
from penstock.cli.planned import Planner, by_states, expected, parts
from penstock.cli.rows import tell
from penstock.cli.text import json_text, safe
from penstock.client import Client
from penstock.jobid import f58

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from penstock.rows import Explained
    from penstock.snapshot import SnapshotScheduler

SUMMARY = """Explain why jobs are pending: what they request, how much of it is free, what blocks
them, and when they are expected to start."""


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    add = parser.add_argument
    planned.register(parser)
    add("--json", action="store_true", help="one object a job, with the numbers")
    add(
        *("-c", "--count"),
        type=whole,
        default=100,
        metavar="N",
        help="of all pending jobs, the first N (default 100; 0: all)",
    )
    add(
        "id",
        nargs="*",
        action=JobIds,
        metavar="ID",
        help="default: your pending jobs; `-`: from standard input",
    )


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    with Client(args.uri) as client:
        ids = args.id or _pending(client, args.count)
        answers, errors = by_states(client, ids)
        queued = [job for job in ids if job in answers and not answers[job]["reason"]]
        if queued:
            planner = Planner(client, args, "explain")
            for part in parts(queued):
                explained = planner.ask(_query(part))
                answers |= {reason["id"]: {**reason} for reason in explained.reasons}
                errors |= explained.errors
    if not (ids or args.json):
        print("none of your jobs is pending")
    now = args.clock.now()
    for job in ids:
        if job in errors or job not in answers:
            continue
        answer = {**answers[job], "id": f58(job), "id_int": job}
        if args.json:
            print(json_text(answer))
            continue
        print(f"{answer['id']}: {safe(answer['reason'])}")
        if answer.get("start") is not None:
            print(f"    {expected(answer, now)}")
    return tell("explain", errors)


def _query(jobs: list[int]) -> Callable[[Client | SnapshotScheduler], Explained]:
    return lambda scheduler: scheduler.explain(jobs)


def _pending(client: Client, most: int) -> list[int]:
    """The user's pending jobs, in queue order."""
    constraint = {"and": [{"states": ["pending"]}, {"userid": [os.getuid()]}]}
    rows = client.job_rows(constraint=constraint, attrs=["priority"])
    rows.sort(key=lambda row: (-row.get("priority", 0), row["id"]))
    return [row["id"] for row in rows[: most or None]]
