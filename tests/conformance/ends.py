"""The ends of the protocols, driven by hand: what a test says to them, and what they say.

`Manager` and `Sched` hold one of our real ends each, and play whoever it talks with. Time is a
number that only goes on by what a test does.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from penstock import ResourceSet
from penstock._core import (
    NORESPONSE,
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
    """The message as it comes by way of these peers, the last of them its origin."""
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
    """A jobspec V1 that asks for a slot of `cores`, or for one on each of `nodes`."""
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
    """The topics of the requests and events among what was sent, in order."""
    return [it.topic or "" for it in sent if it.kind != "response"]


def requests(sent: Iterable[Message], topic: str) -> list[Message]:
    """The requests of a topic among what was sent."""
    return [it for it in sent if it.kind == "request" and it.topic == topic]


def payloads(sent: Iterable[Message], topic: str) -> list[JSON]:
    """The payloads of the requests of a topic among what was sent."""
    return [it.object() for it in requests(sent, topic)]


def responses(sent: Iterable[Message], topic: str | None = None) -> list[Message]:
    """The responses among what was sent, of a topic if one is given."""
    return [it for it in sent if it.kind == "response" and topic in (None, it.topic)]


def encoded(text: str) -> JSON:
    """A text as a `dirent` of the store."""
    return {"ver": 1, "type": "val", "data": base64.b64encode(text.encode()).decode()}


def commit_op(job: int, r: str) -> JSON:
    """The operation that commits R of a job."""
    return {"key": f"job.{fluid_dothex(job)}.R", "flags": 0, "dirent": encoded(r)}


class Manager:
    """Our job manager, with a scheduler, an execution service and clients played by the test."""

    def __init__(
        self, *, path: Path | None = None, inventory: str | None = None, **settings: Any
    ) -> None:
        self.now = 1000.0
        self.manager = JobManager(path, json.dumps({"owner": OWNER, **settings}), self.now)
        if inventory is not None:
            self.manager.set_inventory(inventory)
        self.log: list[str] = []
        self._given = 0

    def take(self, message: Message) -> list[Message]:
        """Gives the manager a message; returns all that it sends."""
        self.now += 1.0
        self.manager.handle(Batch([message]), self.now)
        sent = list(self.manager.flush())
        self.log += self.manager.take_log()
        return sent

    def ask(
        self,
        topic: str,
        payload: Mapping[str, Any] | None = None,
        *,
        origin: bytes = b"client",
        userid: int = OWNER,
        streaming: bool = False,
    ) -> list[Message]:
        """A request to the manager."""
        flags = STREAMING if streaming else 0
        request = Message.request(topic, payload, flags=flags, matchtag=5, userid=userid)
        return self.take(routed(request, b"hop", origin))

    def answer(
        self, request: Message, payload: JSON | None = None, errnum: int = 0
    ) -> list[Message]:
        """A response to a request that the manager sent, from the owner's service."""
        response = request.respond(payload, errnum=errnum)
        return self.take(_from_owner(response))

    def unserved(self, request: Message) -> list[Message]:
        """What the broker says to a request that the manager sent: nobody serves it."""
        router = Router("hop", OWNER)
        router.add_peer(1, "manager", OWNER, 5)
        ((_, batch),) = router.route(1, Batch([request]))
        (response,) = batch
        return self.take(response)

    # --- jobs

    def submit(self, *, urgency: int = 16, **spec: Any) -> int:
        """A new job; what follows is in `sent`."""
        self.sent = self.ask("job-ingest.submit", {"jobspec": jobspec(**spec), "urgency": urgency})
        return self.sent[0].object()["id"]

    def raise_exception(self, job: int, severity: int = 0, kind: str = "cancel") -> list[Message]:
        """An exception raised by a user."""
        return self.ask("job-manager.raise", {"id": job, "type": kind, "severity": severity})

    def events(self, job: int) -> list[JSON]:
        """The job's eventlog."""
        (response,) = self.ask("job-info.lookup", {"id": job, "keys": ["eventlog"]})
        return [json.loads(line) for line in response.object()["eventlog"].splitlines()]

    def names(self, job: int) -> list[str]:
        """The names of the job's events."""
        return [event["name"] for event in self.events(job)]

    def event(self, job: int, name: str) -> JSON:
        """The context of the job's last event of this name."""
        return [it for it in self.events(job) if it["name"] == name][-1].get("context", {})

    def row(self, job: int) -> JSON:
        """The job as lists show it."""
        (response,) = self.ask("job-list.list-id", {"id": job})
        return response.object()["job"]

    # --- the scheduler's part

    def hello(self, payload: JSON | None = PARTIAL, **how: Any) -> list[Message]:
        """The scheduler says hello, as today's do."""
        how = {"origin": b"sched", "streaming": True, **how}
        return self.ask("job-manager.sched-hello", payload, **how)

    def ready(self, limit: int | None = None, **payload: Any) -> list[Message]:
        """The scheduler says ready."""
        mode: JSON = {"mode": "unlimited"} if limit is None else {"mode": "limited", "limit": limit}
        return self.ask("job-manager.sched-ready", {**mode, **payload}, origin=b"sched")

    def scheduler(self, limit: int | None = None, hello: JSON | None = PARTIAL) -> list[Message]:
        """A scheduler comes; returns what follows."""
        return self.hello(hello) + self.ready(limit)

    def respond_alloc(self, job: int, kind: int, **more: Any) -> list[Message]:
        """A response to the job's `sched.alloc`."""
        request = Message.request("sched.alloc")
        return self.answer(request, {"id": job, "type": kind, **more})

    def commit(self, *ops: JSON) -> Message:
        """A commit by the scheduler; returns the response."""
        payload = {"namespace": "primary", "flags": 0, "ops": list(ops)}
        return responses(self.ask("kvs.commit", payload, origin=b"sched"), "kvs.commit")[0]

    def next_r(self) -> str:
        """R that no job has yet: two ranks with four cores each, the first time 0 and 1."""
        ranks = range(self._given, self._given + 2)
        self._given += 2
        return inventory(64, 4).restrict(ranks=ranks).to_json()

    def allocate(self, job: int, r: str | None = None, **more: Any) -> list[Message]:
        """The scheduler commits R and answers SUCCESS."""
        r = self.next_r() if r is None else r
        committed = self.commit(commit_op(job, r))
        assert committed.errnum == 0, committed.error_text
        return self.respond_alloc(job, SUCCESS, **more)

    def disconnect(self, origin: bytes) -> list[Message]:
        """A peer goes away."""
        return self.ask("job-manager.disconnect", origin=origin)

    # --- the execution service's part

    def exec_hello(self, service: str = "job-exec", origin: bytes = b"exec") -> list[Message]:
        """An execution service says hello."""
        return self.ask("job-manager.exec-hello", {"service": service}, origin=origin)

    def respond_start(
        self, job: int, kind: str, service: str = "job-exec", **data: Any
    ) -> list[Message]:
        """A response to the job's start request."""
        request = Message.request(f"{service}.start")
        return self.answer(request, {"id": job, "type": kind, "data": data})

    def running(self, *, limit: int | None = None, **spec: Any) -> int:
        """A job that runs, with R, after a scheduler and an execution service have come."""
        self.scheduler(limit)
        self.exec_hello()
        job = self.submit(**spec)
        self.allocate(job)
        self.respond_start(job, "start")
        return job

    def finish(self, job: int, status: int = 0) -> list[Message]:
        """The job ends in order."""
        sent = self.respond_start(job, "finish", status=status)
        return sent + self.respond_start(job, "release", ranks="all", final=True)


def _from_owner(message: Message) -> Message:
    """The message with the owner's credentials, which the broker gives a service's responses."""
    frame = bytearray(message.encode())
    frame[-16:-12] = OWNER.to_bytes(4, "big")
    return Message.decode(frame)


class Sched:
    """Our scheduler, with resource service, job manager and store played by the test.

    Commits and lookups are answered at once from `store` (R by job) while `storing` holds.
    """

    def __init__(self, *, limit: int | None = None, grow: bool = True) -> None:
        self.scheduler = Scheduler(limit=limit, grow=grow)
        self.now = 1000.0
        self.store: dict[int, str] = {}
        self.storing = True
        self.commits: list[Message] = []
        self.log: list[str] = []
        self._asked: dict[str, Message] = {}
        self.scheduler.start()
        self.said = self._listen()

    @property
    def phase(self) -> str:
        """Where the scheduler's handshake is."""
        return self.scheduler.phase

    def _listen(self) -> list[Message]:
        sent: list[Message] = []
        while True:
            while self.scheduler.schedule(self.now):
                pass
            heard = list(self.scheduler.take_out())
            self.log += self.scheduler.take_log()
            sent += heard
            answers = [answer for it in heard if (answer := self._heard(it)) is not None]
            if not heard:
                return sent
            self.scheduler.handle(Batch(answers))

    def _heard(self, message: Message) -> Message | None:
        """Keeps what was asked; the store answers."""
        if message.kind == "response":
            return None
        self._asked[message.topic or ""] = message
        if message.topic == "kvs.commit":
            self.commits.append(message)
        return self.stored(message) if self.storing else None

    def stored(self, request: Message) -> Message | None:
        """What the store answers, if it is asked."""
        keys = {f"job.{fluid_dothex(job)}.R": job for job in self.store}
        if request.topic == "kvs.commit":
            return request.respond({"rootseq": 1})
        if request.topic == "kvs.lookup":
            job = keys.get(request.object()["key"])
            if job is None:
                return request.respond(errnum=2)
            return request.respond({"val": encoded(self.store[job])})
        return None

    def take(self, *messages: Message) -> list[Message]:
        """Gives the scheduler messages; returns all that it sends."""
        self.now += 1.0
        self.scheduler.handle(Batch(messages))
        return self._listen()

    def answer(self, topic: str, payload: JSON | None = None, errnum: int = 0) -> list[Message]:
        """A response to the last request of a topic that the scheduler sent."""
        return self.take(self._asked[topic].respond(payload, errnum=errnum))

    # --- the handshake

    def register(self) -> list[Message]:
        """Its names are registered."""
        adding = requests(self.said, "service.add")
        return self.take(*(it.respond() for it in adding))

    def acquire(self, resources: ResourceSet, up: str | None = None) -> list[Message]:
        """It gets its first acquire response."""
        up = str(resources.ranks) if up is None else up
        payload = {"resources": resources.to_dict(), "up": up}
        return self.answer("resource.acquire", payload)

    def change(self, **keys: Any) -> list[Message]:
        """It gets an additional acquire response; `_` in a key stands for `-`."""
        payload = {key.replace("_", "-"): value for key, value in keys.items()}
        return self.answer("resource.acquire", payload)

    def held(self, job: int, r: str, **more: Any) -> list[Message]:
        """Hello tells it of a job that holds resources."""
        self.store[job] = r
        told = {"id": job, "priority": 16, "userid": OWNER, "t_submit": 1.0, **more}
        return self.answer("job-manager.sched-hello", told)

    def greeted(self) -> list[Message]:
        """The good end of hello."""
        return self.answer("job-manager.sched-hello", errnum=61)

    @classmethod
    def running(
        cls, resources: ResourceSet | None = None, up: str | None = None, limit: int | None = None
    ) -> Sched:
        """One that has its handshake behind it."""
        self = cls(limit=limit)
        self.register()
        self.acquire(inventory() if resources is None else resources, up)
        self.greeted()
        self.answer("job-manager.sched-ready", {"count": 0})
        assert self.phase == "running", self.log
        return self

    # --- the job manager's requests

    def ask(self, topic: str, payload: JSON, *, flags: int = 0) -> list[Message]:
        """A request by the instance owner."""
        return self.take(_request(topic, payload, flags))

    def alloc(self, job: int, priority: int = 16, **spec: Any) -> list[Message]:
        """A request for resources."""
        told = {"id": job, "priority": priority, "userid": OWNER, "t_submit": 1.0}
        return self.ask("sched.alloc", {**told, "jobspec": jobspec(**spec)})

    def cancel(self, job: int) -> list[Message]:
        """A request for resources is taken back."""
        return self.ask("sched.cancel", {"id": job}, flags=NORESPONSE)

    def free(self, job: int, **more: Any) -> list[Message]:
        """Resources are given back."""
        return self.ask("sched.free", {"id": job, **more})


def _request(topic: str, payload: JSON, flags: int = 0) -> Message:
    request = Message.request(topic, payload, flags=flags, userid=OWNER, rolemask=1)
    return routed(request, b"hop", b"manager")


def allocs(sent: Iterable[Message]) -> list[JSON]:
    """The payloads of responses to `sched.alloc` among what was sent; none is an error."""
    found = responses(sent, "sched.alloc")
    assert [it.errnum for it in found] == [0] * len(found)
    return [it.object() for it in found]


def granted(sent: Iterable[Message]) -> dict[int, ResourceSet]:
    """What was allocated to whom."""
    return {it["id"]: ResourceSet(it["R"]) for it in allocs(sent) if it["type"] == SUCCESS}


def committed(sent: Iterable[Message]) -> dict[str, ResourceSet]:
    """R by its key, as the scheduler had it committed."""
    ops = [op for it in payloads(sent, "kvs.commit") for op in it["ops"]]
    data = {op["key"]: base64.b64decode(op["dirent"]["data"]) for op in ops}
    return {key: ResourceSet(text) for key, text in data.items()}


class Wire:
    """A socket whose other side answers each request as the test says; after that it is closed."""

    def __init__(self, answers: Mapping[str, list[JSON]]) -> None:
        self._answers = answers
        self._decoder = Decoder()
        self._unread = b""
        self.topics: list[str] = []

    def sendall(self, data: bytes) -> None:
        """Takes what our end sends; a topic that is not known is not answered."""
        for request in self._decoder.feed(data):
            self.topics.append(request.topic or "")
            for answer in self._answers.get(request.topic or "", []):
                self._unread += request.respond(**answer).encode()

    def recv(self, _size: int) -> bytes:
        """Gives what is there, nothing at the end."""
        data, self._unread = self._unread, b""
        return data
