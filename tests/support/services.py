"""Execution services that respond on demand."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from actors import without

from penstock._core import Batch, Message, MockExec
from penstock.protocol.execution import StartStream

if TYPE_CHECKING:
    from inprocess import Instance, Peer


class Answers:
    """The responses to one start request, and which may follow by RFC 32.

    `types` has a letter for each answer: `s`tart, `r`eattached, `f`inish, `p`art released, `l`ast
    release, fatal (`x`) and mild (`m`) exceptions, those of others too.
    """

    def __init__(self, request: Message, job: int, *, reattach: bool) -> None:
        self.stream = StartStream(request, job, reattach=reattach)
        self.types = ""
        self._reattach = reattach
        self._wait_status: int | None = None

    def may(self, kind: str) -> bool:
        """Whether RFC 32 allows this response now."""
        failed, finished = "x" in self.types, "f" in self.types
        began = "s" in self.types or "r" in self.types
        if "l" in self.types:
            return False
        return {
            "s": not began and not finished,
            "r": not began and not finished and self._reattach,
            "f": not finished and (began or failed),
            "p": finished or failed,
            "l": finished or failed,
            "x": True,
            "m": True,
        }[kind]

    def fail(self, wait_status: int | None) -> None:
        """Records a fatal exception."""
        if "x" not in self.types:
            self._wait_status = wait_status
        self.types += "x"

    def status(self, status: int) -> int:
        """The status of `finish`, from the status of the tasks."""
        if self._wait_status is None:
            return status
        code = os.waitstatus_to_exitcode(self._wait_status)
        return (code if code >= 0 else 128 - code) << 8


class Service:
    """An execution service that collects requests and responds on demand."""

    def __init__(self, instance: Instance, name: str) -> None:
        self.name = name
        self.peer: Peer = instance.connect()
        self.peer.react = self.hear
        self.number = self.peer.number
        self.answers: dict[int, Answers] = {}
        # All start requests received, the other requests, and the exceptions.
        self.starts: list[Message] = []
        self.other_requests: list[tuple[str, dict[str, Any]]] = []
        self.exceptions: list[dict[str, Any]] = []
        # The number of exceptions before.
        self.since = 0
        self.hellos: dict[int, int] = {}
        self.peer.post(self.peer.request("service.add", {"service": name}))
        self.peer.post(self.peer.request("event.subscribe", {"topic": "job-exception"}))
        self.hello()

    def hello(self) -> None:
        self.peer.post(self.peer.request("job-manager.exec-hello", {"service": self.name}))

    def hear(self, message: Message) -> None:
        if message.kind == "request" and message.topic == f"{self.name}.start":
            payload = message.object()
            job = payload["id"]
            self.starts.append(message)
            self.answers[job] = Answers(message, job, reattach=payload["reattach"])
        elif message.kind == "request":
            self.other_requests.append(
                ((message.topic or "").removeprefix(self.name), message.object())
            )
        elif message.kind == "event":
            raised = message.object()
            self.exceptions.append(raised)
            answers = self.answers.get(raised["id"])
            if raised["severity"] == 0 and answers is not None:
                answers.stream.interrupt(raised.get("wait_status"))
                answers.fail(raised.get("wait_status"))
        elif message.kind == "response" and message.topic == "job-manager.exec-hello":
            self.hellos[message.errnum] = self.hellos.get(message.errnum, 0) + 1


class Simulated:
    """`MockExec` at the broker; without R as from an older job manager."""

    def __init__(self, instance: Instance, name: str, *, without_r: bool = False) -> None:
        self.mock = MockExec(name)
        self.without_r = without_r
        self.now = time.time()
        self.peer: Peer = instance.connect()
        self.peer.react = self.hear
        self.number = self.peer.number
        self.peer.post(*self.mock.start())

    def hear(self, message: Message) -> None:
        if self.without_r and (message.topic or "").endswith(".start"):
            message = without(message, "R")
        self.peer.post(*self.mock.handle(Batch([message]), self.now))

    def wait(self) -> None:
        """Advances the time to the end of the next job."""
        if self.mock.deadline is not None:
            self.now = max(self.now, self.mock.deadline)
            self.peer.post(*self.mock.advance(self.now))
