"""The results as a table: a row a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.sim.units import count, duration, number, share

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.sim.results import Study

__all__ = ["COLUMNS", "Column", "cells", "text"]

Column = tuple[str, str, str, "Callable[[Any], str]"]

COLUMNS: tuple[Column, ...] = (
    ("", "jobs", "jobs", count),
    ("wait", "mean", "wait_mean", duration),
    ("wait", "median", "wait_median", duration),
    ("wait", "p95", "wait_p95", duration),
    ("wait", "max", "wait_max", duration),
    ("bounded slowdown", "mean", "slowdown_mean", number),
    ("bounded slowdown", "median", "slowdown_median", number),
    ("bounded slowdown", "p95", "slowdown_p95", number),
    ("bounded slowdown", "max", "slowdown_max", number),
    ("", "utilisation", "utilisation", share),
    ("", "makespan", "makespan", duration),
    ("", "backfilled", "backfilled_share", share),
    ("estimate error", "mean", "estimate_error_mean", duration),
    ("estimate error", "median", "estimate_error_median", duration),
    ("", "killed", "killed", count),
    ("", "lost", "lost", count),
    ("", "denied", "denied", count),
    ("", "pending", "pending", count),
    ("", "took", "seconds", duration),
)
"""The columns: group, name, key in the summary, format of a value."""

# Columns that are omitted if no run has a value.
OPTIONAL_COLUMNS = {
    "estimate_error_mean",
    "estimate_error_median",
    "killed",
    "lost",
    "denied",
    "pending",
}

COLUMN_GAP = 2


def cells(study: Study) -> tuple[list[Column], list[list[str]]]:
    """The columns that are not empty, and the cells of each run."""
    summaries = [run.results.summary for run in study.runs]
    columns = [
        column
        for column in COLUMNS
        if column[2] not in OPTIONAL_COLUMNS or any(summary.get(column[2]) for summary in summaries)
    ]
    return columns, [
        [write(summary.get(key)) for _, _, key, write in columns] for summary in summaries
    ]


def text(study: Study, width: int | None = None) -> list[str]:
    """The table as lines, numbers to the right.

    Args:
        study: the study to show.
        width: the maximum width of a line in characters; columns beyond it follow below, with
            the policies repeated. None for no limit.
    """
    columns, rows = cells(study)
    names = [run.policy for run in study.runs]
    first = max(len("policy"), *map(len, names))
    lines: list[str] = []
    for part in _parts(columns, rows, first, width):
        if lines:
            lines.append("")
        lines += _block(
            [columns[n] for n in part], [[row[n] for n in part] for row in rows], names, first
        )
    return lines


def _parts(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], first: int, width: int | None
) -> list[list[int]]:
    """The columns side by side in each block; a group of columns is not divided."""
    groups: list[list[int]] = []
    for n, column in enumerate(columns):
        if n and column[0] and column[0] == columns[n - 1][0]:
            groups[-1].append(n)
        else:
            groups.append([n])
    parts: list[list[int]] = [[]]
    used = first
    for group in groups:
        wide = sum(_width(columns[n], rows, n) for n in group)
        if width is not None and parts[-1] and used + wide > width:
            parts.append([])
            used = first
        parts[-1] += group
        used += wide
    return parts


def _width(column: Column, rows: Sequence[Sequence[str]], place: int) -> int:
    return COLUMN_GAP + max(len(column[1]), *(len(row[place]) for row in rows))


def _block(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    names: Sequence[str],
    first: int,
) -> list[str]:
    widths = [_width(column, rows, n) for n, column in enumerate(columns)]
    above, n = " " * first, 0
    while n < len(columns):
        end = n + 1
        while columns[n][0] and end < len(columns) and columns[end][0] == columns[n][0]:
            end += 1
        # A group's name stands over its columns, between dashes if there is room.
        wide = sum(widths[n:end])
        title = columns[n][0]
        above += f"{f' {title} ':-^{wide - COLUMN_GAP}}".rjust(wide) if title else " " * wide
        n = end
    head = f"{'policy':<{first}}" + "".join(
        f"{column[1]:>{width}}" for column, width in zip(columns, widths, strict=True)
    )
    body = [
        f"{name:<{first}}"
        + "".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        for name, row in zip(names, rows, strict=True)
    ]
    lines = [head, *body]
    return [above.rstrip(), *lines] if above.strip() else lines
