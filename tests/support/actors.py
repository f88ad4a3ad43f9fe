"""Peers of an instance in tests: a user and an execution service; recorded job ids replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock._core import NORESPONSE, STREAMING, Message, fluid_dothex
from penstock.protocol.execution import StartStream, State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from inprocess import Instance


class User:
    """A user that submits, changes and lists jobs."""

    def __init__(self, instance: Instance) -> None:
        self.peer = instance.connect()

    def ask(self, topic: str, payload: dict[str, Any] | None = None, flags: int = 0) -> Any:
        """Sends a request that must succeed; returns the payload of the response."""
        response = self.peer.ask(topic, payload, flags)
        assert response.errnum == 0, (topic, payload, response.errnum, response.error_text)
        return response.object() if response.payload is not None else {}

    def submit(self, jobspec: Mapping[str, Any], urgency: int = 16) -> int:
        """Submits a job."""
        payload = {"jobspec": jobspec, "urgency": urgency}
        return self.ask("job-ingest.submit", payload)["id"]

    def cancel(self, job: int) -> None:
        """Raises a fatal exception."""
        self.ask("job-manager.raise", {"id": job, "type": "cancel", "severity": 0})

    def urgency(self, job: int, urgency: int) -> None:
        """Changes the urgency of a job."""
        self.ask("job-manager.urgency", {"id": job, "urgency": urgency})

    def rows(self) -> list[dict[str, Any]]:
        """Every job, as a row of `job-list`."""
        request = self.peer.request("job-list.list", {}, STREAMING)
        rows = []
        for message in self.peer.send(request):
            if message.matchtag == request.matchtag and not message.errnum:
                rows += message.object()["jobs"]
        return rows

    def lookup(self, job: int, key: str) -> str:
        """One document of a job."""
        return self.lookups([(job, key)])[0]

    def lookups(self, wanted: Sequence[tuple[int, str]]) -> list[str]:
        """Documents of jobs, requested all at once."""
        requests = [
            self.peer.request("job-info.lookup", {"id": job, "keys": [key]}) for job, key in wanted
        ]
        came = {message.matchtag: message for message in self.peer.send(*requests)}
        return [
            came[request.matchtag].object()[key]
            for request, (_, key) in zip(requests, wanted, strict=True)
        ]


def jobspec_of(
    slots: int = 1,
    cores: int = 1,
    *,
    nodes: int | None = None,
    ranks: str | None = None,
    duration: float = 0,
) -> dict[str, Any]:
    """A jobspec of slots with some cores, in whole nodes or anywhere, or on certain ranks."""
    resource: dict[str, Any] = {
        "type": "slot",
        "count": slots,
        "label": "task",
        "with": [{"type": "core", "count": cores}],
    }
    if nodes is not None:
        resource = {"type": "node", "count": nodes, "exclusive": True, "with": [resource]}
    system: dict[str, Any] = {"duration": duration}
    if ranks is not None:
        system["constraints"] = {"ranks": [ranks]}
    return {
        "version": 1,
        "resources": [resource],
        "tasks": [{"command": ["true"], "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {"system": system},
    }


class ExecutionService:
    """Responds that jobs have started; ends them on demand, or when they are cancelled."""

    def __init__(self, instance: Instance, name: str = "job-exec") -> None:
        self.jobs: dict[int, StartStream] = {}
        # The start requests, as they came.
        self.started: list[Message] = []
        self.peer = instance.connect()
        for topic, payload in [
            ("service.add", {"service": name}),
            ("event.subscribe", {"topic": "job-exception"}),
            ("job-manager.exec-hello", {"service": name}),
        ]:
            response = self.peer.ask(topic, payload)
            assert response.errnum == 0, (topic, response.error_text)
        self.peer.react = self._react
        for message in self.peer.take():
            self._react(message)

    def _react(self, message: Message) -> None:
        if message.kind == "event":
            raised = message.object()
            if raised["severity"] == 0 and raised["id"] in self.jobs:
                stream = self.jobs.pop(raised["id"])
                stream.interrupt()
                if stream.state is not State.FINISHED:
                    self.peer.post(stream.finish(0x8F00))
                self.peer.post(stream.release())
        elif message.kind == "request" and (message.topic or "").endswith(".start"):
            job = message.object()["id"]
            self.started.append(message)
            self.jobs[job] = stream = StartStream(message, job)
            self.peer.post(stream.start())

    def finish(self, job: int, status: int = 0) -> None:
        """Ends a job's tasks and releases its ranks."""
        stream = self.jobs.pop(job)
        messages = [] if stream.state is State.FINISHED else [stream.finish(status)]
        self.peer.send(*messages, stream.release())

    def release(self, job: int, ranks: str) -> None:
        """Ends the tasks of a job and releases some of its ranks."""
        stream = self.jobs[job]
        messages = [] if stream.state is State.FINISHED else [stream.finish(0)]
        self.peer.send(*messages, stream.release(ranks, final=False))


def without(request: Message, key: str) -> Message:
    """A copy of a received request without one key."""
    payload = {name: value for name, value in request.object().items() if name != key}
    made = Message.request(
        request.topic or "",
        payload,
        matchtag=request.matchtag,
        flags=request.flags & (STREAMING | NORESPONSE),
        userid=request.userid,
        rolemask=request.rolemask,
    )
    # A client's request has an empty stack of routes already.
    frame = made.encode()
    stack = b"".join(bytes([len(route)]) + route for route in request.routes or [])
    body = stack + frame[8:]
    return Message.decode(frame[:4] + len(body).to_bytes(4, "big") + body)


def translated(value: Any, ids: Mapping[int, int]) -> Any:
    """A recorded payload with the recorded job ids replaced by ours."""
    if isinstance(value, dict):
        return {key: translated(item, ids) for key, item in value.items()}
    if isinstance(value, list):
        return [translated(item, ids) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return ids.get(value, value)
    if isinstance(value, str):
        for recorded, ours in ids.items():
            value = value.replace(fluid_dothex(recorded), fluid_dothex(ours))
    return value


def copy_of(recorded: Message, payload: dict[str, Any] | None) -> Message:
    """A recorded request with another payload."""
    if recorded.payload is None:
        payload = None
    return Message.request(
        recorded.topic or "",
        payload,
        matchtag=recorded.matchtag,
        flags=recorded.flags & (STREAMING | NORESPONSE),
        nodeid=recorded.nodeid,
    )
