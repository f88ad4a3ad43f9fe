"""The results of an `Engine`'s queries: explanations, estimates and predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.engine.views import Columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock._core import IDset

    # As the compiled part gives them: time, ranks, why not.
    When = tuple[float | None, IDset | None, str | None]
    Changed = tuple[When | None, When | None, list[tuple[int, When, When]], str]

__all__ = ["ChangeEffect", "Estimates", "Explanation", "Fit", "Moved", "Start"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reason why a job is pending. Its text is the sentence."""

    id: int
    """The job."""
    reason: str
    """The kind of reason in a word, such as `insufficient`; `docs/engine.md` has them all."""
    facts: Mapping[str, Any]
    """The values in the sentence, by name: counts (int), times in seconds (float), names (str)."""
    sentence: str
    """The reason as a sentence."""

    def __str__(self) -> str:
        return self.sentence


class Estimates(Columns):
    """When jobs are expected to start, as columns; see `Pending` for columns.

    The band reflects past errors: in proportion to their first estimates, the waits of four in
    five of the last thousand started jobs were within it. Until ten jobs have started, and for
    jobs that start at once, all three columns are equal.
    """

    __slots__ = ("earliest", "ids", "latest", "starts")

    ids: memoryview
    """uint64: the jobs, in the order of the queue, or in that of the request."""
    starts: memoryview
    """float64: in seconds; NaN if no planned end lets the job start."""
    earliest: memoryview
    """float64: the lower end of the band, never before now."""
    latest: memoryview
    """float64: the upper end of the band."""

    def __repr__(self) -> str:
        return f"<Estimates of {len(self)} jobs>"


@dataclass(frozen=True, slots=True)
class Start:
    """When a job would start."""

    time: float | None
    """In seconds; None for never."""
    ranks: IDset | None
    """Its execution targets; None for never."""
    note: str | None
    """Why never."""

    @classmethod
    def of(cls, when: When) -> Start:
        """One from its parts."""
        return cls(*when)


@dataclass(frozen=True, slots=True)
class Moved:
    """A job that would start at another time."""

    id: int
    """The job."""
    before: Start
    """As things are."""
    after: Start
    """With the change."""


@dataclass(frozen=True, slots=True)
class ChangeEffect:
    """The effect of a change. Its text is the sentence."""

    before: Start | None
    """The start of the changed job without the change; None for a job not yet submitted."""
    after: Start | None
    """The start of that job with the change; None if it is not pending then."""
    moved: tuple[Moved, ...]
    """Other jobs that would start at another time, in the order of the queue."""
    sentence: str
    """The reason as a sentence."""

    @classmethod
    def of(cls, changed: Changed) -> ChangeEffect:
        """One from its parts."""
        before, after, moved, sentence = changed
        return cls(
            None if before is None else Start.of(before),
            None if after is None else Start.of(after),
            tuple(Moved(job, Start.of(was), Start.of(will)) for job, was, will in moved),
            sentence,
        )

    def __str__(self) -> str:
        return self.sentence


class Fit(NamedTuple):
    """The number of nodes, or slots, with which a pending job would start now."""

    requested: int
    """The requested number, the least of a range."""
    largest: int | None
    """The largest number with which the job would start now; None if it would not start."""
