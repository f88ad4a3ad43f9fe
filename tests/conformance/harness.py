"""Drives one real end of a protocol per test: its peers are played by the test.

`Manager` holds a job manager, `Sched` a scheduler. Time advances with each message only.

Topics, payloads and the types of alloc responses are written by hand, as the RFCs have them: the
tests check `penstock_flux` as well, and would share its errors if they took these from there.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from ends import take_log

from penstock import ResourceSet
from penstock._core import (
    NORESPONSE,
    ROLE_OWNER,
    ROLE_USER,
    STREAMING,
    Batch,
    Decoder,
    JobManager,
    Message,
    Router,
    Scheduler,
    fluid_dothex,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

OWNER, GUEST = 1000, 2000
SUCCESS, ANNOTATE, DENY, CANCEL = range(4)

JSON = dict[str, Any]

PARTIAL: JSON = {"partial-ok": True}


def routed(message: Message, *routes: bytes) -> Message:
    """The message with a route of these peers, the last of them its origin."""
    frame = message.encode()
    # A client's request has an empty stack already.
    stack = b"".join(bytes([len(route)]) + route for route in routes)
    body = stack + frame[8:]
    return Message.decode(frame[:4] + len(body).to_bytes(4, "big") + body)


def inventory(nodes: int = 4, cores: int = 2) -> ResourceSet:
    """Equal nodes `n0`, `n1`, ..."""
    return ResourceSet.uniform(range(nodes), [f"n{i}" for i in range(nodes)], cores=range(cores))


R = inventory(2, 4).to_json()


def jobspec(cores: int = 1, nodes: int = 0, **system: Any) -> JSON:
    """A jobspec V1 with one slot of `cores`, or with such a slot on each of `nodes`."""
    core = {"type": "core", "count": cores}
    slot: JSON = {"type": "slot", "count": 1, "label": "task", "with": [core]}
    if nodes:
        slot = {"type": "node", "count": nodes, "with": [slot]}
    return {
        "version": 1,
        "resources": [slot],
        "tasks": [{"command": ["/bin/true"], "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 0, **system}},
    }


def topics(sent: Iterable[Message]) -> list[str]:
    """The topics of the requests and events among messages, in order."""
    return [message.topic or "" for message in sent if message.kind != "response"]


def requests(sent: Iterable[Message], topic: str) -> list[Message]:
    """The requests of a topic among messages."""
    return [message for message in sent if message.kind == "request" and message.topic == topic]


def payloads(sent: Iterable[Message], topic: str) -> list[JSON]:
    """The payloads of the requests of a topic among messages."""
    return [request.object() for request in requests(sent, topic)]


def responses(sent: Iterable[Message], topic: str | None = None) -> list[Message]:
    """The responses among messages, of a topic if one is given."""
    return [
        message for message in sent if message.kind == "response" and topic in (None, message.topic)
    ]


def encoded(text: str) -> JSON:
    """A text as a `dirent` of the store."""
    return {"ver": 1, "type": "val", "data": base64.b64encode(text.encode()).decode()}


def commit_op(job: int, r: str) -> JSON:
    """An operation of `kvs.commit` that commits R of a job."""
    return {"key": f"job.{fluid_dothex(job)}.R", "flags": 0, "dirent": encoded(r)}


class Manager:
    """A job manager whose scheduler, execution service and clients are played by the test."""

    def __init__(
        self, *, path: Path | None = None, inventory: str | None = None, **settings: Any
    ) -> None:
        self.now = 1000.0
        self.manager = JobManager(path, json.dumps({"owner": OWNER, **settings}), self.now)
        if inventory is not None:
            self.manager.set_inventory(inventory)
        self.log: list[str] = []
        self._given = 0

    def deliver(self, message: Message) -> list[Message]:
        """Delivers a message to the manager; returns the messages that it sends."""
        self.now += 1.0
        self.manager.handle(Batch([message]), self.now)
        sent = list(self.manager.flush())
        self.log += take_log(self.manager)
        return sent

    def advance(self) -> list[Message]:
        """Does the next slice of the manager's own work; returns the messages that it sends."""
        self.manager.advance(self.now)
        return list(self.manager.flush())

    def request(
        self,
        topic: str,
        payload: Mapping[str, Any] | None = None,
        *,
        origin: bytes = b"client",
        userid: int = OWNER,
        streaming: bool = False,
    ) -> list[Message]:
        """Sends the manager a request; returns the messages that it sends."""
        flags = STREAMING if streaming else 0
        roles = ROLE_OWNER if userid == OWNER else ROLE_USER
        request = Message.request(
            topic, payload, flags=flags, matchtag=5, userid=userid, rolemask=roles
        )
        return self.deliver(routed(request, b"hop", origin))

    def respond(
        self, request: Message, payload: JSON | None = None, errnum: int = 0
    ) -> list[Message]:
        """Responds to a request of the manager, as a service of the owner."""
        response = request.respond(payload, errnum=errnum)
        return self.deliver(_from_owner(response))

    def respond_unserved(self, request: Message) -> list[Message]:
        """Lets the broker respond to a request of the manager whose service is not registered."""
        router = Router("hop", OWNER)
        router.add_peer(1, "manager", OWNER, 5)
        ((_, batch),) = router.route(1, Batch([request]))
        (response,) = batch
        return self.deliver(response)

    # --- jobs

    def submit(self, *, urgency: int = 16, **spec: Any) -> int:
        """Submits a job; `sent` has the messages that follow."""
        self.sent = self.request(
            "job-ingest.submit", {"jobspec": jobspec(**spec), "urgency": urgency}
        )
        return self.sent[0].object()["id"]

    def raise_exception(self, job: int, severity: int = 0, kind: str = "cancel") -> list[Message]:
        """Raises an exception as a user."""
        return self.request("job-manager.raise", {"id": job, "type": kind, "severity": severity})

    def events(self, job: int) -> list[JSON]:
        """The job's eventlog."""
        (response,) = self.request("job-info.lookup", {"id": job, "keys": ["eventlog"]})
        return [json.loads(line) for line in response.object()["eventlog"].splitlines()]

    def names(self, job: int) -> list[str]:
        """The names of the job's events."""
        return [event["name"] for event in self.events(job)]

    def event(self, job: int, name: str) -> JSON:
        """The context of the job's last event of this name."""
        return [event for event in self.events(job) if event["name"] == name][-1].get("context", {})

    def row(self, job: int) -> JSON:
        """The job as lists show it."""
        (response,) = self.request("job-list.list-id", {"id": job})
        return response.object()["job"]

    # --- the scheduler's part

    def hello(self, payload: JSON | None = PARTIAL, **how: Any) -> list[Message]:
        """Sends the scheduler's hello, by default of the current version."""
        how = {"origin": b"sched", "streaming": True, **how}
        return self.request("job-manager.sched-hello", payload, **how)

    def ready(self, limit: int | None = None, **payload: Any) -> list[Message]:
        """Sends the scheduler's ready."""
        mode: JSON = {"mode": "unlimited"} if limit is None else {"mode": "limited", "limit": limit}
        return self.request("job-manager.sched-ready", {**mode, **payload}, origin=b"sched")

    def scheduler(self, limit: int | None = None, hello: JSON | None = PARTIAL) -> list[Message]:
        """Sends hello and ready; returns the messages that follow."""
        return self.hello(hello) + self.ready(limit)

    def respond_alloc(self, job: int, kind: int, **more: Any) -> list[Message]:
        """Responds to the job's `sched.alloc`."""
        request = Message.request("sched.alloc")
        return self.respond(request, {"id": job, "type": kind, **more})

    def commit(self, *ops: JSON) -> Message:
        """Commits as the scheduler; returns the response."""
        payload = {"namespace": "primary", "flags": 0, "ops": list(ops)}
        return responses(self.request("kvs.commit", payload, origin=b"sched"), "kvs.commit")[0]

    def next_r(self) -> str:
        """R of two unused ranks with four cores each, at first 0 and 1."""
        ranks = range(self._given, self._given + 2)
        self._given += 2
        return inventory(64, 4).restrict(ranks=ranks).to_json()

    def allocate(self, job: int, r: str | None = None, **more: Any) -> list[Message]:
        """Commits R and responds SUCCESS, as the scheduler."""
        r = self.next_r() if r is None else r
        committed = self.commit(commit_op(job, r))
        assert committed.errnum == 0, committed.error_text
        return self.respond_alloc(job, SUCCESS, **more)

    def disconnect(self, origin: bytes) -> list[Message]:
        """Disconnects a peer."""
        return self.request("job-manager.disconnect", origin=origin)

    # --- the execution service's part

    def exec_hello(self, service: str = "job-exec", origin: bytes = b"exec") -> list[Message]:
        """Sends an execution service's hello."""
        return self.request("job-manager.exec-hello", {"service": service}, origin=origin)

    def respond_start(
        self, job: int, kind: str, service: str = "job-exec", **data: Any
    ) -> list[Message]:
        """Responds to the job's start request."""
        request = Message.request(f"{service}.start")
        return self.respond(request, {"id": job, "type": kind, "data": data})

    def running(self, *, limit: int | None = None, **spec: Any) -> int:
        """Registers a scheduler and an execution service, and runs a job; returns its id."""
        self.scheduler(limit)
        self.exec_hello()
        job = self.submit(**spec)
        self.allocate(job)
        self.respond_start(job, "start")
        return job

    def finish(self, job: int, status: int = 0) -> list[Message]:
        """Ends the job's tasks and releases all of its ranks."""
        sent = self.respond_start(job, "finish", status=status)
        return sent + self.respond_start(job, "release", ranks="all", final=True)


def _from_owner(message: Message) -> Message:
    """The message with the owner's credentials, which the broker sets in responses of services."""
    frame = bytearray(message.encode())
    frame[-16:-12] = OWNER.to_bytes(4, "big")
    frame[-12:-8] = ROLE_OWNER.to_bytes(4, "big")
    return Message.decode(frame)


class Sched:
    """A scheduler whose resource service, job manager and store are played by the test.

    While `storing` is set, commits and lookups get responses at once, from `store` (R by job).
    """

    def __init__(self, *, limit: int | None = None, grow: bool = True) -> None:
        self.scheduler = Scheduler(limit=limit, grow=grow)
        self.now = 1000.0
        self.store: dict[int, str] = {}
        self.storing = True
        self.commits: list[Message] = []
        self.log: list[str] = []
        self._latest: dict[str, Message] = {}
        self.scheduler.start()
        self.sent_first = self._listen()

    @property
    def phase(self) -> str:
        """The state of the scheduler's handshake."""
        return self.scheduler.phase

    def _listen(self) -> list[Message]:
        sent: list[Message] = []
        while True:
            while self.scheduler.schedule(self.now):
                pass
            taken = list(self.scheduler.take_out())
            self.log += self.scheduler.take_log()
            sent += taken
            answers = [answer for message in taken if (answer := self._record(message)) is not None]
            if not taken:
                return sent
            self.scheduler.handle(Batch(answers))

    def _record(self, message: Message) -> Message | None:
        """Records a request; returns the store's response."""
        if message.kind == "response":
            return None
        self._latest[message.topic or ""] = message
        if message.topic == "kvs.commit":
            self.commits.append(message)
        return self.stored(message) if self.storing else None

    def stored(self, request: Message) -> Message | None:
        """The store's response to a request, if it is one of the store's."""
        keys = {f"job.{fluid_dothex(job)}.R": job for job in self.store}
        if request.topic == "kvs.commit":
            return request.respond({"rootseq": 1})
        if request.topic == "kvs.lookup":
            job = keys.get(request.object()["key"])
            if job is None:
                return request.respond(errnum=2)
            return request.respond({"val": encoded(self.store[job])})
        return None

    def deliver(self, *messages: Message) -> list[Message]:
        """Delivers messages to the scheduler; returns the messages that it sends."""
        self.now += 1.0
        self.scheduler.handle(Batch(messages))
        return self._listen()

    def respond(self, topic: str, payload: JSON | None = None, errnum: int = 0) -> list[Message]:
        """Responds to the scheduler's latest request of a topic."""
        return self.deliver(self._latest[topic].respond(payload, errnum=errnum))

    # --- the handshake

    def register(self) -> list[Message]:
        """Accepts the registration of its services."""
        adding = requests(self.sent_first, "service.add")
        return self.deliver(*(request.respond() for request in adding))

    def acquire(self, resources: ResourceSet, up: str | None = None) -> list[Message]:
        """Sends the first acquire response."""
        up = str(resources.ranks) if up is None else up
        payload = {"resources": resources.to_dict(), "up": up}
        return self.respond("resource.acquire", payload)

    def change(self, **keys: Any) -> list[Message]:
        """Sends a later acquire response; `_` in a key stands for `-`."""
        payload = {key.replace("_", "-"): value for key, value in keys.items()}
        return self.respond("resource.acquire", payload)

    def announce(self, job: int, r: str, **more: Any) -> list[Message]:
        """Sends a hello response for a job that holds resources."""
        self.store[job] = r
        response = {"id": job, "priority": 16, "userid": OWNER, "t_submit": 1.0, **more}
        return self.respond("job-manager.sched-hello", response)

    def end_hello(self) -> list[Message]:
        """Ends the stream of hello with ENODATA."""
        return self.respond("job-manager.sched-hello", errnum=61)

    @classmethod
    def running(
        cls, resources: ResourceSet | None = None, up: str | None = None, limit: int | None = None
    ) -> Sched:
        """A scheduler after its handshake."""
        self = cls(limit=limit)
        self.register()
        self.acquire(inventory() if resources is None else resources, up)
        self.end_hello()
        self.respond("job-manager.sched-ready", {"count": 0})
        assert self.phase == "running", self.log
        return self

    # --- the job manager's requests

    def request(self, topic: str, payload: JSON, *, flags: int = 0) -> list[Message]:
        """Sends a request as the instance owner."""
        return self.deliver(_request(topic, payload, flags))

    def alloc(self, *jobs: int, priority: int = 16, **spec: Any) -> list[Message]:
        """Sends `sched.alloc` for some jobs at once."""
        common = {"priority": priority, "userid": OWNER, "t_submit": 1.0}
        payload = {**common, "jobspec": jobspec(**spec)}
        return self.deliver(*(_request("sched.alloc", {"id": job, **payload}) for job in jobs))

    def cancel(self, job: int) -> list[Message]:
        """Sends `sched.cancel`."""
        return self.request("sched.cancel", {"id": job}, flags=NORESPONSE)

    def free(self, job: int, **more: Any) -> list[Message]:
        """Sends `sched.free`."""
        return self.request("sched.free", {"id": job, **more})


def _request(topic: str, payload: JSON, flags: int = 0) -> Message:
    request = Message.request(topic, payload, flags=flags, userid=OWNER, rolemask=1)
    return routed(request, b"hop", b"manager")


def allocs(sent: Iterable[Message]) -> list[JSON]:
    """The payloads of responses to `sched.alloc` among messages; errors fail the test."""
    found = responses(sent, "sched.alloc")
    assert [response.errnum for response in found] == [0] * len(found)
    return [response.object() for response in found]


def granted(sent: Iterable[Message]) -> dict[int, ResourceSet]:
    """The allocations among messages: R by job id."""
    return {
        response["id"]: ResourceSet(response["R"])
        for response in allocs(sent)
        if response["type"] == SUCCESS
    }


def committed(sent: Iterable[Message]) -> dict[str, ResourceSet]:
    """The commits among messages: R by its key in the store."""
    ops = [op for payload in payloads(sent, "kvs.commit") for op in payload["ops"]]
    data = {op["key"]: base64.b64decode(op["dirent"]["data"]) for op in ops}
    return {key: ResourceSet(text) for key, text in data.items()}


class Wire:
    """A socket whose peer sends the given responses to each topic, and then closes it."""

    def __init__(self, answers: Mapping[str, list[JSON]]) -> None:
        self._answers = answers
        self._decoder = Decoder()
        self._unread = b""
        self.topics: list[str] = []

    def sendall(self, data: bytes) -> None:
        """Reads requests; an unknown topic gets no response."""
        for request in self._decoder.feed(data):
            self.topics.append(request.topic or "")
            for answer in self._answers.get(request.topic or "", []):
                self._unread += request.respond(**answer).encode()

    def recv(self, _size: int) -> bytes:
        """Returns the unread bytes, none at the end."""
        data, self._unread = self._unread, b""
        return data
