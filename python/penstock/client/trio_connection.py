"""A Trio connection to an instance: requests, streams, services and events."""

from __future__ import annotations

import errno
import math
import os
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

import trio

from penstock._core import Batch, Decoder, Message
from penstock._core import topic as topics
from penstock.client.calls import payload_or_error, raw_call, raw_stream, stream_call, void_call
from penstock.client.connection import READ_SIZE
from penstock.client.outstanding import OpenMerge, OpenStream, Outstanding, cancellation
from penstock.errors import NoInstanceError, RpcError, WireError
from penstock.paths import socket_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping
    from types import TracebackType
    from typing import Self

    from penstock.client.calls import Call, CallSequence, Payload, StreamCall

    Encoding = Literal["json", "cbor"]
    Requests = Callable[[Batch], None]
    EventHandler = Callable[[Message], None]
    Sender = trio.MemorySendChannel[Message]
    Receiver = trio.MemoryReceiveChannel[Message]

T = TypeVar("T")
Key = TypeVar("Key")


async def open_socket(uri: str) -> trio.SocketStream:
    """Connects to an instance and reads its greeting (a status byte).

    Raises:
        NoInstanceError: no instance listens there, or it rejects this user.
        AddressError: the address is not a local one.
    """
    path = str(socket_of(uri))
    try:
        stream = await trio.open_unix_socket(path)
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise NoInstanceError(
            f"no instance at `{uri}`: {reason}\n"
            "hint: start one with `penstock start`, or set PENSTOCK_URI"
        ) from None
    try:
        status = await stream.receive_some(1)
    except trio.BrokenResourceError:
        status = b""
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    if status != b"\0":
        await trio.aclose_forcefully(stream)
        reason = os.strerror(status[0]) if status else "it closed the connection"
        raise NoInstanceError(f"the instance at `{uri}` rejected the connection: {reason}")
    return stream


class Stream(OpenStream[T]):
    """The rows of a stream, one by one, until its good end.

    The request is sent when the stream is created. `close`, the end of an `async with` block,
    cancellation and garbage collection close it early; the instance is then sent a cancellation.
    """

    def __init__(self, connection: Connection, call: StreamCall[T]) -> None:
        super().__init__(call)
        self._connection = connection
        self._tag, self._inbox = connection._begin(call)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            if self._rows:
                # Rows that arrived together must not make an iteration uncancellable.
                await trio.lowlevel.checkpoint()
            while not self._rows:
                if self._ended:
                    raise StopAsyncIteration
                self._take(await self._connection._next(self._inbox))
        except BaseException:
            self.close()
            raise
        return self._rows.popleft()

    def _leave(self) -> None:
        self._connection._leave(self._tag, self._inbox, self._call.topic)

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
        # A request that could not be sent has no matchtag.
        if hasattr(self, "_tag"):
            self.close()


class Merged(Generic[Key]):
    """The responses of several streams: pairs of key and response, or `RpcError`; see `Stream`."""

    def __init__(self, connection: Connection, requests: Mapping[Key, tuple[str, Payload]]) -> None:
        self._connection = connection
        self._merge: OpenMerge[Key] = OpenMerge()
        sender, self._inbox = trio.open_memory_channel[Message](math.inf)
        with sender:
            for key, (topic, payload) in requests.items():
                tag = connection._begin_into(sender.clone(), raw_stream(topic, payload))
                self._merge.streams[tag] = key, topic

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[Key, dict[str, Any] | RpcError]:
        while self._merge.streams:
            try:
                message = await self._connection._next(self._inbox)
            except BaseException:
                self.close()
                raise
            row = self._merge.take(message)
            if row is not None:
                return row
        self._inbox.close()
        raise StopAsyncIteration

    def close(self) -> None:
        """Closes the streams that have not ended."""
        for tag, (_key, topic) in self._merge.streams.items():
            self._connection._leave(tag, self._inbox, topic)
        self._merge.streams.clear()

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

    async def call_many(
        self, topic: str, payloads: Iterable[Payload]
    ) -> list[dict[str, Any] | RpcError]:
        """Sends requests without waiting in between, then collects the responses.

        Returns:
            For each request its response, or its error.
        """
        results: list[dict[str, Any] | RpcError] = []
        sent: list[tuple[int, Receiver]] = []
        try:
            sent += (self._begin(raw_call(topic, payload)) for payload in payloads)
            for _, inbox in sent:
                results.append(payload_or_error(await self._next(inbox)))
        finally:
            for tag, inbox in sent:
                self._leave(tag, inbox, topic)
        return results

    async def do(self, call: Call[T]) -> T:
        """Sends a request and returns its result.

        Raises:
            RpcError: the service answered with an error.
            NoInstanceError: the connection was lost.
        """
        tag, inbox = self._begin(call)
        try:
            return call.result(await self._next(inbox))
        finally:
            self._leave(tag, inbox, call.topic)

    async def _do_all(self, sequence: CallSequence[T]) -> T:
        return sequence.read([await self.do(call) for call in sequence.calls])

    @overload
    def stream(self, call: StreamCall[T], /) -> Stream[T]: ...
    @overload
    def stream(self, topic: str, payload: Payload = None) -> Stream[dict[str, Any]]: ...

    def stream(self, topic: StreamCall[Any] | str, payload: Payload = None) -> Stream[Any]:
        """Sends a streaming request; the stream has its responses until the good end (ENODATA).

        Args:
            topic: Service and method, such as `job-list.list`; or a `StreamCall`, whose rows the
                stream has.
            payload: An object, or encoded JSON text.

        Raises:
            RpcError: from the iteration: the stream ended in another error.
            NoInstanceError: the connection was lost.
        """
        return Stream(self, stream_call(topic, payload))

    async def collect(self, call: StreamCall[T]) -> list[T]:
        """Sends a streaming request and returns all its rows.

        Raises:
            RpcError: the stream ended in an error.
            NoInstanceError: the connection was lost.
        """
        return [row async for row in Stream(self, call)]

    async def _first(self, call: StreamCall[T]) -> T:
        async with Stream(self, call) as rows:
            return await anext(rows)

    def merge(self, requests: Mapping[Key, tuple[str, Payload]]) -> Merged[Key]:
        """Sends several streaming requests; the result iterates over the responses of all.

        Args:
            requests: Topic and payload of each, by a key of the caller's.

        Returns:
            Key and response in the order of arrival. A stream that fails yields its `RpcError`
            and does not end the others.

        Raises:
            NoInstanceError: the connection was lost.
        """
        return Merged(self, requests)

    def _begin(self, call: Call[Any] | StreamCall[Any]) -> tuple[int, Receiver]:
        sender, inbox = trio.open_memory_channel[Message](math.inf)
        return self._begin_into(sender, call), inbox

    def _begin_into(self, sender: Sender, call: Call[Any] | StreamCall[Any]) -> int:
        self._check()
        message = self._calls.request(sender, call)
        try:
            self.send(message)
        except BaseException:
            self._calls.forget(message.matchtag)
            raise
        return message.matchtag

    def _leave(self, tag: int, inbox: Receiver, topic: str) -> None:
        """Abandons a request, and cancels it if its topic has a cancellation."""
        inbox.close()
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
            await self.do(void_call(topics.service.ADD, {"service": name}))
        except BaseException:
            # Requests that still arrive are rejected.
            del self._services[name]
            raise

    async def remove_service(self, name: str) -> None:
        """Unregisters a service."""
        await self.do(void_call(topics.service.REMOVE, {"service": name}))
        self._services.pop(name, None)

    async def subscribe(self, prefix: str, handler: EventHandler) -> None:
        """Subscribes to events: the handler is called with each whose topic begins with `prefix`.

        It must not block; its exceptions end the connection and propagate out of `connect`.
        """
        if prefix in self._events:
            raise RpcError(errno.EEXIST, f"already subscribed to `{prefix}`")
        self._events[prefix] = handler
        try:
            await self.do(void_call(topics.event.SUBSCRIBE, {"topic": prefix}))
        except BaseException:
            del self._events[prefix]
            raise

    async def unsubscribe(self, prefix: str) -> None:
        """Cancels a subscription."""
        await self.do(void_call(topics.event.UNSUBSCRIBE, {"topic": prefix}))
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
            while data := await self._stream_socket.receive_some(READ_SIZE):
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
