"""Figures of past jobs over time: cores in use, wait, bounded slowdown."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median, quantiles
from typing import TYPE_CHECKING

from penstock.sim.units import bounded_slowdown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

PERIODS = {"1h": 3600.0, "6h": 21600.0, "24h": 86400.0, "7d": 604800.0, "30d": 2592000.0}
BUCKET_COUNT = 96


@dataclass(frozen=True)
class Period:
    """A time, divided into `BUCKET_COUNT` buckets of the same length: seconds since the epoch."""

    begin: float
    end: float

    @property
    def width(self) -> float:
        """The length of a bucket in seconds."""
        return (self.end - self.begin) / BUCKET_COUNT

    def bucket(self, when: float) -> int:
        """The bucket of a time in the period."""
        return min(max(int((when - self.begin) / self.width), 0), BUCKET_COUNT - 1)

    def middle(self, bucket: int) -> float:
        """The time in the middle of a bucket."""
        return self.begin + (bucket + 0.5) * self.width


def cores_in_use(rows: Iterable[Mapping[str, Any]], period: Period) -> list[float]:
    """The mean number of allocated cores in each bucket.

    Args:
        rows: jobs, with `t_run`, `t_inactive` and `ncores`.
        period: the time; a job without an end has its cores until the end of it.
    """
    sums = [0.0] * BUCKET_COUNT
    for row in rows:
        if "t_run" not in row:
            continue
        begin = max(row["t_run"], period.begin)
        end = min(row.get("t_inactive", period.end), period.end)
        if end <= begin:
            continue
        first, last = period.bucket(begin), period.bucket(end)
        for bucket in range(first, last + 1):
            left = max(begin, period.begin + bucket * period.width)
            right = min(end, period.begin + (bucket + 1) * period.width)
            sums[bucket] += max(0.0, right - left) * row["ncores"]
    return [total / period.width for total in sums]


@dataclass(frozen=True)
class Spread:
    """The values of the jobs that ended in a bucket: their number, median and 90th percentile."""

    time: float
    count: int
    median: float
    high: float


@dataclass(frozen=True)
class Waits:
    """The waits (seconds) and bounded slowdowns of jobs by the time at which they ended."""

    waits: Sequence[Spread]
    slowdowns: Sequence[Spread]
    count: int
    median_wait: float | None
    median_slowdown: float | None


def waits(rows: Iterable[Mapping[str, Any]], period: Period) -> Waits:
    """The waits and slowdowns of the jobs that ended in a period and had started.

    Args:
        rows: jobs, with `t_submit`, `t_run`, `t_cleanup` and `t_inactive`.
        period: the time.
    """
    wait_lists: list[list[float]] = [[] for _ in range(BUCKET_COUNT)]
    slowdown_lists: list[list[float]] = [[] for _ in range(BUCKET_COUNT)]
    for row in rows:
        end = row.get("t_inactive", math.inf)
        if "t_run" not in row or not period.begin <= end <= period.end:
            continue
        wait = max(0.0, row["t_run"] - row["t_submit"])
        run = max(0.0, row.get("t_cleanup", end) - row["t_run"])
        bucket = period.bucket(end)
        wait_lists[bucket].append(wait)
        slowdown_lists[bucket].append(bounded_slowdown(wait, run))
    all_waits = [wait for each in wait_lists for wait in each]
    all_slowdowns = [slowdown for each in slowdown_lists for slowdown in each]
    return Waits(
        _spreads(wait_lists, period),
        _spreads(slowdown_lists, period),
        len(all_waits),
        median(all_waits) if all_waits else None,
        median(all_slowdowns) if all_slowdowns else None,
    )


def _spreads(lists: Sequence[Sequence[float]], period: Period) -> list[Spread]:
    return [
        Spread(period.middle(bucket), len(values), median(values), _high(values))
        for bucket, values in enumerate(lists)
        if values
    ]


def _high(values: Sequence[float]) -> float:
    if len(values) == 1:
        return values[0]
    return quantiles(values, n=10, method="inclusive")[-1]
