"""A client within the daemon: requests to the daemon's own services."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from penstock._core import Message
from penstock.client.outstanding import Outstanding, cancellation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock._core import Batch
    from penstock.client.calls import AnyCall, StreamCall
    from penstock.instance.broker import Broker
    from penstock.instance.guests import GuestServer
    from penstock.instance.system import Read

T = TypeVar("T")


class InternalClient:
    """A peer of the broker that sends requests, with the owner's credentials.

    Args:
        broker: the broker.
        guest: the server of a guest's job for which it acts, with the guest's credentials and
            limits.
    """

    def __init__(self, broker: Broker, guest: GuestServer | None = None) -> None:
        self._broker = broker
        self._outstanding: Outstanding[Callable[[Message], None]] = Outstanding()
        self._peer = broker.attach(self, guest=guest)

    def close(self) -> None:
        """Ends its outstanding requests. It sends none from now on."""
        self._broker.detach(self._peer)

    async def pace(self, read: Read) -> str | None:
        """Counts what a guest has had sent, and waits until more of it may be taken.

        Meanwhile the requests that were sent are routed, those of the owner too.

        Returns:
            The limit that is exceeded.
        """
        return await self._broker.pace(self._peer, read)

    def set_unread(self, size: int) -> None:
        """Sets the bytes of responses that a guest has not read."""
        self._broker.set_unread(self._peer, size)

    def send(self, call: AnyCall[Any], take: Callable[[Message], None] | None = None) -> None:
        """Sends a request; calls `take`, if given, with each response."""
        request = self._outstanding.request(take or _ignore, call)
        self._broker.post_messages(self._peer, [request])

    def open(self, call: AnyCall[Any], take: Callable[[Message], None]) -> Callable[[], None]:
        """Sends a request; calls `take` with each response.

        Returns:
            A function that abandons the request: no more is taken, and a stream is cancelled.
        """
        request = self._outstanding.request(take, call)
        self._broker.post_messages(self._peer, [request])
        return partial(self._leave, call, request.matchtag)

    def _leave(self, call: AnyCall[Any], tag: int) -> None:
        left = self._outstanding.leave(tag)
        cancel = cancellation(call.topic, tag) if call.streaming else None
        if left is not None and cancel is not None:
            self._broker.post_messages(self._peer, [cancel])

    def stream(self, call: StreamCall[T], rows: list[T]) -> trio.Event:
        """Sends a streaming request and adds its rows to a list; returns the event of its end."""
        ended = trio.Event()

        def take(response: Message) -> None:
            if response.errnum:
                ended.set()
            else:
                rows.extend(call.rows(response))

        self.send(call, take)
        return ended

    @contextmanager
    def responses(self, call: AnyCall[Any]) -> Iterator[trio.MemoryReceiveChannel[Message]]:
        """Sends a request; the responses come by the channel. A stream is cancelled at the end."""
        send, receive = trio.open_memory_channel[Message](float("inf"))
        leave = self.open(call, send.send_nowait)
        try:
            yield receive
        finally:
            leave()

    def deliver(self, batch: Batch) -> None:
        """Reads responses."""
        for message in batch:
            take = self._outstanding.deliver(message) if message.kind == "response" else None
            if take is not None:
                take(message)

    def post_output(self, now: float) -> None:
        """Does nothing: requests are posted at once."""


def _ignore(_response: Message) -> None:
    pass
