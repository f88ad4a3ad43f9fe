"""The future of a job; see `penstock.executor`."""

from __future__ import annotations

import concurrent.futures
import logging
import threading
from typing import TYPE_CHECKING, Protocol

from penstock.errors import JobException

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.jobid import JobId
    from penstock.rows import Event, JobRow

    EventCallback = Callable[["JobFuture", Event], object]

log = logging.getLogger("penstock.executor")

# The events of a job (RFC 21).
EVENTS = frozenset(
    (
        *("submit", "jobspec-update", "resource-update", "validate", "invalidate", "set-flags"),
        *("dependency-add", "dependency-remove", "depend", "urgency", "priority", "alloc"),
        *("prolog-start", "prolog-finish", "start", "finish", "release", "free", "exception"),
        *("epilog-start", "epilog-finish", "memo", "debug", "clean", "flux-restart"),
        # Not in RFC 21: logged in place of `start` when a task is reattached.
        "reattached",
    )
)


class Orders(Protocol):
    """The orders of a future to the executor's thread."""

    def post(self, what: str, future: JobFuture) -> None:
        """Orders something for a job: `watch` its events, or `cancel` it."""


class JobFuture(concurrent.futures.Future[int]):
    """The future of a job that a `JobExecutor` submits.

    `result()` is the exit code of the ended job: that of the task with the greatest wait status,
    128 + N if signal N ended it. It raises the job's fatal exception as `JobException`,
    `RpcError` if the instance rejected the job, and `NoInstanceError` if the connection was lost.

    `running()` is true from the submission to the end; the event `start` says whether the job has
    started.
    """

    def __init__(self, worker: Orders) -> None:
        super().__init__()
        self._worker = worker
        self._id: concurrent.futures.Future[JobId] = concurrent.futures.Future()
        self._lock = threading.Lock()
        self._followed = False
        self._seen: list[Event] = []
        self._callbacks: list[tuple[str, EventCallback]] = []

    def jobid(self, timeout: float | None = None) -> JobId:
        """The job's id, once the job is submitted.

        Raises:
            TimeoutError: that takes longer than `timeout` seconds.
            CancelledError: the future was cancelled before.
            RpcError: the instance rejected the job.
            NoInstanceError: the connection was lost before.
        """
        return self._id.result(timeout)

    def add_jobid_callback(self, callback: Callable[[JobFuture], object]) -> None:
        """Calls `callback(future)` once `jobid()` no longer blocks, also after a failure."""
        self._id.add_done_callback(lambda _: callback(self))

    def add_event_callback(self, event: str, callback: EventCallback) -> None:
        """Calls `callback(future, event)` for each event of this name, past ones included.

        The event is a dictionary with `timestamp`, `name` and mostly `context` (RFC 18). The
        callback runs in the executor's thread, for past events in the calling one. All callbacks
        of a job precede the end of its future.

        Raises:
            ValueError: the event is not in `EVENTS`.
            NoInstanceError: it is the job's first callback, and the connection was lost.
            RuntimeError: it is the job's first callback, and the executor has ended.
        """
        if event not in EVENTS:
            raise ValueError(
                f"unknown event `{event}`: expected one of {', '.join(sorted(EVENTS))}"
            )
        with self._lock:
            if not self._followed:
                self._worker.post("watch", self)
                self._followed = True
            self._callbacks.append((event, callback))
            past = [seen for seen in self._seen if seen["name"] == event]
        for one in past:
            self._call(callback, one)

    def cancel(self) -> bool:
        """Cancels the job, or its submission.

        Returns:
            False if the job has ended. Otherwise the future is cancelled from now on, and the job
            ends later.
        """
        if not super().cancel():
            return False
        self._worker.post("cancel", self)
        return True

    def running(self) -> bool:
        """Whether the job has been submitted, and has not ended."""
        submitted = self._id.done() and not self._id.cancelled() and not self._id.exception()
        return submitted and not self.done()

    # --- for the worker, in its thread

    def _take_id(self, job: JobId) -> None:
        self._id.set_result(job)

    def _take_event(self, event: Event) -> None:
        with self._lock:
            self._seen.append(event)
            callbacks = [call for name, call in self._callbacks if name == event["name"]]
        for callback in callbacks:
            self._call(callback, event)

    def _call(self, callback: EventCallback, event: Event) -> None:
        try:
            callback(self, event)
        except Exception:
            log.exception("callback for `%s`", event["name"])

    def _take_row(self, row: JobRow) -> None:
        """Takes the row of the ended job."""
        if row.get("exception_occurred") and row.get("exception_severity") == 0:
            note = row.get("exception_note") or ""
            self._fail(JobException(row["id"], row["exception_type"], 0, note))
        elif self.set_running_or_notify_cancel():
            self.set_result(row["returncode"])

    def _fail(self, error: Exception) -> None:
        if not self._id.done():
            self._id.set_exception(error)
        if self.set_running_or_notify_cancel():
            self.set_exception(error)

    def _drop(self) -> None:
        """Marks the future and its job id as cancelled."""
        if not self._id.done():
            self._id.cancel()
            self._id.set_running_or_notify_cancel()
        self.set_running_or_notify_cancel()
