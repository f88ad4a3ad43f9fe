"""Recorded requests to the broker's smaller services, replayed to our instance."""

from __future__ import annotations

from actors import ExecutionService, User, copy_of, translated
from inprocess import Instance
from recordings import Differences, frames, payload_of

from penstock._core import Message, ResourceSet
from penstock.instance.services import SchedulerService
from penstock.inventory import simulated

SERVICES = frames("services")
# The recorded lookup is for the R of one job, the recorded cancel for another one.
RAN, CANCELLED = 0x00000003_7F000000, 15015608320
JOBSPEC = frames("exec")[4].payload["jobspec"]


def test_recorded_requests_get_responses_of_the_recorded_kind() -> None:
    instance = Instance(ResourceSet(frames("sched")[5].payload["resources"]))
    user, differences = User(instance), Differences("services")
    execution = ExecutionService(instance)
    SchedulerService(instance.broker, None)
    ids = {RAN: user.submit(JOBSPEC)}
    execution.finish(ids[RAN])
    ids[CANCELLED] = user.submit(JOBSPEC)
    client = instance.connect()

    waiting: list[Message] = []
    for frame in SERVICES:
        if frame.to_broker:
            # Nothing comes that was not recorded.
            assert waiting == [], frame.place
            payload = translated(frame.payload, ids)
            waiting = client.send(copy_of(frame.message, payload))
        else:
            ours = waiting.pop(0) if waiting else None
            differences.check(frame, ours)
            assert ours is not None
            assert ours.matchtag == frame.message.matchtag
            if frame.message.kind == "event":
                assert ours.object() == translated(frame.payload, ids)
    assert waiting == []
    differences.all_seen()
    # After unsubscribing no event arrives.
    user.cancel(user.submit(JOBSPEC))
    assert client.take() == []


def test_commits_are_numbered_in_their_order() -> None:
    instance = Instance(simulated(1, 1))
    client = instance.connect()
    commits = [
        frame for frame in SERVICES if frame.to_broker and frame.message.topic == "kvs.commit"
    ]
    numbers = [
        payload_of(client.ask("kvs.commit", frame.payload))["rootseq"] for frame in commits * 2
    ]
    assert numbers == sorted(set(numbers))
