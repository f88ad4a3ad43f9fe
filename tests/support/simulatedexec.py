"""An execution service as a script: RFC 32 for simulated tasks, which outlive it.

It stands for the program `penstock-exec` on a simulated machine. The tests with that program itself
are in `test_exec_service_process.py`.
"""

from __future__ import annotations

import json
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import trio

from penstock.errors import NoInstanceError, RpcError
from penstock.protocol.execution import StartStream

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulatedsystem import SimulatedNetwork, SimulatedProcess

    from penstock._core import Batch, Message
    from penstock.aclient import Client

NAME = "job-exec"
# The identity of the record of started jobs, which all services of a machine share.
JOURNAL = "tasks"


class SimulatedExec:
    """One run of the service.

    Args:
        network: connects it to the instance.
        uri: the instance's address.
        tasks: the tasks of jobs on this machine, by job; those of earlier services too.
        start_task: starts a task.
    """

    def __init__(
        self,
        network: SimulatedNetwork,
        uri: str,
        tasks: dict[int, SimulatedProcess],
        start_task: Callable[[dict[str, Any]], SimulatedProcess],
    ) -> None:
        self._network = network
        self._uri = uri
        self._tasks = tasks
        self._start_task = start_task
        self._client: Client | None = None
        # Of its process.
        self.pid = 0
        self._streams: dict[int, StartStream] = {}
        self._nursery: trio.Nursery | None = None
        # The payloads of `config-reload`.
        self.settings: list[dict[str, Any]] = []

    async def run(self) -> None:
        """Serves until there is no instance and no task, or until cancelled."""
        async with trio.open_nursery() as self._nursery:
            while True:
                try:
                    async with self._network.connect(self._uri, self.pid) as self._client:
                        await self._serve(self._client)
                except NoInstanceError:
                    pass
                except RpcError:
                    # The daemon starts the next one.
                    break
                self._client = None
                self._streams.clear()
                if all(task.status is not None for task in self._tasks.values()):
                    break
                await self._network.wait_for_listener(self._uri)
            self._nursery.cancel_scope.cancel()

    async def _serve(self, client: Client) -> None:
        await client.add_service(NAME, self._handle)
        await client.subscribe("job-exception", self._take_exception)
        await client.rpc("job-manager.exec-hello", {"service": NAME, "journal": JOURNAL})
        await client.wait_lost()

    def _handle(self, batch: Batch) -> None:
        for request in batch:
            match (request.topic or "").rpartition(".")[2]:
                case "start":
                    self._start(request)
                case "config-reload":
                    self.settings.append(request.object())
                    self._send(request.respond())
                case "ping":
                    self._send(request.respond(request.object()))

    def _send(self, message: Message) -> None:
        if self._client is not None:
            # The connection has ended: the next instance asks again.
            with suppress(NoInstanceError):
                self._client.send(message)

    def _start(self, request: Message) -> None:
        payload = request.object()
        job, again = payload["id"], payload["reattach"]
        stream = self._streams[job] = StartStream(request, job, reattach=again)
        task = self._tasks.get(job)
        if task is not None:
            self._send(stream.reattached() if again else stream.start())
        elif again and payload.get("journal") != JOURNAL:
            self._send(stream.exception("exec", "lost: no record of the job's start"))
            self._send(stream.release())
            del self._streams[job]
            return
        else:
            task = self._tasks[job] = self._start_task(payload["jobspec"])
            self._send(stream.start())
        assert self._nursery is not None
        self._nursery.start_soon(self._finish, stream, task)

    async def _finish(self, stream: StartStream, task: SimulatedProcess) -> None:
        await task.ended.wait()
        if self._streams.get(stream.job) is stream:
            self._send(stream.finish(task.status or 0))
            self._send(stream.release())
            del self._streams[stream.job]

    def _take_exception(self, event: Message) -> None:
        exception = json.loads((event.payload or b"{}").rstrip(b"\0"))
        stream = self._streams.get(exception["id"])
        if stream is not None and exception["severity"] == 0:
            stream.interrupt(exception.get("wait_status"))
            self._tasks[stream.job].end(signal.SIGTERM)
