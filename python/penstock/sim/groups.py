"""Results by user, group or queue of a trace, and how equally they are served."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from penstock.errors import TraceError
from penstock.sim.units import bounded_slowdown, count, duration, number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.sim.results import Results, Run, Study
    from penstock.sim.workload import Workload

__all__ = ["GROUPINGS", "Grouping", "Share", "fairness", "labels", "shares", "text"]

Grouping = Literal["user", "group", "queue"]
GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)
"""The columns by which results are grouped."""

MAX_SHOWN = 10


@dataclass(frozen=True)
class Share:
    """The jobs of one user, group or queue under one policy.

    Attributes:
        name: as in the trace; empty for unknown.
        jobs: its jobs that were started.
        core_seconds: what they used.
        wait_mean: their mean wait, in seconds.
        slowdown_mean: their mean bounded slowdown.
    """

    name: str
    jobs: int
    core_seconds: float
    wait_mean: float
    slowdown_mean: float


def labels(workload: Workload, by: Grouping) -> list[str]:
    """The user, group or queue of each job, in the order of the file; empty for unknown ones.

    Raises:
        TraceError: the trace names none.
    """
    column: Sequence[Any] | None = workload.columns().get(by)
    if column is None:
        raise TraceError(f"`{workload.name}`: no job names its {by}")
    return [_label(value) for value in column]


def _label(value: str | float) -> str:
    if isinstance(value, str):
        return value
    return "" if math.isnan(value) else f"{value:.17g}"


def shares(results: Results, names: Sequence[str]) -> list[Share]:
    """The share of each user, group or queue, by the used core-seconds, the largest first.

    Args:
        results: of one policy.
        names: that of each job, from `labels`.
    """
    columns = results.columns
    found: dict[str, list[tuple[float, float, float]]] = {}
    rows = zip(
        names, columns["wait"], columns["start"], columns["end"], columns["cores"], strict=True
    )
    for name, wait, start, end, cores in rows:
        if not math.isnan(wait):
            run = end - start
            slowdown = bounded_slowdown(wait, run)
            found.setdefault(name, []).append((run * cores, wait, slowdown))
    all_shares = [Share(name, len(jobs), *_totals(jobs)) for name, jobs in found.items()]
    return sorted(all_shares, key=lambda share: (-share.core_seconds, share.name))


def _totals(jobs: Sequence[tuple[float, float, float]]) -> tuple[float, float, float]:
    core_seconds, wait, slowdown = (math.fsum(column) for column in zip(*jobs, strict=True))
    return core_seconds, wait / len(jobs), slowdown / len(jobs)


def fairness(served: Iterable[Share]) -> float:
    """Jain's index of the mean bounded slowdowns: 1 if all are equal, 1/n if one bears it all.

    Source: Jain, Chiu and Hawe 1984. NaN without a share.

    Examples:
        >>> equal = [Share(name, 1, 60.0, 0.0, 2.0) for name in "ab"]
        >>> fairness(equal)
        1.0
    """
    values = [share.slowdown_mean for share in served]
    squares = math.fsum(value * value for value in values)
    return math.fsum(values) ** 2 / (len(values) * squares) if squares else math.nan


def summary(run: Run, names: Sequence[str]) -> dict[str, Any]:
    """The object of `summary.json`: the index of fairness, and each share."""
    served = shares(run.results, names)
    return {"fairness": fairness(served), "shares": [vars(share) for share in served]}


def text(study: Study, by: Grouping) -> Iterator[str]:
    """A table for each policy, of those with the most core-seconds.

    Raises:
        TraceError: the trace names none.
    """
    names = labels(study.workload, by)
    for run in study.runs:
        served = shares(run.results, names)
        yield f"{run.policy}: {len(served):,} by {by}, fairness of slowdowns {fairness(served):.3f}"
        rows: list[tuple[str, ...]] = [(by, "jobs", "core-hours", "mean wait", "mean slowdown")]
        rows += [
            (
                share.name or "-",
                count(share.jobs),
                number(share.core_seconds / 3600),
                duration(share.wait_mean),
                number(share.slowdown_mean),
            )
            for share in served[:MAX_SHOWN]
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for first, *others in rows:
            cells = (f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True))
            yield "  ".join([f"{first:<{widths[0]}}", *cells]).rstrip()
        if len(served) > MAX_SHOWN:
            yield f"and {len(served) - MAX_SHOWN:,} more"
