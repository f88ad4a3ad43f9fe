"""The types of responses: rows of lists, states, events, results.

They are the payloads as they come, so a key is spelt as on the wire.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, NotRequired, Required, Self, TypedDict

__all__ = [
    "Accuracy",
    "BulkResponse",
    "DrainMode",
    "Drained",
    "Estimates",
    "Event",
    "Explained",
    "JobRow",
    "Level",
    "ListOrder",
    "LogRow",
    "Moved",
    "Purged",
    "QueueStatus",
    "Reason",
    "ResourceStatus",
    "SchedStatus",
    "ServiceRow",
    "StartEstimate",
    "Submission",
    "UndrainMode",
    "WhatIf",
]

Level = Literal["debug", "info", "warning", "error", "critical"]
"""The severity of a line of the log."""
DrainMode = Literal["update", "overwrite", "force-overwrite"]
"""The effect of a drain on the reason (and the time) of a target that is already drained."""
UndrainMode = Literal["force"]
"""`force` skips targets that are not drained."""
ListOrder = Literal["newest", "state", "pending"]
"""The order of a list of jobs: the newest first, or by state as `penstock jobs` has it."""


class JobRow(TypedDict, total=False):
    """A job as `job-list` shows it. Keys without a value are absent, but for the required ones.

    Times are seconds since the epoch. `state` is a bit (1 NEW, 2 DEPEND, 4 PRIORITY, 8 SCHED,
    16 RUN, 32 CLEANUP, 64 INACTIVE), so is `result` (1 COMPLETED, 2 FAILED, 4 CANCELED,
    8 TIMEOUT).

    `max_rss_kib`, `user_cpu` and `system_cpu` are the resource usage of a job whose tasks have
    ended: the greatest resident set of one process in KiB, and the CPU time of all tasks in user
    mode and in the kernel in seconds.
    """

    id: Required[int]
    userid: Required[int]
    urgency: Required[int]
    priority: int
    t_submit: Required[float]
    t_depend: float
    t_priority: float
    t_sched: float
    t_run: float
    t_cleanup: float
    t_inactive: float
    state: Required[int]
    name: Required[str]
    cwd: str
    queue: str
    project: str
    bank: str
    ntasks: Required[int]
    ncores: Required[int]
    # From the allocation on.
    ngpus: int
    nnodes: int
    duration: Required[float]
    ranks: str
    nodelist: str
    expiration: float
    waitstatus: int
    returncode: int
    max_rss_kib: int
    user_cpu: float
    system_cpu: float
    result: int
    success: bool
    exception_occurred: Required[bool]
    exception_type: str
    exception_severity: int
    exception_note: str
    pending_reason: str
    annotations: dict[str, Any]
    dependencies: list[str]


class Event(TypedDict):
    """An event of a log (RFC 18): its time, its name and its context."""

    timestamp: float
    name: str
    context: NotRequired[dict[str, Any]]


class Submission(TypedDict, total=False):
    """One of many jobs to submit: a jobspec (RFC 25), and how often."""

    jobspec: Required[dict[str, Any]]
    urgency: int
    count: int
    cc: str
    flags: int


class _Changes(NamedTuple):
    done: int
    errors: dict[int, str]


class BulkResponse(_Changes):
    """The response to a request about several jobs: a pair of `done` and `errors`.

    Attributes:
        done: The number of jobs for which it succeeded.
        errors: The reason for each other job, at most 10,000.
        unlisted: The number of further jobs for which it failed.
    """

    unlisted: int

    def __new__(cls, done: int, errors: dict[int, str], unlisted: int = 0) -> Self:
        """A response with the number of failures that `errors` leaves out."""
        self = super().__new__(cls, done, errors)
        self.unlisted = unlisted
        return self


class Purged(TypedDict):
    """Inactive jobs: the number removed (or to be removed), and the number left."""

    count: int
    inactives: int


class QueueStatus(TypedDict):
    """A queue: whether it accepts jobs, whether it starts them, and if not, why."""

    enable: bool
    start: bool
    disable_reason: NotRequired[str]
    stop_reason: NotRequired[str]


class Drained(TypedDict):
    """Why targets are drained, and since when (seconds since the epoch)."""

    timestamp: float
    reason: str


class ResourceStatus(TypedDict):
    """Every target: R (RFC 20), and the idsets of the drained, offline and excluded ranks."""

    R: dict[str, Any]
    drain: dict[str, Drained]
    online: str
    offline: str
    exclude: str
    torpid: NotRequired[str]


class SchedStatus(TypedDict):
    """The scheduler's inventory, its down and its allocated resources: an R (RFC 20) each."""

    all: dict[str, Any]
    down: dict[str, Any]
    allocated: dict[str, Any]


class StartEstimate(TypedDict):
    """When a job is expected to start. Times are seconds since the epoch.

    `start` is None if it cannot be estimated; `reason` says why. `earliest` and `latest` bound the
    interval that would have contained 80 % of the past starts, once there are enough of them.
    """

    id: int
    start: float | None
    earliest: NotRequired[float]
    latest: NotRequired[float]
    reason: NotRequired[str]


class Reason(TypedDict):
    """Why a job is pending: the kind, the numbers, a sentence, and the estimated start."""

    id: int
    kind: str
    reason: str
    details: dict[str, Any]
    start: NotRequired[float | None]
    earliest: NotRequired[float]
    latest: NotRequired[float]


class Accuracy(TypedDict):
    """The difference of starts and their first estimates, in seconds; positive is late.

    A tenth of them was below `low`, a tenth above `high`.
    """

    count: int
    mean: float
    low: float
    median: float
    high: float


class Explained(NamedTuple):
    """The reasons why jobs are pending.

    Attributes:
        reasons: One for each pending job.
        errors: The error of the scheduler for each other job.
    """

    reasons: list[Reason]
    errors: dict[int, str]


class Estimates(NamedTuple):
    """When jobs are expected to start.

    Attributes:
        jobs: In the order of the queue, or in that of the request.
        accuracy: The errors of past first estimates.
        errors: For each job that is not pending, the scheduler's error.
    """

    jobs: list[StartEstimate]
    accuracy: Accuracy
    errors: dict[int, str]


class Moved(TypedDict):
    """A job whose expected start would be another: seconds since the epoch, None for unknown."""

    id: int
    before: float | None
    after: float | None


class WhatIf(TypedDict):
    """The effect of a change.

    `text` is the answer as a sentence. `start` (seconds since the epoch, None if no start is
    foreseen) and `ranks` are those of the changed job; `moved` has the pending jobs that would
    start at another time, in queue order.
    """

    text: str
    start: NotRequired[float | None]
    ranks: NotRequired[str]
    requested: NotRequired[int]
    largest: NotRequired[int | None]
    moved: list[Moved]


class ServiceRow(TypedDict):
    """A service: its name, its process, whether that is the daemon itself, and its state.

    A service that has failed answers every request with an error. A suspended one has failed again
    and again, and is not restarted for some minutes.
    """

    name: str
    pid: int
    uid: int
    inside: bool
    state: Literal["running", "failed", "suspended"]


class LogRow(TypedDict):
    """A line of the instance's log.

    `timestamp` is in seconds since the epoch; `sequence` counts the lines since the start, from 1.
    """

    timestamp: float
    level: Level
    component: str
    text: str
    sequence: int
