"""The executor of jobs and their futures; see `penstock.executor`."""

from __future__ import annotations

import atexit
import concurrent.futures
import logging
import threading
import time
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock._core import fluid_parse
from penstock.client.calls import encoded_jobspec
from penstock.errors import JobException
from penstock.executor.worker import Worker
from penstock.jobspec import from_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Self

    from penstock.rows import Event, JobRow

    EventCallback = Callable[["JobFuture", Event], object]

__all__ = ["EVENTS", "JobException", "JobExecutor", "JobFuture"]

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


class JobFuture(concurrent.futures.Future[int]):
    """A job to be; made by a `JobExecutor`.

    `result()` is the exit code of the ended job: that of the task with the greatest wait status,
    128 + N if signal N ended it. It raises the job's fatal exception as `JobException`,
    `RpcError` if the instance rejected the job, and `NoInstanceError` if the connection was lost.

    `running()` is true from the submission to the end: whether the job has been started yet is
    what the event `start` tells.
    """

    def __init__(self, worker: Worker) -> None:
        super().__init__()
        self._worker = worker
        self._id: concurrent.futures.Future[int] = concurrent.futures.Future()
        self._lock = threading.Lock()
        self._followed = False
        self._seen: list[Event] = []
        self._callbacks: list[tuple[str, EventCallback]] = []

    def jobid(self, timeout: float | None = None) -> int:
        """The job's id, once the job is submitted.

        Raises:
            TimeoutError: that takes longer than `timeout` seconds.
            CancelledError: the future was cancelled before.
            RpcError: the instance rejected the job.
            NoInstanceError: the connection was lost before.
        """
        return self._id.result(timeout)

    def add_jobid_callback(self, callback: Callable[[JobFuture], object]) -> None:
        """Has `callback(future)` called when `jobid()` no longer waits, for whatever reason."""
        self._id.add_done_callback(lambda _: callback(self))

    def add_event_callback(self, event: str, callback: EventCallback) -> None:
        """Has `callback(future, event)` called for each event of this name, past ones included.

        The event is a dictionary with `timestamp`, `name` and mostly `context` (RFC 18). The
        callback is called in the executor's thread, or for what has happened already in this
        one. Those of a job come before its future is done.

        Raises:
            ValueError: no such event; `EVENTS` are those there are.
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

    def _take_id(self, job: int) -> None:
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


class JobExecutor(concurrent.futures.Executor):
    """Runs jobs on an instance; their ends are futures.

    One background thread with one connection serves any number of jobs: what is submitted while
    a request is under way goes into the next one, in bulk. Its methods may be called from any
    thread.

    Args:
        uri: `local:///path`; by default `$PENSTOCK_URI`, else the default socket.

    Raises:
        NoInstanceError: no instance listens there.
    """

    def __init__(self, uri: str | None = None) -> None:
        self._worker = Worker(uri)
        _workers.add(self._worker)
        # A garbage-collected executor takes no jobs: its thread ends with the last one.
        self._finalizer = weakref.finalize(self, self._worker.close)
        self._finalizer.atexit = False
        self._worker.start()

    def submit(  # type: ignore[override]
        self, job: Mapping[str, Any] | Sequence[str], /, *, urgency: int = 16, **options: Any
    ) -> JobFuture:
        """Submits a job.

        Args:
            job: a jobspec V1 (RFC 25), or a command: program and arguments.
            urgency: 0 (hold) to 31 (expedite), RFC 30.
            options: with a command, those of `penstock.jobspec.from_command`.

        Returns:
            The job's future, which fails if the instance rejects the job.

        Raises:
            TypeError: `job` is neither, such as a Python callable.
            JobspecError: a job that has no jobspec, none that has a JSON form, or one that is too
                large to be sent.
            NoInstanceError: the connection was lost.
            RuntimeError: the executor has been shut down.
        """
        request = encoded_jobspec({"jobspec": _jobspec(job, options), "urgency": urgency})
        future = JobFuture(self._worker)
        self._worker.post("submit", future, request)
        return future

    def attach(self, jobid: int | str) -> JobFuture:
        """The future of a job that was submitted elsewhere, and may have ended.

        Args:
            jobid: its id, as a number or in one of RFC 19's forms.

        Raises:
            JobspecError: the text is not a job id.
            NoInstanceError: the connection was lost.
            RuntimeError: the executor has been shut down.
        """
        job = fluid_parse(jobid) if isinstance(jobid, str) else jobid
        future = JobFuture(self._worker)
        self._worker.post("attach", future, job)
        return future

    def map(  # type: ignore[override]
        self,
        fn: Callable[..., Mapping[str, Any] | Sequence[str]],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[int]:
        """Runs the jobs that `fn` makes of each item; yields their exit codes in that order.

        Args:
            fn: called here at once, with an item of each iterable; returns what `submit` takes.
            iterables: what to call it with.
            timeout: seconds from this call within which all must be over.
            chunksize: has no effect: submission is in bulk as it is.

        Raises:
            TimeoutError: from the iteration.
            JobException: likewise, when it comes to that job; the rest is cancelled.
        """
        end = None if timeout is None else time.monotonic() + timeout
        futures = [self.submit(fn(*items)) for items in zip(*iterables, strict=False)]

        def codes() -> Iterator[int]:
            try:
                for future in futures:
                    yield future.result(None if end is None else end - time.monotonic())
            finally:
                for future in futures:
                    future.cancel()

        return codes()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more jobs.

        Args:
            wait: Return when all jobs have ended; otherwise they are followed in the background.
            cancel_futures: Cancel all jobs that have not ended, running ones as well.
        """
        self._worker.close(cancel=cancel_futures)
        if wait:
            self._worker.wait()

    def __enter__(self) -> Self:
        return self


def _jobspec(job: Any, options: dict[str, Any]) -> Mapping[str, Any]:
    if isinstance(job, Mapping):
        if options:
            names = ", ".join(options)
            raise TypeError(f"{names}: options are for commands, a jobspec says everything itself")
        return job
    if isinstance(job, (list, tuple)) and all(isinstance(word, str) for word in job):
        return from_command(job, **options)
    hint = "; it runs jobs, not Python callables" if callable(job) else ""
    raise TypeError(f"expected a command (a list of words) or a jobspec, found {job!r}{hint}")


_workers: weakref.WeakSet[Worker] = weakref.WeakSet()


@atexit.register
def _finish() -> None:
    """As the executors of the standard library: what was submitted is seen through at exit."""
    for worker in list(_workers):
        worker.close()
    for worker in list(_workers):
        worker.wait()
