"""What the scheduler expects, in words: when a job starts, and how good that has been so far."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.cli.when import clock, span
from penstock.errors import Error, RpcError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.rows import Accuracy

FEW = 10
"""Of so many starts no band is told: it would say nothing."""


@contextmanager
def answering(method: str) -> Iterator[None]:
    """Says plainly where nobody answers such a question.

    Raises:
        Error: there is no scheduler, or it is one that does not answer this.
    """
    try:
        yield
    except RpcError as error:
        if error.errno != errno.ENOSYS:
            raise
        raise Error(
            f"no scheduler answers `sched.{method}` here\n"
            "hint: Penstock's own does; `penstock services` shows who serves `sched`"
        ) from error


def expected(estimate: Mapping[str, Any], now: float) -> str:
    """A start in words: `starts in 12 min (14:02:10), between 3 min and 20 min from now …`."""
    start = estimate["start"]
    if start <= now:
        return "starts as soon as the scheduler gets to it"
    text = f"starts in {span(start - now)} ({clock(start, now)})"
    if "earliest" in estimate:
        low, high = span(estimate["earliest"] - now), span(estimate["latest"] - now)
        text += f", between {low} and {high} from now in 80 % of cases so far"
    return text


def accuracy(seen: Accuracy) -> str:
    """How far starts were from what was expected of them when the jobs came."""
    if not seen["count"]:
        return "no start has been compared with its estimate yet"
    text = f"{seen['count']} starts so far were {_late(seen['mean'])} on average"
    if seen["count"] >= FEW:
        text += f", 80 % of them between {_late(seen['low'])} and {_late(seen['high'])}"
    return text


def _late(seconds: float) -> str:
    if abs(seconds) < 1.0:
        return "on time"
    return f"{span(abs(seconds))} {'late' if seconds > 0 else 'early'}"
