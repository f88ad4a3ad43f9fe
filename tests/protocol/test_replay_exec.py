"""A recorded conversation of a broker and an execution service, with our ends for either."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from actors import User, copy_of, translated
from inprocess import Instance
from recordings import Differences, Frame, frames, missing, payload_of, unlike

from penstock._core import Batch, Message, MockExec, ResourceSet
from penstock.instance.services import SchedulerService
from penstock.protocol.execution import StartStream

if TYPE_CHECKING:
    from collections.abc import Iterator

EXEC = frames("exec")
NAME = "penstock-exec"
STARTS = [frame for frame in EXEC if frame.message.kind == "request" and not frame.to_broker]
INACTIVE = 64


def inventory() -> ResourceSet:
    return ResourceSet(frames("sched")[5].payload["resources"])


def test_our_instance_handles_the_recorded_service() -> None:
    instance = Instance(inventory())
    SchedulerService(instance.broker, None)
    user, service = User(instance), instance.connect()
    differences = Differences("exec")
    ids: dict[int, int] = {}
    starts: dict[int, Message] = {}
    came: list[Message] = []
    for frame in EXEC:
        if frame in STARTS:
            ids[frame.payload["id"]] = user.submit(frame.payload["jobspec"])
        instance.settle()
        came += service.take()
        if frame.to_broker and frame.message.kind == "request":
            service.post(copy_of(frame.message, frame.payload))
        elif frame.to_broker:
            payload = translated(frame.payload, ids)
            service.post(starts[payload["id"]].respond(payload, streaming=True))
        else:
            ours = came.pop(0) if came else None
            differences.check(frame, ours)
            if ours is not None and ours.kind == "request":
                assert (ours.matchtag, ours.streaming) == (0, False)
                assert ours.object()["id"] == ids[frame.payload["id"]]
                assert ours.object()["reattach"] is False
                starts[ours.object()["id"]] = ours
    instance.settle()
    assert [*came, *service.take()] == []
    differences.all_seen()
    assert {row["id"]: row["state"] for row in user.rows()} == dict.fromkeys(ids.values(), INACTIVE)
    for job in ids.values():
        log = user.lookup(job, "eventlog")
        names = [json.loads(line)["name"] for line in log.splitlines()]
        assert names[-5:] == ["start", "finish", "release", "free", "clean"]
        # The recorded service releases ranks that the job does not have: no job has them.
        assert '"ranks":"all","final":true' in log
    assert ResourceSet(instance.manager.held()).ncores == 0


def answers_to(start: Frame) -> Iterator[Frame]:
    for frame in EXEC:
        answers = frame.to_broker and frame.message.kind == "response"
        if answers and frame.payload.get("id") == start.payload["id"]:
            yield frame


def test_our_simulated_execution_handles_the_recorded_broker() -> None:
    service = MockExec(NAME)
    hello = [entry for entry in EXEC if entry.to_broker and entry.message.kind == "request"]
    differences = Differences("exec", "execution")
    started = list(service.start())
    assert differences.besides() <= {message.topic for message in started}
    requests = [message for message in started if message.topic not in differences.besides()]
    differences.all_seen()
    for request, frame in zip(requests, hello, strict=True):
        assert not unlike(request, frame.message), frame.place
        assert request.object() == frame.payload
    now = 1795218096.5
    said: list[Message] = []
    for frame in EXEC:
        if not frame.to_broker:
            said += service.handle(Batch([frame.message]), now)
    assert service.failure is None
    # The one without a time limit is over at once, the other when its minute is.
    assert service.running == 1
    assert not service.advance(now + 59.0)
    said += service.advance(now + 60.0)
    for start in STARTS:
        ours = [message for message in said if message.object()["id"] == start.payload["id"]]
        for response, frame in zip(ours, answers_to(start), strict=True):
            assert not unlike(response, frame.message), frame.place
            assert response.object()["type"] == frame.payload["type"]
            assert not missing(payload_of(response), frame.payload), frame.place
            assert response.routes == start.message.routes
            assert response.matchtag == 0


def test_our_start_stream_sends_the_recorded_responses() -> None:
    for start in STARTS:
        stream = StartStream(start.message, start.payload["id"])
        ours = [stream.start(), stream.finish(0), stream.release("0-3")]
        for response, frame in zip(ours, answers_to(start), strict=True):
            assert response.object() == frame.payload
            assert not unlike(response, frame.message), frame.place
            assert response.routes == frame.message.routes
