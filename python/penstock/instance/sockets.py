"""The network of a real instance: Unix sockets, and TCP at loopback addresses."""

from __future__ import annotations

import os
import select
import socket
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import trio

from penstock.aclient import connect
from penstock.client.server_identity import peer_credentials

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from penstock.aclient import Client

LISTEN_BACKLOG = 1024


class LocalSockets:
    """The `Network` of this machine."""

    def __init__(self) -> None:
        self._watched = select.epoll()

    @asynccontextmanager
    async def listen(
        self, path: Path, *, mode: int
    ) -> AsyncIterator[trio.abc.Listener[trio.abc.Stream]]:
        listener = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with listener:
            await listener.bind(str(path))
            await trio.Path(path).chmod(mode)
            listener.listen(LISTEN_BACKLOG)
            own = await trio.Path(path).lstat()
            try:
                yield trio.SocketListener(listener)
            finally:
                _remove_own(path, own)

    @asynccontextmanager
    async def listen_tcp(
        self, address: str, port: int
    ) -> AsyncIterator[trio.abc.Listener[trio.abc.Stream]]:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = trio.socket.socket(family, socket.SOCK_STREAM)
        with listener:
            # Connections of the instance before may still be closing.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            await listener.bind((address, port))
            listener.listen(LISTEN_BACKLOG)
            yield trio.SocketListener(listener)

    def credentials(self, stream: trio.abc.Stream) -> tuple[int, int]:
        assert isinstance(stream, trio.SocketStream)
        pid, uid, _gid = peer_credentials(stream.socket)
        return pid, uid

    async def read(self, stream: trio.abc.Stream, size: int) -> bytes:
        assert isinstance(stream, trio.SocketStream)
        while True:
            await trio.lowlevel.wait_readable(stream.socket)
            try:
                return os.read(stream.socket.fileno(), size)
            except BlockingIOError:
                pass
            except OSError as error:
                raise trio.BrokenResourceError from error

    def watch(self, stream: trio.abc.Stream) -> None:
        assert isinstance(stream, trio.SocketStream)
        # Closing a socket removes it.
        self._watched.register(stream.socket.fileno(), select.EPOLLIN)

    def has_input(self) -> bool:
        return bool(self._watched.poll(0, 1))

    def write(self, stream: trio.abc.Stream, data: bytearray) -> int:
        assert isinstance(stream, trio.SocketStream)
        try:
            return os.write(stream.socket.fileno(), data)
        except OSError:
            return 0

    def connect(self, uri: str) -> AbstractAsyncContextManager[Client]:
        return connect(uri)


def _remove_own(path: Path, own: os.stat_result) -> None:
    """Removes the socket, unless another file has taken its place."""
    with suppress(FileNotFoundError):
        if os.path.samestat(path.lstat(), own):
            path.unlink()
