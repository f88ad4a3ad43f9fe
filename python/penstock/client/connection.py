"""A blocking connection to an instance: requests and streams."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import struct
import time
from collections import deque
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from penstock._core import Decoder, Message
from penstock.client.outstanding import OpenStream, Outstanding, cancellation
from penstock.client.repeating import pauses
from penstock.client.server_identity import check_server
from penstock.errors import Error, NoInstanceError, RpcError
from penstock.paths import default_uri, socket_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType
    from typing import Self

    from penstock.client.calls import AnyCall, CallBatch, CallSequence, Pipeline

T = TypeVar("T")

READ_BYTES = 256 * 1024
# The longest wait for a server that accepts the connection and greets, in seconds.
GREETING_TIMEOUT_S = 60.0


def connect(uri: str | None = None) -> socket.socket:
    """Connects to an instance and reads its greeting (a status byte).

    Args:
        uri: `local:///path` or `local://USER@/path`; by default `$PENSTOCK_URI`, else the default
            socket.

    Raises:
        NoInstanceError: no instance listens there, it rejects this user, or it is another user's.
        AddressError: the address is not a local one.
    """
    uri = uri or default_uri()
    path = str(socket_of(uri))
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _limit_waits(connection, GREETING_TIMEOUT_S)
        connection.connect(path)
        check_server(connection, uri)
        status = connection.recv(1)
        _limit_waits(connection, 0.0)
    except Error:
        connection.close()
        raise
    except BlockingIOError:
        connection.close()
        raise silent(uri) from None
    except OSError as error:
        connection.close()
        raise unreachable(uri, error.strerror or error) from None
    if status != b"\0":
        connection.close()
        raise rejection(uri, status)
    return connection


def _limit_waits(connection: socket.socket, seconds: float) -> None:
    """Limits the waits of the kernel; 0 is no limit.

    With `settimeout`, `connect` would fail at once if the server has many connections to accept.
    """
    whole = int(seconds)
    limit = struct.pack("ll", whole, int((seconds - whole) * 1e6))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)


def silent(uri: str) -> NoInstanceError:
    """The error that a server does not greet."""
    return NoInstanceError(
        f"the server at `{uri}` has not greeted within {GREETING_TIMEOUT_S:g} s: it is stopped, or "
        "is no instance"
    )


def unreachable(uri: str, reason: object) -> NoInstanceError:
    """The error that no instance can be reached at an address."""
    if reason == os.strerror(errno.EACCES):
        return NoInstanceError(
            f"no access to the instance at `{uri}`: {reason}\n"
            "hint: its owner can admit other users: `access.allow-guest-user`; or set PENSTOCK_URI"
        )
    return NoInstanceError(
        f"no instance at `{uri}`: {reason}\n"
        "hint: start one with `penstock start`, or set PENSTOCK_URI"
    )


def rejection(uri: str, status: bytes) -> NoInstanceError:
    """The error that an instance rejects this user, by the status byte of its greeting."""
    reason = os.strerror(status[0]) if status else "it closed the connection"
    if status == bytes([errno.EMFILE]):
        reason = "there are too many connections of this user, or of all guests"
    return NoInstanceError(f"the instance at `{uri}` rejected the connection: {reason}")


class Stream(OpenStream[T]):
    """The rows of one or more streaming requests, one by one, until their good end.

    The requests are sent when the stream is created. `close`, the end of a `with` block and garbage
    collection close it early, and so does an exception from within the iteration (`RpcError`,
    `NoInstanceError`, `TimeoutError`, `KeyboardInterrupt`); the instance is then sent a
    cancellation.
    """

    def __init__(self, connection: Connection, calls: Iterable[AnyCall[T]]) -> None:
        super().__init__()
        self._connection = connection
        self._inbox: deque[Message] = deque()
        try:
            for call in calls:
                self.add(call)
        except BaseException:
            self.close()
            raise

    def add(self, call: AnyCall[T]) -> None:
        """Sends a further request."""
        self._open[self._connection._begin(self._inbox, call)] = call

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        while not self._rows:
            if not self._open:
                raise StopIteration
            try:
                self._take(self._connection._receive(self._inbox))
            except BaseException:
                self.close()
                raise
        return self._rows.popleft()

    def _leave(self, tag: int, topic: str) -> None:
        self._connection._leave(tag, topic)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Connection:
    """A connection to an instance, for one thread at a time.

    A call that times out or is interrupted leaves it usable: a partly written request is completed
    before the next one, and late responses are dropped.

    A submission whose connection is lost before the response is sent again with the same token for
    30 seconds, on a new connection that takes the place of the lost one, unless a stream is open.

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
        # Readable after a signal, within `waking_on_signals`.
        self._signals: int | None = None

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

    @property
    def timeout(self) -> float | None:
        """Seconds to wait for each message; None for no limit."""
        return self._socket.gettimeout()

    @timeout.setter
    def timeout(self, seconds: float | None) -> None:
        self._socket.settimeout(seconds)

    @contextmanager
    def waking_on_signals(self) -> Iterator[None]:
        """Has every signal wake a wait for a message, so that its handler runs at once.

        Without it a signal that comes just before the wait begins, or to another thread, is handled
        with the next message. For the main thread alone; it takes `signal.set_wakeup_fd`.
        """
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            # A full pipe wakes as well.
            before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
            self._signals = reader
            try:
                yield
            finally:
                self._signals = None
                signal.set_wakeup_fd(before)
        finally:
            os.close(reader)
            os.close(writer)

    # --- requests, as `Methods` sends them

    def _first(self, call: AnyCall[T]) -> T:
        if not call.is_idempotent:
            return self._first_once(call)
        return self._repeated(partial(self._first_once, call))

    def _repeated(self, send: Callable[[], T]) -> T:
        """Calls a function that sends idempotent requests, again if the connection is lost."""
        try:
            return send()
        except NoInstanceError:
            if self._calls.inboxes() or self._socket.fileno() < 0:
                raise
        for pause in pauses():
            time.sleep(pause)
            with suppress(NoInstanceError):
                self._reconnect()
                return send()
        self._reconnect()
        return send()

    def _first_once(self, call: AnyCall[T]) -> T:
        with Stream(self, [call]) as rows:
            return next(rows)

    def _reconnect(self) -> None:
        """Puts a new connection in the place of a lost one, on which nothing is awaited."""
        new = connect(self.uri)
        new.settimeout(self.timeout)
        self._socket.close()
        self._socket = new
        self._decoder = Decoder()
        self._calls.clear()
        self._unsent.clear()

    def _collect(self, batch: CallBatch[T]) -> T:
        return batch.read(list(Stream(self, batch.calls)))

    def _do_all(self, sequence: CallSequence[T]) -> T:
        return sequence.read([self._first(call) for call in sequence.calls])

    def _pipe(self, pipeline: Pipeline[T]) -> T:
        return self._repeated(partial(self._pipe_once, pipeline))

    def _pipe_once(self, pipeline: Pipeline[T]) -> T:
        results: list[Any] = []
        with Stream[Any](self, ()) as rows:
            try:
                for call in pipeline.calls:
                    if rows.in_flight >= pipeline.in_flight:
                        results.append(next(rows))
                    rows.add(call)
                results.extend(rows)
            except RpcError as error:
                return pipeline.read(error)
        return pipeline.read(results)

    def _stream(self, calls: Iterable[AnyCall[T]]) -> Stream[T]:
        return Stream(self, calls)

    # --- messages

    def _begin(self, inbox: deque[Message], call: AnyCall[Any]) -> int:
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
            raise self._lost_error(error) from None
        finally:
            self._writing = False

    def _lost_error(self, error: OSError | None = None) -> NoInstanceError:
        reason = f": {error.strerror or error}" if error else ""
        return NoInstanceError(f"the instance at `{self.uri}` closed the connection{reason}")

    def _receive(self, inbox: deque[Message]) -> Message:
        """The next message for an inbox; messages for others go to theirs."""
        while not inbox:
            if self._signals is not None:
                self._wait_with_signals(self._signals)
            try:
                data = self._socket.recv(READ_BYTES)
            except TimeoutError:
                raise
            except OSError as error:
                raise self._lost_error(error) from None
            if not data:
                raise self._lost_error()
            for message in self._decoder.feed(data):
                waiting = self._calls.deliver(message)
                if waiting is not None:
                    waiting.append(message)
        return inbox.popleft()

    def _wait_with_signals(self, signals: int) -> None:
        """Waits until there is something to read; handlers of signals run in between."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(signals, select.POLLIN)
        timeout = self._socket.gettimeout()
        while True:
            ready = [descriptor for descriptor, _ in poll.poll(timeout and timeout * 1000)]
            if signals in ready:
                os.read(signals, READ_BYTES)
            if self._socket.fileno() in ready:
                return
            if not ready:
                raise TimeoutError("timed out")
