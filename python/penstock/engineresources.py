"""What there is in an `Engine`, and what its jobs hold of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.engineviews import Pending, Running

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock._core import EngineCore, IDset, ResourceSet
    from penstock.engine import Ranks

__all__ = ["Resources"]


class Resources:
    """The part of an `Engine` that keeps the machine, and the books on what jobs hold."""

    __slots__ = ()

    _core: EngineCore

    # --- what jobs hold ---

    def r(self, job: int) -> ResourceSet:
        """What a job holds, with its start, expiration and number of slots.

        Raises:
            EngineError: it holds nothing.
        """
        return self._core.r(job)

    def allocate(self, job: int, r: ResourceSet | str | bytes | Mapping[str, Any]) -> None:
        """Registers what a job holds already, on targets that are up or not.

        Raises:
            EngineError: the job is known, or its resources are unknown or taken.
            ResourceSetError: `r` is not a valid R.
        """
        self._core.allocate(job, r)

    def adopt(self, job: int, r: ResourceSet | str | bytes | Mapping[str, Any]) -> IDset:
        """As `allocate`, for a job that may also hold ranks that do not exist (any more).

        Returns:
            Those ranks.

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
        """Gives a running job more, now or not at all. It holds that until it ends.

        What is added may be on nodes that the job has a part of. Jobs in the queue are passed over;
        reservations that this disturbs are made anew.

        Args:
            job: The job.
            shape: What it gets: what `shape` returned. The selection picks the nodes.
            r: Instead of a shape, just these resources, which have to be up and free.
            now: The time in seconds.

        Returns:
            What was added, with the job's expiration.

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
        """Takes a part of what a running job holds, by cores and gpus: it may be allocated again.

        How many slots the rest is, its R does not say any more. A job that holds nothing any more
        has ended. `free` with `ranks` takes whole ranks.

        Args:
            job: The job.
            r: What it gives back.

        Raises:
            EngineError: the job does not hold all of that; nothing has changed.
            ResourceSetError: `r` is not a valid R.
        """
        self._core.shrink_job(job, r)

    @property
    def allocated(self) -> ResourceSet:
        """What all jobs hold."""
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
        """A picture of the queue in its order, held jobs included.

        Args:
            now: The time that `waits` are counted to.
        """
        now = float("nan") if now is None else now
        return Pending(now, self._core.pending(now, held=True))

    def running(self) -> Running:
        """A picture of the jobs that hold resources, by ascending id."""
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
        """Says that targets work: they may be allocated, unless they are drained.

        Raises:
            EngineError: a rank is not in the inventory.
        """
        self._core.mark_up(ranks)

    def mark_down(self, ranks: Ranks) -> None:
        """Says that targets do not work: they are not allocated. Jobs on them are left alone.

        Raises:
            EngineError: a rank is not in the inventory.
        """
        self._core.mark_down(ranks)

    def drain(self, ranks: Ranks) -> None:
        """Keeps targets from being allocated until `undrain`. Jobs on them are left alone.

        Raises:
            EngineError: a rank is not in the inventory.
        """
        self._core.drain(ranks)

    def undrain(self, ranks: Ranks) -> None:
        """Ends what `drain` began.

        Raises:
            EngineError: a rank is not in the inventory.
        """
        self._core.undrain(ranks)

    def grow(self, r: ResourceSet | str | bytes | Mapping[str, Any], *, up: bool = True) -> None:
        """Adds targets.

        Args:
            r: What they have.
            up: Whether they are up.

        Raises:
            EngineError: a rank is there already; nothing has changed.
            ResourceSetError: `r` is not a valid R.
        """
        self._core.grow(r, up)

    def shrink(self, ranks: Ranks) -> None:
        """Takes targets away for good. Jobs on them are left alone.

        Jobs that have become impossible are denied by the next `schedule`.

        Raises:
            EngineError: a rank is not in the inventory.
        """
        self._core.shrink(ranks)

    def add_property(self, name: str, ranks: Ranks) -> None:
        """Gives targets a property.

        Raises:
            EngineError: the name is bad, or a rank is not there.
        """
        self._core.add_property(name, ranks)

    def remove_property(self, name: str, ranks: Ranks) -> None:
        """Takes a property from targets; it need not be there."""
        self._core.remove_property(name, ranks)

    def set_expiration(self, expiration: float | None) -> None:
        """Says when the resources themselves end, in seconds; None for never."""
        self._core.set_inventory_expiration(expiration)

    def extend(self, job: int, expiration: float | None) -> None:
        """Says when a running job ends at the latest, in seconds; None for no limit.

        Raises:
            EngineError: it holds nothing, the resources end before, or that is no time after 0.
        """
        self._core.set_expiration(job, expiration)
