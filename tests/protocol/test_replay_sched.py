"""A recorded conversation of a broker and a scheduler, with our ends for either."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest
from actors import ExecutionService, User, copy_of, translated
from inprocess import Instance, Peer
from recordings import NO_MESSAGE, Differences, Frame, frames, payload_of, unlike

from penstock._core import (
    ALLOC_ANNOTATE,
    ALLOC_CANCEL,
    ALLOC_SUCCESS,
    STREAMING,
    Batch,
    Message,
    ResourceSet,
    Scheduler,
    fluid_dothex,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SCHED = frames("sched")
RELOAD = frames("sched-reload")
# Names for the jobs of the recording, by id.
A, B, C, D, E, F = 55784243200, 59374567424, 63434653696, 65414365184, 67628957696, 179230998528
# Keys whose values must be equal on both sides; of others only the kind is compared.
EXACT_KEYS = ("id", "priority", "jobs", "count", "up", "down", "final", "type", "expiration")


def inventory() -> ResourceSet:
    return ResourceSet(SCHED[5].payload["resources"])


def jobspec(job: int) -> dict[str, Any]:
    for frame in SCHED:
        if frame.message.topic == "sched.alloc" and frame.payload["id"] == job:
            return frame.payload["jobspec"]
    raise AssertionError(f"no alloc request for {job} was recorded")


class InstanceInPlaceOfTheBroker:
    """Our instance, with the recorded client as its scheduler."""

    def __init__(self) -> None:
        self.instance = Instance(inventory())
        self.user = User(self.instance)
        self.exec = ExecutionService(self.instance)
        self.differences = Differences("sched")
        self.ids: dict[int, int] = {}
        self.received: list[Message] = []
        self.connect()

    def connect(self) -> None:
        self.scheduler: Peer = self.instance.connect()
        self.came: list[Message] = []

    def submit(self, job: int) -> None:
        self.ids[job] = self.user.submit(jobspec(job))

    def prolong(self, job: int, duration: float) -> None:
        updates = {"attributes.system.duration": duration}
        # Answered when the scheduler has agreed.
        request = self.user.peer.request(
            "job-manager.update", {"id": self.ids[job], "updates": updates}
        )
        self.user.peer.send(request)

    def say(self, frame: Frame) -> None:
        """Sends a message of the recorded client."""
        payload = translated(frame.payload, self.ids)
        if frame.message.kind == "request":
            self.scheduler.post(copy_of(frame.message, payload))
        else:
            self.scheduler.post(self.answer(frame, payload))

    def answer(self, frame: Frame, payload: dict[str, Any]) -> Message:
        for request in reversed(self.received):
            same = request.topic == frame.message.topic
            if same and payload.get("id", request.object()["id"]) == request.object()["id"]:
                content = payload if frame.message.payload is not None else None
                return request.respond(content, errnum=frame.message.errnum)
        raise AssertionError(f"{frame.place} answers no request")

    def hear(self, frame: Frame) -> None:
        """Expects our instance to send a message of the recorded kind now."""
        self.instance.settle()
        self.came += self.scheduler.take()
        if self.differences.listed(frame) == [NO_MESSAGE]:
            return
        ours = self.came.pop(0) if self.came else None
        self.differences.check(frame, ours)
        assert ours is not None
        if ours.kind == "request":
            self.received.append(ours)
        expected, said = translated(frame.payload, self.ids), payload_of(ours)
        for key in EXACT_KEYS:
            assert said.get(key) == expected.get(key), f"{frame.place}: {key}"

    def replay(self, recorded: list[Frame], script: dict[int, Callable[[], None]]) -> None:
        for frame in recorded:
            self.instance.settle()
            if frame.line in script:
                script[frame.line]()
            if frame.to_broker:
                self.say(frame)
            else:
                self.hear(frame)
        self.instance.settle()
        assert [*self.came, *self.scheduler.take()] == []

    def state(self, job: int) -> int:
        (row,) = [row for row in self.user.rows() if row["id"] == self.ids[job]]
        return row["state"]


RUN, INACTIVE = 16, 64


def test_our_instance_handles_the_recorded_scheduler() -> None:
    world = InstanceInPlaceOfTheBroker()
    user, ids = world.user, world.ids
    script = {
        11: lambda: world.submit(A),
        15: lambda: world.exec.finish(ids[A]),
        16: lambda: world.submit(B),
        20: lambda: world.submit(C),
        22: lambda: world.submit(D),
        24: lambda: user.urgency(ids[C], 20),
        # Held from here on, or its alloc request would be sent again at once.
        26: lambda: user.urgency(ids[C], 0),
        27: lambda: user.cancel(ids[D]),
        29: lambda: world.submit(E),
        33: lambda: user.urgency(ids[C], 20),
        35: lambda: world.prolong(B, 1200.0),
        37: lambda: user.ask("resource.drain", {"targets": "2"}) and None,
        38: lambda: user.ask("resource.undrain", {"targets": "2"}) and None,
        39: lambda: world.exec.finish(ids[B]),
        43: lambda: world.exec.finish(ids[C]),
        44: lambda: world.submit(F),
    }
    world.replay(SCHED, script)
    world.differences.all_seen()
    assert {job: world.state(job) for job in ids} == dict.fromkeys([A, B, C, D, E], INACTIVE) | {
        F: RUN
    }
    log = user.lookup(ids[E], "eventlog")
    assert "more nodes requested than configured" in log

    # The scheduler disconnects and connects again; the running job is unaffected.
    world.instance.disconnect(world.scheduler)
    world.connect()
    world.replay(RELOAD, {})
    assert world.state(F) == RUN
    assert ResourceSet(world.instance.manager.held()).ncores == 4


class SchedulerInPlaceOfTheClient:
    """Our scheduler, with the recorded broker."""

    def __init__(self, recorded: list[Frame]) -> None:
        self.recorded = recorded
        self.scheduler = Scheduler(limit=2)
        self.scheduler.start()
        self.now = 1795218076.0
        self.requests: list[Message] = []
        self.responses: list[Message] = []
        self.collect()

    def collect(self) -> list[Message]:
        self.now += 1.0
        self.scheduler.schedule(self.now)
        out = list(self.scheduler.take_out())
        self.requests += [message for message in out if message.kind == "request"]
        self.responses += [message for message in out if message.kind == "response"]
        return out

    def ours(self, frame: Frame) -> Message:
        """Our request for the one that a recorded response answers."""
        requests = [
            entry.message.matchtag
            for entry in self.recorded
            if entry.to_broker
            and entry.message.kind == "request"
            and entry.message.topic == frame.message.topic
        ]
        sent = [request for request in self.requests if request.topic == frame.message.topic]
        place = requests.index(frame.message.matchtag)
        assert place < len(sent), f"{frame.place}: {frame.message.topic} is not sent by then"
        return sent[place]

    def hear(self, frame: Frame) -> list[Message]:
        message = frame.message
        if message.kind == "response":
            payload = frame.payload if message.payload is not None else None
            message = self.ours(frame).respond(
                payload, errnum=message.errnum, streaming=message.streaming
            )
        self.scheduler.handle(Batch([message]))
        return self.collect()

    def answers(self) -> Iterator[tuple[int, int]]:
        for response in self.responses:
            if response.topic == "sched.alloc":
                yield response.object()["id"], response.object()["type"]


def final(answers: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [answer for answer in answers if answer[1] != ALLOC_ANNOTATE]


def test_our_scheduler_handles_the_recorded_broker() -> None:
    world = SchedulerInPlaceOfTheClient(SCHED)
    committed: set[str] = set()
    for frame in SCHED:
        if frame.to_broker:
            continue
        out = world.hear(frame)
        if frame.message.topic == "kvs.commit":
            request = world.ours(frame)
            committed |= {op["key"] for op in request.object()["ops"]}
        for response in (message for message in out if message.kind == "response"):
            assert response.errnum == 0
            if payload_of(response).get("type") == ALLOC_SUCCESS:
                # R is in the store before the answer.
                assert f"job.{fluid_dothex(response.object()['id'])}.R" in committed
        if frame.message.topic in ("sched.prioritize", "sched.free"):
            assert not [message for message in out if message.topic == frame.message.topic], (
                frame.place
            )
        if frame.line in (31, 32):
            assert out == [], "a cancel for a job just denied is ignored"
    assert world.scheduler.failure is None

    recorded = [entry for entry in SCHED if entry.to_broker and entry.message.kind == "response"]
    allocs = [entry for entry in recorded if entry.message.topic == "sched.alloc"]
    expected = [(entry.payload["id"], entry.payload["type"]) for entry in allocs]
    ours = list(world.answers())
    assert final(ours) == final(expected)
    assert {pair for pair in expected if pair[1] == ALLOC_ANNOTATE} <= set(ours)
    # Each of the recorded answers has one of ours of its kind.
    assert {message.topic for message in world.responses} == {
        entry.message.topic for entry in recorded
    }
    for frame in recorded:
        key = (frame.payload.get("id"), frame.payload.get("type"))
        (like, *_) = [
            message
            for message in world.responses
            if message.topic == frame.message.topic
            and (payload_of(message).get("id"), payload_of(message).get("type")) == key
        ]
        assert not unlike(like, frame.message), frame.place
        if frame.payload.get("type") == ALLOC_CANCEL:
            assert like.object().keys() == {"id", "type"}
        if frame.message.payload is None:
            assert like.payload is None
    # Our scheduler sends the recorded scheduler's requests, in the same order.
    sent = [entry for entry in SCHED if entry.to_broker and entry.message.kind == "request"]
    assert [message.topic for message in world.requests] == [entry.message.topic for entry in sent]
    differences = Differences("sched", "scheduler")
    for request, frame in zip(world.requests, sent, strict=True):
        differences.check(frame, request)
    differences.all_seen()


def test_our_scheduler_is_reloaded_while_a_job_runs() -> None:
    world = SchedulerInPlaceOfTheClient(RELOAD)
    (commit,) = [
        entry
        for entry in SCHED
        if entry.message.topic == "kvs.commit" and entry.to_broker and entry.line == 45
    ]
    for frame in RELOAD:
        if frame.to_broker:
            continue
        if frame.message.topic == "job-manager.sched-ready":
            # Ours looks up what the job holds before it is ready.
            (lookup,) = [message for message in world.requests if message.topic == "kvs.lookup"]
            (op,) = commit.payload["ops"]
            assert lookup.object()["key"] == op["key"]
            world.scheduler.handle(Batch([lookup.respond({"val": op["dirent"]})]))
            world.collect()
        world.hear(frame)
    assert (world.scheduler.phase, world.scheduler.failure) == ("running", None)
    sent = [entry for entry in RELOAD if entry.to_broker and entry.message.kind == "request"]
    differences = Differences("sched-reload", "scheduler")
    requests = [message for message in world.requests if message.topic not in differences.besides()]
    assert len(requests) < len(world.requests)
    for request, frame in zip(requests, sent, strict=True):
        differences.check(frame, request)
    differences.all_seen()
    # The cores of the running job are not given away.
    (wants_all,) = [entry for entry in SCHED if entry.line == 16]
    world.hear(wants_all)
    assert list(world.answers()) == [(B, ALLOC_ANNOTATE)]
    world.scheduler.handle(Batch([Message.request("sched.free", {"id": F}, rolemask=1)]))
    (commit_of_b,) = [message for message in world.collect() if message.kind == "request"]
    world.scheduler.handle(Batch([commit_of_b.respond({"rootseq": 1})]))
    world.collect()
    assert list(world.answers()) == [(B, ALLOC_ANNOTATE), (B, ALLOC_SUCCESS)]


@pytest.mark.parametrize("line", [6, 8, 10])
def test_our_scheduler_exits_if_the_handshake_is_rejected(line: int) -> None:
    """RFC 27 and 28: it logs the error and exits; ENODATA to hello is no error."""
    world = SchedulerInPlaceOfTheClient(SCHED)
    for frame in SCHED[: line - 1]:
        if not frame.to_broker:
            world.hear(frame)
    (frame,) = [entry for entry in SCHED if entry.line == line]
    request = world.ours(frame)
    streaming = bool(request.flags & STREAMING)
    rejection = request.respond(errnum=errno.EPERM, errtext="no", streaming=streaming)
    world.scheduler.handle(Batch([rejection]))
    assert f"{request.topic} failed: Operation not permitted: no" in str(world.scheduler.failure)
    assert any("no" in text for text in world.scheduler.take_log())
