"""The daemon's PMIx service, and a test in the place of execution service and job manager."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import trio
from virtualtime import make_broker

from penstock._core import STREAMING, Batch, Message
from penstock.errors import RpcError
from penstock.instance.pmix_server import PmixServers
from penstock.instance.pmix_service import PmixService

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from penstock.instance.broker import Broker

Environment = dict[str, dict[str, str]]


class Manager:
    """Stands for the job manager: answers requests, and records them.

    Args:
        broker: the broker.
        answers: the arguments of `Message.respond` for each response, by topic.
    """

    def __init__(self, broker: Broker, answers: dict[str, list[dict[str, Any]]]) -> None:
        self._broker = broker
        self._answers = answers
        self.requests: list[tuple[str, dict[str, Any], bool]] = []
        # Types and notes of the exceptions that were raised.
        self.exceptions: list[tuple[str, str]] = []
        # The users of the requests of PMIx.
        self.userids: list[int] = []
        # The errors of the first requests for the ends of jobs; the event is set by one without.
        self.outages: list[int] = []
        self.awaited = trio.Event()
        self._waits: list[Message] = []
        self.raised = trio.Event()
        self.peer = broker.attach(self, names=["pmix", "job-manager", "job-list"])

    def deliver(self, batch: Batch) -> None:
        """Answers requests."""
        for request in batch:
            topic, payload = request.topic or "", request.object()
            if topic == "job-manager.raise":
                assert payload["severity"] == 0
                self.exceptions.append((payload["type"], payload["note"]))
                self.raised.set()
            elif topic == "job-list.wait" and self.outages:
                failed = request.respond(errnum=self.outages.pop(), errtext="")
                self._broker.post_messages(self.peer, [failed])
            elif topic == "job-list.wait":
                self._waits.append(request)
                self.awaited.set()
            elif topic.startswith("pmix."):
                self.requests.append((topic, payload, request.streaming))
                self.userids.append(request.userid)
            answers = [request.respond(**answer) for answer in self._answers.get(topic, [])]
            self._broker.post_messages(self.peer, answers)

    def end_jobs(self) -> None:
        """Answers that the jobs are inactive."""
        rows = [request.respond({"jobs": [{}]}) for request in self._waits]
        self._broker.post_messages(self.peer, rows)

    def post_output(self, now: float) -> None:
        """Does nothing."""


class ExecService:
    """Stands for the execution service.

    Args:
        broker: the broker.
        directory: that of the jobs' servers.
    """

    def __init__(self, broker: Broker, directory: Path) -> None:
        self._broker = broker
        self._directory = directory
        self.peer = broker.attach(self)
        self._responses: dict[int, Message] = {}
        self._more = trio.Event()
        self._last_tag = 0

    def deliver(self, batch: Batch) -> None:
        """Takes responses."""
        self._responses.update((message.matchtag, message) for message in batch)
        self._more.set()
        self._more = trio.Event()

    def post_output(self, now: float) -> None:
        """Does nothing."""

    async def request(self, topic: str, payload: dict[str, Any], flags: int = 0) -> Any:
        """The first response to a request, with its matchtag."""
        self._last_tag += 1
        tag = self._last_tag
        request = Message.request(topic, payload, matchtag=tag, flags=flags)
        self._broker.post_messages(self.peer, [request])
        return tag, await self.response(tag)

    async def response(self, tag: int) -> dict[str, Any]:
        """The next response to a request."""
        while tag not in self._responses:
            await self._more.wait()
        response = self._responses.pop(tag)
        if response.errnum:
            raise RpcError(response.errnum, response.error_text)
        payload: dict[str, Any] = response.object() if response.payload else {}
        return payload

    async def start(
        self, job: int, *, ntasks: int = 1, userid: int | None = None
    ) -> tuple[int, Environment]:
        """Requests the environment of a job's tasks; returns it with the request's matchtag."""
        tasks = [{"rank": rank, "target": 0, "host": "localhost"} for rank in range(ntasks)]
        payload = {"id": job, "directory": str(self._directory), "tasks": tasks}
        if userid is not None:
            payload["userid"] = userid
        tag, response = await self.request("pmix-exec.start", payload, STREAMING)
        return tag, response["environment"]

    async def stop(self, job: int) -> None:
        """Tells that a job has ended."""
        await self.request("pmix-exec.stop", {"id": job})


def run(
    directory: Path,
    scenario: Callable[[ExecService, Manager], Awaitable[None]],
    answers: dict[str, list[dict[str, Any]]] | None = None,
) -> None:
    """Runs a scenario with a new PMIx service, and servers that listen in this directory."""

    async def main() -> None:
        broker = make_broker(os.getuid())
        with trio.fail_after(60):
            service = PmixService(broker, PmixServers(os.urandom))
            manager = Manager(broker, answers or {})
            exec_service = ExecService(broker, directory)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(broker.pump)
                nursery.start_soon(service.run)
                await scenario(exec_service, manager)
                nursery.cancel_scope.cancel()

    trio.run(main)
