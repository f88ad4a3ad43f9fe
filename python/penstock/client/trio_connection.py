"""A Trio connection to an instance: requests, streams, services and events."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from penstock._core import Decoder
from penstock.client import async_connection
from penstock.client.connection import (
    GREETING_TIMEOUT_S,
    READ_BYTES,
    rejection,
    silent,
    unreachable,
)
from penstock.client.server_identity import check_server
from penstock.paths import socket_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from penstock.client.async_connection import Encoding


async def open_socket(uri: str) -> trio.SocketStream:
    """Connects to an instance and reads its greeting (a status byte).

    Raises:
        NoInstanceError: no instance listens there, it rejects this user, or it is another user's.
        AddressError: the address is not a local one.
    """
    path = str(socket_of(uri))
    try:
        stream = await trio.open_unix_socket(path)
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise unreachable(uri, reason) from None
    try:
        check_server(stream.socket, uri)
        with trio.fail_after(GREETING_TIMEOUT_S):
            status = await stream.receive_some(1)
    except trio.TooSlowError:
        await trio.aclose_forcefully(stream)
        raise silent(uri) from None
    except trio.BrokenResourceError:
        status = b""
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    if status != b"\0":
        await trio.aclose_forcefully(stream)
        raise rejection(uri, status)
    return stream


class Connection(async_connection.Connection):
    """An open connection; see `penstock.aclient.connect`.

    Args:
        uri: the address of the instance.
        stream: the connected socket.
        encoding: the encoding of request payloads.
    """

    def __init__(self, uri: str, stream: trio.SocketStream, *, encoding: Encoding) -> None:
        super().__init__(uri, encoding=encoding)
        self._stream_socket = stream

    def _new_event(self) -> trio.Event:
        return trio.Event()

    async def _checkpoint(self) -> None:
        await trio.lowlevel.checkpoint()

    async def _sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)

    @asynccontextmanager
    async def _connect_again(self) -> AsyncIterator[Connection]:
        encoding: Encoding = "cbor" if self._cbor else "json"
        other = Connection(self.uri, await open_socket(self.uri), encoding=encoding)
        async with running(other):
            yield other

    async def _write(self) -> None:
        while True:
            data = await self._next_unsent()
            try:
                await self._stream_socket.send_all(data)
            except trio.BrokenResourceError as error:
                self._lose(error.__cause__)
                return

    async def _read(self) -> None:
        decoder = Decoder()
        try:
            while self._feed(decoder, await self._stream_socket.receive_some(READ_BYTES)):
                pass
        except trio.BrokenResourceError as error:
            self._lose(error.__cause__)


@asynccontextmanager
async def running(connection: Connection) -> AsyncIterator[None]:
    """Reads and writes a connection for the duration of the block, then closes it."""
    try:
        async with connection._stream_socket, trio.open_nursery() as nursery:
            nursery.start_soon(connection._read)
            nursery.start_soon(connection._write)
            try:
                yield
                # Flush what was given to `send`, unless the connection is lost.
                await connection._written.wait()
            finally:
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        # These tasks raise only what a handler raises: a single exception is the caller's own.
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise
    finally:
        connection._close()
