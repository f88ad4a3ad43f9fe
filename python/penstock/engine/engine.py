"""The `Engine`: resources, a queue, and the decisions about both."""

from __future__ import annotations

import json
import operator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock._core import Decisions, EngineCore
from penstock.engine import saved
from penstock.engine.query_results import ChangeEffect, Estimates, Explanation, Fit
from penstock.engine.views import Pending, Running
from penstock.errors import EngineError, JobspecError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping
    from typing import BinaryIO, Self, TypeAlias

    from penstock._core import FrozenIDset, IDset, ResourceSet

    Ranks: TypeAlias = IDset | FrozenIDset | str | Iterable[int]
    # Arrays of any library; they have no common type.
    Column: TypeAlias = Any
    """One number for all jobs, or one for each: a list, or an array in one dimension."""
    Order: TypeAlias = Callable[["Pending"], Column]

__all__ = ["Engine"]

MAX_PRIORITY = 2**32 - 1


class Engine:
    """Resources with a queue, and the scheduling of the one on the other.

    An engine is used by one thread at a time. A long call releases the GIL, so that several engines
    work in parallel. A call during another thread's call raises `EngineError` and changes nothing.

    Examples:
        >>> from penstock import Engine, ResourceSet
        >>> engine = Engine(ResourceSet.uniform("0-1", "node[0-1]", cores="0-3"), policy="fcfs")
        >>> engine.submit([1, 2, 3], engine.shape(nodes=1, exclusive=True), durations=[60, 30, 10])
        >>> [decision.id for decision in engine.schedule(now=0.0)]
        [1, 2]
        >>> engine.free(1)
        >>> [decision.id for decision in engine.schedule(now=60.0)]
        [3]

    Args:
        r: The inventory: a `ResourceSet`, or R (RFC 20) as text, bytes or dict.
        policy: The scheduling policy: `fcfs`, `easy`, `conservative`, or `hybrid:N` with N
            reservations; see `docs/engine.md`.
        selection: The choice among suitable nodes: `first` (lowest ranks), `pack`
            (fullest nodes), `spread` (emptiest nodes), `thrifty` (those with the least that the job
            does not request), `contiguous` (the smallest span of ranks).
        overlong: The treatment of a job that would outlive the resources: `shorten` or `deny`.
        queues: The settings of named queues, by name: the arguments of `set_queue`.
        up: Whether all targets are up. Here they are by default: a scheduler of an
            instance has them down until RFC 28 says that they are up.
        order: As in `schedule`, for every pass.
        score: As in `schedule`, for every pass.

    Raises:
        ResourceSetError: `r` is not a valid R.
        EngineError: `r` has no nodes, a name is unknown, or both `order` and `score` are
            given.
    """

    __slots__ = ("_core", "_order", "_score")

    def __init__(
        self,
        r: ResourceSet | str | bytes | Mapping[str, Any],
        *,
        policy: str = "easy",
        selection: str = "first",
        overlong: str = "shorten",
        queues: Mapping[str, Mapping[str, Any]] | None = None,
        up: bool = True,
        order: Order | None = None,
        score: Order | None = None,
    ) -> None:
        if callable(policy):
            raise TypeError(
                "policy: expected a name, found a callable; hint: give it as `order` (it returns"
                " positions) or as `score` (it returns a number for each job)"
            )
        _one_of(order, score)
        self._core = EngineCore(r, policy, selection, overlong, up)
        if not self._core.ranks:
            raise EngineError("r: expected at least one rank, found none")
        self._order = order
        self._score = score
        for name, options in (queues or {}).items():
            self.set_queue(name, **options)

    def set_queue(
        self,
        name: str,
        *,
        group: str | None = None,
        order: str = "priority",
        max_jobs: int | None = None,
        max_nodes: int | None = None,
        max_cores: int | None = None,
    ) -> None:
        """Configures a queue. Jobs may name queues that are not configured.

        A job that would exceed its queue's limits stays pending and blocks no other job.

        Args:
            name: The queue.
            group: Queues of the same group share one order: jobs of one wait for earlier jobs of
                another. None for a queue by itself.
            order: Which of its jobs goes first: the one with the highest `priority`, the first by
                id (`fifo`), the `shortest` by time limit, the `smallest` or the `largest` by cores;
                equal ones in order of id. Priority 0 holds a job in any order, and the highest
                priority, 4294967295, puts it before all others. One for all queues of a group. A
                callable takes precedence.
            max_jobs: Jobs of the queue that may run at the same time; None for any number.
            max_nodes: Nodes that they may hold together; one that two jobs share counts twice.
            max_cores: Cores that they may hold together.

        Raises:
            EngineError: there is no such order, or a limit is negative.
        """
        limits = {"max_jobs": max_jobs, "max_nodes": max_nodes, "max_cores": max_cores}
        for key, most in limits.items():
            if most is not None:
                _check_range(key, most)
        self._core.set_queue(name, group, order, *limits.values())

    # --- submission ---

    def shape(
        self,
        jobspec: str | bytes | Mapping[str, Any] | None = None,
        *,
        nodes: int | str | None = None,
        slots: int | str | None = None,
        cores: int | str = 1,
        gpus: int | str = 0,
        exclusive: bool = False,
        constraint: Mapping[str, Any] | str | None = None,
    ) -> int:
        """Registers a request, without its duration.

        Equal requests have the same number. Numbers count from 0, and never change.

        Args:
            jobspec: The request of a jobspec (RFC 25); excludes the other arguments.
            nodes: How many nodes; None for slots wherever they fit. Without `slots` they are whole
                nodes, as those of `penstock submit -N`.
            slots: Slots on each node, or altogether without `nodes`; by default one.
            cores: Cores of each slot.
            gpus: Gpus of each slot.
            exclusive: Whole nodes; needs `nodes`.
            constraint: Which targets will do (RFC 31): a dict, its JSON, or RFC 35's short text.

        Counts may be ranges (RFC 14) as text: `"2-4"`, `"2+"`, `"1-16:2:*"`.

        Returns:
            The number of the shape in this engine and its snapshots.

        Raises:
            JobspecError: the jobspec, a count or the constraint is bad.

        >>> from penstock import Engine, ResourceSet
        >>> engine = Engine(ResourceSet.uniform("0", "a", cores="0-7"))
        >>> engine.shape(cores=2), engine.shape(slots=2), engine.shape(cores=2)
        (0, 1, 0)
        >>> engine.shape_request(engine.shape(nodes=1))["exclusive"]
        True
        """
        if jobspec is not None:
            given = (nodes, slots, cores, gpus, exclusive, constraint)
            if given != (None, None, 1, 0, False, None):
                raise JobspecError("expected a jobspec or the cores and gpus of a slot, found both")
            return self._core.jobspec_shape(_text(jobspec))
        if slots is None:
            slots = 1
            exclusive = exclusive or nodes is not None
        return self._core.shape(nodes, slots, cores, gpus, exclusive, constraint)

    def shape_request(self, shape: int) -> dict[str, Any]:
        """The request of a shape: the arguments of `shape`, as a dict.

        Raises:
            EngineError: there is no such shape.
        """
        request: dict[str, Any] = json.loads(self._core.shape_request(shape))
        return request

    def infeasible(self, shape: int) -> str | None:
        """Why no job of a shape can ever run here, everything up and free; None if it can.

        Raises:
            EngineError: there is no such shape.
        """
        return self._core.infeasible(shape)

    @property
    def nshapes(self) -> int:
        """The number of shapes that were named."""
        return self._core.nshapes

    def submit(
        self,
        ids: Column,
        shapes: Column,
        durations: Column = 0.0,
        priorities: Column = 16,
        *,
        queues: Iterable[str | None] | str | None = None,
        now: float | None = None,
    ) -> None:
        """Puts jobs into the queue atomically.

        Every column is one number for all jobs or has one for each id: a list, any iterable of
        numbers, or an array in one dimension (numpy, `array.array`, a data frame's column, ...).
        Arrays of integers of any size are read at a few nanoseconds a number.

        Args:
            ids: Integers from 0 to 2^64 - 1, different ones.
            shapes: Shapes, as `shape` returns them.
            durations: Time limits (estimates) in seconds; 0 for none.
            priorities: 0 (held, never started) to 4294967295; the highest goes first, and among
                equal ones the lowest id.
            queues: The names of the jobs' queues; queues do not wait for each other.
            now: When, in seconds; it is shown to `order` and `score`, nothing else.

        Raises:
            EngineError: an id is known already or twice in the batch, or a number is out of range;
                the text names row and column, and nothing has changed.
            TypeError: a column has something other than numbers.

        >>> from penstock import Engine, ResourceSet
        >>> engine = Engine(ResourceSet.uniform("0", "a", cores="0-7"))
        >>> engine.submit([1, 2, 3], engine.shape(), durations=[60, -1, 5])
        Traceback (most recent call last):
        penstock.errors.EngineError: durations[1]: expected seconds from 0 (no limit) on, found -1
        """
        self._core.submit(ids, shapes, durations, priorities, queues, now)

    def submit_jobspecs(
        self,
        ids: Column,
        jobspecs: Iterable[str | bytes | Mapping[str, Any]],
        priorities: Column = 16,
        *,
        now: float | None = None,
    ) -> None:
        """Puts jobs into the queue atomically, each with a jobspec (RFC 25) of its own.

        Shape, duration and queue are the jobspec's. Equal texts are read once. To submit many jobs
        of few shapes, `submit` is cheaper by far.

        Args:
            ids: As in `submit`.
            jobspecs: Their jobspecs, as JSON text or dict.
            priorities: As in `submit`.
            now: As in `submit`.

        Raises:
            JobspecError: a jobspec is bad; the text names the row, and nothing has changed.
            EngineError: as in `submit`.
        """
        self._core.submit_jobspecs(ids, [_text(jobspec) for jobspec in jobspecs], priorities, now)

    # --- decisions ---

    def schedule(
        self,
        now: float,
        limit: int | None = None,
        *,
        order: Order | None = None,
        score: Order | None = None,
    ) -> Decisions:
        """Runs a scheduling pass: starts jobs, and denies those that can never run.

        `order` and `score` are custom policies: callables that order the pending jobs, except held
        ones. The engine's policy then works in this order: with `fcfs` the first job that does not
        fit ends the pass, with `easy` later ones are backfilled. The order holds until the next
        pass; the jobs' priorities do not change.

        Besides its own time, each call of a callable costs a copy of the queue's columns and a
        sort, one to two microseconds per pending job: with a deep queue, schedule only after a
        change.

        Args:
            now: The time in seconds.
            limit: The maximum number of decisions; None for all.
            order: Called with `Pending`; returns positions in it, the first job first.
                Jobs that it omits do not start in this pass.
            score: Called with `Pending`; returns a number for each job: the highest comes first,
                equal ones stay in queue order.

        Returns:
            The decisions, as columns.

        Raises:
            EngineError: `now` is not a time, `limit` is negative, both callables are given, or one
                returned something else.
        """
        _one_of(order, score)
        if limit is not None:
            _check_range("limit", limit)
        if order is None and score is None:
            order, score = self._order, self._score
        if order is None and score is None:
            self._core.disarrange()
        else:
            pending = Pending(now, self._core.pending(now, held=False))
            if order is not None:
                self._core.arrange(pending.ids, order(pending))
            elif score is not None:
                self._core.arrange_by_score(pending.ids, score(pending))
        return self._core.schedule(now, limit)

    def free(self, ids: Column, *, ranks: Ranks | None = None) -> None:
        """Frees the resources of jobs, or only those on some ranks.

        Args:
            ids: The jobs, or one.
            ranks: Frees only the resources there; a job without resources left has ended.

        Raises:
            EngineError: a job holds nothing or is named twice, or a rank is not in the inventory
                and was not when the job got it; the text names it, and nothing has changed.
        """
        self._core.free(ids, ranks)

    def cancel(self, ids: Column) -> int:
        """Removes jobs from the queue. Running jobs are not affected: `free` ends them.

        Returns:
            How many of them were in the queue.
        """
        return self._core.cancel(ids)

    def prioritize(self, ids: Column, priorities: Column) -> int:
        """Changes the priorities of pending jobs: milliseconds for 100,000.

        Args:
            ids: The jobs; those that are not in the queue do not matter.
            priorities: As in `submit`.

        Returns:
            How many of them are in the queue.
        """
        return self._core.prioritize(ids, priorities)

    def hold(self, ids: Column) -> int:
        """Holds jobs of the queue: they do not start until `prioritize` gives them a priority.

        Returns:
            How many of them are in the queue.
        """
        return self._core.prioritize(ids, 0)

    # --- allocations ---

    def r(self, job: int) -> ResourceSet:
        """A job's R, with its start, expiration and number of slots.

        Raises:
            EngineError: it holds nothing.
        """
        return self._core.r(job)

    def allocate(self, job: int, r: ResourceSet | str | bytes | Mapping[str, Any]) -> None:
        """Registers the resources of a running job, on targets that are up or not.

        Raises:
            EngineError: the job is known, or its resources are unknown or taken.
            ResourceSetError: `r` is not a valid R.
        """
        self._core.allocate(job, r)

    def adopt(self, job: int, r: ResourceSet | str | bytes | Mapping[str, Any]) -> IDset:
        """As `allocate`, for a job that may also hold ranks outside the inventory.

        Returns:
            These ranks.

        Raises:
            EngineError: as for `allocate`.
            ResourceSetError: as for `allocate`.
        """
        return self._core.adopt(job, r)

    def grow_job(
        self,
        job: int,
        shape: int | None = None,
        *,
        r: ResourceSet | str | bytes | Mapping[str, Any] | None = None,
        now: float,
    ) -> ResourceSet:
        """Grants a running job more resources until its end, now or not at all.

        Added resources may be on nodes of which the job has a part. The job passes all pending
        jobs; affected reservations are recomputed.

        Args:
            job: The job.
            shape: The shape of the added resources, as `shape` returns it. The selection picks the
                nodes.
            r: Instead of a shape, just these resources, which have to be up and free.
            now: The time in seconds.

        Returns:
            The added resources, with the job's expiration.

        Raises:
            EngineError: the job holds nothing or should be over, it does not fit now or never will,
                or the job's queue has no room for it; the text says which, and nothing has changed.
            ResourceSetError: `r` is not a valid R.

        >>> from penstock import Engine, ResourceSet
        >>> engine = Engine(ResourceSet.uniform("0-1", "node[0-1]", cores="0-3"))
        >>> engine.submit(1, engine.shape(slots=3), durations=60)
        >>> _ = engine.schedule(now=0.0)
        >>> print(engine.grow_job(1, engine.shape(slots=2), now=10.0))
        rank0/core3 rank1/core0
        >>> engine.shrink_job(1, ResourceSet.uniform("0", "node0", cores="1-2"))
        >>> print(engine.r(1))
        rank0/core[0,3] rank1/core0
        """
        return self._core.grow_job(job, shape, r, now)

    def shrink_job(self, job: int, r: ResourceSet | str | bytes | Mapping[str, Any]) -> None:
        """Releases a part of a running job's resources, by cores and gpus.

        The R of the rest has no number of slots. A job without resources left has ended.
        `free` with `ranks` releases whole ranks.

        Args:
            job: The job.
            r: The released resources.

        Raises:
            EngineError: the job does not hold all of that; nothing has changed.
            ResourceSetError: `r` is not a valid R.
        """
        self._core.shrink_job(job, r)

    @property
    def allocated(self) -> ResourceSet:
        """The resources allocated to jobs."""
        return self._core.allocated

    @property
    def npending(self) -> int:
        """The number of jobs in the queue, held ones included."""
        return self._core.npending

    @property
    def nrunning(self) -> int:
        """The number of jobs that hold resources."""
        return self._core.nrunning

    def pending(self, now: float | None = None) -> Pending:
        """A snapshot of the queue in its order, held jobs included.

        Args:
            now: The time that `waits` are counted to.
        """
        now = float("nan") if now is None else now
        return Pending(now, self._core.pending(now, held=True))

    def running(self) -> Running:
        """A snapshot of the jobs that hold resources, by ascending id."""
        return Running(self._core.running())

    # --- the machine ---

    @property
    def up(self) -> IDset:
        """The targets that may be allocated."""
        return self._core.up

    @property
    def ranks(self) -> IDset:
        """All targets."""
        return self._core.ranks

    @property
    def drained(self) -> IDset:
        """The targets that are drained."""
        return self._core.drained

    def mark_up(self, ranks: Ranks) -> None:
        """Marks targets up: they may be allocated, unless they are drained.

        Raises:
            EngineError: a rank is not in the inventory.
        """
        self._core.mark_up(ranks)

    def mark_down(self, ranks: Ranks) -> None:
        """Marks targets down: they are not allocated. Jobs on them are not affected.

        Raises:
            EngineError: a rank is not in the inventory.
        """
        self._core.mark_down(ranks)

    def drain(self, ranks: Ranks) -> None:
        """Drains targets: they are not allocated until `undrain`. Jobs on them are not affected.

        Raises:
            EngineError: a rank is not in the inventory.
        """
        self._core.drain(ranks)

    def undrain(self, ranks: Ranks) -> None:
        """Undrains targets.

        Raises:
            EngineError: a rank is not in the inventory.
        """
        self._core.undrain(ranks)

    def grow(self, r: ResourceSet | str | bytes | Mapping[str, Any], *, up: bool = True) -> None:
        """Adds targets.

        Args:
            r: Their resources.
            up: Whether they are up.

        Raises:
            EngineError: a rank exists already; nothing has changed.
            ResourceSetError: `r` is not a valid R.
        """
        self._core.grow(r, up)

    def shrink(self, ranks: Ranks) -> None:
        """Removes targets permanently. Jobs on them are not affected.

        Jobs that have become impossible are denied by the next `schedule`.

        Raises:
            EngineError: a rank is not in the inventory.
        """
        self._core.shrink(ranks)

    def add_property(self, name: str, ranks: Ranks) -> None:
        """Adds a property to targets.

        Raises:
            EngineError: the name is invalid, or a rank is not in the inventory.
        """
        self._core.add_property(name, ranks)

    def remove_property(self, name: str, ranks: Ranks) -> None:
        """Removes a property from targets, if they have it."""
        self._core.remove_property(name, ranks)

    def set_expiration(self, expiration: float | None) -> None:
        """Sets the expiration of the resources, in seconds; None for never."""
        self._core.set_inventory_expiration(expiration)

    def extend(self, job: int, expiration: float | None) -> None:
        """Sets the expiration of a running job, in seconds; None for no limit.

        Raises:
            EngineError: the job holds nothing, the resources end earlier, or
                `expiration` is not a time after 0.
        """
        self._core.set_expiration(job, expiration)

    # --- queries ---

    def explain(self, job: int, now: float) -> Explanation:
        """Explains why a job is pending: the verdict of the last pass, with current numbers.

        If anything has changed since the last pass, a pass on a copy precedes the answer, which is
        then the verdict of the next pass at `now`, `unconsidered` if that starts the job.

        The cost grows with the number of nodes, not with the queue; after a change it includes a
        copy and a pass.

        Args:
            job: A job in the queue.
            now: The time.

        Raises:
            NotFoundError: the job is not pending.

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
        """Why the first jobs of the queue are pending, in its order, held ones left out.

        Jobs that an `order` has left out of the last pass come last.

        As `explain`, with a look at every node for each different constraint among them.

        Args:
            now: The time.
            limit: How many; None for all.

        Raises:
            EngineError: `limit` is negative.
        """
        if limit is not None:
            _check_range("limit", limit)
        return [Explanation(*explained) for explained in self._core.explain_all(now, limit)]

    def estimate(self, now: float, ids: Column | None = None) -> Estimates:
        """Estimates job starts, if running jobs end as planned and no others are submitted.

        Costs a snapshot, and the passes that the future takes: for 100,000 jobs about a second
        under `fcfs`, some seconds with backfill. The engine remembers the first estimate of each
        job, and records its error at the start.

        With `conservative`, without limits and with one group of queues, estimates are the jobs'
        reservations: a job may start earlier, where its reservation moves up, never later.

        Args:
            now: The time.
            ids: The jobs; None for all pending ones that are not held. The start is NaN for running
                jobs, for jobs that no planned end lets start, and for those that an `order` left
                out of the last pass, which come last.

        Raises:
            NotFoundError: one of the jobs is neither pending nor running.
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
        max_compared: int = 100,
    ) -> ChangeEffect:
        """Predicts the start of a job submitted now, the last of its priority, and the delays.

        This and the other predictions use a snapshot; the engine does not change. They
        assume that jobs end as planned, and that no other jobs are submitted. Each costs a
        snapshot and a pass for each planned end until all observed jobs have started.

        Args:
            now: The time.
            shape: The job's shape.
            duration: Its time limit in seconds; 0 for none.
            priority: Its priority.
            queue: Its queue.
            max_compared: The number of jobs at the head of the queue whose starts are compared.

        Raises:
            EngineError: there is no such shape, or a number is out of range.
        """
        _check_range("max_compared", max_compared)
        _check_range("priority", priority, MAX_PRIORITY)
        core = self._core
        return ChangeEffect.of(
            core.what_if_submitted(now, max_compared, shape, (duration, priority, queue))
        )

    def what_if_cancelled(self, now: float, job: int, *, max_compared: int = 100) -> ChangeEffect:
        """Predicts earlier starts after the cancellation of a pending or running job.

        Args:
            now: The time.
            job: The job.
            max_compared: As in `what_if_submitted`.

        Raises:
            EngineError: there is no such job.
        """
        _check_range("max_compared", max_compared)
        return ChangeEffect.of(self._core.what_if_cancelled(now, max_compared, job))

    def what_if_changed(
        self,
        now: float,
        job: int,
        *,
        units: int | None = None,
        duration: float | None = None,
        max_compared: int = 100,
    ) -> ChangeEffect:
        """Predicts the start of a pending job with a changed request.

        Args:
            now: The time.
            job: The job.
            units: The number of nodes, or of slots if the job requests slots only.
            duration: The time limit in seconds; 0 for none.
            max_compared: As in `what_if_submitted`.

        Raises:
            EngineError: the job is not pending, or a number is out of range.
        """
        _check_range("max_compared", max_compared)
        if units is not None:
            _check_range("units", units, MAX_PRIORITY)
        return ChangeEffect.of(self._core.what_if_changed(now, max_compared, job, units, duration))

    def what_if_up(self, now: float, ranks: Ranks, *, max_compared: int = 100) -> ChangeEffect:
        """Predicts earlier starts if targets were up; see `what_if_submitted`."""
        _check_range("max_compared", max_compared)
        return ChangeEffect.of(self._core.what_if_marked(now, max_compared, ranks, up=True))

    def what_if_down(self, now: float, ranks: Ranks, *, max_compared: int = 100) -> ChangeEffect:
        """Predicts later starts if targets were down; see `what_if_submitted`."""
        _check_range("max_compared", max_compared)
        return ChangeEffect.of(self._core.what_if_marked(now, max_compared, ranks, up=False))

    def fit_now(self, job: int, now: float) -> Fit:
        """The largest number of nodes, or slots, with which a pending job would start now.

        Costs a snapshot and a pass for each halving of what is free.

        Raises:
            EngineError: the job is not pending.
        """
        return Fit(*self._core.fit_now(job, now))

    # --- copies ---

    def snapshot(self) -> Self:
        """An independent copy of the engine: changes to one do not affect the other.

        It costs a copy of flat arrays: milliseconds for 100,000 nodes with as many running jobs.
        `copy.copy` does the same.
        """
        return self._of_core(self._core.snapshot(), self._order, self._score)

    __copy__ = snapshot

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self.snapshot()

    def save(self, file: str | os.PathLike[str] | BinaryIO) -> None:
        """Writes the whole state as JSON: see `docs/engine.md` for the format.

        Args:
            file: A path, or a file that is open for writing bytes.

        Raises:
            OSError: it cannot be written.
        """
        document = self._document()
        if hasattr(file, "write"):
            file.write(document)
        else:
            Path(file).write_bytes(document)

    @classmethod
    def load(
        cls,
        file: str | os.PathLike[str] | BinaryIO,
        *,
        order: Order | None = None,
        score: Order | None = None,
    ) -> Self:
        """Restores an engine from the output of `save`.

        Args:
            file: A path, or a file that is open for reading bytes.
            order: As in `Engine`: callables are not saved.
            score: As in `Engine`.

        Raises:
            EngineError: the file is not a saved engine, or its format is newer.
            OSError: the file cannot be read.
        """
        document = file.read() if hasattr(file, "read") else Path(file).read_bytes()
        return cls._restored(document, order, score)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self)._restored, (self._document(), self._order, self._score))

    @classmethod
    def _of_core(cls, core: EngineCore, order: Order | None, score: Order | None) -> Self:
        made = cls.__new__(cls)
        made._core, made._order, made._score = core, order, score
        return made

    def _document(self) -> bytes:
        return saved.write(self._core)

    @classmethod
    def _restored(cls, document: bytes, order: Order | None, score: Order | None) -> Self:
        _one_of(order, score)
        return cls._of_core(saved.read(document), order, score)

    def __repr__(self) -> str:
        nodes, up = len(self.ranks), len(self.up)
        return f"<Engine {nodes} nodes, {up} up, {self.npending} pending, {self.nrunning} running>"


def _one_of(order: Order | None, score: Order | None) -> None:
    for name, given in (("order", order), ("score", score)):
        if given is not None and not callable(given):
            raise TypeError(f"{name}: expected a callable, found {type(given).__name__}")
    if order is not None and score is not None:
        raise EngineError("order, score: expected one of them at most, found both")


def _text(jobspec: str | bytes | Mapping[str, Any]) -> str:
    if isinstance(jobspec, str):
        return jobspec
    if isinstance(jobspec, bytes):
        try:
            return jobspec.decode()
        except UnicodeDecodeError as error:
            raise JobspecError(f"invalid jobspec: expected UTF-8 at byte {error.start}") from None
    return json.dumps(jobspec)


def _check_range(name: str, value: int, most: int = 2**63 - 1) -> None:
    if not 0 <= operator.index(value) <= most:
        raise EngineError(f"{name}: expected 0 to {most}, found {value}")
