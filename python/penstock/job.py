"""Jobs as frozen data classes: the rows of a list, with enums, times and sets.

>>> from penstock.job import Job, JobState
>>> row = {"id": 6731191091817518, "state": 16, "name": "train", "userid": 1000, "t_run": 9.5}
>>> job = Job.from_row(row)
>>> print(job.id, job.state is JobState.RUN, job.t_run)
ƒuZZybuNNy True 1970-01-01 00:00:09.500000+00:00
"""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from penstock._core import job_result, job_state
from penstock.errors import WireError
from penstock.hostlist import Hostlist
from penstock.idset import IDset
from penstock.jobid import JobId
from penstock.resource import ResourceSet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Job", "JobState", "RaisedException", "Result"]


class JobState(enum.Enum):
    """The state of a job (RFC 21). The values are those of the messages."""

    NEW = job_state.NEW
    DEPEND = job_state.DEPEND
    PRIORITY = job_state.PRIORITY
    SCHED = job_state.SCHED
    RUN = job_state.RUN
    CLEANUP = job_state.CLEANUP
    INACTIVE = job_state.INACTIVE

    @property
    def is_pending(self) -> bool:
        """Whether a job in this state has no resources yet."""
        return self in (JobState.DEPEND, JobState.PRIORITY, JobState.SCHED)

    @property
    def is_running(self) -> bool:
        """Whether a job in this state has resources."""
        return self in (JobState.RUN, JobState.CLEANUP)


class Result(enum.Enum):
    """The result of an inactive job. The values are those of the messages."""

    COMPLETED = job_result.COMPLETED
    FAILED = job_result.FAILED
    CANCELED = job_result.CANCELED
    TIMEOUT = job_result.TIMEOUT


@dataclass(frozen=True, slots=True)
class RaisedException:
    """The exception in the row of a job (RFC 21)."""

    type: str
    severity: int
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as it was when its row was made. A field that the row does not have is None.

    Times are in UTC. `duration` is None without a time limit. `ranks` and `nodelist` describe the
    job's resources, and are None before its allocation. `R` has the resources themselves, where
    they have been looked up: see `Client.job`.
    """

    id: JobId
    state: JobState | None = None
    name: str | None = None
    userid: int | None = None
    urgency: int | None = None
    priority: int | None = None
    queue: str | None = None
    project: str | None = None
    bank: str | None = None
    cwd: str | None = None
    ntasks: int | None = None
    ncores: int | None = None
    ngpus: int | None = None
    nnodes: int | None = None
    duration: timedelta | None = None
    t_submit: datetime | None = None
    t_depend: datetime | None = None
    t_priority: datetime | None = None
    t_sched: datetime | None = None
    t_run: datetime | None = None
    t_cleanup: datetime | None = None
    t_inactive: datetime | None = None
    expiration: datetime | None = None
    ranks: IDset | None = field(default=None, hash=False)
    nodelist: Hostlist | None = field(default=None, hash=False)
    R: ResourceSet | None = field(default=None, hash=False)
    result: Result | None = None
    success: bool | None = None
    waitstatus: int | None = None
    returncode: int | None = None
    max_rss_kib: int | None = None
    user_cpu: float | None = None
    system_cpu: float | None = None
    exception: RaisedException | None = None
    pending_reason: str | None = None
    dependencies: tuple[str, ...] = ()
    annotations: dict[str, Any] = field(default_factory=dict, hash=False)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Job:
        """The job of a row, as `Client.job_rows`, `wait_rows` and `job_row` return them.

        Keys that a later version adds are ignored.

        Raises:
            WireError: the row has no id, or a value that its field cannot have.
        """
        values: dict[str, Any] = {}
        for name in _FIELDS:
            if name in row:
                values[name] = _read(name, row[name])
        if "id" not in values:
            raise WireError("row of a job: expected the key `id`")
        if row.get("exception_occurred"):
            values["exception"] = RaisedException(
                row.get("exception_type", ""),
                row.get("exception_severity", 0),
                row.get("exception_note", ""),
            )
        return cls(**values)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _limit(seconds: float) -> timedelta | None:
    return timedelta(seconds=seconds) if seconds else None


_READERS: dict[str, Callable[[Any], Any]] = {
    "id": JobId,
    "state": JobState,
    "result": Result,
    "duration": _limit,
    "ranks": IDset,
    "nodelist": Hostlist,
    "R": ResourceSet,
    "dependencies": tuple,
    **dict.fromkeys(
        (
            "t_submit",
            "t_depend",
            "t_priority",
            "t_sched",
            "t_run",
            "t_cleanup",
            "t_inactive",
            "expiration",
        ),
        _time,
    ),
}
_FIELDS = [each.name for each in dataclasses.fields(Job) if each.name != "exception"]


def _read(name: str, value: Any) -> Any:
    read = _READERS.get(name)
    try:
        return value if read is None else read(value)
    except (TypeError, ValueError, OverflowError, OSError) as error:
        raise WireError(f"row of a job: {name}: {error}") from None
