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


class _HeldMessages:
    """Queued messages of a connection that are not to be sent before a commit is durable."""

    def __init__(self) -> None:
        self.frames = bytearray()
        # Each batch, with whether it tells nothing that is uncommitted.
        self.batches: list[tuple[Batch, bool]] = []
        # Whether that is so of all batches.
        self.is_committed = True


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
        # Called when the client has read some.
        self.on_read: Callable[[], None] | None = None
        self.read = read
        self._write_now = write
        self._notify_writable = writable
        # Cancelling it disconnects the client.
        self.scope = trio.CancelScope()
        self._unsent = bytearray()
        # The messages since the last commit, and before it, until its sync has ended.
        self._held = _HeldMessages()
        self._syncing: _HeldMessages | None = None
        self._sending = 0
        # Whether nothing can be sent to it any longer.
        self._has_left = False
        self._wake = trio.Event()
        self._sent = trio.Event()

    @property
    def unsent(self) -> int:
        """Bytes that the client has not read."""
        syncing = 0 if self._syncing is None else len(self._syncing.frames)
        return len(self._unsent) + len(self._held.frames) + syncing + self._sending

    @property
    def is_closed(self) -> bool:
        """Whether the client is being disconnected."""
        return self.scope.cancel_called

    @property
    def is_writable(self) -> bool:
        """Whether the client has little unread."""
        return self.unsent <= BACKPRESSURE_BYTES

    def discard(self) -> None:
        """Disconnects the client; queued messages are not sent."""
        self._drop_unsent()
        self.scope.cancel()

    def _drop_unsent(self) -> None:
        self._unsent.clear()
        self._sending = 0
        self._held = _HeldMessages()
        self._syncing = None

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
        if self._has_left and not self.is_client:
            # Requests to it are answered with an error then.
            self.discard()
        if self.scope.cancel_called or self._has_left:
            return True
        # Checked before the batch is added: a client that reads may get a batch of any length.
        if self.unsent > MAX_UNSENT_BYTES:
            self.close_unread()
            return False
        held = self._held
        held.batches.append((batch, is_committed))
        held.is_committed &= is_committed
        frames = self._encode(batch)
        if held.frames:
            held.frames += frames
        else:
            held.frames = frames
        return True

    def _encode(self, batch: Batch) -> bytearray:
        return batch.encode_cbor() if self.cbor else batch.encode()

    def retract(self, errnum: int, text: str) -> Batch:
        """Sends errors in place of the responses that wait for a commit, and returns the errors.

        A client that was to get a request is a service, and is disconnected.
        """
        syncing = [] if self._syncing is None else self._syncing.batches
        batches = syncing + self._held.batches
        self._syncing, self._held = None, _HeldMessages()
        responses = Batch()
        for batch, is_committed in batches:
            if is_committed:
                self._unsent += self._encode(batch)
            else:
                responses.extend(batch)
        if any(message.kind == "request" for message in responses):
            self.discard()
            return Batch()
        errors = responses.errors_in_place(errnum, text)
        self._unsent += self._encode(errors)
        self._write_unsent()
        # Less is unsent, also if nothing was written.
        self._record_sent()
        return errors

    def hold_for_sync(self) -> bool:
        """Has the queued messages wait for a sync. Returns whether any have to."""
        if self._held.is_committed:
            self.flush()
            return False
        self._syncing, self._held = self._held, _HeldMessages()
        return True

    def flush_synced(self) -> None:
        """Writes the messages that waited for a sync."""
        if self._syncing is not None:
            self._release(self._syncing)
            self._syncing = None
            self._write_unsent()

    def flush_committed(self) -> bool:
        """Writes the queued messages if they tell nothing uncommitted, during a sync.

        Returns:
            Whether they do not: they are queued still.
        """
        if self._syncing is not None or not self._held.is_committed:
            return True
        self.flush()
        return False

    def flush(self) -> None:
        """Writes queued bytes as far as the socket takes them; `write` writes the rest."""
        if self._held.batches:
            held, self._held = self._held, _HeldMessages()
            self._release(held)
        self._write_unsent()

    def _release(self, held: _HeldMessages) -> None:
        if self._unsent:
            self._unsent += held.frames
        else:
            self._unsent = held.frames

    def _write_unsent(self) -> None:
        if self._unsent and self._sending == 0:
            sent = self._write_now(self._unsent[:WRITE_BYTES])
            if sent:
                del self._unsent[:sent]
                self._record_sent()
        if self._unsent:
            self._wake.set()

    async def write(self) -> None:
        """Writes queued bytes until cancelled, or until the client has left.

        The requests that it has sent before are read and served nevertheless.

        Raises:
            BrokenResourceError: the client serves requests, and has left.
        """
        try:
            while True:
                await self._wake.wait()
                self._wake = trio.Event()
                while self._unsent:
                    await self._send_unsent()
        except trio.BrokenResourceError:
            if not self.is_client:
                raise
            self._has_left = True
            self._drop_unsent()
            self._record_sent()
        finally:
            self._sent.set()

    async def _send_unsent(self) -> None:
        # A local variable of `write` would keep the bytes until the next ones come.
        data, self._unsent = memoryview(self._unsent), bytearray()
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
        if self.on_read is not None:
            self.on_read()
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
