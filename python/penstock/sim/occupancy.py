"""Which jobs have which nodes in a window of time: the blocks of a Gantt chart."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from penstock._core import IDset
from penstock.sim.plot import Block
from penstock.sim.results import KILLED, LOST, STATES, mean_over
from penstock.sim.units import duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.sim.results import Results, Study

__all__ = ["Rows", "blocks", "busiest"]

MAX_BLOCKS = 1500
# A window that is chosen has at least this number of jobs, if the trace has, and this length.
MIN_WINDOW_JOBS = 220
MIN_WINDOW_S = 600.0

IN_ORDER, BACKFILLED, CUT_SHORT = 0, 1, 7
"""Colours of jobs: started in order, backfilled, ended by a limit or a failure."""


class Rows:
    """The rows of the vertical axis: nodes, or the cores of a pool.

    Attributes:
        what: `nodes` or `cores`.
        all: how many there are.
        shown: how many are drawn, from the first on.
    """

    def __init__(self, study: Study, most: int = 192) -> None:
        self._cores: dict[int, int] = {}
        self._place: dict[int, int] = {}
        if study.machine.resources is None:
            self.what, self.all = "cores", study.cores
            most *= 3
        else:
            self.what = "nodes"
            for place, node in enumerate(study.machine.resources.nodes()):
                self._place[node.rank] = place
                self._cores[place] = len(node.cores)
            self.all = len(self._place)
        self.shown = min(self.all, most)

    def spans(
        self, jobs: Sequence[tuple[int, float, float, int, str]]
    ) -> Iterable[tuple[int, float, float]]:
        """The rectangles of jobs on the vertical axis.

        Args:
            jobs: ascending by start: number, start, end, cores, ids of nodes (or of cores).

        Yields:
            The number of a job, and from where to where it goes. On a node that several jobs share,
            each has a part as high as its share of the cores.
        """
        if self.what == "cores":
            for job, _, _, _, ids in jobs:
                for low, high in runs(IDset(ids)):
                    if low < self.shown:
                        yield job, low, min(high + 1, self.shown)
            return
        # For each node until when each of its cores is taken: jobs get the lowest free ones.
        taken = {place: [-math.inf] * self._cores[place] for place in range(self.shown)}
        for job, start, end, cores, ids in jobs:
            places = [self._place[rank] for rank in IDset(ids) if rank in self._place]
            whole: list[int] = []
            for place, share in zip(places, self._shares(places, cores), strict=True):
                if place >= self.shown:
                    continue
                lanes = taken[place]
                if share >= len(lanes):
                    whole.append(place)
                    taken[place] = [end] * len(lanes)
                    continue
                free = sorted(range(len(lanes)), key=lambda lane: (lanes[lane] > start, lane))
                mine = IDset(free[:share])
                for lane in mine:
                    lanes[lane] = end
                for low, high in runs(mine):
                    yield job, place + low / len(lanes), place + (high + 1) / len(lanes)
            for low, high in runs(IDset(whole)):
                yield job, low, high + 1

    def _shares(self, places: Sequence[int], cores: int) -> list[int]:
        """The number of cores of a job on each of its nodes: all, or as evenly as possible."""
        if cores >= sum(self._cores[place] for place in places):
            return [self._cores[place] for place in places]
        each, more = divmod(cores, max(len(places), 1))
        return [max(each + (n < more), 1) for n in range(len(places))]


def runs(ids: IDset) -> list[tuple[int, int]]:
    """The stretches of consecutive ids: first and last of each."""
    found: list[tuple[int, int]] = []
    for word in str(ids).split(",") if ids else ():
        low, _, high = word.partition("-")
        found.append((int(low), int(high or low)))
    return found


def busiest(results: Results, low: float, high: float) -> tuple[float, float]:
    """The window in which most jobs are pending, long enough to show some two hundred jobs.

    Args:
        results: of a run.
        low: where the trace begins.
        high: where it ends.

    Returns:
        Where the window begins and ends, in seconds of the trace.
    """
    span = high - low
    started = sum(not math.isnan(start) for start in results.columns["start"])
    wide = min(max(span * MIN_WINDOW_JOBS / max(started, 1), MIN_WINDOW_S), span)
    # Half windows, so that a window may begin at any of them.
    bins = max(min(math.ceil(2 * span / wide), 4000), 1) if wide > 0 else 1
    times = results.series["time"]
    waiting = mean_over(times, results.series["queued"], low, high, bins)
    used = mean_over(times, results.series["used_cores"], low, high, bins)
    pairs = range(max(bins - 1, 1))
    best = max(
        pairs,
        key=lambda n: (sum(waiting[n : n + 2]), sum(used[n : n + 2]), -n),
    )
    begin = low + best * span / bins
    return begin, min(begin + wide, high)


def blocks(
    results: Results, rows: Rows, window: tuple[float, float], most: int = MAX_BLOCKS
) -> tuple[list[Block], tuple[float, float]]:
    """The blocks of a Gantt chart.

    Args:
        results: of a run.
        rows: what is on the vertical axis.
        window: from when to when, in seconds of the trace.
        most: how many blocks there may be.

    Returns:
        The blocks, and the window that they fill: a shorter one where there would be too many.
    """
    low, high = window
    columns = results.columns
    overlap = [
        (start, n)
        for n, (start, end) in enumerate(zip(columns["start"], columns["end"], strict=True))
        if start < high and end > low
    ]
    while True:
        overlap = sorted(pair for pair in overlap if pair[0] < high)
        found: list[Block] = []
        # A window of too many jobs need not be drawn to be found too long.
        if len(overlap) <= 8 * most:
            jobs = [
                (n, start, columns["end"][n], columns["cores"][n], results.allocation(n))
                for start, n in overlap
            ]
            for n, bottom, top in rows.spans(jobs):
                if len(found) > most:
                    break
                found.append(_block(results, n, bottom, top))
        if found and len(found) <= most:
            return found, (low, high)
        if not overlap or high - low < 2.0:
            return found[:most], (low, high)
        high = low + (high - low) / 2


def _block(results: Results, job: int, low: float, high: float) -> Block:
    columns = results.columns
    start, end = columns["start"][job], columns["end"][job]
    number, nodes, cores = columns["id"][job], columns["nodes"][job], columns["cores"][job]
    state = columns["state"][job]
    backfilled = bool(columns["backfilled"][job])
    words = [
        f"job {number}" + (", backfilled" if backfilled else ""),
        f"{cores:,} core{'' if cores == 1 else 's'}"
        + (f" on {nodes:,} nodes" if nodes > 1 else ""),
        f"waited {duration(columns['wait'][job])}, ran {duration(end - start)}",
    ]
    is_cut_short = state in (KILLED, LOST)
    if is_cut_short:
        words.append(STATES[state])
    return Block(
        start,
        end,
        low,
        high,
        CUT_SHORT if is_cut_short else BACKFILLED if backfilled else IN_ORDER,
        (0.95, 0.6, 0.78)[number % 3],
        "\n".join(words),
    )
