"""A scripted broker: a Unix socket at which a test answers requests."""

from __future__ import annotations

import errno
import queue
import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from penstock._core import Decoder
from penstock._core import topic as topics
from penstock.recording.file import read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock._core import Message

    Method = Callable[[Message], Iterable[Message]]

WAIT_S = 60


class FakeBroker:
    """Serves a Unix socket as `methods` say; requests with another topic get no response.

    Use it in a `with` block, or call `close`.

    Args:
        path: of the socket; by default in a temporary directory.
        status: the status byte that a client gets when it connects: an errno rejects it.

    Attributes:
        uri: The address, for `Client(uri)`, `PENSTOCK_URI` and `FLUX_URI`.
        methods: By topic, a function from the request to the responses, called in the thread of
            the connection. A client checks by `feasibility.check` whether a job can ever start:
            there is no such service here.
        received: The messages of clients, in the order of arrival.
    """

    def __init__(self, path: Path | None = None, *, status: int = 0) -> None:
        self._directory = None
        if path is None:
            self._directory = tempfile.TemporaryDirectory(prefix="penstock-")
            path = Path(self._directory.name) / "socket"
        self.uri = f"local://{path}"
        self.methods: dict[str, Method] = {}
        self.fail(topics.sched.FEASIBILITY_CHECK, errno.ENOSYS)
        self.received: queue.Queue[Message] = queue.Queue()
        self._status = status
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @classmethod
    def of_recording(cls, file: Path) -> FakeBroker:
        """A broker that answers each request as in a recording of `penstock record`.

        The responses of a topic are given in the order of its requests there; further requests get
        the last ones again.

        Raises:
            RecordingError: the file is not a recording.
            OSError: the file cannot be read.
        """
        broker = cls()
        for name, answers in _recorded_answers(file).items():
            broker.methods[name] = _in_turn(answers)
        return broker

    def respond(self, topic: str, *payloads: Any) -> None:
        """Answers requests with this topic: with a payload, or a stream of any number of them."""

        def method(request: Message) -> Iterator[Message]:
            yield from (request.respond(payload) for payload in payloads or [None])
            if request.streaming:
                yield request.respond(errnum=errno.ENODATA)

        self.methods[topic] = method

    def fail(self, topic: str, errnum: int, text: str | None = None) -> None:
        """Answers requests with this topic with an error."""
        self.methods[topic] = lambda request: [request.respond(errnum=errnum, errtext=text)]

    def wait_for(self, topic: str) -> Message:
        """The next message with this topic; messages before it are skipped.

        Raises:
            queue.Empty: there was none for a minute.
        """
        while True:
            message = self.received.get(timeout=WAIT_S)
            if message.topic == topic:
                return message

    def hang_up(self) -> None:
        """Closes all connections that there are now."""
        # A client whose connection is closed may have a new one before the last of these is.
        for connection in list(self._connections):
            connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes all connections and stops listening."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        for connection in self._connections:
            # It may have been ended already.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()
        for one in [self._listener, *self._connections]:
            one.close()
        if self._directory is not None:
            self._directory.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._threads.append(threading.Thread(target=self._serve, args=[connection]))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        decoder = Decoder()
        try:
            connection.sendall(bytes([self._status]))
            if self._status:
                connection.shutdown(socket.SHUT_RDWR)
                return
            while data := connection.recv(65536):
                batch = decoder.feed(data)
                if rejected := batch.normalise():
                    connection.sendall(rejected.encode())
                for message in batch:
                    self.received.put(message)
                    if method := self.methods.get(message.topic or ""):
                        for response in method(message):
                            connection.sendall(response.encode())
        except OSError:
            # The client has gone.
            return


def _recorded_answers(file: Path) -> dict[str, list[list[Message]]]:
    """By topic: the responses of each recorded request."""
    by_topic: dict[str, list[list[Message]]] = {}
    outstanding: dict[tuple[int, int], list[Message]] = {}
    for entry in read(file):
        message = entry.message
        if message is None:
            continue
        key = entry.connection, message.matchtag
        if entry.to_broker and message.kind == "request" and message.matchtag:
            outstanding[key] = []
            by_topic.setdefault(message.topic or "", []).append(outstanding[key])
        elif not entry.to_broker and message.kind == "response" and key in outstanding:
            outstanding[key].append(message)
    return by_topic


def _in_turn(answers: list[list[Message]]) -> Method:
    """A method that gives recorded responses to one request after the other."""
    left = answers[::-1]
    lock = threading.Lock()

    def method(request: Message) -> Iterator[Message]:
        with lock:
            recorded = left.pop() if len(left) > 1 else left[0]
        for each in recorded:
            is_text = each.error_text is not None
            yield request.respond(
                None if is_text or each.payload is None else each.object(),
                errnum=each.errnum,
                errtext=each.error_text,
                streaming=each.streaming,
            )

    return method
