"""A socket that passes the messages of clients on to an instance, and records them."""

from __future__ import annotations

import errno
import socket
import threading
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Self

from penstock.client.connection import connect
from penstock.errors import Error

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.recording.file import Recorder

READ_BYTES = 256 * 1024


class Proxy:
    """Listens at a socket for the length of a `with` block.

    To the instance each client is a process of this user: the proxy's.

    Args:
        uri: the instance's address.
        path: where to listen.
        recorder: gets what passes.
        complain: called with the reason when a client cannot be connected to the instance.

    Raises:
        OSError: the socket cannot be made.
    """

    def __init__(
        self, uri: str, path: Path, recorder: Recorder, complain: Callable[[str], None]
    ) -> None:
        self.uri = f"local://{path}"
        self._instance = uri
        self._path = path
        self._recorder = recorder
        self._complain = complain
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listener.bind(str(path))
            path.chmod(0o600)
        except BaseException:
            self._listener.close()
            raise
        self._listener.listen()
        # The sockets of both sides by connection, to be ended with the block.
        self._open: dict[int, tuple[socket.socket, socket.socket]] = {}
        self._accepting = threading.Thread(target=self._accept)
        self._serving: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        for one in chain(*list(self._open.values())):
            _end(one)
        for thread in self._serving:
            thread.join()
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        number = 0
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            number += 1
            server = self._connect(client)
            if server is None:
                client.close()
                continue
            self._open[number] = client, server
            self._recorder.connect(number)
            self._serving = [thread for thread in self._serving if thread.is_alive()]
            self._serving.append(threading.Thread(target=self._serve, args=[number]))
            self._serving[-1].start()

    def _connect(self, client: socket.socket) -> socket.socket | None:
        """Connects a client to the instance, and greets it."""
        server = None
        try:
            server = connect(self._instance)
        except Error as error:
            self._complain(str(error))
        # The client may have gone.
        with suppress(OSError):
            client.sendall(b"\0" if server else bytes([errno.EHOSTUNREACH]))
        return server

    def _serve(self, number: int) -> None:
        client, server = self._open[number]
        responses = threading.Thread(target=self._pass_responses, args=(number, server, client))
        responses.start()
        with suppress(OSError):
            while data := client.recv(READ_BYTES):
                self._recorder.add(number, data, to_broker=True)
                server.sendall(data)
        _end(server)
        responses.join()
        self._recorder.disconnect(number)
        client.close()
        server.close()
        del self._open[number]

    def _pass_responses(self, number: int, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(READ_BYTES):
                self._recorder.add(number, data, to_broker=False)
                client.sendall(data)
        _end(client)


def _end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
