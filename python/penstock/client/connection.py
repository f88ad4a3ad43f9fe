"""A blocking connection to an instance: requests and streams."""

from __future__ import annotations

import os
import socket
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, overload

from penstock._core import Decoder, Message
from penstock.client.calls import payload_or_error, raw_call, raw_stream, stream_call
from penstock.client.outstanding import OpenMerge, OpenStream, Outstanding, cancellation
from penstock.errors import NoInstanceError
from penstock.paths import default_uri, socket_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import TracebackType
    from typing import Self

    from penstock.client.calls import Call, CallSequence, Payload, StreamCall
    from penstock.errors import RpcError

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


class Stream(OpenStream[T]):
    """The rows of a stream, one by one, until its good end.

    The request is sent when the stream is created. `close`, the end of a `with` block and garbage
    collection close it early, and so does an exception from within the iteration (`RpcError`,
    `NoInstanceError`, `TimeoutError`, `KeyboardInterrupt`); the instance is then sent a
    cancellation.
    """

    def __init__(self, connection: Connection, call: StreamCall[T]) -> None:
        super().__init__(call)
        self._connection = connection
        self._inbox: deque[Message] = deque()
        self._tag = connection._begin(self._inbox, call)

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

    def _leave(self) -> None:
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
                sent.append((self._begin(inbox, raw_call(topic, payload)), inbox))
            results += (payload_or_error(self._receive(inbox)) for _, inbox in sent)
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
        inbox: deque[Message] = deque()
        tag = self._begin(inbox, call)
        try:
            return call.result(self._receive(inbox))
        finally:
            self._leave(tag, call.topic)

    def _do_all(self, sequence: CallSequence[T]) -> T:
        return sequence.read([self.do(call) for call in sequence.calls])

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

    def collect(self, call: StreamCall[T]) -> list[T]:
        """Sends a streaming request and returns all its rows.

        Raises:
            RpcError: the stream ended in an error.
            NoInstanceError: the connection was lost.
        """
        return list(Stream(self, call))

    def _first(self, call: StreamCall[T]) -> T:
        with Stream(self, call) as rows:
            return next(rows)

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
        merge: OpenMerge[Key] = OpenMerge()
        try:
            for key, (topic, payload) in requests.items():
                tag = self._begin(inbox, raw_stream(topic, payload))
                merge.streams[tag] = key, topic
            while merge.streams:
                row = merge.take(self._receive(inbox))
                if row is not None:
                    yield row
        finally:
            for tag, (_key, topic) in merge.streams.items():
                self._leave(tag, topic)

    # --- messages

    def _begin(self, inbox: deque[Message], call: Call[Any] | StreamCall[Any]) -> int:
        """Sends a request whose responses go to `inbox`; returns its matchtag."""
        message = self._calls.request(inbox, call)
        tag = message.matchtag
        try:
            data = message.encode()
        except BaseException:
            self._calls.forget(tag)
            raise
        try:
            self._write(data)
        except BaseException:
            # The request is completed before the next one; the cancellation follows it.
            self._calls.leave(tag)
            if cancel := cancellation(call.topic, tag):
                self._unsent.append(memoryview(cancel.encode()))
            raise
        return tag

    def _leave(self, tag: int, topic: str) -> None:
        """Abandons a request, and cancels it if its topic has a cancellation."""
        # An inbox may be empty, and so false.
        if self._calls.leave(tag) is not None and (message := cancellation(topic, tag)):
            # Bytes that cannot be written now are written before the next request.
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
