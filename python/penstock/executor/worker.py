"""The thread behind a `JobExecutor`: one connection, any number of jobs."""

from __future__ import annotations

import logging
import selectors
import socket
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock._core import Decoder
from penstock.client.calls import MAX_SUBMISSION_BYTES, MAX_SUBMISSION_JOBS, submit_batch
from penstock.client.connection import READ_BYTES, connect
from penstock.client.methods import Methods
from penstock.client.outstanding import Outstanding
from penstock.errors import Error, NoInstanceError, RpcError
from penstock.paths import default_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock._core import Message
    from penstock.client.calls import AnyCall
    from penstock.executor.future import JobFuture
    from penstock.jobid import JobId
    from penstock.rows import JobRow

    ResponseHandler = Callable[[Message], None]

# Orders that are rejected after `close`.
NEW_JOB_COMMANDS = ("submit", "attach")

log = logging.getLogger("penstock.executor")


class Worker(threading.Thread):
    """Submits jobs, waits for their ends and resolves their futures.

    Args:
        uri: the instance's address.

    Raises:
        NoInstanceError: no instance listens there.
    """

    def __init__(self, uri: str | None) -> None:
        super().__init__(name="penstock-executor", daemon=True)
        self._uri = uri or default_uri()
        self._socket = connect(self._uri)
        self._socket.settimeout(0.0)
        self._alarm, self._bell = socket.socketpair()
        self._bell.settimeout(0.0)
        # Shared with other threads, under the lock.
        self._lock = threading.Lock()
        self._orders: deque[tuple[str, JobFuture, Any]] = deque()
        self._open: set[JobFuture] = set()
        self._closing = False
        self._ended = False
        self._lost: NoInstanceError | None = None
        # Private to the thread.
        self._decoder = Decoder()
        self._unsent = bytearray()
        self._outstanding: Outstanding[ResponseHandler] = Outstanding()
        self._unsubmitted: deque[tuple[JobFuture, bytes]] = deque()
        self._submitting = False
        self._futures: dict[int, list[JobFuture]] = {}
        # Followed eventlogs, and the rows of ended jobs whose eventlog has not ended.
        self._watched: dict[JobFuture, JobRow | None] = {}
        self._to_watch: set[JobFuture] = set()

    # --- from any thread

    def post(self, what: str, future: JobFuture, value: Any = None) -> None:
        """Orders something for a future.

        Raises:
            NoInstanceError: the connection was lost.
            RuntimeError: there was a `close`, and this would be new work.
        """
        with self._lock:
            if what == "cancel" and (self._ended or self._lost):
                return
            if self._lost is not None:
                raise NoInstanceError(str(self._lost))
            if self._ended or (self._closing and what in NEW_JOB_COMMANDS):
                raise RuntimeError("the executor has been shut down")
            if what in NEW_JOB_COMMANDS:
                self._open.add(future)
            self._orders.append((what, future, value))
        self._ring()

    def close(self, *, cancel: bool = False) -> None:
        """Accepts no more work; the thread ends once all work is done.

        Args:
            cancel: cancel all futures that are not done.
        """
        with self._lock:
            self._closing = True
            left = list(self._open) if cancel else []
        for future in left:
            future.cancel()
        self._ring()

    def wait(self) -> None:
        """Returns when the thread has ended, or at once if it is the calling thread."""
        if threading.current_thread() is not self:
            self.join()

    def _ring(self) -> None:
        # Full: a wake-up is already pending. Closed: the thread has exited.
        with suppress(OSError):
            self._bell.send(b"!")

    # --- the thread

    def run(self) -> None:
        """Serves until closed and done, or until the connection is lost."""
        lost: NoInstanceError | None = NoInstanceError("the executor's thread has failed")
        try:
            with self._socket, self._alarm, selectors.DefaultSelector() as selector:
                selector.register(self._socket, selectors.EVENT_READ)
                selector.register(self._alarm, selectors.EVENT_READ)
                self._serve(selector)
            lost = None
        except (Error, OSError) as error:
            text = getattr(error, "strerror", None) or str(error)
            reason = f": {text}" if text else ""
            lost = NoInstanceError(f"the instance at `{self._uri}` closed the connection{reason}")
        finally:
            self._bell.close()
            if lost is not None:
                self._give_up(lost)

    def _serve(self, selector: selectors.BaseSelector) -> None:
        while True:
            self._take_orders()
            self._submit()
            if self._end_if_idle():
                return
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
            selector.modify(self._socket, events)
            for key, ready in selector.select():
                if key.fileobj is self._alarm:
                    self._alarm.recv(READ_BYTES)
                    continue
                if ready & selectors.EVENT_WRITE:
                    sent = self._socket.send(memoryview(self._unsent)[:READ_BYTES])
                    del self._unsent[:sent]
                if ready & selectors.EVENT_READ:
                    self._read()

    def _read(self) -> None:
        data = self._socket.recv(READ_BYTES)
        if not data:
            raise ConnectionResetError
        for message in self._decoder.feed(data):
            handler = self._outstanding.deliver(message)
            if handler is not None:
                handler(message)

    def _take_orders(self) -> None:
        """Executes the orders of other threads."""
        with self._lock:
            orders, self._orders = self._orders, deque()
        for what, future, value in orders:
            if what == "submit":
                self._unsubmitted.append((future, value))
            elif what == "attach":
                self._set_id(future, value)
                self._wait([value])
            elif what == "cancel":
                self._cancel(future)
            else:
                self._watch(future)

    def _end_if_idle(self) -> bool:
        """Takes no more orders if the thread is closed and idle. Returns whether it is."""
        with self._lock:
            busy = self._orders or self._unsubmitted or len(self._outstanding)
            self._ended = self._closing and not busy
            return self._ended

    def _complete(self, future: JobFuture, row: JobRow | RpcError) -> None:
        """Resolves a future with its job's row, or with an error."""
        with self._lock:
            self._open.discard(future)
        self._to_watch.discard(future)
        if isinstance(row, RpcError):
            future._fail(row)
        else:
            future._take_row(row)

    def _send(self, call: AnyCall[Any], handler: ResponseHandler) -> None:
        self._unsent += self._outstanding.request(handler, call).encode()

    # --- submission

    def _submit(self) -> None:
        """Submits pending jobs in one request, unless one is in flight."""
        if self._submitting:
            return
        futures: list[JobFuture] = []
        parts: list[bytes] = []
        size = 0
        while self._unsubmitted and len(futures) < MAX_SUBMISSION_JOBS:
            future, request = self._unsubmitted[0]
            if future.cancelled():
                self._unsubmitted.popleft()
                self._drop(future)
                continue
            if futures and size + len(request) > MAX_SUBMISSION_BYTES:
                break
            self._unsubmitted.popleft()
            futures.append(future)
            parts.append(request)
            size += len(request) + 1
        if not futures:
            return
        self._submitting = True
        call = submit_batch(parts)

        def handle(response: Message) -> None:
            self._submitting = False
            result = call.result(response)
            if isinstance(result, RpcError):
                for future in futures:
                    self._complete(future, result)
            else:
                self._set_ids(futures, result)

        self._send(call, handle)

    def _set_ids(self, futures: list[JobFuture], results: list[list[JobId] | RpcError]) -> None:
        """Sets the ids of submitted jobs, and the errors of rejected ones."""
        jobs = []
        for future, result in zip(futures, results, strict=True):
            if isinstance(result, RpcError):
                self._complete(future, result)
                continue
            (job,) = result
            self._set_id(future, job)
            jobs.append(job)
        if jobs:
            self._wait(jobs)

    def _set_id(self, future: JobFuture, job: JobId) -> None:
        """Sets the id of a future's job."""
        self._futures.setdefault(job, []).append(future)
        future._take_id(job)
        if future in self._to_watch:
            self._to_watch.remove(future)
            self._watch(future)
        if future.cancelled():
            self._cancel(future)

    # --- ends

    def _wait(self, jobs: Sequence[int]) -> None:
        """Waits for jobs by one stream."""
        left = set(jobs)
        call = Methods.wait_rows.call(jobs)

        def handle(response: Message) -> None:
            try:
                rows = call.rows(response)
            except RpcError as error:
                self._fail_wait(left, error)
                return
            for row in rows:
                left.discard(row["id"])
                self._end(row)

        self._send(call, handle)

    def _fail_wait(self, jobs: set[int], error: RpcError) -> None:
        if len(jobs) > 1:
            # A job that has been purged already must not affect the others.
            for job in jobs:
                self._wait([job])
            return
        for job in jobs:
            for future in self._futures.pop(job, []):
                self._complete(future, error)

    def _end(self, row: JobRow) -> None:
        for future in self._futures.pop(row["id"], []):
            if future in self._watched:
                self._watched[future] = row
            else:
                self._complete(future, row)

    # --- events

    def _watch(self, future: JobFuture) -> None:
        """Follows the job's eventlog, now or when the job is known."""
        if not future._id.done():
            self._to_watch.add(future)
            return
        if future._id.cancelled() or future._id.exception():
            return
        self._watched[future] = None

        call = Methods.eventlog.call(future.jobid(), follow=True)

        def handle(response: Message) -> None:
            try:
                for event in call.rows(response):
                    future._take_event(event)
            except RpcError as error:
                log.warning("the events of a job cannot be followed: %s", error)
            if not response.errnum:
                return
            row = self._watched.pop(future)
            if row is not None:
                self._complete(future, row)

        self._send(call, handle)

    # --- other ends

    def _cancel(self, future: JobFuture) -> None:
        """Has the job of a cancelled future cancelled, if it is submitted and not over."""
        if not future._id.done():
            # Not submitted yet, or just being submitted: that is seen to when it comes to it.
            return
        job = future.jobid()
        some = self._futures.get(job, [])
        if future not in some:
            return
        some.remove(future)
        self._drop(future)
        # An error means that the job has ended already.
        self._send(Methods.cancel.call([job], note="future cancelled"), lambda _: None)

    def _drop(self, future: JobFuture) -> None:
        with self._lock:
            self._open.discard(future)
        self._to_watch.discard(future)
        future._drop()

    def _give_up(self, error: NoInstanceError) -> None:
        """Fails all open futures."""
        with self._lock:
            self._lost = error
            left = list(self._open)
            self._open.clear()
        for future in left:
            future._fail(error)
