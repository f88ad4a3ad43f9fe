"""Monitors of the messages between job manager and peers, checked against RFC 27 and RFC 32."""

from __future__ import annotations

import errno
from collections import Counter
from typing import TYPE_CHECKING, Any

from recordings import payload_of

from penstock._core import (
    ALLOC_ANNOTATE,
    ALLOC_CANCEL,
    ALLOC_DENY,
    ALLOC_SUCCESS,
    IDset,
    ResourceSet,
)
from penstock.errors import Error

if TYPE_CHECKING:
    from penstock._core import Message


def origin(message: Message) -> bytes:
    """The route of a request's sender."""
    return (message.routes or [b""])[-1]


def payloads_of(message: Message) -> list[dict[str, Any]]:
    """The payloads of RFC 27 in a message: within a process it may cancel several jobs."""
    payload = payload_of(message)
    if message.topic not in ("sched.alloc", "sched.cancel") or "ids" not in payload:
        return [payload]
    kind = {"type": ALLOC_CANCEL} if message.kind == "response" else {}
    return [{"id": job, **kind} for job in payload["ids"]]


class ManagerWatch:
    """Checks the job manager's messages from and to a scheduler."""

    def __init__(self, *, lawful: bool = True, released: bool = True) -> None:
        # Whether the scheduler's responses end the requests that they name.
        self.lawful = lawful
        # Whether execution services release ranks of their jobs only, which hello then reports.
        self.believed = released
        self.limit: int | None = None
        self._wanted: int | None = None
        self._newcomer = self._scheduler = b""
        self.ready = False
        # Jobs with an alloc request in flight, and those of them that are being cancelled.
        self.in_flight: set[int] = set()
        self.cancelling: set[int] = set()
        # The priority that the scheduler was last sent for each of them.
        self.priorities: dict[int, int] = {}
        # The freed part of each job's allocation; None once all of it is.
        self.freed: dict[int, ResourceSet | None] = {}
        # The ranks that execution services have released, by job.
        self._released: dict[int, IDset] = {}
        # The number of hello responses for jobs that had released ranks.
        self.partial = 0

    def _suspend(self) -> None:
        self.ready = False
        self.in_flight.clear()
        self.cancelling.clear()

    def on_received(self, message: Message) -> None:
        """Checks a message that the manager receives."""
        topic, payload = message.topic or "", payload_of(message)
        if message.kind == "response" and topic in ("sched.alloc", "sched.free"):
            if message.errnum:
                self._suspend()
                return
            for payload in payloads_of(message):
                if payload.get("type") in (ALLOC_SUCCESS, ALLOC_DENY, ALLOC_CANCEL):
                    self.in_flight.discard(payload.get("id", 0))
                    self.cancelling.discard(payload.get("id", 0))
        elif self.believed and message.kind == "response" and payload.get("type") == "release":
            # A hello reports only what was released before the final release.
            job, data = payload["id"], payload["data"]
            if data.get("final") is False:
                self._released[job] = self._released.get(job, IDset()) | IDset(data["ranks"])
        elif topic == "job-manager.sched-ready":
            # In force once it has its response.
            self._wanted = payload.get("limit") if payload.get("mode") == "limited" else None
        elif topic == "job-manager.sched-hello":
            self._newcomer = origin(message)
        elif topic == "job-manager.disconnect" and origin(message) == self._scheduler:
            self._suspend()

    def on_sent(self, message: Message) -> None:
        """Checks a message that the manager sends."""
        topic, payload = message.topic or "", payload_of(message)
        if message.kind == "response":
            if topic == "job-manager.sched-hello" and message.errnum in (0, errno.ENODATA):
                self._suspend()
                self._scheduler = self._newcomer
                if not message.errnum and self.believed:
                    released = self._released.get(payload["id"], IDset())
                    assert IDset(payload.get("free", "")) == released, "hello's `free`"
                    self.partial += bool(released)
            elif topic == "job-manager.sched-ready" and not message.errnum:
                self.ready, self.limit = True, self._wanted
        elif topic == "sched.alloc":
            job = payload["id"]
            assert self.ready, "alloc before ready"
            assert (message.matchtag, message.noresponse) == (0, False)
            assert job not in self.in_flight, "two alloc requests in flight for a job"
            assert 0 < payload["priority"] < 1 << 32
            self.in_flight.add(job)
            self.priorities[job] = payload["priority"]
            assert self.limit is None or len(self.in_flight) <= self.limit
        elif topic == "sched.cancel":
            assert message.noresponse
            if not self.lawful:
                return
            for payload in payloads_of(message):
                assert payload["id"] in self.in_flight, "a cancel without an alloc request"
                assert payload["id"] not in self.cancelling, "a second cancel for one request"
                self.cancelling.add(payload["id"])
        elif topic == "sched.prioritize":
            assert message.noresponse
            assert not self.lawful or {job for job, _ in payload["jobs"]} <= self.in_flight
            self.priorities |= dict(payload["jobs"])
        elif topic == "sched.free":
            self._free(message)

    def _free(self, message: Message) -> None:
        payload = message.object()
        assert (message.matchtag, message.noresponse) == (0, False)
        job, r = payload["id"], ResourceSet(payload["R"])
        before = self.freed.get(job, ResourceSet())
        assert before is not None, "free after the final one"
        assert r.ranks, "an empty free request"
        assert before.isdisjoint(r), "freed twice"
        self.freed[job] = None if payload["final"] else before.union(r, scheduling="drop")


class ExecutionWatch:
    """Checks the job manager's messages from and to execution services."""

    def __init__(self) -> None:
        self.service = ""
        self._newcomer = ("", b"")
        self._route = b""
        # Jobs with a start request in flight to the current service.
        self.started: set[int] = set()
        # The number of start requests of each job, to any service.
        self.starts: Counter[int] = Counter()
        # Jobs whose start was answered by ENOSYS: no service has it, unless an earlier one does.
        self._unsure: set[int] = set()

    def on_received(self, message: Message) -> None:
        """Checks a message that the manager receives."""
        topic, payload = message.topic or "", payload_of(message)
        if topic == "job-manager.exec-hello":
            self._newcomer = (payload.get("service", ""), origin(message))
        elif topic == "job-manager.disconnect" and origin(message) == self._route:
            self._forget_service()
        elif message.kind == "response" and topic == f"{self.service}.start":
            if message.errnum:
                if message.errnum == errno.ENOSYS:
                    self._unsure |= self.started
                self._forget_service()
            elif is_final_release(payload):
                self.started.discard(payload["id"])

    def _forget_service(self) -> None:
        self.service, self._route = "", b""
        self.started.clear()

    def on_sent(self, message: Message) -> None:
        """Checks a message that the manager sends."""
        topic = message.topic or ""
        if topic == "job-manager.exec-hello" and not message.errnum:
            self.started.clear()
            self.service, self._route = self._newcomer
        elif message.kind == "request" and topic.endswith(".start"):
            payload = message.object()
            assert topic == f"{self.service}.start", "a start request to another service"
            assert (message.matchtag, message.noresponse) == (0, False)
            assert payload.keys() >= {"id", "userid", "jobspec", "reattach", "R"}
            assert payload["id"] not in self.started, "two start requests in flight for a job"
            again = payload["id"] in self.starts
            sure = payload["id"] not in self._unsure
            assert payload["reattach"] is again or not sure, "`reattach`: was a start sent before?"
            self._unsure.discard(payload["id"])
            self.started.add(payload["id"])
            self.starts[payload["id"]] += 1


def is_final_release(payload: Any) -> bool:
    """Whether a response is the last one to a start request."""
    data = payload.get("data") if isinstance(payload, dict) else None
    if not isinstance(data, dict) or payload.get("type") != "release":
        return False
    if data.get("final") is not True or not isinstance(data.get("ranks"), str):
        return False
    try:
        return data["ranks"] == "all" or IDset(data["ranks"]) is not None
    except Error:
        return False


class SchedulerWatch:
    """Checks our scheduler's messages."""

    def __init__(self) -> None:
        self.in_flight: Counter[int] = Counter()
        self.cancelled: set[int] = set()
        # Priority and duration of each request that it has not answered.
        self.pending: dict[int, tuple[int, float]] = {}
        # The number of requests to change the time limit of a running job.
        self.expirations = 0

    def on_received(self, message: Message) -> None:
        """Checks a message that the scheduler receives."""
        payload = payload_of(message)
        if message.kind == "request" and message.topic == "sched.alloc":
            self.in_flight[payload["id"]] += 1
            self.cancelled.discard(payload["id"])
            duration = payload["jobspec"]["attributes"]["system"]["duration"]
            self.pending[payload["id"]] = (payload["priority"], duration)
        elif message.topic == "sched.expiration":
            self.expirations += 1
        elif message.topic == "job-manager.sched-ready":
            # Earlier requests were sent to its predecessor.
            self.pending.clear()
        elif message.topic == "sched.cancel":
            self.cancelled |= {cancelled["id"] for cancelled in payloads_of(message)}
        elif message.topic == "sched.prioritize":
            for job, priority in payload["jobs"]:
                if job in self.pending:
                    self.pending[job] = (priority, self.pending[job][1])

    def on_sent(self, message: Message) -> None:
        """Checks a message that the scheduler sends."""
        if message.kind != "response":
            return
        # Cancel and prioritize have no response, nor has a free request with R.
        assert message.topic in ("sched.alloc", "sched.expiration", "feasibility.check")
        if message.topic != "sched.alloc":
            return
        assert (message.errnum, message.matchtag) == (0, 0)
        for payload in payloads_of(message):
            self._end_alloc(payload)

    def _end_alloc(self, payload: dict[str, Any]) -> None:
        job, kind = payload["id"], payload["type"]
        assert self.in_flight[job], f"type {kind} without an alloc request"
        if kind != ALLOC_ANNOTATE:
            self.in_flight[job] -= 1
            self.pending.pop(job, None)
        if kind == ALLOC_CANCEL:
            assert payload.keys() == {"id", "type"}
            assert job in self.cancelled, "cancelled without a cancel request"
