"""Execution on this machine: the runner as the broker's peer."""

from __future__ import annotations

import base64
import os
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import trio

from penstock._core import STREAMING, Message, fluid_dothex, fluid_f58
from penstock.instance.runner import LocalRunner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from penstock._core import Batch
    from penstock.config import ExecSettings
    from penstock.instance.broker import Broker
    from penstock.instance.processes import ChildProcesses

# Below are the tags of the registration, above those of what the runner asks.
FIRST_TAG = 16


class LocalExecService:
    """Runs jobs as processes of this machine (RFC 32).

    Args:
        broker: the broker.
        name: the service's name.
        uri: the instance's address, for the jobs' environment.
        output_dir: where output is kept that no job's options send elsewhere.
        settings: the configuration's `[penstock.exec]`.
        oversubscribe: whether tasks run without being bound to cores.
        children: the instance's own processes, which no job's end touches.
    """

    def __init__(
        self,
        broker: Broker,
        name: str,
        *,
        uri: str,
        output_dir: Path,
        settings: ExecSettings,
        oversubscribe: bool,
        children: ChildProcesses,
    ) -> None:
        self._broker = broker
        self._name = name
        self._asked: dict[int, trio.MemorySendChannel[Message]] = {}
        self._next_tag = FIRST_TAG
        self.peer = broker.attach(self)
        self._runner = LocalRunner(
            self._send,
            owner=broker.owner,
            output_dir=output_dir,
            uri=uri,
            settings=settings,
            oversubscribe=oversubscribe,
            children=children,
            lookup_r=self._lookup_r,
            wait_inactive=self._wait_inactive,
            ask=self._ask,
            room=broker.room,
        )

    def _send(self, messages: list[Message]) -> None:
        self._broker.post_messages(self.peer, messages)

    def deliver(self, batch: Batch) -> None:
        """Takes messages in: responses are this service's own, the rest is the runner's."""
        for message in batch:
            if message.kind == "response":
                self._answered(message)
        self._runner.handle(batch)

    def settle(self, now: float) -> None:
        """Has nothing to settle."""

    def set_settings(self, settings: ExecSettings) -> None:
        """Takes other settings, for what begins from now on."""
        self._runner.set_settings(settings)

    def _answered(self, response: Message) -> None:
        waiting = self._asked.get(response.matchtag)
        if waiting is not None:
            waiting.send_nowait(response)
        elif response.errnum and response.matchtag < FIRST_TAG:
            why = response.error_text or os.strerror(response.errnum)
            text = f"execution service: {response.topic} was refused: {why}"
            raise OSError(response.errnum, text)

    @contextmanager
    def _ask(
        self, topic: str, payload: dict[str, Any], flags: int = 0
    ) -> Iterator[trio.MemoryReceiveChannel[Message]]:
        """Sends a request; its responses come through the channel."""
        self._next_tag += 1
        tag = self._next_tag
        send, receive = trio.open_memory_channel[Message](float("inf"))
        self._asked[tag] = send
        try:
            self._send([Message.request(topic, payload, matchtag=tag, flags=flags)])
            yield receive
        finally:
            del self._asked[tag]

    async def _lookup_r(self, job: int) -> str:
        """The R of a job, from the store, for a start request that came without."""
        payload = {"namespace": "primary", "key": f"job.{fluid_dothex(job)}.R", "flags": 0}
        with self._ask("kvs.lookup", payload) as responses:
            response = await responses.receive()
        if response.errnum:
            raise OSError(response.errnum, f"job {fluid_f58(job)} has no R")
        return base64.b64decode(response.object()["val"]["data"]).decode()

    async def _wait_inactive(self, job: int) -> None:
        """Returns when a job is over."""
        with self._ask("job-list.wait", {"ids": [job]}, STREAMING) as responses:
            async for response in responses:
                if response.errnum:
                    return

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Registers the service and serves; at the end whatever runs is killed and reaped."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._runner.run)
            hello = [
                Message.request("service.add", {"service": self._name}, matchtag=1),
                Message.request("event.subscribe", {"topic": "job-exception"}, matchtag=2),
                Message.request("job-manager.exec-hello", {"service": self._name}, matchtag=3),
            ]
            self._send(hello)
            yield
            nursery.cancel_scope.cancel()
