"""The results of a simulation, in columns."""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock._core import SimResult
    from penstock.sim.machine import Machine
    from penstock.sim.workload import Workload

__all__ = ["STATES", "Denial", "Results", "Run", "Study", "from_simulation", "nothing_to_allocate"]

STATES = ("never started", "ended", "killed at its limit", "lost with a node", "denied")
"""The meanings of the numbers in the column `state`."""

PENDING, ENDED, KILLED, LOST, DENIED = range(len(STATES))

# The element types of columns that are passed as bytes.
Format = Literal["d", "I", "B", "Q"]
FLOAT64: Format = "d"
UINT32: Format = "I"
UINT8: Format = "B"
UINT64: Format = "Q"
FORMATS = {
    **dict.fromkeys(("submit", "start", "end", "wait", "estimate_start", "time"), FLOAT64),
    **dict.fromkeys(("cores", "nodes", "first_rank", "queued"), UINT32),
    **dict.fromkeys(("backfilled", "killed", "state"), UINT8),
    **dict.fromkeys(("id", "used_cores"), UINT64),
}


class Denial(NamedTuple):
    """Why jobs can never run.

    Attributes:
        reason: what part of the request is impossible, and the most there is.
        jobs: how many it is of.
        first: the id of the first one.
    """

    reason: str
    jobs: int
    first: int

    def __str__(self) -> str:
        more = "" if self.jobs == 1 else f" and {self.jobs - 1:,} more"
        return f"job {self.first}{more}: {self.reason}"


@dataclass(frozen=True)
class Results:
    """The result of each job under one policy.

    Attributes:
        columns: a sequence each, one entry a job, in the order of the workload. Times are in
            seconds of the trace: `id`, `submit`, `start`, `end`, `wait` (NaN if it never
            started), `cores`, `nodes`, `backfilled`, `estimate_start` (the estimate on
            arrival, NaN without one), `state` (a number of `STATES`).
        series: `time`, `used_cores` and `queued`: what holds from each time to the next.
        summary: the numbers of `summary.json`.
        allocation: the ranks that a job had last, as an idset; on a pool the numbers of its cores.
        denials: why jobs can never run here.
    """

    columns: Mapping[str, Sequence[Any]]
    series: Mapping[str, Sequence[Any]]
    summary: Mapping[str, Any]
    allocation: Callable[[int], str]
    denials: Sequence[Denial] = ()

    def __len__(self) -> int:
        return len(self.columns["id"])


@dataclass(frozen=True)
class Run:
    """One workload on one machine under one policy.

    Attributes:
        policy: what it is called in tables: the queue policy, and the selection where there are
            several.
        queue_policy: the queue policy.
        selection: the selection policy.
        results: what came of it.
    """

    policy: str
    queue_policy: str
    selection: str
    results: Results


@dataclass(frozen=True)
class Study:
    """One workload on one machine, under several policies.

    Attributes:
        name: what the workload is called.
        workload: what was to be run.
        machine: what on.
        cores: how many the machine has.
        assumptions: sentences on what was taken for granted.
        runs: a run a policy.
        unix_start: what time 0 of the trace is, in seconds since the epoch, if that is known.
    """

    name: str
    workload: Workload
    machine: Machine
    cores: int
    assumptions: tuple[str, ...]
    runs: tuple[Run, ...]
    unix_start: float | None = None

    @property
    def denials(self) -> list[str]:
        """Why jobs can never run on this machine: sentences, each once."""
        return list(
            dict.fromkeys(str(denial) for run in self.runs for denial in run.results.denials)
        )


def from_simulation(result: SimResult, seconds: float) -> Results:
    """Reads the columns of a finished simulation, which took `seconds` of real time."""
    return Results(
        _cast(result.columns()),
        _cast(result.series()),
        {**result.summary(), "seconds": seconds},
        result.allocation,
        tuple(Denial(*denial) for denial in result.denials()),
    )


def nothing_to_allocate(_job: int) -> str:
    """The allocations of results that have none."""
    return ""


def _cast(columns: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    views: dict[str, Sequence[Any]] = {}
    for name, data in columns.items():
        view = memoryview(data)
        # Columns passed as bytes get their element type here.
        views[name] = view.cast(FORMATS[name]) if view.format == "B" else view
    return views


# --- what the report draws


def mean_over(
    times: Sequence[float], values: Sequence[float], low: float, high: float, bins: int
) -> list[float]:
    """The means of a step function over equal parts of an interval.

    Args:
        times: ascending; what holds before the first is 0.
        values: what holds from each time to the next, the last without end.
        low: where the interval begins.
        high: where it ends.
        bins: how many parts.
    """
    wide = (high - low) / bins
    sums = [0.0] * bins
    for place in range(max(bisect.bisect_right(times, low) - 1, 0), len(times)):
        begin = max(times[place], low)
        if begin >= high:
            break
        end = min(times[place + 1], high) if place + 1 < len(times) else high
        value = values[place]
        bucket = min(int((begin - low) / wide), bins - 1)
        while begin < end and bucket < bins:
            edge = low + (bucket + 1) * wide if bucket < bins - 1 else high
            until = min(end, edge)
            sums[bucket] += value * max(until - begin, 0.0)
            begin, bucket = max(until, edge), bucket + 1
    return [total / wide for total in sums]


def peak_over(
    times: Sequence[float], values: Sequence[float], low: float, high: float, bins: int
) -> list[float]:
    """The greatest values of a step function over equal parts of an interval; as `mean_over`."""
    wide = (high - low) / bins
    peaks = [0.0] * bins
    for place in range(max(bisect.bisect_right(times, low) - 1, 0), len(times)):
        begin = max(times[place], low)
        if begin > high:
            break
        end = min(times[place + 1], high) if place + 1 < len(times) else high
        value = values[place]
        last = min(int((end - low) / wide), bins - 1)
        if end == low + last * wide and end > begin:
            last -= 1
        for bucket in range(min(int((begin - low) / wide), bins - 1), last + 1):
            peaks[bucket] = max(peaks[bucket], value)
    return peaks


def quantile(ordered: Sequence[float], part: float) -> float:
    """A quantile of ascending values: the least of which at least that part are no greater."""
    if not ordered:
        return math.nan
    return ordered[max(math.ceil(part * len(ordered) - 1e-9), 1) - 1]
