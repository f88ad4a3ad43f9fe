"""The views of an `Engine`: decisions, and snapshots of pending and running jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Decision", "Denial", "Pending", "Running"]


class Decision(NamedTuple):
    """One job that was started."""

    id: int
    """The job."""
    start: float
    """When: the `now` of the call, in seconds."""
    nodes: int
    """Nodes that it holds a part of."""
    cores: int
    """Cores that it holds."""
    gpus: int
    """Gpus that it holds."""
    backfilled: bool
    """Whether it started before a job that is earlier in line."""


class Denial(NamedTuple):
    """One job that can never run here; it has left the queue."""

    id: int
    """The job."""
    note: str
    """The impossible part of the request, and the largest possible one."""


class Columns:
    """Columns of numbers, one row for each job."""

    __slots__ = ()

    ids: memoryview

    def __init__(self, columns: Mapping[str, memoryview]) -> None:
        for name, column in columns.items():
            setattr(self, name, column)

    def __len__(self) -> int:
        return len(self.ids)


class Pending(Columns):
    """The pending jobs, as columns in queue order; the argument of `order` and `score`.

    Every column is a read-only `memoryview`: `numpy.asarray(pending.durations)` copies nothing. It
    is a snapshot: later changes of the engine do not show.
    """

    __slots__ = (
        "cores",
        "durations",
        "gpus",
        "ids",
        "nodes",
        "now",
        "priorities",
        "shapes",
        "submitted",
        "waits",
    )

    now: float
    """The time of the pass in seconds; NaN from `Engine.pending()`."""
    ids: memoryview
    """uint64: the jobs."""
    priorities: memoryview
    """uint32: as submitted or last changed by `prioritize`."""
    shapes: memoryview
    """uint32: shapes, as returned by `Engine.shape`."""
    durations: memoryview
    """float64: time limits in seconds, 0 for none."""
    submitted: memoryview
    """float64: `now` of `submit`, NaN if it was not given."""
    waits: memoryview
    """float64: `now - submitted`, NaN if either is unknown."""
    nodes: memoryview
    """uint32: requested nodes, 0 if the request does not limit their number."""
    cores: memoryview
    """uint64: requested cores, the least of a range."""
    gpus: memoryview
    """uint64: requested gpus, the least of a range."""

    def __init__(self, now: float, columns: Mapping[str, memoryview]) -> None:
        super().__init__(columns)
        self.now = now

    def __repr__(self) -> str:
        return f"<Pending {len(self)} jobs>"


class Running(Columns):
    """The jobs that hold resources, as columns by ascending id; see `Pending` for columns."""

    __slots__ = ("cores", "expirations", "gpus", "ids", "nodes", "starts")

    ids: memoryview
    """uint64: the jobs."""
    starts: memoryview
    """float64: start times in seconds; NaN if unknown."""
    expirations: memoryview
    """float64: expirations in seconds; NaN for jobs without a time limit."""
    nodes: memoryview
    """uint32: nodes allocated to them, in whole or in part."""
    cores: memoryview
    """uint64: cores allocated to them."""
    gpus: memoryview
    """uint64: gpus allocated to them."""

    def __repr__(self) -> str:
        return f"<Running {len(self)} jobs>"
