"""A Trio connection to an instance: requests, streams, services and events."""

from __future__ import annotations

import errno
import math
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import trio

from penstock._core import Batch, Decoder, Message
from penstock._core import topic as topics
from penstock.client.calls import void_call
from penstock.client.connection import READ_BYTES, rejection, unreachable
from penstock.client.outstanding import OpenStream, Outstanding, cancellation
from penstock.client.server_identity import check_server
from penstock.errors import NoInstanceError, RpcError, WireError
from penstock.paths import socket_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from types import TracebackType
    from typing import Self

    from penstock.client.calls import AnyCall, CallBatch, CallSequence

    Encoding = Literal["json", "cbor"]
    Requests = Callable[[Batch], None]
    EventHandler = Callable[[Message], None]
    Sender = trio.MemorySendChannel[Message]
    Receiver = trio.MemoryReceiveChannel[Message]

T = TypeVar("T")


async def open_socket(uri: str) -> trio.SocketStream:
    """Connects to an instance and reads its greeting (a status byte).

    Raises:
        NoInstanceError: no instance listens there, it rejects this user, or it is another user's.
        AddressError: the address is not a local one.
    """
    path = str(socket_of(uri))
    try:
        stream = await trio.open_unix_socket(path)
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise unreachable(uri, reason) from None
    try:
        check_server(stream.socket, uri)
        status = await stream.receive_some(1)
    except trio.BrokenResourceError:
        status = b""
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    if status != b"\0":
        await trio.aclose_forcefully(stream)
        raise rejection(uri, status)
    return stream


class Stream(OpenStream[T]):
    """The rows of one or more streaming requests, one by one, until their good end.

    The requests are sent when the stream is created. `close`, the end of an `async with` block,
    cancellation and garbage collection close it early; the instance is then sent a cancellation.
    """

    def __init__(self, connection: Connection, calls: Iterable[AnyCall[T]]) -> None:
        super().__init__()
        self._connection = connection
        sender, self._inbox = trio.open_memory_channel[Message](math.inf)
        try:
            # Each request has a sender of its own, which is closed with its last response.
            with sender:
                for call in calls:
                    self._open[connection._begin(sender.clone(), call)] = call
        except BaseException:
            self.close()
            raise

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            if self._rows:
                # Rows that arrived together must not make an iteration uncancellable.
                await trio.lowlevel.checkpoint()
            while not self._rows:
                if not self._open:
                    raise StopAsyncIteration
                self._take(await self._connection._next(self._inbox))
        except BaseException:
            self.close()
            raise
        return self._rows.popleft()

    def _leave(self, tag: int, topic: str) -> None:
        self._connection._leave(tag, topic)

    def close(self) -> None:
        """Closes the stream; there are no more rows."""
        super().close()
        self._inbox.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class Connection:
    """An open connection; see `penstock.aclient.connect`.

    Any number of tasks may use it at once. A call that is cancelled leaves the connection usable:
    a request is written whole, and a late response is dropped.
    """

    def __init__(self, uri: str, stream: trio.SocketStream, *, encoding: Encoding) -> None:
        self.uri = uri
        self._stream_socket = stream
        self._cbor = encoding == "cbor"
        self._calls: Outstanding[Sender] = Outstanding()
        self._services: dict[str, Requests] = {}
        self._events: dict[str, EventHandler] = {}
        self._unsent = bytearray()
        self._wake = trio.Event()
        self._written = trio.Event()
        self._written.set()
        self._lost: str | None = None
        self._gone = trio.Event()

    # --- requests

    def send(self, messages: Message | Batch) -> None:
        """Queues messages for writing, such as a service's responses, and returns at once.

        Raises:
            NoInstanceError: the connection was lost.
        """
        self._check()
        batch = messages if isinstance(messages, Batch) else Batch([messages])
        self._unsent += batch.encode_cbor() if self._cbor else batch.encode()
        if self._written.is_set():
            self._written = trio.Event()
        self._wake.set()

    async def _first(self, call: AnyCall[T]) -> T:
        async with Stream(self, [call]) as rows:
            return await anext(rows)

    async def _collect(self, batch: CallBatch[T]) -> T:
        return batch.read([row async for row in Stream(self, batch.calls)])

    async def _do_all(self, sequence: CallSequence[T]) -> T:
        return sequence.read([await self._first(call) for call in sequence.calls])

    def _stream(self, calls: Iterable[AnyCall[T]]) -> Stream[T]:
        return Stream(self, calls)

    def _begin(self, sender: Sender, call: AnyCall[Any]) -> int:
        """Sends a request whose responses go to `sender`; returns its matchtag."""
        self._check()
        message = self._calls.request(sender, call)
        try:
            self.send(message)
        except BaseException:
            self._calls.forget(message.matchtag)
            raise
        return message.matchtag

    def _leave(self, tag: int, topic: str) -> None:
        """Abandons a request, and cancels it if its topic has a cancellation."""
        sender = self._calls.leave(tag)
        if sender is not None:
            sender.close()
            message = cancellation(topic, tag)
            if message is not None:
                with suppress(NoInstanceError):
                    self.send(message)

    async def _next(self, inbox: Receiver) -> Message:
        try:
            return await inbox.receive()
        except trio.EndOfChannel:
            self._check()
            raise

    def _check(self) -> None:
        if self._lost is not None:
            raise NoInstanceError(f"the instance at `{self.uri}` closed the connection{self._lost}")

    # --- serving

    async def add_service(self, name: str, handler: Requests) -> None:
        """Registers a service: the handler gets the requests for `name.*`.

        Args:
            name: The topics' first word.
            handler: Called with the requests that arrived together, in order, payloads as JSON.
                It responds with `send`, at once or later, unless a request has `noresponse`. It
                must not block; its exceptions end the connection and propagate out of `connect`.
                It gets `name.disconnect` when a client of the service disconnects.

        Raises:
            RpcError: the name is taken (EEXIST), or this user may not register it (EPERM).
        """
        if name in self._services:
            raise RpcError(errno.EEXIST, f"service `{name}` is already registered")
        # Requests may arrive directly behind the response.
        self._services[name] = handler
        try:
            await self._first(void_call(topics.service.ADD, {"service": name}))
        except BaseException:
            # Requests that still arrive are rejected.
            del self._services[name]
            raise

    async def remove_service(self, name: str) -> None:
        """Unregisters a service."""
        await self._first(void_call(topics.service.REMOVE, {"service": name}))
        self._services.pop(name, None)

    async def subscribe(self, prefix: str, handler: EventHandler) -> None:
        """Subscribes to events: the handler is called with each whose topic begins with `prefix`.

        It must not block; its exceptions end the connection and propagate out of `connect`.
        """
        if prefix in self._events:
            raise RpcError(errno.EEXIST, f"already subscribed to `{prefix}`")
        self._events[prefix] = handler
        try:
            await self._first(void_call(topics.event.SUBSCRIBE, {"topic": prefix}))
        except BaseException:
            del self._events[prefix]
            raise

    async def unsubscribe(self, prefix: str) -> None:
        """Cancels a subscription."""
        await self._first(void_call(topics.event.UNSUBSCRIBE, {"topic": prefix}))
        self._events.pop(prefix, None)

    async def wait_lost(self) -> None:
        """Returns once the instance has closed the connection."""
        await self._gone.wait()

    # --- the socket

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            while self._unsent:
                data, self._unsent = self._unsent, bytearray()
                try:
                    await self._stream_socket.send_all(data)
                except trio.BrokenResourceError as error:
                    self._lose(error.__cause__)
                    return
            self._written.set()

    async def _read(self) -> None:
        decoder = Decoder()
        try:
            while data := await self._stream_socket.receive_some(READ_BYTES):
                batch = decoder.feed(data)
                if batch.has_cbor():
                    batch.normalise()
                self._dispatch(batch)
        except (trio.BrokenResourceError, WireError) as error:
            self._lose(error if isinstance(error, WireError) else error.__cause__)
        else:
            self._lose(None)

    def _lose(self, error: BaseException | None) -> None:
        if self._lost is None:
            text = getattr(error, "strerror", None) or error
            self._lost = f": {text}" if text else ""
        for sender in self._calls.inboxes():
            sender.close()
        self._written.set()
        self._gone.set()

    def _dispatch(self, batch: Batch) -> None:
        requests: dict[str, Batch] = {}
        for message in batch:
            if message.kind == "response":
                sender = self._calls.deliver(message)
                if sender is not None:
                    # The inbox may have been closed since.
                    with suppress(trio.BrokenResourceError):
                        sender.send_nowait(message)
                    if message.matchtag not in self._calls:
                        sender.close()
            elif message.kind == "request":
                name = (message.topic or "").partition(".")[0]
                requests.setdefault(name, Batch()).append(message)
            elif message.kind == "event":
                self._publish(message)
        for name, batch in requests.items():
            handler = self._services.get(name)
            if handler is not None:
                handler(batch)
            else:
                self._reject(batch)

    def _publish(self, event: Message) -> None:
        topic = event.topic or ""
        for prefix, handler in list(self._events.items()):
            if topic.startswith(prefix):
                handler(event)

    def _reject(self, requests: Batch) -> None:
        for request in requests:
            if not request.noresponse:
                text = f"no service for `{request.topic}` on this connection"
                self.send(request.respond(errnum=errno.ENOSYS, errtext=text))


@asynccontextmanager
async def running(connection: Connection) -> AsyncIterator[None]:
    """Reads and writes a connection for the duration of the block, then closes it."""
    try:
        async with connection._stream_socket, trio.open_nursery() as nursery:
            nursery.start_soon(connection._read)
            nursery.start_soon(connection._write)
            try:
                yield
                # Flush what was given to `send`, unless the connection is lost.
                await connection._written.wait()
            finally:
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        # These tasks raise only what a handler raises: a single exception is the caller's own.
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise
    finally:
        connection._lose(None)
