"""The sockets of an instance: reads of connections that are busy."""

from __future__ import annotations

import socket
import threading
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

import trio
import trio.testing

from penstock.instance import sockets
from penstock.instance.sockets import LocalSockets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

WATCHDOG_S = 60
# These last longer than `MAX_LINGER_S`.
MAX_EXCHANGES = 50_000


@contextmanager
def echoing_client(path: Path) -> Iterator[socket.socket]:
    """A client that answers each byte with one, at once, until the connection ends."""

    def answer() -> None:
        with suppress(OSError):
            while data := client.recv(1):
                client.sendall(data)

    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield client
        finally:
            client.shutdown(socket.SHUT_RDWR)
            thread.join()


@asynccontextmanager
async def busy_connection(
    network: LocalSockets, path: Path
) -> AsyncIterator[tuple[trio.abc.Stream, socket.socket]]:
    """A watched connection whose client answers each byte, and the client's socket."""
    async with network.listen(path, mode=0o600) as listener:
        with echoing_client(path) as client:
            async with await listener.accept() as stream:
                network.watch(stream)
                yield stream, client


async def exchange_byte(network: LocalSockets, stream: trio.abc.Stream) -> None:
    assert network.write(stream, bytearray(b"x")) == 1
    assert await network.read(stream, 10) == b"x"


def test_a_busy_connection_is_read_without_the_event_loop(tmp_path, monkeypatch):
    # However long the client needs.
    monkeypatch.setattr(sockets, "LINGER_S", WATCHDOG_S)
    monkeypatch.setattr(sockets, "MAX_LINGER_S", WATCHDOG_S)
    waits = []
    wait_readable = trio.lowlevel.wait_readable

    async def wait(descriptor: int) -> None:
        waits.append(descriptor)
        await wait_readable(descriptor)

    async def scenario() -> None:
        network = LocalSockets()
        async with busy_connection(network, tmp_path / "socket") as (stream, client):
            monkeypatch.setattr(trio.lowlevel, "wait_readable", wait)
            for _ in range(5):
                await exchange_byte(network, stream)
            monkeypatch.undo()
            # The first one tells that the connection is busy.
            assert len(waits) == 1
            client.shutdown(socket.SHUT_RDWR)
            assert await network.read(stream, 10) == b""

    trio.run(scenario)


class NoWait:
    """Stands for the descriptors that are waited for without the event loop."""

    def poll(self, timeout: float) -> NoReturn:
        raise AssertionError(f"waited for {timeout} s")


def test_a_task_that_can_run_does_not_wait_for_a_busy_connection(tmp_path, monkeypatch):
    monkeypatch.setattr(sockets, "LINGER_S", WATCHDOG_S)
    monkeypatch.setattr(sockets, "MAX_LINGER_S", WATCHDOG_S)

    async def scenario() -> None:
        network = LocalSockets()
        async with busy_connection(network, tmp_path / "socket") as (stream, _):
            await exchange_byte(network, stream)

            async def write() -> None:
                assert network.write(stream, bytearray(b"y")) == 1

            monkeypatch.setattr(network, "_watched", NoWait())
            async with trio.open_nursery() as nursery:
                nursery.start_soon(write)
                # Nothing comes before the other task has written.
                assert await network.read(stream, 10) == b"y"

    trio.run(scenario)


def test_a_busy_connection_does_not_hold_up_what_is_due(tmp_path, monkeypatch):
    async def scenario() -> None:
        network = LocalSockets()
        async with busy_connection(network, tmp_path / "socket") as (stream, _):
            await exchange_byte(network, stream)
            monkeypatch.setattr(network, "_watched", NoWait())
            assert network.write(stream, bytearray(b"x")) == 1
            assert await network.read(stream, 10, is_idle=lambda: False) == b"x"

    trio.run(scenario)


def test_a_busy_connection_does_not_hold_up_other_descriptors_for_long(tmp_path, monkeypatch):
    monkeypatch.setattr(sockets, "LINGER_S", WATCHDOG_S)

    async def scenario() -> None:
        network = LocalSockets()
        ours, theirs = socket.socketpair()
        ours.settimeout(0)
        with ours, theirs:
            async with busy_connection(network, tmp_path / "socket") as (stream, _):
                is_read = False

                async def read_other() -> None:
                    nonlocal is_read
                    await trio.lowlevel.wait_readable(ours)
                    is_read = True

                async with trio.open_nursery() as nursery:
                    nursery.start_soon(read_other)
                    await exchange_byte(network, stream)
                    theirs.send(b"z")
                    for _ in range(MAX_EXCHANGES):
                        await exchange_byte(network, stream)
                        if is_read:
                            break
                    assert is_read

    trio.run(scenario)


def test_a_cancelled_task_reads_no_more_of_a_busy_connection(tmp_path, monkeypatch):
    monkeypatch.setattr(sockets, "LINGER_S", WATCHDOG_S)
    monkeypatch.setattr(sockets, "MAX_LINGER_S", WATCHDOG_S)

    async def scenario() -> None:
        network = LocalSockets()
        async with busy_connection(network, tmp_path / "socket") as (stream, _):
            await exchange_byte(network, stream)
            with trio.CancelScope() as scope:
                assert network.write(stream, bytearray(b"x")) == 1
                scope.cancel()
                await network.read(stream, 10)
            assert scope.cancelled_caught

    trio.run(scenario)


def test_a_busy_connection_does_not_hold_up_one_that_can_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr(sockets, "LINGER_S", WATCHDOG_S)
    monkeypatch.setattr(sockets, "MAX_LINGER_S", WATCHDOG_S)

    async def scenario() -> None:
        network = LocalSockets()
        async with (
            busy_connection(network, tmp_path / "first") as (first, client),
            busy_connection(network, tmp_path / "second") as (second, other),
        ):
            await exchange_byte(network, first)
            is_read = False

            async def read_other() -> None:
                nonlocal is_read
                await network.read(second, 1)
                is_read = True

            async with trio.open_nursery() as nursery:
                nursery.start_soon(read_other)
                await trio.testing.wait_all_tasks_blocked()
                client.sendall(b"x" * 10)
                other.sendall(b"y")
                for _ in range(10):
                    await network.read(first, 1)
                # Both could be read from the beginning.
                assert is_read

    trio.run(scenario)
