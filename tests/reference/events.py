"""The event loop of the reference simulator, with the order of events at one instant.

This folder imports nothing of Penstock (but for `compare.py`, which runs both). It is slow, and
written so that a reader can believe it: lists, loops, one rule after the other.

At one instant: all completions, then all arrivals, then a pass of the scheduler; as long as the
pass has started something, the same again (a job of zero run time ends at the instant at which it
started). Passes are made at no other instants.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

NO_LIMIT = math.inf


@dataclass(frozen=True)
class Request:
    """Slots of cores and gpus; `nodes` is None for slots anywhere."""

    nodes: int | None
    slots: int
    cores: int
    gpus: int
    exclusive: bool = False
    property: str | None = None  # "^name" asks that a node does not have it


@dataclass(frozen=True)
class Job:
    """A job as submitted. `id` is its place in the file.

    `size` is in units: cores of a pool, or whole nodes. `shapes.py` reads `request` instead.
    """

    id: int
    submit: float
    run: float
    estimate: float
    size: int = 0
    priority: int = 16
    request: Request | None = None


def order(job: Job) -> tuple[float, ...]:
    """The queue's sort key: priority, descending, then submit time, then position in the file."""
    return (-job.priority, job.submit, job.id)


@dataclass
class Running:
    """A running job, and the (node, core) pairs it holds."""

    job: Job
    start: float
    holds: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class SimulatedRun:
    """The result of a job; one that never started has no start and no end."""

    start: float | None = None
    end: float | None = None
    backfilled: bool = False
    holds: list[tuple[int, int]] = field(default_factory=list)


class Scheduler(Protocol):
    """The interface of a scheduler to the event loop."""

    def can_ever_run(self, job: Job) -> bool: ...
    def arrive(self, job: Job) -> None: ...
    def complete(self, job: Job) -> None: ...
    def schedule(self, now: float) -> list[tuple[Running, bool]]:
        """Runs a pass; returns the jobs that start, and whether each was backfilled."""


def planned_end(start: float, estimate: float, now: float) -> float:
    """When a running job is expected to end.

    One that has outrun its estimate (it still runs at its planned end) is expected to end one
    second from now.
    """
    end = start + estimate
    return end if end > now else now + 1


def simulate(
    jobs: list[Job], scheduler: Scheduler, *, kill_at_limit: bool = False
) -> dict[int, SimulatedRun]:
    """Runs all jobs, which are in file order; returns each result by id."""
    outcomes = {job.id: SimulatedRun() for job in jobs}
    # `sorted` is stable: jobs that are submitted at the same time stay in file order.
    to_come = sorted(jobs, key=lambda job: job.submit)
    ends: list[tuple[float, Job]] = []

    while to_come or ends:
        now = min([job.submit for job in to_come[:1]] + [end for end, _ in ends])
        while True:
            for end, job in list(ends):
                if end == now:
                    ends.remove((end, job))
                    outcomes[job.id].end = now
                    scheduler.complete(job)
            for job in list(to_come):
                if job.submit == now:
                    to_come.remove(job)
                    if scheduler.can_ever_run(job):
                        scheduler.arrive(job)
                else:
                    break  # they are in order: the others come later
            started = scheduler.schedule(now)
            for running, backfilled in started:
                job = running.job
                outcome = outcomes[job.id]
                assert outcome.start is None, f"job {job.id} started twice"
                outcome.start = now
                outcome.backfilled = backfilled
                outcome.holds = running.holds
                runs_for = min(job.run, job.estimate) if kill_at_limit else job.run
                ends.append((now + runs_for, job))
            if not started:
                break
    return outcomes
