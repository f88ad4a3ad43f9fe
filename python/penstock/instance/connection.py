"""The connection of a client to the broker: its unsent bytes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from penstock._core import Batch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


WRITE_BYTES = 256 * 1024
# Backpressure: producers of long responses pause while a client has more bytes than this unread.
BACKPRESSURE_BYTES = 1024 * 1024
# A client with more unread bytes is disconnected.
MAX_UNSENT_BYTES = 256 * 1024 * 1024


class Connection:
    """A client's connection: its unsent bytes and its payload encoding."""

    def __init__(
        self,
        stream: trio.abc.Stream,
        pid: int,
        uid: int,
        read: Callable[[int], Awaitable[bytes]],
        write: Callable[[bytearray], int],
        writable: Callable[[], None],
        report: Callable[..., None],
    ) -> None:
        self.stream = stream
        # Writes a line about the connection into the log.
        self.report = report
        self.pid = pid
        self.uid = uid
        # The user as whom it acts.
        self.userid = uid
        # Whether the limits of guests hold for it, the number of its messages that were routed, and
        # whether the last of them count as several.
        self.is_guest = False
        self.routed = 0
        self.is_charged = False
        self.cbor = False
        # Whether it serves no requests.
        self.is_client = True
        # Whether `writable` is to be called when little is unsent.
        self.is_awaited = False
        self.read = read
        self._write_now = write
        self._notify_writable = writable
        # Cancelling it disconnects the client.
        self.scope = trio.CancelScope()
        self._unsent = bytearray()
        # Of the bytes above, the first of a message that is not to be sent before a commit, and
        # these messages, each batch with whether it tells nothing that is uncommitted.
        self._uncommitted_start: int | None = None
        self._uncommitted: list[tuple[Batch, bool]] = []
        self._sending = 0
        self._wake = trio.Event()
        self._sent = trio.Event()

    @property
    def unsent(self) -> int:
        """Bytes that the client has not read."""
        return len(self._unsent) + self._sending

    @property
    def is_writable(self) -> bool:
        """Whether the client has little unread."""
        return self.unsent <= BACKPRESSURE_BYTES

    def discard(self) -> None:
        """Disconnects the client; queued messages are not sent."""
        self._unsent.clear()
        self.scope.cancel()

    def close_unread(self) -> None:
        """Disconnects a client because it leaves too much unread."""
        self.report(
            logging.WARNING,
            "closing the connection of pid %d: it leaves %d bytes unread",
            self.pid,
            self.unsent,
        )
        self.discard()

    def send(self, batch: Batch, *, is_committed: bool = False) -> bool:
        """Queues messages; disconnects a client that leaves too many bytes unread.

        Args:
            batch: the messages.
            is_committed: whether they tell nothing that is uncommitted: `retract` leaves them.

        Returns:
            Whether the client leaves no more unread than it may.
        """
        if self.scope.cancel_called:
            return True
        # Checked before the batch is added: a client that reads may get a batch of any length.
        if self.unsent > MAX_UNSENT_BYTES:
            self.close_unread()
            return False
        if self._uncommitted_start is None:
            self._uncommitted_start = len(self._unsent)
        self._uncommitted.append((batch, is_committed))
        self._append(batch)
        return True

    def _append(self, batch: Batch) -> None:
        frames = batch.encode_cbor() if self.cbor else batch.encode()
        if self._unsent:
            self._unsent += frames
        else:
            self._unsent = frames

    def retract(self, errnum: int, text: str) -> Batch:
        """Sends errors in place of the responses since the last commit, and returns the errors.

        A client that was to get a request is a service, and is disconnected.
        """
        uncommitted, self._uncommitted = self._uncommitted, []
        responses, committed = Batch(), []
        for batch, is_committed in uncommitted:
            if is_committed:
                committed.append(batch)
            else:
                responses.extend(batch)
        if any(message.kind == "request" for message in responses):
            self.discard()
            return Batch()
        if self._uncommitted_start is not None:
            del self._unsent[self._uncommitted_start :]
        for batch in committed:
            self._append(batch)
        errors = responses.errors_in_place(errnum, text)
        self._append(errors)
        self.flush()
        return errors

    def flush(self) -> None:
        """Writes queued bytes as far as the socket takes them; `write` writes the rest."""
        self._uncommitted_start = None
        self._uncommitted.clear()
        if self._unsent and self._sending == 0:
            sent = self._write_now(self._unsent[:WRITE_BYTES])
            if sent:
                del self._unsent[:sent]
                self._record_sent()
        if self._unsent:
            self._wake.set()

    async def write(self) -> None:
        """Writes queued bytes until cancelled."""
        try:
            while True:
                await self._wake.wait()
                self._wake = trio.Event()
                while self._unsent and self._uncommitted_start is None:
                    data, self._unsent = memoryview(self._unsent), bytearray()
                    await self._send_all(data)
        finally:
            self._sent.set()

    async def _send_all(self, data: memoryview) -> None:
        self._sending = len(data)
        while data:
            await self.stream.send_all(data[:WRITE_BYTES])
            data = data[WRITE_BYTES:]
            self._sending = len(data)
            self._record_sent()

    def _record_sent(self) -> None:
        if self.is_awaited and self.unsent <= BACKPRESSURE_BYTES:
            self.is_awaited = False
            self._notify_writable()
        self._sent.set()
        self._sent = trio.Event()

    async def wait_writable(self) -> None:
        """Returns when little is unsent."""
        # Messages posted just now are queued first.
        await trio.lowlevel.checkpoint()
        while self.unsent > BACKPRESSURE_BYTES and not self.scope.cancel_called:
            await self._sent.wait()

    async def wait_sent(self) -> None:
        """Returns when nothing is unsent."""
        while self.unsent and not self.scope.cancel_called:
            await self._sent.wait()
