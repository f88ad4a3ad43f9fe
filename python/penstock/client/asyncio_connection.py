"""An asyncio connection to an instance: requests, streams, services and events."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

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


async def open_socket(uri: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connects to an instance and reads its greeting (a status byte).

    Raises:
        NoInstanceError: no instance listens there, it rejects this user, or it is another user's.
        AddressError: the address is not a local one.
    """
    path = str(socket_of(uri))
    try:
        reader, writer = await asyncio.open_unix_connection(path, limit=READ_BYTES)
    except OSError as error:
        raise unreachable(uri, error.strerror or error) from None
    try:
        check_server(writer.get_extra_info("socket"), uri)
        try:
            async with asyncio.timeout(GREETING_TIMEOUT_S):
                status = await reader.read(1)
        except TimeoutError:
            raise silent(uri) from None
        except ConnectionError:
            status = b""
        if status != b"\0":
            raise rejection(uri, status)
    except BaseException:
        await close(writer)
        raise
    # `drain` waits until the kernel has all bytes.
    writer.transport.set_write_buffer_limits(high=0)
    return reader, writer


async def close(writer: asyncio.StreamWriter) -> None:
    """Closes a socket without waiting for the other side."""
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()


class Connection(async_connection.Connection):
    """An open connection; see `penstock.aioclient.connect`.

    Args:
        uri: the address of the instance.
        reader: reads from the connected socket.
        writer: writes to it.
        encoding: the encoding of request payloads.
    """

    def __init__(
        self,
        uri: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        encoding: Encoding,
    ) -> None:
        super().__init__(uri, encoding=encoding)
        self._reader, self._writer = reader, writer

    def _new_event(self) -> asyncio.Event:
        return asyncio.Event()

    async def _checkpoint(self) -> None:
        await asyncio.sleep(0)

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    @asynccontextmanager
    async def _connect_again(self) -> AsyncIterator[Connection]:
        encoding: Encoding = "cbor" if self._cbor else "json"
        other = Connection(self.uri, *await open_socket(self.uri), encoding=encoding)
        async with running(other):
            yield other

    async def _write(self) -> None:
        while True:
            data = await self._next_unsent()
            try:
                self._writer.write(data)
                await self._writer.drain()
            except OSError as error:
                self._lose(error)
                return

    async def _read(self) -> None:
        decoder = Decoder()
        try:
            while self._feed(decoder, await self._reader.read(READ_BYTES)):
                pass
        except OSError as error:
            self._lose(error)


@asynccontextmanager
async def running(connection: Connection) -> AsyncIterator[None]:
    """Reads and writes a connection for the duration of the block, then closes it."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(connection._read()), group.create_task(connection._write())]
            try:
                yield
                # Flush what was given to `send`, unless the connection is lost.
                await connection._written.wait()
            finally:
                for task in tasks:
                    task.cancel()
    except BaseExceptionGroup as group_error:
        # These tasks raise only what a handler raises: a single exception is the caller's own.
        if len(group_error.exceptions) == 1:
            raise group_error.exceptions[0] from None
        raise
    finally:
        connection._close()
        await close(connection._writer)
