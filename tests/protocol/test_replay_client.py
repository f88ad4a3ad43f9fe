"""Recorded requests of the `flux` command line, replayed to our instance."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from actors import ExecutionService, copy_of, translated
from inprocess import Instance
from recordings import Differences, Frame, frames, missing, payload_of

from penstock._core import Message, ResourceSet
from penstock.instance.services import SchedulerService

CLIENT = frames("client")
# Job ids of the recording: 1 task, 3 copies of a short sleep, 2 tasks that greet.
ONE, COPIES, HELLO = 33051115520, [36071014400, 36071014401, 36071014402], 38637928448
# Which jobs have ended when a line is recorded.
ENDS = {15: [ONE], 53: [HELLO], 59: COPIES[:2], 70: COPIES[2:]}
# Streams whose contents are compared as a whole, whichever way they are cut into responses.
JOINED_STREAMS = ("job-info.eventlog-watch", "job-list.list")
# Events of single tasks and of Flux's job shell, in the log of an execution: ours has the job's.
SHELL_EVENTS = ("shell.task-exit", "shell-exit")
# Answers that must be equal, not only of a kind.
EQUAL = (
    "groups.get",
    "job-manager.history.get",
    "job-manager.queue-list",
    "job-manager.queue-status",
)
# An exchange: the connection, the matchtag, the topic.
Key = tuple[int, int, str]


def key_of(conn: int, message: Message) -> Key:
    return conn, message.matchtag, message.topic or ""


class Exchange:
    """A request and its responses, the recorded ones and ours."""

    def __init__(self, request: Frame) -> None:
        self.request = request
        self.recorded: list[Frame] = []
        self.ours: list[Message] = []

    @property
    def ended(self) -> bool:
        """Whether no further response was recorded."""
        streaming = self.request.message.streaming
        last = self.recorded[-1].message if self.recorded else None
        return last is not None and (not streaming or last.errnum != 0)


class Replay:
    """Sends the recorded requests to our instance, in order."""

    def __init__(self) -> None:
        config = next(
            frame for frame in CLIENT if frame.message.topic == "config.get" and not frame.to_broker
        )
        resources = frames("sched")[5].payload["resources"]
        self.instance = Instance(ResourceSet(resources), config=config.payload)
        SchedulerService(self.instance.broker, None)
        self.execution = ExecutionService(self.instance)
        self.peers = defaultdict(self.instance.connect)
        self.ids: dict[int, int] = {}
        self.exchanges: list[Exchange] = []
        self.open: dict[Key, Exchange] = {}
        self.ours: dict[Key, Exchange] = {}

    def run(self) -> None:
        pending = recorded_exchanges()
        for frame in CLIENT:
            for job in ENDS.get(frame.line, []):
                self.execution.finish(self.ids[job])
            if frame.to_broker:
                exchange = pending[frame.line]
                self.exchanges.append(exchange)
                self.ask(frame, exchange)
        self.hear()

    def ask(self, frame: Frame, exchange: Exchange) -> None:
        self.hear()
        self.ours[key_of(frame.conn, frame.message)] = exchange
        payload = translated(frame.payload, self.ids)
        if frame.message.topic == "job-info.eventlog-watch-cancel":
            # The watch has ended by then, and its cancellation gets no response.
            assert frame.message.noresponse
        self.peers[frame.conn].post(copy_of(frame.message, payload))
        self.hear()

    def hear(self) -> None:
        self.instance.settle()
        for conn, peer in self.peers.items():
            for message in peer.take():
                exchange = self.ours[key_of(conn, message)]
                exchange.ours.append(message)
                if message.topic == "job-ingest.submit" and not message.errnum:
                    recorded = exchange.recorded[0].payload["id"]
                    self.ids[recorded] = message.object()["id"]


def recorded_exchanges() -> dict[int, Exchange]:
    """Every recorded request by its line, with its responses."""
    exchanges = {sent.line: Exchange(sent) for sent in CLIENT if sent.to_broker}
    queues: dict[Key, list[Exchange]] = defaultdict(list)
    for exchange in exchanges.values():
        queues[key_of(exchange.request.conn, exchange.request.message)].append(exchange)
    # The file has what the client read and wrote in two columns, so to say: a response may
    # stand before its request, but both keep their order.
    for frame in CLIENT:
        if not frame.to_broker:
            queue = queues[key_of(frame.conn, frame.message)]
            queue[0].recorded.append(frame)
            if queue[0].ended:
                queue.pop(0)
    for queue in queues.values():
        assert all(entry.request.message.noresponse for entry in queue)
    return exchanges


def events(messages: list[Message]) -> list[dict[str, Any]]:
    return [json.loads(message.object()["event"]) for message in messages if not message.errnum]


def rows(messages: list[Message]) -> list[dict[str, Any]]:
    return [row for message in messages if not message.errnum for row in message.object()["jobs"]]


def compare_streams(exchange: Exchange, replay: Replay) -> None:
    """Compares events and jobs one by one, independent of their responses."""
    recorded = [frame.message for frame in exchange.recorded]
    place = exchange.request.place
    assert exchange.ours[-1].errnum == recorded[-1].errnum, place
    assert all(message.streaming for message in exchange.ours), place
    part = events if exchange.request.message.topic == "job-info.eventlog-watch" else rows
    ours, theirs = part(exchange.ours), translated(part(recorded), replay.ids)
    same = "name" if part is events else "id"
    if part is events:
        theirs = [event for event in theirs if event["name"] not in SHELL_EVENTS]
    assert [row[same] for row in ours] == [row[same] for row in theirs], place
    for our, their in zip(ours, theirs, strict=True):
        assert missing(our, their) == [], place
        if part is rows:
            assert our["state"] == their["state"], place


def compare_texts(ours: Message, recorded: Frame, ids: dict[int, int]) -> None:
    """Compares the documents of a job, which are text within the payload."""
    theirs = translated(payload_of(recorded.message), ids)
    for key in {"R", "jobspec", "eventlog"} & theirs.keys():
        if recorded.message.topic != "job-info.lookup":
            continue
        our, their = (
            [json.loads(line) for line in text.splitlines()]
            for text in (ours.object()[key], theirs[key])
        )
        assert [event.get("name") for event in our] == [event.get("name") for event in their], (
            recorded.place
        )
        for one, other in zip(our, their, strict=True):
            assert missing(one, other) == [], f"{recorded.place}: {key}"


def test_the_command_line_gets_responses_of_the_recorded_kind() -> None:
    replay, differences = Replay(), Differences("client")
    replay.run()
    for exchange in replay.exchanges:
        request, ours = exchange.request, exchange.ours
        place = f"{request.place} {request.message}"
        rejected = differences.rejected(request)
        if rejected is not None:
            assert [response.errnum for response in ours] == [rejected], place
        elif request.message.topic in JOINED_STREAMS:
            compare_streams(exchange, replay)
        else:
            assert len(ours) == len(exchange.recorded), place
            for message, frame in zip(ours, exchange.recorded, strict=True):
                differences.check(frame, message)
                compare_texts(message, frame, replay.ids)
                if frame.message.topic in EQUAL:
                    assert payload_of(message) == translated(frame.payload, replay.ids), place
    differences.all_seen()


def test_every_recorded_response_belongs_to_a_request() -> None:
    exchanges = recorded_exchanges().values()
    assert sum(len(exchange.recorded) + 1 for exchange in exchanges) == len(CLIENT)
