"""Texts of the scheduler's estimates: when a job starts, and how accurate estimates have been."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.cli.rows import STATES, reason
from penstock.cli.text import clock, span
from penstock.errors import Error, NotFoundError, RpcError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from penstock.client import Client
    from penstock.rows import Accuracy, JobRow

SCHED_STATE = 8

MIN_BAND_STARTS = 10
"""The least number of past starts from which a band is shown; fewer are not significant."""


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
            answers[job] = _by_state(client.info(job))
        except NotFoundError as error:
            errors[job] = str(error)
        except RpcError as error:
            errors[job] = error.strerror or str(error)
    return answers, errors


def _by_state(row: JobRow) -> dict[str, Any]:
    state = STATES[row["state"]]
    answer: dict[str, Any] = {"id": row["id"], "kind": state.lower()}
    if row["state"] == SCHED_STATE:
        held = row.get("urgency") == 0 or row.get("priority") == 0
        pending = row.get("pending_reason")
        text = "held: `penstock urgency JOB default` releases it" if held else pending
        return answer | ({"kind": "held"} if held else {}) | {"reason": text or ""}
    if row["state"] < SCHED_STATE:
        return answer | {"reason": reason(row) or f"not yet scheduled: it is in state {state}"}
    if state in ("RUN", "CLEANUP"):
        where = row.get("nodelist") or row.get("ranks") or ""
        return answer | {"reason": f"it runs on {where}" if where else "it runs"}
    return answer | {"reason": f"it has ended: {reason(row) or 'completed'}"}


@contextmanager
def answering(method: str) -> Iterator[None]:
    """Explains the error of a scheduler that does not answer such requests.

    Raises:
        Error: there is no scheduler, or it lacks this method.
    """
    try:
        yield
    except RpcError as error:
        if error.errno != errno.ENOSYS:
            raise
        raise Error(
            f"the scheduler does not support `sched.{method}`\n"
            "hint: Penstock's own does; `penstock services` shows who serves `sched`"
        ) from error


def expected(estimate: Mapping[str, Any], now: float) -> str:
    """A start in words: `starts in 12 min (14:02:10), between 3 min and 20 min from now …`."""
    start = estimate["start"]
    if start <= now:
        return "starts in the next pass of the scheduler"
    text = f"starts in {span(start - now)} ({clock(start, now)})"
    if "earliest" in estimate:
        low, high = span(estimate["earliest"] - now), span(estimate["latest"] - now)
        text += f", between {low} and {high} from now in 80 % of cases so far"
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
