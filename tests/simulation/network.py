"""Connections of a simulation: they split what is read, take writes in part, and end at a kill."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import trio
from simulatedsystem import DAEMON_PID, OWNER, SimulatedNetwork

from penstock.aclient import NoInstanceError

if TYPE_CHECKING:
    from collections.abc import Callable

# The daemon's reads of a few bytes: one in this many.
SHORT_READS = 3


class Pipe:
    """Bytes on their way from one end of a connection to the other.

    Args:
        capacity: the most bytes that are unread.
    """

    def __init__(self, capacity: float) -> None:
        self._capacity = capacity
        self._data = bytearray()
        self._changed = trio.Event()
        self.is_closed = False

    def put(self, data: bytes | bytearray | memoryview) -> int:
        """Takes as many bytes as fit; returns their number."""
        if self.is_closed:
            raise trio.BrokenResourceError
        count = int(min(len(data), self._capacity - len(self._data)))
        if count:
            self._data += data[:count]
            self._report_change()
        return count

    def take(self, size: int) -> bytes:
        """Returns at most `size` bytes, none if there is none."""
        taken = bytes(self._data[:size])
        if taken:
            del self._data[:size]
            self._report_change()
        return taken

    def close(self) -> None:
        """Takes no more bytes; those on their way can be read."""
        self.is_closed = True
        self._report_change()

    async def wait_for_change(self) -> None:
        """Returns after the next change."""
        await self._changed.wait()

    def _report_change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


class End(trio.abc.Stream):
    """One end of a connection.

    Args:
        incoming: what it reads.
        outgoing: what it writes.
    """

    def __init__(self, incoming: Pipe, outgoing: Pipe) -> None:
        self.incoming = incoming
        self.outgoing = outgoing

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Sends all bytes, as the other end reads them."""
        await trio.lowlevel.checkpoint()
        rest = memoryview(data)
        while rest:
            rest = rest[self.outgoing.put(rest) :]
            if rest:
                await self.outgoing.wait_for_change()

    async def wait_send_all_might_not_block(self) -> None:
        """Returns at once."""
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Returns the next bytes, none at the end."""
        await trio.lowlevel.checkpoint()
        while True:
            if data := self.incoming.take(65536 if max_bytes is None else max_bytes):
                return data
            if self.incoming.is_closed:
                return b""
            await self.incoming.wait_for_change()

    def close(self) -> None:
        """Closes the connection."""
        self.incoming.close()
        self.outgoing.close()

    async def aclose(self) -> None:
        """Closes the connection."""
        self.close()
        await trio.lowlevel.checkpoint()


class FaultyNetwork(SimulatedNetwork):
    """Sockets in memory that deliver in parts.

    Args:
        draws: for the decisions about each read and write.
        capacity: the bytes that fit into the socket of a client that does not read.
    """

    def __init__(self, draws: random.Random, capacity: int) -> None:
        super().__init__()
        self._draws = draws
        self._capacity = capacity
        self._uids: dict[trio.abc.Stream, int] = {}
        self._draws_of: dict[trio.abc.Stream, random.Random] = {}
        self._ends: list[End] = []

    def connect_now(self, uri: str, pid: int = DAEMON_PID, uid: int = OWNER) -> End | None:
        """Connects a process of a user; returns its end, None if nothing listens."""
        listener = self._listener(uri)
        if listener is None:
            return None
        to_daemon, to_client = Pipe(float("inf")), Pipe(self._capacity)
        end, other = End(to_client, to_daemon), End(to_daemon, to_client)
        self._pids[other], self._uids[other] = pid, uid
        # Of its own: the order in which the daemon writes to clients depends on addresses.
        self._draws_of[other] = random.Random(self._draws.getrandbits(32))
        self._ends += [end, other]
        listener.offer(other)
        return end

    async def open(self, uri: str, pid: int = DAEMON_PID) -> trio.abc.Stream:
        """Connects a process to an instance; returns the client's end, which it has accepted."""
        end = self.connect_now(uri, pid)
        if end is None or await end.receive_some(1) != b"\0":
            raise NoInstanceError(f"no instance at `{uri}`")
        return end

    def credentials(self, stream: trio.abc.Stream) -> tuple[int, int]:
        """The process that has connected, and its user."""
        return self._pids[stream], self._uids[stream]

    async def read(
        self, stream: trio.abc.Stream, size: int, is_idle: Callable[[], bool] = lambda: True
    ) -> bytes:
        """Reads what is there, or a few bytes of it."""
        draws = self._draws_of[stream]
        if draws.randrange(SHORT_READS) == 0:
            size = draws.randint(1, 64)
        return await stream.receive_some(size)

    def has_input(self) -> bool:
        """Whether the messages wait for the next round."""
        return self._draws.random() < 0.5

    def write(self, stream: trio.abc.Stream, data: bytearray) -> int:
        """Writes all, a part, or nothing."""
        assert isinstance(stream, End)
        if stream.outgoing.is_closed:
            return 0
        return stream.outgoing.put(data[: self._draws_of[stream].choice((0, 1, 20, len(data)))])

    def kill(self) -> None:
        """Ends all connections, as the kernel does when the daemon has ended."""
        for listener in self._listeners.values():
            listener.is_open = False
        for end in self._ends:
            end.close()
        self._ends.clear()
