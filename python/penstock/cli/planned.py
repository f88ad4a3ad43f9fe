"""Texts of the scheduler's estimates: when a job starts, and how accurate estimates have been."""

from __future__ import annotations

import errno
import sys
from typing import TYPE_CHECKING, Any, TypeVar

from penstock._core import job_state
from penstock.cli.arguments import queue_policy
from penstock.cli.rows import STATES, reason
from penstock.cli.text import clock, span
from penstock.errors import Error, NotFoundError, RpcError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from penstock.client import Client
    from penstock.rows import Accuracy, JobRow
    from penstock.snapshot import SnapshotScheduler

T = TypeVar("T")

MIN_BAND_STARTS = 10
"""The least number of past starts from which a band is shown; fewer are not significant."""


MAX_QUERIED_JOBS = 1000
"""The most jobs of one request to the scheduler."""


def parts(jobs: list[int]) -> Iterator[list[int]]:
    """The jobs in parts, each for one request to the scheduler."""
    for first in range(0, len(jobs), MAX_QUERIED_JOBS):
        yield jobs[first : first + MAX_QUERIED_JOBS]


def by_states(
    client: Client, ids: Iterable[int]
) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
    """The reasons why jobs are not started, as far as their states determine them.

    Args:
        client: of the instance.
        ids: the jobs.

    Returns:
        For each job its `kind` and `reason`, which is empty if only the scheduler knows it;
        and for each other job the error of its lookup.
    """
    answers: dict[int, dict[str, Any]] = {}
    errors: dict[int, str] = {}
    for job in ids:
        try:
            answers[job] = _by_state(client.job_row(job))
        except NotFoundError as error:
            errors[job] = str(error)
        except RpcError as error:
            errors[job] = error.strerror or str(error)
    return answers, errors


def _by_state(row: JobRow) -> dict[str, Any]:
    state = STATES[row["state"]]
    answer: dict[str, Any] = {"id": row["id"], "kind": state.lower()}
    if row["state"] == job_state.SCHED:
        held = row.get("urgency") == 0 or row.get("priority") == 0
        pending = row.get("pending_reason")
        text = "held: `penstock urgency JOB default` releases it" if held else pending
        return answer | ({"kind": "held"} if held else {}) | {"reason": text or ""}
    if row["state"] < job_state.SCHED:
        return answer | {"reason": reason(row) or f"not yet scheduled: it is in state {state}"}
    if state in ("RUN", "CLEANUP"):
        where = row.get("nodelist") or row.get("ranks") or ""
        return answer | {"reason": f"it runs on {where}" if where else "it runs"}
    return answer | {"reason": f"it has ended: {reason(row) or 'completed'}"}


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say whom to ask."""
    add = parser.add_argument
    add("--uri", metavar="URI", help="the instance, of Penstock or Flux (default: PENSTOCK_URI)")
    add(
        "--policy",
        type=queue_policy,
        metavar="NAME",
        help="predict with this policy from a snapshot of resources and jobs: fcfs, easy, "
        "conservative, hybrid:N; with easy if the scheduler of the instance does not answer",
    )


class Planner:
    """Answers the queries of a scheduler: that of the instance, or one here on a snapshot.

    Args:
        client: of the instance.
        args: with the options of `register`, `clock` and `prog`.
    """

    def __init__(self, client: Client, args: argparse.Namespace, verb: str) -> None:
        self._client = client
        self._verb = verb
        self._clock = args.clock
        self._policy = args.policy
        self._scheduler = None if args.policy is None else self._take_snapshot()

    def ask(self, query: Callable[[Client | SnapshotScheduler], T]) -> T:
        """The answer to a query."""
        if self._scheduler is None:
            try:
                return query(self._client)
            except RpcError as error:
                if error.errno != errno.ENOSYS:
                    raise
            self._scheduler = self._take_snapshot()
        return query(self._scheduler)

    @property
    def is_snapshot(self) -> bool:
        """Whether the answers come from a snapshot."""
        return self._scheduler is not None

    def _take_snapshot(self) -> SnapshotScheduler:
        from penstock import snapshot

        try:
            taken = snapshot.take(self._client, self._clock.now())
        except RpcError as error:
            raise Error(f"no snapshot of the instance: {error.strerror}") from error
        if self._policy is None:
            self._tell(
                "the scheduler of the instance does not answer; this is what Penstock's would do, "
                f"with the policy {taken.policy}"
            )
        if taken.unreadable:
            self._tell(f"without {taken.unreadable} pending jobs of other users")
        return taken.scheduler(self._policy)

    def _tell(self, text: str) -> None:
        print(f"penstock {self._verb}: {text}", file=sys.stderr)


def expected(estimate: Mapping[str, Any], now: float) -> str:
    """A start in words: `starts in 12 min (14:02:10) by the time limits of jobs; …`."""
    start = estimate["start"]
    if start <= now:
        return "starts in the next pass of the scheduler"
    text = f"starts in {span(start - now)} ({clock(start, now)})"
    if "earliest" in estimate:
        low, high = span(estimate["earliest"] - now), span(estimate["latest"] - now)
        text += (
            " by the time limits of jobs; "
            f"by the estimates so far, between {low} and {high} from now in 80 % of cases"
        )
    return text


def accuracy(seen: Accuracy) -> str:
    """The difference between starts and their estimates at submission, in words."""
    if not seen["count"]:
        return "no start has been compared with its estimate yet"
    if seen["count"] == 1:
        return f"1 start so far was {_late(seen['mean'])}"
    text = f"{seen['count']} starts so far were {_late(seen['mean'])} on average"
    if seen["count"] >= MIN_BAND_STARTS:
        text += f", 80 % of them between {_late(seen['low'])} and {_late(seen['high'])}"
    return text


def _late(seconds: float) -> str:
    if abs(seconds) < 1.0:
        return "on time"
    return f"{span(abs(seconds))} {'late' if seconds > 0 else 'early'}"
