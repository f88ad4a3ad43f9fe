"""A fake instance, for tests of the clients and the command line."""

from __future__ import annotations

import errno
import queue
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from penstock._core import Decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from penstock._core import Message

    Method = Callable[[Message], Iterable[Message]]


class FakeInstance:
    """Serves a Unix socket with a function from request to responses for each topic.

    Other topics get no response. `received` has every message. There is no scheduler to check jobs.
    """

    def __init__(self, path: Path, *, status: int = 0) -> None:
        self.uri = f"local://{path}"
        self.methods: dict[str, Method] = {
            "feasibility.check": lambda request: [request.respond(errnum=errno.ENOSYS)]
        }
        self.received: queue.Queue[Message] = queue.Queue()
        self._status = status
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def wait_for(self, topic: str) -> Message:
        """The next message with this topic; messages before it are skipped."""
        while True:
            message = self.received.get(timeout=60)
            if message.topic == topic:
                return message

    def hang_up(self) -> None:
        """Closes all connections."""
        for connection in self._connections:
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
                batch.normalise()
                for message in batch:
                    self.received.put(message)
                    for answer in self.methods.get(message.topic, lambda _: [])(message):
                        connection.sendall(answer.encode())
        except OSError:
            # The client has gone.
            return


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A fake instance, which PENSTOCK_URI names."""
    instance = FakeInstance(tmp_path / "fake")
    monkeypatch.setenv("PENSTOCK_URI", instance.uri)
    yield instance
    instance.close()


@pytest.fixture
def rejecting(tmp_path):
    """An instance that rejects every connection."""
    instance = FakeInstance(tmp_path / "rejecting", status=errno.EPERM)
    yield instance
    instance.close()


@pytest.fixture
def listing():
    """Returns a `job-list.list` of these rows."""

    def make(*rows):
        def method(request):
            limit = request.object()["max_entries"] or None
            if rows:
                yield request.respond({"jobs": rows[:limit]})
            yield request.respond(errnum=errno.ENODATA)

        return method

    return make


@pytest.fixture
def answers():
    """Returns a method that responds with a stream of payloads, then ENODATA."""

    def make(*payloads, errnum=errno.ENODATA, errtext=None):
        def method(request):
            yield from (request.respond(payload) for payload in payloads)
            yield request.respond(errnum=errnum, errtext=errtext)

        return method

    return make
