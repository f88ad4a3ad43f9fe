"""A Trio client of an instance, for programs that ask and for programs that serve.

```python
import trio
from penstock.aclient import connect

async def main() -> None:
    async with connect() as client:
        print(await client.rpc("attr.get", {"name": "size"}))
        async with client.stream("job-list.wait", {"ids": [job]}) as responses:
            async for response in responses:
                print(response["jobs"])

trio.run(main)
```

It needs the extra `[daemon]`. Without Trio there is `penstock.client`.
"""

from __future__ import annotations

import errno
import math
import os
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Literal

import trio

from penstock._core import Batch, Decoder, Message
from penstock.client import READ_SIZE, STREAMING, NoInstanceError, error_of, payload_of, submissions
from penstock.errors import RpcError, WireError
from penstock.paths import default_uri, socket_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.client import Payload, Row

    Encoding = Literal["json", "cbor"]
    Requests = Callable[[Batch], None]
    Event = Callable[[Message], None]

__all__ = ["Client", "connect"]


@asynccontextmanager
async def connect(uri: str | None = None, *, encoding: Encoding = "json") -> AsyncIterator[Client]:
    """A connection to an instance, for as long as the block lasts.

    Args:
        uri: `local:///path`; by default `$PENSTOCK_URI`, else the default socket.
        encoding: of the payloads that are sent; the instance answers in the same.

    Raises:
        NoInstanceError: nobody listens there, or the instance does not want this user.
        AddressError: the address is not a local one.
    """
    uri = uri or default_uri()
    stream = await _open(uri)
    client = Client(uri, stream, encoding=encoding)
    try:
        async with stream, trio.open_nursery() as nursery:
            nursery.start_soon(client._read)
            nursery.start_soon(client._write)
            try:
                yield client
            finally:
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        # The tasks in here raise only what a handler raises: mostly there is but one exception,
        # and it is the caller's own.
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise


async def _open(uri: str) -> trio.SocketStream:
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
        raise NoInstanceError(f"the instance at `{uri}` refused the connection: {reason}")
    return stream


class Client:
    """An open connection; see `connect`.

    Any number of tasks may use it at once. A call that is cancelled leaves the connection as it
    was: what is written is written whole, and a late answer is dropped.
    """

    def __init__(self, uri: str, stream: trio.SocketStream, *, encoding: Encoding) -> None:
        self.uri = uri
        self._stream = stream
        self._cbor = encoding == "cbor"
        self._tag = 0
        self._calls: dict[int, trio.MemorySendChannel[Message]] = {}
        self._services: dict[str, Requests] = {}
        self._events: dict[str, Event] = {}
        self._unsent = bytearray()
        self._wake = trio.Event()
        self._lost: str | None = None
        self._gone = trio.Event()

    # --- messages

    def send(self, messages: Message | Batch) -> None:
        """Sends messages, such as a service's answers. It does not wait until they are written.

        Raises:
            NoInstanceError: the connection was lost.
        """
        self._check()
        batch = messages if isinstance(messages, Batch) else Batch([messages])
        self._unsent += batch.encode_cbor() if self._cbor else batch.encode()
        self._wake.set()

    async def rpc(self, topic: str, payload: Payload | bytes = None) -> dict[str, Any]:
        """Sends a request and returns its response, `{}` where that is empty.

        Raises:
            RpcError: the service answered with an error.
            NoInstanceError: the connection was lost.
        """
        with self._call(topic, payload, 0) as responses:
            return payload_of(await self._next(responses))

    async def call_many(
        self, topic: str, payloads: Iterable[Payload]
    ) -> list[dict[str, Any] | RpcError]:
        """Sends requests one after the other without waiting, then collects the responses.

        Returns:
            For each request its response, or its error.
        """
        results: list[dict[str, Any] | RpcError] = []
        channels: list[tuple[int, trio.MemoryReceiveChannel[Message]]] = []
        try:
            channels += (self._begin(topic, payload, 0) for payload in payloads)
            for _, responses in channels:
                message = await self._next(responses)
                results.append(error_of(message) if message.errnum else payload_of(message))
        finally:
            for tag, responses in channels:
                self._end(tag, responses)
        return results

    @asynccontextmanager
    async def stream(
        self, topic: str, payload: Payload = None
    ) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """Sends a streaming request; its responses can be iterated over in the block.

        The iteration ends with the stream's good end (ENODATA).

        Raises:
            RpcError: from the iteration: the stream ended in another error.
            NoInstanceError: the connection was lost.
        """
        with self._call(topic, payload, STREAMING) as responses:
            yield _Responses(self, responses)

    @contextmanager
    def _call(
        self, topic: str, payload: Payload | bytes, flags: int
    ) -> Iterator[trio.MemoryReceiveChannel[Message]]:
        tag, responses = self._begin(topic, payload, flags)
        try:
            yield responses
        finally:
            self._end(tag, responses)

    def _begin(
        self, topic: str, payload: Payload | bytes, flags: int
    ) -> tuple[int, trio.MemoryReceiveChannel[Message]]:
        self._tag += 1
        tag = self._tag
        self.send(Message.request(topic, payload, matchtag=tag, flags=flags))
        sender, receiver = trio.open_memory_channel[Message](math.inf)
        self._calls[tag] = sender
        return tag, receiver

    def _end(self, tag: int, responses: trio.MemoryReceiveChannel[Message]) -> None:
        responses.close()
        sender = self._calls.pop(tag, None)
        if sender is not None:
            sender.close()

    async def _next(self, responses: trio.MemoryReceiveChannel[Message]) -> Message:
        try:
            return await responses.receive()
        except trio.EndOfChannel:
            self._check()
            raise

    def _check(self) -> None:
        if self._lost is not None:
            raise NoInstanceError(f"the instance at `{self.uri}` closed the connection{self._lost}")

    # --- serving

    async def add_service(self, name: str, handler: Requests) -> None:
        """Registers a service: requests for `name.*` come to the handler from now on.

        Args:
            name: the topics' first word.
            handler: called with requests that came together, in order, payloads as JSON. It
                answers with `send`, now or later, but for requests with `noresponse`. It must
                not block; what it raises ends the connection and comes out of `connect`. When
                one of the service's users goes away it gets `name.disconnect`.

        Raises:
            RpcError: the name is taken (EEXIST), or this user may not register it (EPERM).
        """
        if name in self._services:
            raise RpcError(errno.EEXIST, f"service `{name}` is registered already")
        # Requests may come right behind the answer.
        self._services[name] = handler
        try:
            await self.rpc("service.add", {"service": name})
        except BaseException:
            # Whoever is cancelled here does not serve; what still comes is refused.
            del self._services[name]
            raise

    async def remove_service(self, name: str) -> None:
        """Gives a service up."""
        await self.rpc("service.remove", {"service": name})
        self._services.pop(name, None)

    async def subscribe(self, prefix: str, handler: Event) -> None:
        """Has the handler called with each event whose topic begins with `prefix`.

        It must not block; what it raises ends the connection and comes out of `connect`.
        """
        if prefix in self._events:
            raise RpcError(errno.EEXIST, f"subscribed to `{prefix}` already")
        self._events[prefix] = handler
        try:
            await self.rpc("event.subscribe", {"topic": prefix})
        except BaseException:
            del self._events[prefix]
            raise

    async def unsubscribe(self, prefix: str) -> None:
        """Takes a subscription back."""
        await self.rpc("event.unsubscribe", {"topic": prefix})
        self._events.pop(prefix, None)

    async def wait_lost(self) -> None:
        """Returns when the instance has closed the connection: there is nothing left to serve."""
        await self._gone.wait()

    # --- jobs

    async def submit(
        self, jobspec: Mapping[str, Any], *, urgency: int = 16, count: int | None = None
    ) -> Any:
        """As `penstock.client.Client.submit`."""
        request: dict[str, Any] = {"jobspec": jobspec, "urgency": urgency}
        if count is None:
            return (await self.rpc("job-ingest.submit", request))["id"]
        return (await self.rpc("job-ingest.submit", request | {"count": count}))["ids"]

    async def submit_many(self, jobs: Iterable[Mapping[str, Any]]) -> list[list[int] | RpcError]:
        """As `penstock.client.Client.submit_many`."""
        results: list[list[int] | RpcError] = []
        for request in submissions(jobs):
            for result in (await self.rpc("job-ingest.submit", request))["results"]:
                bad = "error" in result
                results.append(RpcError(errno.EINVAL, result["error"]) if bad else result["ids"])
        return results

    async def wait(self, ids: Iterable[int]) -> list[Row]:
        """The rows of these jobs, in the order in which they became inactive, once all are."""
        rows: list[Row] = []
        async with self.stream("job-list.wait", {"ids": list(ids)}) as responses:
            async for part in responses:
                rows += part["jobs"]
        return rows

    async def cancel(self, ids: Sequence[int], *, note: str = "") -> dict[int, str]:
        """Cancels jobs. Returns for each that cannot be cancelled why not."""
        request = {"type": "cancel", "severity": 0, "note": note, "ids": list(ids)}
        answer = await self.rpc("job-manager.raise", request)
        return {int(job): text for job, text in answer["errors"].items()}

    async def lookup(self, job: int, *keys: str) -> dict[str, str]:
        """A job's documents as text: `eventlog`, `jobspec`, `R`."""
        return await self.rpc("job-info.lookup", {"id": job, "keys": list(keys), "flags": 0})

    # --- the connection

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            while self._unsent:
                data, self._unsent = self._unsent, bytearray()
                try:
                    await self._stream.send_all(data)
                except trio.BrokenResourceError as error:
                    self._lose(error.__cause__)
                    return

    async def _read(self) -> None:
        decoder = Decoder()
        try:
            while data := await self._stream.receive_some(READ_SIZE):
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
        for sender in self._calls.values():
            sender.close()
        self._calls.clear()
        self._gone.set()

    def _dispatch(self, batch: Batch) -> None:
        requests: dict[str, Batch] = {}
        for message in batch:
            if message.kind == "response":
                sender = self._calls.get(message.matchtag)
                if sender is not None:
                    sender.send_nowait(message)
            elif message.kind == "request":
                name = (message.topic or "").partition(".")[0]
                requests.setdefault(name, Batch()).append(message)
            elif message.kind == "event":
                self._tell(message)
        for name, asked in requests.items():
            handler = self._services.get(name)
            if handler is not None:
                handler(asked)
            else:
                self._refuse(asked)

    def _tell(self, event: Message) -> None:
        topic = event.topic or ""
        for prefix, handler in list(self._events.items()):
            if topic.startswith(prefix):
                handler(event)

    def _refuse(self, requests: Batch) -> None:
        for request in requests:
            if not request.noresponse:
                text = f"nobody serves `{request.topic}` here"
                self.send(request.respond(errnum=errno.ENOSYS, errtext=text))


class _Responses:
    """The responses of a stream, until its good end."""

    def __init__(self, client: Client, responses: trio.MemoryReceiveChannel[Message]) -> None:
        self._client = client
        self._responses = responses
        self._ended = False

    def __aiter__(self) -> _Responses:
        return self

    async def __anext__(self) -> dict[str, Any]:
        if self._ended:
            raise StopAsyncIteration
        message = await self._client._next(self._responses)
        self._ended = message.errnum != 0
        if message.errnum == errno.ENODATA:
            raise StopAsyncIteration
        return payload_of(message)
