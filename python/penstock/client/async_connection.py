"""The common part of the connections for Trio and asyncio: requests, streams, services, events."""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from penstock._core import Batch, Decoder, Message
from penstock._core import topic as topics
from penstock.client.calls import void_call
from penstock.client.outstanding import OpenStream, Outstanding, cancellation
from penstock.client.repeating import pauses
from penstock.errors import NoInstanceError, RpcError, WireError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType
    from typing import Self

    from penstock.client.calls import AnyCall, CallBatch, CallSequence, Pipeline

    Encoding = Literal["json", "cbor"]
    Requests = Callable[[Batch], None]
    EventHandler = Callable[[Message], None]

T = TypeVar("T")


class Event(Protocol):
    """An event of Trio or asyncio."""

    def set(self) -> None:
        """Sets the event."""

    def is_set(self) -> bool:
        """Whether it is set."""

    async def wait(self) -> Any:
        """Returns once it is set."""


class Inbox:
    """The responses to the requests of a stream that it has not read.

    Args:
        new_event: makes an event of the library in whose tasks the stream is read.
    """

    def __init__(self, new_event: Callable[[], Event]) -> None:
        self._new_event = new_event
        self._messages: deque[Message] = deque()
        self._has_ended = False
        self._changed = new_event()

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: Message) -> None:
        """Adds a response, unless the inbox has ended."""
        if not self._has_ended:
            self._messages.append(message)
            self._changed.set()

    def end(self) -> None:
        """Ends the inbox: nothing more is added."""
        self._has_ended = True
        self._changed.set()

    async def get(self) -> Message | None:
        """The next response; None once the inbox has ended and is empty."""
        while not self._messages:
            if self._has_ended:
                return None
            if self._changed.is_set():
                self._changed = self._new_event()
            await self._changed.wait()
        return self._messages.popleft()


class Stream(OpenStream[T]):
    """The rows of one or more streaming requests, one by one, until their good end.

    The requests are sent when the stream is created. `close`, the end of an `async with` block,
    cancellation and garbage collection close it early; the instance is then sent a cancellation.
    """

    def __init__(self, connection: Connection, calls: Iterable[AnyCall[T]]) -> None:
        super().__init__()
        self._connection = connection
        self._inbox = Inbox(connection._new_event)
        try:
            for call in calls:
                self.add(call)
        except BaseException:
            self.close()
            raise

    def add(self, call: AnyCall[T]) -> None:
        """Sends a further request."""
        self._open[self._connection._begin(self._inbox, call)] = call

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            if self._rows or self._inbox:
                # Rows that arrived together must not make an iteration uncancellable.
                await self._connection._checkpoint()
            while not self._rows:
                if not self._open:
                    raise StopAsyncIteration
                message = await self._inbox.get()
                if message is not None:
                    self._take(message)
                else:
                    self._connection._check()
        except BaseException:
            self.close()
            raise
        return self._rows.popleft()

    def _leave(self, tag: int, topic: str) -> None:
        self._connection._leave(tag, topic)

    def close(self) -> None:
        """Closes the stream; there are no more rows."""
        super().close()
        self._inbox.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Connection(ABC):
    """An open connection; see `connect` of `penstock.aclient` and `penstock.aioclient`.

    Any number of tasks may use it at once. A call that is cancelled leaves the connection usable:
    a request is written whole, and a late response is dropped.

    A submission whose connection is lost before the response is sent again with the same token for
    30 seconds, on a connection of its own; the lost one stays lost.

    Args:
        uri: the address of the instance.
        encoding: the encoding of request payloads.
    """

    def __init__(self, uri: str, *, encoding: Encoding) -> None:
        self.uri = uri
        self._cbor = encoding == "cbor"
        self._calls: Outstanding[Inbox] = Outstanding()
        self._services: dict[str, Requests] = {}
        self._events: dict[str, EventHandler] = {}
        self._unsent = bytearray()
        self._wake = self._new_event()
        self._written = self._new_event()
        self._written.set()
        self._lost: str | None = None
        self._gone = self._new_event()
        self._is_closed = False

    # --- the library for asynchronous programs

    @abstractmethod
    def _new_event(self) -> Event:
        """An event of the library."""

    @abstractmethod
    async def _checkpoint(self) -> None:
        """Lets other tasks run; raises an exception if this one is cancelled."""

    @abstractmethod
    async def _sleep(self, seconds: float) -> None:
        """Waits for some time."""

    @abstractmethod
    def _connect_again(self) -> AbstractAsyncContextManager[Connection]:
        """Another connection to the same instance, for the duration of the block."""

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
            self._written = self._new_event()
        self._wake.set()

    async def _first(self, call: AnyCall[T]) -> T:
        if not call.is_idempotent:
            return await self._first_once(call)
        return await self._repeated(lambda connection: connection._first_once(call))

    async def _repeated(self, send: Callable[[Connection], Awaitable[T]]) -> T:
        """Calls a function that sends idempotent requests, again if the connection is lost."""
        try:
            return await send(self)
        except NoInstanceError:
            if self._is_closed:
                raise
        for pause in pauses():
            await self._sleep(pause)
            with suppress(NoInstanceError):
                async with self._connect_again() as other:
                    return await send(other)
        async with self._connect_again() as other:
            return await send(other)

    async def _first_once(self, call: AnyCall[T]) -> T:
        async with Stream(self, [call]) as rows:
            return await anext(rows)

    async def _collect(self, batch: CallBatch[T]) -> T:
        return batch.read([row async for row in Stream(self, batch.calls)])

    async def _do_all(self, sequence: CallSequence[T]) -> T:
        return sequence.read([await self._first(call) for call in sequence.calls])

    async def _pipe(self, pipeline: Pipeline[T]) -> T:
        return await self._repeated(lambda connection: connection._pipe_once(pipeline))

    async def _pipe_once(self, pipeline: Pipeline[T]) -> T:
        results: list[Any] = []
        async with Stream[Any](self, ()) as rows:
            try:
                for call in pipeline.calls:
                    if rows.in_flight >= pipeline.in_flight:
                        results.append(await anext(rows))
                    rows.add(call)
                    # It is written while the next one is made.
                    await self._checkpoint()
                results += [row async for row in rows]
            except RpcError as error:
                return pipeline.read(error)
        return pipeline.read(results)

    def _stream(self, calls: Iterable[AnyCall[T]]) -> Stream[T]:
        return Stream(self, calls)

    def _begin(self, inbox: Inbox, call: AnyCall[Any]) -> int:
        """Sends a request whose responses go to `inbox`; returns its matchtag."""
        self._check()
        message = self._calls.request(inbox, call)
        try:
            self.send(message)
        except BaseException:
            self._calls.forget(message.matchtag)
            raise
        return message.matchtag

    def _leave(self, tag: int, topic: str) -> None:
        """Abandons a request, and cancels it if its topic has a cancellation."""
        # An inbox may be empty, and so false.
        if self._calls.leave(tag) is not None and (message := cancellation(topic, tag)):
            with suppress(NoInstanceError):
                self.send(message)

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

    async def _next_unsent(self) -> bytearray:
        """The bytes to write next; waits until there are some."""
        while not self._unsent:
            self._written.set()
            await self._wake.wait()
            self._wake = self._new_event()
        data, self._unsent = self._unsent, bytearray()
        return data

    def _feed(self, decoder: Decoder, data: bytes) -> bool:
        """Takes what was read; False if the connection is lost: at its end, or by damaged data."""
        if not data:
            self._lose(None)
            return False
        try:
            batch = decoder.feed(data)
            if batch.has_cbor() and (rejected := batch.normalise()):
                self.send(rejected)
            self._dispatch(batch)
        except WireError as error:
            self._lose(error)
            return False
        return True

    def _close(self) -> None:
        """Ends the connection at the end of its block."""
        self._is_closed = True
        self._lose(None)

    def _lose(self, error: BaseException | None) -> None:
        if self._lost is None:
            text = getattr(error, "strerror", None) or error
            self._lost = f": {text}" if text else ""
        for inbox in self._calls.inboxes():
            inbox.end()
        self._written.set()
        self._gone.set()

    def _dispatch(self, batch: Batch) -> None:
        requests: dict[str, Batch] = {}
        for message in batch:
            if message.kind == "response":
                inbox = self._calls.deliver(message)
                if inbox is not None:
                    inbox.put(message)
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
