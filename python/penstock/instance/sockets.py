"""The network of a real instance: Unix sockets, and TCP at loopback addresses."""

from __future__ import annotations

import math
import os
import select
import socket
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import trio

from penstock.aclient import connect
from penstock.client.server_identity import peer_credentials
from penstock.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from penstock.aclient import Client
    from penstock.clock import Clock

LISTEN_BACKLOG = 1024
# A connection whose next message came within this time is read without the event loop, which costs
# more than a small message: other descriptors of the loop have to wait for so long, in seconds,
LINGER_S = 0.001
# and at most for so long when one message follows the other.
MAX_LINGER_S = 0.005


class LocalSockets:
    """The `Network` of this machine.

    Args:
        clock: tells which connections are busy.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._watched = select.epoll()
        # The descriptors of the connections whose last message came soon.
        self._busy: set[int] = set()
        # When a task has last waited in the event loop.
        self._waited_at = 0.0

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

    async def read(
        self, stream: trio.abc.Stream, size: int, is_idle: Callable[[], bool] = lambda: True
    ) -> bytes:
        assert isinstance(stream, trio.SocketStream)
        descriptor = stream.socket.fileno()
        began = self._clock.monotonic()
        while True:
            if not (is_idle() and self._becomes_readable(descriptor, began)):
                await trio.lowlevel.wait_readable(descriptor)
                self._waited_at = self._clock.monotonic()
                if self._waited_at - began <= LINGER_S:
                    self._busy.add(descriptor)
                else:
                    self._busy.discard(descriptor)
            try:
                return os.read(descriptor, size)
            except BlockingIOError:
                pass
            except OSError as error:
                raise trio.BrokenResourceError from error

    def _becomes_readable(self, descriptor: int, now: float) -> bool:
        """Waits for a moment, without the event loop, until a busy connection can be read.

        Does not wait if another task could run meanwhile. A connection that cannot be read then, or
        not that one alone, is waited for in the event loop.
        """
        if descriptor not in self._busy or now - self._waited_at > MAX_LINGER_S:
            return False
        if trio.current_effective_deadline() == -math.inf:
            # The task is cancelled.
            return False
        loop = trio.lowlevel.current_statistics()
        if loop.tasks_runnable or loop.seconds_to_next_deadline <= LINGER_S:
            return False
        ready = self._watched.poll(LINGER_S)
        return [other for other, _ in ready] == [descriptor]

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
