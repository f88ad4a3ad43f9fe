"""The figures of the report."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from penstock.sim import occupancy
from penstock.sim.plot import Axis, Box, Line, Size, bars, boxes, gantt, lines
from penstock.sim.results import mean_over, peak_over, quantile
from penstock.sim.units import bounded_slowdown, duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.sim.results import Results, Run, Study

__all__ = [
    "distributions",
    "errors",
    "nothing_in",
    "over_time",
    "schedule",
    "size_classes",
    "span",
]

FULL_WIDTH, HALF_WIDTH = Size(1080, 260), Size(530, 300)
TIME_BINS = 240
CURVE_POINTS = 240
ERROR_CLASSES = 7

# From which error on a job is in which class of the histogram; the sign is that of the error.
ERROR_BOUNDS_S = {"1 min": 60.0, "10 min": 600.0, "1 h": 3600.0, "6 h": 6 * 3600.0, "1 d": 86400.0}


def span(study: Study) -> tuple[float, float]:
    """The first submit and the last end, in seconds of the trace."""
    low, high = math.inf, -math.inf
    for run in study.runs:
        columns = run.results.columns
        low = min(low, min(columns["submit"], default=math.inf))
        ends = (end for end in columns["end"] if not math.isnan(end))
        high = max(high, max(ends, default=-math.inf), max(columns["submit"], default=-math.inf))
    if not math.isfinite(low):
        return 0.0, 1.0
    return low, high if high > low else low + 1.0


def over_time(study: Study) -> list[str]:
    """The utilisation and the depth of the queue over the whole trace."""
    low, high = span(study)
    axis = _time_axis(study, low, high)
    wide = (high - low) / TIME_BINS
    edges = [low + n * wide for n in range(TIME_BINS + 1)]
    used, queued = [], []
    for run in study.runs:
        series = run.results.series
        means = mean_over(series["time"], series["used_cores"], low, high, TIME_BINS)
        shares = [value / study.cores for value in means]
        used.append(Line(run.policy, edges, [*shares, shares[-1]]))
        peaks = peak_over(series["time"], series["queued"], low, high, TIME_BINS)
        queued.append(Line(run.policy, edges, [*peaks, peaks[-1]]))
    each = f"each point is the mean over {duration(wide)}"
    peak = f"each point is the most within {duration(wide)}"
    fill = len(study.runs) == 1
    return [
        lines(
            used,
            title=f"Utilisation ({each})",
            x=axis,
            y=Axis("cores in use", unit="share", low=0.0, high=1.0),
            step=True,
            fill=fill,
            size=FULL_WIDTH,
        ),
        lines(
            queued,
            title=f"Pending jobs ({peak})",
            x=axis,
            y=Axis("jobs", low=0.0),
            step=True,
            fill=fill,
            size=FULL_WIDTH,
        ),
    ]


def distributions(study: Study) -> list[str]:
    """The cumulative distributions of waits and bounded slowdowns."""
    waits = [(run.policy, sorted(_waits(run.results))) for run in study.runs]
    slow = [(run.policy, sorted(slowdown for _, slowdown in _jobs(run))) for run in study.runs]
    longest = max((values[-1] for _, values in waits if values), default=1.0)
    worst = max((values[-1] for _, values in slow if values), default=1.0)
    return [
        lines(
            [_shares(name, values, 1.0) for name, values in waits],
            title="Wait",
            x=Axis("waits at most", "duration", log=True, low=1.0, high=max(longest, 60.0)),
            y=Axis("of the jobs", unit="share", low=0.0, high=1.0),
            size=HALF_WIDTH,
        ),
        lines(
            [_shares(name, values, 1.0) for name, values in slow],
            title="Bounded slowdown",
            x=Axis("slowed down at most", log=True, low=1.0, high=max(worst, 10.0)),
            y=Axis("of the jobs", unit="share", low=0.0, high=1.0),
            size=HALF_WIDTH,
        ),
    ]


def size_classes(study: Study) -> list[str]:
    """Waits and slowdowns of small and large jobs."""
    bounds = _classes(study)
    names = [_class_name(bounds, n) for n in range(len(bounds))]
    wait_rows: list[tuple[str, list[Box]]] = []
    slow_rows: list[tuple[str, list[float]]] = []
    for run in study.runs:
        waits: list[list[float]] = [[] for _ in bounds]
        sums = [0.0] * len(bounds)
        for cores, wait, slowdown in _sized(run):
            place = next(n for n, bound in enumerate(bounds) if cores <= bound)
            waits[place].append(wait)
            sums[place] += slowdown
        wait_rows.append((run.policy, [_box(sorted(values)) for values in waits]))
        means = [
            total / len(values) if values else math.nan
            for total, values in zip(sums, waits, strict=True)
        ]
        slow_rows.append((run.policy, means))
    label = Axis("cores of a job")
    longest = max((box.high for _, row in wait_rows for box in row if box.count), default=60.0)
    longest = max([longest, *(box.mean for _, row in wait_rows for box in row if box.count)])
    least = min((value for _, row in slow_rows for value in row if value == value), default=1.0)
    return [
        boxes(
            names,
            wait_rows,
            title="Wait by size (5, 25, 50, 75, 95 %; the dot is the mean)",
            x=label,
            y=Axis("wait", "duration", log=True, low=1.0, high=max(longest * 1.2, 60.0)),
            size=HALF_WIDTH,
        ),
        bars(
            names,
            slow_rows,
            title="Mean bounded slowdown by size",
            x=label,
            y=Axis("slowdown", log=True, low=min(1.0, least)),
            size=HALF_WIDTH,
        ),
    ]


def schedule(study: Study, window: tuple[float, float] | None = None) -> tuple[list[str], str]:
    """Gantt charts of one window, a chart a policy.

    Args:
        study: what is drawn.
        window: from when to when, in seconds of the trace; None chooses a busy one.

    Returns:
        The charts, and a sentence on what is on them; no chart where nothing would be.
    """
    if window is not None and (nothing := nothing_in(study, window)):
        return [], f"{nothing}."
    low, high = span(study)
    rows = occupancy.Rows(study)
    # Of the run with the best utilisation: others show little where most jobs are pending.
    best = max(study.runs, key=lambda run: run.results.summary["utilisation"] or 0.0)
    chosen = window or occupancy.busiest(best.results, low, high)
    drawn = []
    for run in study.runs:
        found, chosen = occupancy.blocks(run.results, rows, chosen)
        drawn.append((run, found))
    axis = _time_axis(study, *chosen)
    height = min(max(150 + 2 * rows.shown, 240), 430)
    charts = []
    for run, found in drawn:
        there = {block.colour for block in found}
        names = [(0, "started in order"), (1, "backfilled"), (7, "killed or lost")]
        charts.append(
            gantt(
                found,
                title=run.policy,
                names=[pair for pair in names if pair[0] in there],
                x=axis,
                y=Axis(rows.what, low=0.0, high=float(rows.shown)),
                size=Size(1080, height),
            )
        )
    shown = f"{rows.shown:,} of {rows.all:,}" if rows.shown < rows.all else f"all {rows.all:,}"
    how = "the window with most pending jobs" if window is None else "the window of --window"
    return charts, (
        f"{duration(chosen[1] - chosen[0])} from {duration(chosen[0])} of the trace on ({how}); "
        f"{shown} {rows.what}. Each block is a job; rest the pointer on one to see which."
    )


def nothing_in(study: Study, window: tuple[float, float]) -> str | None:
    """The message that no job runs in a window; None if one does.

    Args:
        study: the study.
        window: its start and end, in seconds of the trace.
    """
    low, high = window
    for run in study.runs:
        columns = run.results.columns
        times = zip(columns["start"], columns["end"], strict=True)
        if any(start < high and end > low for start, end in times):
            return None
    first, last = span(study)
    return (
        f"no job runs from {duration(low)} to {duration(high)} of the trace, which goes from "
        f"{duration(first)} to {duration(last)}"
    )


def errors(study: Study) -> str | None:
    """The errors of estimated starts; None without estimates."""
    names = [f"> {bound} early" for bound in reversed(ERROR_BOUNDS_S)]
    names += [f"within {next(iter(ERROR_BOUNDS_S))}"]
    names += [f"> {bound} late" for bound in ERROR_BOUNDS_S]
    rows = []
    for run in study.runs:
        off = _errors(run.results)
        if not off:
            continue
        counts = [0] * len(names)
        middle = len(ERROR_BOUNDS_S)
        for error in off:
            size = sum(abs(error) > bound for bound in ERROR_BOUNDS_S.values())
            counts[middle + (size if error > 0 else -size)] += 1
        rows.append((run.policy, [number / len(off) for number in counts]))
    if not rows:
        return None
    return bars(
        names,
        rows,
        title="Error of the start estimated on arrival",
        y=Axis("of the jobs", unit="share", low=0.0),
        size=Size(1080, 280),
    )


def _errors(results: Results) -> list[float]:
    estimates = results.columns.get("estimate_start")
    if estimates is None:
        return []
    starts = results.columns["start"]
    pairs = zip(starts, estimates, strict=True)
    return [start - estimate for start, estimate in pairs if not math.isnan(start - estimate)]


def _waits(results: Results) -> list[float]:
    return [wait for wait in results.columns["wait"] if not math.isnan(wait)]


def _sized(run: Run) -> list[tuple[int, float, float]]:
    """Cores, wait and bounded slowdown of each job that has started."""
    columns = run.results.columns
    rows = zip(columns["cores"], columns["wait"], columns["start"], columns["end"], strict=True)
    return [
        (cores, wait, bounded_slowdown(wait, end - start))
        for cores, wait, start, end in rows
        if not math.isnan(wait)
    ]


def _jobs(run: Run) -> list[tuple[float, float]]:
    return [(wait, slowdown) for _, wait, slowdown in _sized(run)]


def _shares(name: str, ordered: Sequence[float], low: float) -> Line:
    """A line through quantiles; values below the low end of the axis count there."""
    if not ordered:
        return Line(name, [], [])
    below = sum(value <= low for value in ordered) / len(ordered)
    xs, ys = [low], [below]
    for n in range(CURVE_POINTS + 1):
        part = below + (1 - below) * n / CURVE_POINTS
        value = quantile(ordered, part)
        if value > low:
            xs.append(value)
            ys.append(part)
    return Line(name, xs, ys)


def _box(ordered: Sequence[float]) -> Box:
    parts = [quantile(ordered, part) for part in (0.05, 0.25, 0.5, 0.75, 0.95)]
    mean = sum(ordered) / len(ordered) if ordered else math.nan
    low, quarter, middle, three_quarters, high = parts
    return Box(low, quarter, middle, three_quarters, high, mean, len(ordered))


def _classes(study: Study) -> list[int]:
    """The greatest size of each class of sizes: powers of 4, or of more if jobs are large."""
    sizes = {cores for run in study.runs for cores, _, _ in _sized(run)}
    largest = max(sizes, default=1)
    base = 2
    while base**ERROR_CLASSES < largest:
        base *= 2
    bounds = [1]
    while bounds[-1] < largest:
        bounds.append(bounds[-1] * base)
    # Skip empty classes.
    return [
        bound
        for n, bound in enumerate(bounds)
        if any((bounds[n - 1] if n else 0) < size <= bound for size in sizes)
    ] or [1]


def _class_name(bounds: Sequence[int], place: int) -> str:
    high = bounds[place]
    if place == 0:
        return "1" if high == 1 else f"to {high:,}"
    low = bounds[place - 1] + 1
    return f"{high:,}" if low == high else f"{low:,}-{high:,}"


def _time_axis(study: Study, low: float, high: float) -> Axis:
    if study.unix_start is None:
        return Axis("time of the trace", "duration", low=low, high=high)
    return Axis("date (UTC)", "date", low=low, high=high, origin=study.unix_start)
