"""Simulations of several seeds and loads: means of their results, with confidence intervals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from penstock.sim import runs
from penstock.sim.units import duration, number, share

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.sim.machine import Machine
    from penstock.sim.options import Options
    from penstock.sim.policy import Order, Policy
    from penstock.sim.runs import Progress
    from penstock.sim.workload import Workload

__all__ = ["METRICS", "Band", "Point", "sweep", "text"]

METRICS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("mean wait", "wait_mean", duration),
    ("p95 wait", "wait_p95", duration),
    ("mean slowdown", "slowdown_mean", number),
    ("utilisation", "utilisation", share),
)
"""The metrics: name, key in the summary of a run, format of a value."""

# Quantiles of Student's distribution for an interval of 95 %, by degrees of freedom from 1 on.
STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
NORMAL_QUANTILE = 1.96


@dataclass(frozen=True)
class Band:
    """The mean of a metric over several seeds.

    Attributes:
        mean: the mean.
        half: half of the width of its confidence interval of 95 %; None for a single value.
        count: the number of values.
    """

    mean: float
    half: float | None
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Band | None:
        """The mean of some values, which are taken as independent; None without one."""
        if not values:
            return None
        count = len(values)
        if count == 1:
            return cls(values[0], None, 1)
        quantile = STUDENT[count - 2] if count - 2 < len(STUDENT) else NORMAL_QUANTILE
        return cls(fmean(values), quantile * stdev(values) / count**0.5, count)


@dataclass(frozen=True)
class Point:
    """The results of one policy at one load.

    Attributes:
        load: offered load, as a share of the machine; None for that of the workload.
        policy: what it is called in tables.
        metrics: by the key of `METRICS`; None if no run has a value.
    """

    load: float | None
    policy: str
    metrics: Mapping[str, Band | None]

    def row(self) -> dict[str, Any]:
        """The point as an object of JSON."""
        bands = {
            key: band and {"mean": band.mean, "half_width": band.half, "seeds": band.count}
            for key, band in self.metrics.items()
        }
        return {"load": self.load, "policy": self.policy, **bands}


def sweep(
    make: Callable[[float | None, int], Workload],
    machine: Machine,
    options: Options,
    *,
    policies: Sequence[str | Policy | Order],
    selections: Sequence[str] = ("first",),
    loads: Sequence[float | None] = (None,),
    seeds: Sequence[int] = (1,),
    progress: Progress | None = None,
) -> list[Point]:
    """Simulates a workload of each load and seed under each policy.

    Every policy gets the same workloads.

    Args:
        make: the workload of a load and a seed.
        machine: the simulated machine.
        options: the options of each simulation, but for the seed.
        policies: queue policies, as `runs.run` takes them.
        selections: selection policies; each is tried with each queue policy.
        loads: the loads.
        seeds: the seeds.
        progress: Receives the progress.
    """
    points = []
    for load in loads:
        studies = [
            runs.study(
                make(load, seed),
                machine,
                replace(options, seed=seed),
                policies=policies,
                selections=selections,
                progress=progress,
            )
            for seed in seeds
        ]
        for place, run in enumerate(studies[0].runs):
            summaries = [study.runs[place].results.summary for study in studies]
            metrics = {
                key: Band.of([row[key] for row in summaries if row[key] is not None])
                for _, key, _ in METRICS
            }
            points.append(Point(load, run.policy, metrics))
    return points


def text(points: Sequence[Point]) -> list[str]:
    """The points as lines of a table."""
    has_loads = any(point.load is not None for point in points)
    titles = ["load"] * has_loads + ["policy"]
    rows = []
    for point in points:
        load = [] if point.load is None else [f"{point.load:g}"]
        cells = [_cell(point.metrics[key], write) for _, key, write in METRICS]
        rows.append([*load, point.policy, *cells])
    titles += [name for name, _, _ in METRICS]
    widths = [
        max(len(title), *(len(row[column]) for row in rows)) for column, title in enumerate(titles)
    ]
    left = len(titles) - len(METRICS)
    return [
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in [titles, *rows]
    ]


def _cell(band: Band | None, write: Callable[[Any], str]) -> str:
    if band is None:
        return "-"
    return write(band.mean) + (f" ± {write(band.half)}" if band.half is not None else "")
