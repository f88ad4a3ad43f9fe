"""`Intake`: reads what clients send, as fast as it is served and in turns.

A round takes some messages of each connection, so few messages are not behind many of others.
Nothing more is read of a client that leaves much unread, or that is ahead of its open requests.
"""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING, Protocol

import trio

from penstock._core import Batch, Decoder
from penstock.errors import WireError
from penstock.instance.guests import GUEST_MESSAGES
from penstock.instance.requests import rejections

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.clock import Clock
    from penstock.instance.connection import Connection
    from penstock.instance.guests import GuestLimits, GuestServer
    from penstock.instance.quotas import Quotas
    from penstock.instance.system import Network

# A larger buffer is mapped and unmapped by the C library for each read.
READ_BYTES = 64 * 1024
# No more is read of a client that leaves more than this unread. It is disconnected when it leaves
# still more unread of what it has asked for, such as events.
UNREAD_BYTES = 64 << 20
# With more than this unread on the connections of the owner and of root together, no more is read
# of the connections among these that are not writable.
ALL_UNREAD_BYTES = 512 << 20
# Messages of the owner's connections that a round takes, some 10 ms of work, and those of each
# connection at least.
ROUND_MESSAGES = 512
MIN_PART_MESSAGES = 8
# Users count as present until this time after their last request, in seconds.
PRESENCE_S = 0.1


class Rounds(Protocol):
    """Routes messages in rounds: the broker."""

    def take_in(self, peer: int, batch: Batch, network: Network) -> None:
        """Routes messages of a client."""

    def is_posted(self, peer: int) -> bool:
        """Whether messages of a peer are still to be routed."""

    def respond(self, peer: int, responses: Batch) -> None:
        """Sends a client responses of the broker itself."""

    def route_of(self, peer: int) -> bytes:
        """The first hop of the routes of a peer's requests."""


class Intake:
    """Reads the messages of clients.

    Args:
        rounds: routes them.
        clock: the time.
        quotas: what each guest uses.
        guests: the limits of guests.
        connections: the connections of all users, by peer.
        servers: the PMIx servers of the jobs of guests, by peer.

    Attributes:
        received: the number of messages so far.
    """

    def __init__(
        self,
        rounds: Rounds,
        clock: Clock,
        quotas: Quotas,
        guests: GuestLimits,
        connections: Mapping[int, Connection],
        servers: Mapping[int, GuestServer],
    ) -> None:
        self._rounds = rounds
        self._clock = clock
        self._quotas = quotas
        self._guests = guests
        self._connections = connections
        self._servers = servers
        self.received = 0
        # Of connections of the owner, in this round.
        self._taken = 0
        # Connections of the owner with messages that are taken in later rounds.
        self._cut = 0
        # The tasks whose messages are posted for the next round.
        self._posted_tasks = trio.lowlevel.ParkingLot()
        # Whether the client with a route has to wait for its open requests, the connections of such
        # clients, and the tasks that read of them.
        self._is_ahead: Callable[[bytes], bool] = lambda _: False
        self._held_back: set[int] = set()
        self._held_back_tasks = trio.lowlevel.ParkingLot()
        # When each user has last sent something as a client, while that counts.
        self._requested_at: dict[int, float] = {}

    @property
    def held_back(self) -> int:
        """The number of connections of which no more is read until open requests have ended."""
        return len(self._held_back)

    def present_users(self) -> list[int]:
        """The users whose clients have sent something a moment ago."""
        since = self._clock.monotonic() - PRESENCE_S
        for user in [user for user, time in self._requested_at.items() if time < since]:
            del self._requested_at[user]
        return list(self._requested_at)

    def hold_back(self, is_ahead: Callable[[bytes], bool]) -> None:
        """Reads no more of a client while it is ahead of its open requests.

        Args:
            is_ahead: says whether the client with a route is ahead. It is called after each read,
                and after each `continue_reading`.
        """
        self._is_ahead = is_ahead
        self.continue_reading()

    def continue_reading(self) -> None:
        """Reads on of the clients that are no longer ahead of their open requests."""
        self._held_back_tasks.unpark_all()

    def end_round(self) -> None:
        """Takes more messages: a round has ended."""
        self._taken = 0
        self._posted_tasks.unpark_all()

    async def wait_routed(self, peer: int) -> None:
        """Returns when no messages of a peer are still to be routed."""
        while self._rounds.is_posted(peer):
            await self._posted_tasks.park()

    def count_unfinished(self, uid: int, number: int, size: int) -> str | None:
        """Sets the bytes that a guest's peer has sent of an unfinished message.

        It disconnects the peers with too much.

        Returns:
            The limit for which this peer is disconnected.
        """
        while (excess := self._quotas.set_unfinished(uid, number, size)) is not None:
            self._quotas.set_unfinished(excess.uid, excess.number, 0)
            remote = self._connections.get(excess.number)
            server = self._servers.get(excess.number)
            if remote is not None:
                text = "closing the connection of pid %d: %s"
                remote.report(logging.WARNING, text, remote.pid, excess.problem)
                remote.discard()
            if server is not None:
                server.close(excess.problem)
            if excess.number == number:
                return excess.problem
        return None

    async def read(self, number: int, peer: Connection, network: Network) -> None:
        """Reads and routes what a client sends, until it disconnects or sends a malformed frame."""
        decoder = Decoder()
        had_unfinished = False
        while data := await peer.read(READ_BYTES):
            malformed = None
            if peer.is_guest:
                decoder.set_message_limit(self._quotas.message_bytes)
            try:
                batch = decoder.feed(data)
            except WireError as error:
                # The messages before the malformed frame are valid, wherever the chunk begins.
                batch, malformed = error.messages or Batch([]), error
            oversized = decoder.take_oversized()
            if oversized:
                problem = self._quotas.reject_messages(len(oversized))
                responses = Batch(rejections(oversized, errno.EMSGSIZE, problem))
                self._rounds.respond(number, responses)
            count = len(batch) + len(oversized)
            if batch.has_cbor():
                peer.cbor = True
                if rejected := batch.normalise():
                    self._rounds.respond(number, rejected)
            if peer.is_guest and (had_unfinished or decoder.pending):
                had_unfinished = decoder.pending > 0
                if self.count_unfinished(peer.uid, number, decoder.pending) is not None:
                    return
            self.received += count
            if peer.is_client:
                self._requested_at[peer.userid] = self._clock.monotonic()
            if peer.is_guest:
                self._quotas.count_requests(peer.uid, count)
                await self._take_turns(number, peer, batch, network)
            else:
                await self._take_parts(number, batch, network)
            if malformed is not None:
                peer.report(
                    logging.WARNING, "closing the connection of pid %d: %s", peer.pid, malformed
                )
                return
            await self._wait_to_read(number, peer)
            if peer.is_guest and (pause := self._quotas.pause(peer.uid)):
                await trio.sleep(pause)

    async def _take_parts(self, number: int, batch: Batch, network: Network) -> None:
        """Routes what a client of the owner has sent: in parts, if others have sent much, too."""
        first, is_cut = 0, False
        try:
            while True:
                share = ROUND_MESSAGES // (1 + self._cut - is_cut)
                size = min(share, ROUND_MESSAGES - self._taken)
                part = batch[first : first + max(size, MIN_PART_MESSAGES)]
                first += len(part)
                self._taken += len(part)
                self._rounds.take_in(number, part, network)
                if first >= len(batch):
                    return
                self._cut += not is_cut
                is_cut = True
                await self.wait_routed(number)
                await trio.lowlevel.checkpoint()
        finally:
            self._cut -= is_cut

    async def _take_turns(
        self, number: int, peer: Connection, batch: Batch, network: Network
    ) -> None:
        """Routes what a guest has sent, in turns: others are served in between.

        It waits while the guest leaves too much unread, on whichever connection, and after long
        responses.
        """
        first = 0
        while first < len(batch):
            await self._guests.wait_read(peer.uid)
            routed = peer.routed
            self._rounds.take_in(number, batch[first : first + GUEST_MESSAGES], network)
            while peer.routed == routed:
                await self._posted_tasks.park()
            first += peer.routed - routed
            if peer.is_charged:
                peer.is_charged = False
                await trio.sleep(self._quotas.pause(peer.uid))
            else:
                await trio.lowlevel.checkpoint()

    async def _wait_to_read(self, number: int, peer: Connection) -> None:
        """Returns when more is to be read of a peer, so that the daemon's memory stays bounded.

        Until then it leaves much unread, or has many open requests that are done in slices.
        """
        if self._leaves_much_unread(peer):
            await peer.wait_writable()
        try:
            while self._is_ahead(self._rounds.route_of(number)):
                self._held_back.add(number)
                await self._held_back_tasks.park()
        finally:
            self._held_back.discard(number)

    def _leaves_much_unread(self, peer: Connection) -> bool:
        """Whether a client leaves much unread, or some while all clients leave very much."""
        if not peer.is_client or peer.is_writable:
            return False
        if peer.unsent > UNREAD_BYTES:
            return True
        if peer.is_guest:
            return False
        unread = (remote.unsent for remote in self._connections.values() if not remote.is_guest)
        return sum(unread) > ALL_UNREAD_BYTES
