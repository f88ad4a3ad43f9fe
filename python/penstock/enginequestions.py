"""What an `Engine` is asked: why a job waits, when it will start, and what would be if.

`penstock.engineanswers` has what comes back.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from penstock.engineanswers import Estimates, Explanation, Fit, Outcome
from penstock.errors import EngineError

if TYPE_CHECKING:
    from penstock._core import EngineCore
    from penstock.engine import Column, Ranks

__all__ = ["HIGHEST", "Questions", "whole"]

HIGHEST = 2**32 - 1
"""The highest priority."""


def whole(name: str, value: int, most: int = 2**63 - 1) -> None:
    """Raises `EngineError` where an argument is not from 0 to `most`."""
    if not 0 <= operator.index(value) <= most:
        raise EngineError(f"{name}: expected 0 to {most}, found {value}")


class Questions:
    """The part of an `Engine` that answers, and changes nothing."""

    __slots__ = ()

    _core: EngineCore

    def explain(self, job: int, now: float) -> Explanation:
        """Why a job waits, given that nothing has changed since the last pass.

        Costs a look at every node, and for a job that fits and waits behind another as much as
        finding when that one can start.

        Args:
            job: A job in the queue.
            now: The time of the last pass.

        Raises:
            NotFoundError: the job does not wait.

        >>> from penstock import Engine, ResourceSet
        >>> engine = Engine(ResourceSet.uniform("0-1", "node[0-1]", cores="0-3"))
        >>> engine.submit([1, 2], engine.shape(nodes=2, slots=3), durations=60)
        >>> _ = engine.schedule(now=0.0)
        >>> explanation = engine.explain(2, now=0.0)
        >>> explanation.reason, explanation.facts["at"], explanation.facts["free"]
        ('reserved', 60.0, 0)
        >>> str(explanation).partition(":")[0]
        'can start in 1 min, as planned'
        """
        return Explanation(*self._core.explain(job, now))

    def explain_all(self, now: float, limit: int | None = 100) -> list[Explanation]:
        """Why the first jobs of the queue wait, in its order, those held left out.

        Those that an `order` has left out of the last pass come last.

        Costs a look at every node for each different shape among them that does not fit.

        Args:
            now: The time of the last pass.
            limit: How many; None for all.

        Raises:
            EngineError: `limit` is negative.
        """
        if limit is not None:
            whole("limit", limit)
        return [Explanation(*explained) for explained in self._core.explain_all(now, limit)]

    def estimate(self, now: float, ids: Column | None = None) -> Estimates:
        """When jobs are expected to start, if those that run end as planned and no others come.

        Costs a snapshot, and the passes that the future takes: for 100,000 jobs about a second
        under `fcfs`, some seconds with backfill. The engine remembers the first estimate of each
        job, and learns from its start how far off it was.

        With `conservative`, without limits and with one group of queues, estimates are the jobs'
        reservations: a job may start earlier, where its reservation moves up, never later.

        Args:
            now: The time.
            ids: The jobs; None for all in the queue that are not held. Of those that run, or
                will not start as far as is known, the start is NaN; so it is of those that an
                `order` has left out of the last pass, which come last.

        Raises:
            NotFoundError: one of the jobs neither waits nor runs.
        """
        return Estimates(self._core.estimate(now, ids))

    def what_if_submitted(
        self,
        now: float,
        shape: int,
        *,
        duration: float = 0.0,
        priority: int = 16,
        queue: str | None = None,
        look: int = 100,
    ) -> Outcome:
        """When a job would start that came now, the last of its priority, and who would wait.

        This and the other questions are asked of a snapshot; the engine stays as it is. They
        suppose that jobs end as planned, and that no others come. Each costs a snapshot and as
        many passes as there are planned ends until everything that is looked at has started.

        Args:
            now: The time.
            shape: What the job asks for.
            duration: Its time limit in seconds; 0 for none.
            priority: Its priority.
            queue: Its queue.
            look: How many of the first jobs in the queue are looked at, too.

        Raises:
            EngineError: there is no such shape, or a number is out of range.
        """
        whole("look", look)
        whole("priority", priority, HIGHEST)
        core = self._core
        return Outcome.of(core.what_if_submitted(now, look, shape, (duration, priority, queue)))

    def what_if_cancelled(self, now: float, job: int, *, look: int = 100) -> Outcome:
        """Who would start earlier if a job were cancelled that waits or runs.

        Args:
            now: The time.
            job: The job.
            look: As in `what_if_submitted`.

        Raises:
            EngineError: there is no such job.
        """
        whole("look", look)
        return Outcome.of(self._core.what_if_cancelled(now, look, job))

    def what_if_changed(
        self,
        now: float,
        job: int,
        *,
        units: int | None = None,
        duration: float | None = None,
        look: int = 100,
    ) -> Outcome:
        """When a job that waits would start if it asked for something else.

        Args:
            now: The time.
            job: The job.
            units: That many nodes, or slots where it asks for slots alone.
            duration: This time limit in seconds; 0 for none.
            look: As in `what_if_submitted`.

        Raises:
            EngineError: the job does not wait, or a number is out of range.
        """
        whole("look", look)
        if units is not None:
            whole("units", units, HIGHEST)
        return Outcome.of(self._core.what_if_changed(now, look, job, units, duration))

    def what_if_prioritized(
        self, now: float, job: int, priority: int, *, look: int = 100
    ) -> Outcome:
        """When a job that waits would start with another priority.

        Args:
            now: The time.
            job: The job.
            priority: 0 (held) to 4294967295.
            look: As in `what_if_submitted`.

        Raises:
            EngineError: the job does not wait.
        """
        whole("look", look)
        whole("priority", priority, HIGHEST)
        return Outcome.of(self._core.what_if_prioritized(now, look, job, priority))

    def what_if_up(self, now: float, ranks: Ranks, *, look: int = 100) -> Outcome:
        """Who would start earlier if targets were up; as for the rest, see `what_if_submitted`."""
        whole("look", look)
        return Outcome.of(self._core.what_if_marked(now, look, ranks, up=True))

    def what_if_down(self, now: float, ranks: Ranks, *, look: int = 100) -> Outcome:
        """Who would start later if targets were down; as for the rest, see `what_if_submitted`."""
        whole("look", look)
        return Outcome.of(self._core.what_if_marked(now, look, ranks, up=False))

    def fit_now(self, job: int, now: float) -> Fit:
        """The most nodes, or slots, with which a job that waits would start now.

        Costs a snapshot and a pass for each halving of what is free.

        Raises:
            EngineError: the job does not wait.
        """
        return Fit(*self._core.fit_now(job, now))
