"""`penstock estimate`: when jobs are expected to start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.cli import planned
from penstock.cli.arguments import whole
from penstock.cli.ids import JobIds
from penstock.cli.planned import Planner, accuracy, by_states, parts
from penstock.cli.rows import tell
from penstock.cli.text import clock, json_text, safe, span
from penstock.client import Client
from penstock.jobid import f58

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from penstock.rows import Accuracy, Estimates, StartEstimate
    from penstock.snapshot import SnapshotScheduler

SUMMARY = """Estimate when pending jobs start: the named ones, or the first in the queue.

An estimate assumes that running jobs end at their time limits and that nothing else is submitted.
The last line shows the accuracy so far: actual starts against the estimates at submission."""


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    add = parser.add_argument
    planned.register(parser)
    add("--json", action="store_true", help="one object a job, with seconds since the epoch")
    add("-n", "--no-header", action="store_true", help="only the lines of the jobs")
    add(
        *("-c", "--count"),
        type=whole,
        default=100,
        metavar="N",
        help="of all jobs, the first N in the queue (default 100; 0: all)",
    )
    add("id", nargs="*", action=JobIds, metavar="ID")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    rows: list[StartEstimate] = []
    seen: Accuracy | None = None
    with Client(args.uri) as client:
        answers, errors = by_states(client, args.id)
        queued = [job for job in args.id if job in answers and not answers[job]["reason"]]
        rows += [
            _unplanned(answers[job]) for job in args.id if job in answers and job not in queued
        ]
        if queued or not args.id:
            planner = Planner(client, args, "estimate")
            estimated: list[StartEstimate] = []
            for part in parts(queued) if queued else [None]:
                answer = planner.ask(_query(part, args.count))
                estimated += answer.jobs
                errors |= answer.errors
                seen = None if planner.is_snapshot else answer.accuracy
            rows[:0] = estimated
    now = args.clock.now()
    titled = not (args.json or args.no_header)
    if titled and rows:
        print(f"{'JOBID':>12} {'START':>16} {'IN':>7} {'EARLIEST':>16} {'LATEST':>16} INFO")
    for job in rows:
        if args.json:
            print(json_text({**job, "id": f58(job["id"]), "id_int": job["id"]}))
        else:
            print(_line(job, now).rstrip())
    if titled and not rows and not errors:
        print("no job is pending")
    if titled and seen is not None:
        print(accuracy(seen))
    return tell("estimate", errors)


def _query(jobs: list[int] | None, count: int) -> Callable[[Client | SnapshotScheduler], Estimates]:
    return lambda scheduler: scheduler.estimate(jobs, max_entries=count)


def _unplanned(answer: Mapping[str, Any]) -> StartEstimate:
    """The row of a job that is not in state SCHED."""
    return {"id": answer["id"], "start": None, "reason": answer["reason"]}


def _line(job: StartEstimate, now: float) -> str:
    start = job["start"]
    when = "-" if start is None else clock(start, now)
    left = "-" if start is None else span(start - now)
    early, late = (clock(job[key], now) if key in job else "-" for key in ("earliest", "latest"))
    reason = safe(job.get("reason", ""))
    return f"{f58(job['id']):>12} {when:>16} {left:>7} {early:>16} {late:>16} {reason}"
