"""Execution on this machine as a service at the broker: registration, requests of its own."""

from __future__ import annotations

import base64
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from penstock._core import Message, fluid_dothex, fluid_f58, topic
from penstock.client.calls import error_of, payload_of, raw_call
from penstock.client.methods import Methods
from penstock.client.outstanding import Outstanding
from penstock.instance.runner import LocalRunner
from penstock.instance.supervision import supervise

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from penstock._core import Batch
    from penstock.client.calls import AnyCall
    from penstock.config import ExecSettings
    from penstock.instance.broker import Broker
    from penstock.instance.system import System


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
        self._outstanding: Outstanding[Callable[[Message], None]] = Outstanding()
        self.peer = broker.attach(self)
        self._runner = LocalRunner(
            self._send,
            name=name,
            owner=broker.owner,
            uri=uri,
            settings=settings,
            oversubscribe=oversubscribe,
            clock=system.clock,
            environment=system.host.environment,
            tasks=system.tasks,
            output=system.output,
            pmix_servers=system.pmix_servers,
            lookup_r=self._lookup_r,
            wait_inactive=self._wait_inactive,
            send_request=self._responses,
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
                take = self._outstanding.deliver(message)
                if take is not None:
                    take(message)
        self._runner.handle(batch)

    def settle(self, now: float) -> None:
        """Does nothing: every response is posted at once."""

    def set_settings(self, settings: ExecSettings) -> None:
        """Applies changed settings at run time."""
        self._runner.set_settings(settings)

    def _check_registration(self, response: Message) -> None:
        if response.errnum:
            text = (
                f"execution service: {response.topic} was rejected: {error_of(response).strerror}"
            )
            raise OSError(response.errnum, text)

    @contextmanager
    def _responses(self, call: AnyCall[Any]) -> Iterator[trio.MemoryReceiveChannel[Message]]:
        """Sends a request; the responses come by the channel."""
        send, receive = trio.open_memory_channel[Message](float("inf"))
        request = self._outstanding.request(send.send_nowait, call)
        try:
            self._send([request])
            yield receive
        finally:
            self._outstanding.leave(request.matchtag)

    async def _lookup_r(self, job: int) -> str:
        """The R of a job, from the store, for a start request that has none."""
        payload = {"namespace": "primary", "key": f"job.{fluid_dothex(job)}.R", "flags": 0}
        with self._responses(raw_call(topic.kvs.LOOKUP, payload)) as responses:
            response = await responses.receive()
        if response.errnum:
            raise OSError(response.errnum, f"job {fluid_f58(job)} has no R")
        return base64.b64decode(payload_of(response)["val"]["data"]).decode()

    async def _wait_inactive(self, job: int) -> None:
        """Returns when a job is inactive."""
        with self._responses(Methods.wait.call([job])) as responses:
            async for response in responses:
                if response.errnum:
                    return

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Registers the service and serves in the block; at the end running jobs are killed."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervise, "execution service", self._runner.run, self._clock)
            registration = [
                raw_call(topic.service.ADD, {"service": self._name}),
                raw_call(topic.event.SUBSCRIBE, {"topic": topic.JOB_EXCEPTION}),
                raw_call(topic.job_manager.EXEC_HELLO, {"service": self._name}),
            ]
            begin = partial(self._outstanding.request, self._check_registration)
            self._send([begin(call) for call in registration])
            yield
            nursery.cancel_scope.cancel()
