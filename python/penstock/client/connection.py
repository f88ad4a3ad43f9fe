"""A blocking connection to an instance: requests and streams."""

from __future__ import annotations

import os
import socket
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from penstock._core import STREAMING, Decoder, Message
from penstock.client.calls import raw_stream
from penstock.client.outstanding import (
    Outstanding,
    cancellation,
    error_of,
    is_good_end,
    payload_of,
)
from penstock.errors import NoInstanceError, RpcError
from penstock.paths import default_uri, socket_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import TracebackType
    from typing import Self

    from penstock.client.calls import Call, StreamCall
    from penstock.client.outstanding import Payload

T = TypeVar("T")
Key = TypeVar("Key")

READ_SIZE = 256 * 1024


def connect(uri: str | None = None) -> socket.socket:
    """Connects to an instance and reads its greeting (a status byte).

    Args:
        uri: `local:///path`; by default `$PENSTOCK_URI`, else the default socket.

    Raises:
        NoInstanceError: no instance listens there, or it rejects this user.
        AddressError: the address is not a local one.
    """
    uri = uri or default_uri()
    path = str(socket_of(uri))
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
        status = connection.recv(1)
    except OSError as error:
        connection.close()
        raise NoInstanceError(
            f"no instance at `{uri}`: {error.strerror or error}\n"
            "hint: start one with `penstock start`, or set PENSTOCK_URI"
        ) from None
    if status != b"\0":
        connection.close()
        reason = os.strerror(status[0]) if status else "it closed the connection"
        raise NoInstanceError(f"the instance at `{uri}` rejected the connection: {reason}")
    return connection


class Stream(Generic[T]):
    """The rows of a stream, one by one, until its good end.

    The request is sent when the stream is created. `close`, the end of a `with` block and garbage
    collection close it early, and so does an exception from within the iteration (`RpcError`,
    `NoInstanceError`, `TimeoutError`, `KeyboardInterrupt`); the instance is then sent a
    cancellation.
    """

    def __init__(self, connection: Connection, call: StreamCall[T]) -> None:
        self._connection = connection
        self._call = call
        self._rows: deque[T] = deque()
        self._inbox: deque[Message] = deque()
        self._ended = False
        flags = STREAMING if call.streaming else 0
        self._tag = connection._begin(call.topic, call.payload, flags, self._inbox)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        while not self._rows:
            if self._ended:
                raise StopIteration
            try:
                self._take(self._connection._receive(self._inbox))
            except BaseException:
                self.close()
                raise
        return self._rows.popleft()

    def _take(self, message: Message) -> None:
        self._ended = message.errnum != 0 or not self._call.streaming
        if not (self._call.streaming and is_good_end(message)):
            self._rows.extend(self._call.read(payload_of(message)))

    def close(self) -> None:
        """Closes the stream; there are no more rows."""
        self._rows.clear()
        if not self._ended:
            self._ended = True
            self._connection._leave(self._tag, self._call.topic)

    def __enter__(self) -> Self:
        return self

    def __exit__(
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


class Connection:
    """A connection to an instance, for one thread at a time.

    A call that times out or is interrupted leaves it usable: a partly written request is completed
    before the next one, and late responses are dropped.

    Args:
        uri: `local:///path`; by default `$PENSTOCK_URI`, else the default socket.
        timeout: Seconds to wait for each message; None for no limit.

    Raises:
        NoInstanceError: no instance listens there.
    """

    def __init__(self, uri: str | None = None, *, timeout: float | None = None) -> None:
        self.uri = uri or default_uri()
        self._socket = connect(self.uri)
        self._socket.settimeout(timeout)
        self._decoder = Decoder()
        self._calls: Outstanding[deque[Message]] = Outstanding()
        self._unsent: deque[memoryview] = deque()
        self._writing = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; open streams end."""
        self._socket.close()

    def rpc(self, topic: str, payload: Payload = None) -> dict[str, Any]:
        """Sends a request and returns its response, `{}` where that is empty.

        Args:
            topic: Service and method, such as `job-list.list`.
            payload: An object, or encoded JSON text.

        Raises:
            RpcError: the service answered with an error.
            NoInstanceError: the connection was lost.
        """
        inbox: deque[Message] = deque()
        tag = self._begin(topic, payload, 0, inbox)
        try:
            return payload_of(self._receive(inbox))
        finally:
            self._leave(tag, topic)

    def call_many(self, topic: str, payloads: Iterable[Payload]) -> list[dict[str, Any] | RpcError]:
        """Sends requests without waiting in between, then collects the responses.

        Returns:
            For each request its response, or its error.
        """
        results: list[dict[str, Any] | RpcError] = []
        sent: list[tuple[int, deque[Message]]] = []
        try:
            for payload in payloads:
                inbox: deque[Message] = deque()
                sent.append((self._begin(topic, payload, 0, inbox), inbox))
            for _, inbox in sent:
                message = self._receive(inbox)
                results.append(error_of(message) if message.errnum else payload_of(message))
        finally:
            for tag, _ in sent:
                self._leave(tag, topic)
        return results

    def do(self, call: Call[T]) -> T:
        """Sends a request and returns its result.

        Raises:
            RpcError: the service answered with an error.
            NoInstanceError: the connection was lost.
        """
        try:
            response = self.rpc(call.topic, call.payload)
        except RpcError as error:
            if call.read_error is None:
                raise
            return call.read_error(error)
        return call.read(response)

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
        return Stream(self, raw_stream(topic, payload) if isinstance(topic, str) else topic)

    def collect(self, call: StreamCall[T]) -> list[T]:
        """Sends a streaming request and returns all its rows.

        Raises:
            RpcError: the stream ended in an error.
            NoInstanceError: the connection was lost.
        """
        return list(Stream(self, call))

    def merge(
        self, requests: Mapping[Key, tuple[str, Payload]]
    ) -> Iterator[tuple[Key, dict[str, Any] | RpcError]]:
        """Sends several streaming requests and yields their responses until all have ended.

        Args:
            requests: Topic and payload of each, by a key of the caller's.

        Returns:
            Key and response in the order of arrival. A stream that fails yields its `RpcError`
            and does not end the others.

        Raises:
            NoInstanceError: the connection was lost.
        """
        inbox: deque[Message] = deque()
        keys: dict[int, Key] = {}
        try:
            for key, (topic, payload) in requests.items():
                keys[self._begin(topic, payload, STREAMING, inbox)] = key
            while keys:
                message = self._receive(inbox)
                key = keys[message.matchtag]
                if message.errnum:
                    del keys[message.matchtag]
                    if not is_good_end(message):
                        yield key, error_of(message)
                else:
                    yield key, payload_of(message)
        finally:
            for tag, key in keys.items():
                self._leave(tag, requests[key][0])

    # --- messages

    def _begin(self, topic: str, payload: Payload, flags: int, inbox: deque[Message]) -> int:
        """Sends a request whose responses go to `inbox`; returns its matchtag."""
        tag = self._calls.begin(inbox, streaming=bool(flags & STREAMING))
        try:
            data = Message.request(topic, payload, matchtag=tag, flags=flags).encode()
        except BaseException:
            self._calls.forget(tag)
            raise
        try:
            self._write(data)
        except BaseException:
            # The request is completed before the next one; the cancellation follows it.
            self._calls.leave(tag)
            if message := cancellation(topic, tag):
                self._unsent.append(memoryview(message.encode()))
            raise
        return tag

    def _leave(self, tag: int, topic: str) -> None:
        """Abandons a request, and cancels it if its topic has a cancellation."""
        # An inbox may be empty, and so false.
        if self._calls.leave(tag) is not None and (message := cancellation(topic, tag)):
            # What cannot be written now is written before the next request.
            with suppress(NoInstanceError, TimeoutError):
                self._write(message.encode())

    def _write(self, message: bytes) -> None:
        self._unsent.append(memoryview(message))
        # A stream may be garbage collected in the middle of writing another message.
        if self._writing:
            return
        self._writing = True
        try:
            while self._unsent:
                data = self._unsent[0]
                sent = self._socket.send(data)
                if sent == len(data):
                    self._unsent.popleft()
                else:
                    self._unsent[0] = data[sent:]
        except TimeoutError:
            raise
        except OSError as error:
            raise self._lost(error) from None
        finally:
            self._writing = False

    def _lost(self, error: OSError | None = None) -> NoInstanceError:
        reason = f": {error.strerror or error}" if error else ""
        return NoInstanceError(f"the instance at `{self.uri}` closed the connection{reason}")

    def _receive(self, inbox: deque[Message]) -> Message:
        """The next message for an inbox; messages for others go to theirs."""
        while not inbox:
            try:
                data = self._socket.recv(READ_SIZE)
            except TimeoutError:
                raise
            except OSError as error:
                raise self._lost(error) from None
            if not data:
                raise self._lost()
            for message in self._decoder.feed(data):
                waiting = self._calls.deliver(message)
                if waiting is not None:
                    waiting.append(message)
        return inbox.popleft()
