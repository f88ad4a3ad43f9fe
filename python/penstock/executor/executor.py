"""The executor of jobs; see `penstock.executor`."""

from __future__ import annotations

import atexit
import concurrent.futures
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock._core import URGENCY_DEFAULT, fluid_parse
from penstock.client.calls import encoded_jobspec
from penstock.clock import SYSTEM_CLOCK
from penstock.executor.future import JobFuture
from penstock.executor.worker import Worker
from penstock.jobspec import from_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Self


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
        # A garbage-collected executor accepts no jobs: its thread ends with the last one.
        self._finalizer = weakref.finalize(self, self._worker.close)
        self._finalizer.atexit = False
        self._worker.start()

    def submit(  # type: ignore[override]
        self,
        job: Mapping[str, Any] | Sequence[str],
        /,
        *,
        urgency: int = URGENCY_DEFAULT,
        **options: Any,
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
        end = None if timeout is None else SYSTEM_CLOCK.monotonic() + timeout
        futures = [self.submit(fn(*items)) for items in zip(*iterables, strict=False)]

        def codes() -> Iterator[int]:
            try:
                for future in futures:
                    yield future.result(None if end is None else end - SYSTEM_CLOCK.monotonic())
            finally:
                for future in futures:
                    future.cancel()

        return codes()

    # `wait` is positional in the base class.
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
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
            raise TypeError(f"{names}: options are for commands, not for a jobspec")
        return job
    if isinstance(job, (list, tuple)) and all(isinstance(word, str) for word in job):
        return from_command(job, **options)
    hint = "; it runs jobs, not Python callables" if callable(job) else ""
    raise TypeError(f"expected a command (a list of words) or a jobspec, found {job!r}{hint}")


_workers: weakref.WeakSet[Worker] = weakref.WeakSet()


@atexit.register
def _finish() -> None:
    """Waits for submitted jobs at exit, as the executors of the standard library do."""
    for worker in list(_workers):
        worker.close()
    for worker in list(_workers):
        worker.wait()
