"""The thread behind a `JobExecutor`: one connection, any number of jobs."""

from __future__ import annotations

import errno
import json
import logging
import selectors
import socket
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock._core import Decoder, Message
from penstock.client.calls import MAX_SUBMISSION, bulk
from penstock.client.connection import READ_SIZE, NoInstanceError, connect
from penstock.client.outstanding import STREAMING, error_of, payload_of
from penstock.errors import Error, RpcError
from penstock.paths import default_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.executor.executor import JobFuture

    # Takes a response and says whether there are more to come.
    Handler = Callable[[Message], bool]

# Orders that make work for an executor, after whose end there is none.
NEW = ("submit", "attach")

log = logging.getLogger("penstock.executor")


class Worker(threading.Thread):
    """Submits jobs, waits for their ends and tells their futures.

    Args:
        uri: the instance's address.

    Raises:
        NoInstanceError: nobody listens there.
    """

    def __init__(self, uri: str | None) -> None:
        super().__init__(name="penstock-executor", daemon=True)
        self._uri = uri or default_uri()
        self._socket = connect(self._uri)
        self._socket.setblocking(False)
        self._alarm, self._bell = socket.socketpair()
        self._bell.setblocking(False)
        # What other threads want, under the lock.
        self._lock = threading.Lock()
        self._orders: deque[tuple[str, JobFuture, Any]] = deque()
        self._open: set[JobFuture] = set()
        self._closing = False
        self._ended = False
        self._lost: NoInstanceError | None = None
        # What only the thread itself knows.
        self._decoder = Decoder()
        self._unsent = bytearray()
        self._tag = 0
        self._handlers: dict[int, Handler] = {}
        self._unsubmitted: deque[tuple[JobFuture, bytes]] = deque()
        self._submitting = False
        self._futures: dict[int, list[JobFuture]] = {}
        # Followed eventlogs, and the rows of jobs that are over but for the end of theirs.
        self._watched: dict[JobFuture, dict[str, Any] | None] = {}
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
            if self._ended or (self._closing and what in NEW):
                raise RuntimeError("the executor has been shut down")
            if what in NEW:
                self._open.add(future)
            self._orders.append((what, future, value))
        self._ring()

    def close(self, *, cancel: bool = False) -> None:
        """Takes no more work; the thread ends when there is none left.

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
        """Returns when the thread has ended, or at once where it is the one that asks."""
        if threading.current_thread() is not self:
            self.join()

    def _ring(self) -> None:
        # Full is loud enough; closed is nobody there.
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
            if self._is_done():
                return
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
            selector.modify(self._socket, events)
            for key, ready in selector.select():
                if key.fileobj is self._alarm:
                    self._alarm.recv(READ_SIZE)
                    continue
                if ready & selectors.EVENT_WRITE:
                    sent = self._socket.send(memoryview(self._unsent)[:READ_SIZE])
                    del self._unsent[:sent]
                if ready & selectors.EVENT_READ:
                    self._read()

    def _read(self) -> None:
        data = self._socket.recv(READ_SIZE)
        if not data:
            raise ConnectionResetError
        for message in self._decoder.feed(data):
            handler = self._handlers.get(message.matchtag)
            if handler is not None and not handler(message):
                del self._handlers[message.matchtag]

    def _take_orders(self) -> None:
        """Does what was ordered."""
        with self._lock:
            orders, self._orders = self._orders, deque()
        for what, future, value in orders:
            if what == "submit":
                self._unsubmitted.append((future, value))
            elif what == "attach":
                self._known(future, value)
                self._wait([value])
            elif what == "cancel":
                self._cancel(future)
            else:
                self._watch(future)

    def _is_done(self) -> bool:
        """Whether nothing is left to do, and nothing will come."""
        with self._lock:
            busy = self._orders or self._unsubmitted or self._handlers
            self._ended = self._closing and not busy
            return self._ended

    def _settle(self, future: JobFuture, row: dict[str, Any] | RpcError) -> None:
        """Tells a future how its job has ended, or why nobody can tell."""
        with self._lock:
            self._open.discard(future)
        self._to_watch.discard(future)
        if isinstance(row, RpcError):
            future._fail(row)
        else:
            future._take_row(row)

    def _ask(self, topic: str, payload: Any, handler: Handler, flags: int = 0) -> None:
        self._tag += 1
        self._handlers[self._tag] = handler
        self._unsent += Message.request(topic, payload, matchtag=self._tag, flags=flags).encode()

    # --- submission

    def _submit(self) -> None:
        """Submits what there is, if nothing is being submitted, as far as it fits a request."""
        if self._submitting:
            return
        futures: list[JobFuture] = []
        parts: list[bytes] = []
        size = 0
        while self._unsubmitted:
            future, request = self._unsubmitted[0]
            if future.cancelled():
                self._unsubmitted.popleft()
                self._drop(future)
                continue
            if futures and size + len(request) > MAX_SUBMISSION:
                break
            self._unsubmitted.popleft()
            futures.append(future)
            parts.append(request)
            size += len(request) + 1
        if not futures:
            return
        self._submitting = True
        self._ask("job-ingest.submit", bulk(parts), lambda answer: self._submitted(futures, answer))

    def _submitted(self, futures: list[JobFuture], answer: Message) -> bool:
        self._submitting = False
        if answer.errnum:
            for future in futures:
                self._settle(future, error_of(answer))
            return False
        jobs = []
        for future, result in zip(futures, payload_of(answer)["results"], strict=True):
            if "error" in result:
                self._settle(future, RpcError(errno.EINVAL, result["error"]))
                continue
            (job,) = result["ids"]
            self._known(future, job)
            jobs.append(job)
        if jobs:
            self._wait(jobs)
        return False

    def _known(self, future: JobFuture, job: int) -> None:
        """The future's job is known."""
        self._futures.setdefault(job, []).append(future)
        future._take_id(job)
        if future in self._to_watch:
            self._to_watch.remove(future)
            self._watch(future)
        if future.cancelled():
            self._cancel(future)

    # --- ends

    def _wait(self, jobs: list[int]) -> None:
        """Waits for jobs by one stream."""
        left = set(jobs)

        def take(answer: Message) -> bool:
            if not answer.errnum:
                for row in payload_of(answer)["jobs"]:
                    left.discard(row["id"])
                    self._over(row)
                return True
            if answer.errnum != errno.ENODATA:
                self._cannot_wait(left, answer)
            return False

        self._ask("job-list.wait", {"ids": jobs}, take, STREAMING)

    def _cannot_wait(self, jobs: Iterable[int], answer: Message) -> None:
        jobs = list(jobs)
        if len(jobs) > 1:
            # One that has been purged already must not harm the others.
            for job in jobs:
                self._wait([job])
            return
        for job in jobs:
            for future in self._futures.pop(job, []):
                self._settle(future, error_of(answer))

    def _over(self, row: dict[str, Any]) -> None:
        for future in self._futures.pop(row["id"], []):
            if future in self._watched:
                self._watched[future] = row
            else:
                self._settle(future, row)

    # --- events

    def _watch(self, future: JobFuture) -> None:
        """Follows the job's eventlog, now or when the job is known."""
        if not future._id.done():
            self._to_watch.add(future)
            return
        if future._id.cancelled() or future._id.exception():
            return
        self._watched[future] = None

        def take(answer: Message) -> bool:
            if not answer.errnum:
                for line in payload_of(answer)["event"].splitlines():
                    future._take_event(json.loads(line))
                return True
            if answer.errnum != errno.ENODATA:
                log.warning("the events of a job cannot be followed: %s", error_of(answer))
            row = self._watched.pop(future)
            if row is not None:
                self._settle(future, row)
            return False

        request = {"id": future.jobid(), "path": "eventlog", "flags": 0}
        self._ask("job-info.eventlog-watch", request, take, STREAMING)

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
        request = {"id": job, "type": "cancel", "severity": 0, "note": "future cancelled"}

        def take(_answer: Message) -> bool:
            # Over already is as good.
            return False

        self._ask("job-manager.raise", request, take)

    def _drop(self, future: JobFuture) -> None:
        with self._lock:
            self._open.discard(future)
        self._to_watch.discard(future)
        future._drop()

    def _give_up(self, error: NoInstanceError) -> None:
        """Nothing more will be told: what is left fails."""
        with self._lock:
            self._lost = error
            left = list(self._open)
            self._open.clear()
        for future in left:
            future._fail(error)
