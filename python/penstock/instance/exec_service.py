"""Execution on this machine as a service at the broker: registration, requests of its own."""

from __future__ import annotations

import base64
import os
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import trio

from penstock._core import STREAMING, Message, fluid_dothex, fluid_f58
from penstock.instance.runner import LocalRunner
from penstock.instance.supervision import supervise

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from penstock._core import Batch
    from penstock.config import ExecSettings
    from penstock.instance.broker import Broker
    from penstock.instance.system import System

# The registration has lower matchtags.
FIRST_REQUEST_TAG = 16


class LocalExecService:
    """Runs jobs as processes of this machine (RFC 32).

    Args:
        broker: the broker.
        name: the service's name.
        uri: the instance's address, for the jobs' environment.
        settings: the configuration's `[penstock.exec]`.
        oversubscribe: whether tasks run without being bound to cores.
        system: the operating system.
    """

    def __init__(
        self,
        broker: Broker,
        name: str,
        *,
        uri: str,
        settings: ExecSettings,
        oversubscribe: bool,
        system: System,
    ) -> None:
        self._broker = broker
        self._name = name
        self._clock = system.clock
        self._outstanding: dict[int, trio.MemorySendChannel[Message]] = {}
        self._next_tag = FIRST_REQUEST_TAG
        self.peer = broker.attach(self)
        self._runner = LocalRunner(
            self._send,
            name=name,
            owner=broker.owner,
            uri=uri,
            settings=settings,
            oversubscribe=oversubscribe,
            clock=system.clock,
            tasks=system.tasks,
            output=system.output,
            pmix_servers=system.pmix_servers,
            lookup_r=self._lookup_r,
            wait_inactive=self._wait_inactive,
            send_request=self._send_request,
            wait_writable=broker.wait_writable,
        )

    def _send(self, messages: list[Message]) -> None:
        self._broker.post_messages(self.peer, messages)

    def deliver(self, batch: Batch) -> None:
        """Takes messages in: responses to this service's requests, the rest for the runner.

        Raises:
            OSError: the registration was rejected, which is fatal to the service (RFC 32).
        """
        for message in batch:
            if message.kind == "response":
                self._take_response(message)
        self._runner.handle(batch)

    def settle(self, now: float) -> None:
        """Does nothing: every response is posted at once."""

    def set_settings(self, settings: ExecSettings) -> None:
        """Applies changed settings at run time."""
        self._runner.set_settings(settings)

    def _take_response(self, response: Message) -> None:
        channel = self._outstanding.get(response.matchtag)
        if channel is not None:
            channel.send_nowait(response)
        elif response.errnum and response.matchtag < FIRST_REQUEST_TAG:
            reason = response.error_text or os.strerror(response.errnum)
            text = f"execution service: {response.topic} was rejected: {reason}"
            raise OSError(response.errnum, text)

    @contextmanager
    def _send_request(
        self, topic: str, payload: dict[str, Any], flags: int = 0
    ) -> Iterator[trio.MemoryReceiveChannel[Message]]:
        """Sends a request; the responses come by the channel."""
        self._next_tag += 1
        tag = self._next_tag
        send, receive = trio.open_memory_channel[Message](float("inf"))
        self._outstanding[tag] = send
        try:
            self._send([Message.request(topic, payload, matchtag=tag, flags=flags)])
            yield receive
        finally:
            del self._outstanding[tag]

    async def _lookup_r(self, job: int) -> str:
        """The R of a job, from the store, for a start request that has none."""
        payload = {"namespace": "primary", "key": f"job.{fluid_dothex(job)}.R", "flags": 0}
        with self._send_request("kvs.lookup", payload) as responses:
            response = await responses.receive()
        if response.errnum:
            raise OSError(response.errnum, f"job {fluid_f58(job)} has no R")
        return base64.b64decode(response.object()["val"]["data"]).decode()

    async def _wait_inactive(self, job: int) -> None:
        """Returns when a job is inactive."""
        with self._send_request("job-list.wait", {"ids": [job]}, STREAMING) as responses:
            async for response in responses:
                if response.errnum:
                    return

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Registers the service and serves in the block; at the end running jobs are killed."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervise, "execution service", self._runner.run, self._clock)
            self._send(
                [
                    Message.request("service.add", {"service": self._name}, matchtag=1),
                    Message.request("event.subscribe", {"topic": "job-exception"}, matchtag=2),
                    Message.request("job-manager.exec-hello", {"service": self._name}, matchtag=3),
                ]
            )
            yield
            nursery.cancel_scope.cancel()
