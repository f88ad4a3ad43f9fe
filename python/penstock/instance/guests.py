"""Limits of guests at the broker: their turns, what they leave unread, and their failures."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from penstock._core import Batch
    from penstock.instance.connection import Connection
    from penstock.instance.quotas import Quotas

log = logging.getLogger("penstock.broker")

# A guest's turn, after which others are served: messages, the size of the payloads that follow from
# them, and seconds. The last message may exceed the latter two.
GUEST_MESSAGES = 64
GUEST_RESPONSE_BYTES = 256 * 1024
GUEST_TURN_S = 0.005
# No more is read of a guest who leaves more than this unread, on all connections together.
GUEST_UNREAD_BYTES = 32 << 20
# With more than this unread on all connections of a guest together, as by streams, or on those of
# all guests, those with the most are closed. Connections with less than the last do not count.
MAX_GUEST_UNREAD_BYTES = 128 << 20
MAX_ALL_GUESTS_UNREAD_BYTES = 512 << 20
LITTLE_UNREAD_BYTES = 256 << 10


class GuestPeer(Protocol):
    """A guest's connection, or the PMIx server of one of its jobs.

    Attributes:
        uid: the guest.
        routed: the number of its messages that were routed.
        is_charged: whether the last of them count as several.
    """

    uid: int
    routed: int
    is_charged: bool

    @property
    def unsent(self) -> int:
        """Bytes that it has not read."""

    @property
    def is_closed(self) -> bool:
        """Whether it is being disconnected."""

    def close_unread(self) -> None:
        """Disconnects it because it leaves too much unread."""


@dataclass(eq=False)
class GuestServer:
    """The PMIx server of a guest's job.

    Attributes:
        disconnect: disconnects it, for a reason.
    """

    uid: int
    disconnect: Callable[[str], None]
    routed: int = 0
    is_charged: bool = False
    unsent: int = 0
    is_closed: bool = False

    def close(self, reason: str) -> None:
        """Disconnects it."""
        self.is_closed = True
        self.disconnect(reason)

    def close_unread(self) -> None:
        """Disconnects it because it leaves too much unread."""
        self.close(f"it leaves {self.unsent} bytes unread")


def _unread(peers: Iterable[GuestPeer]) -> int:
    return sum(peer.unsent for peer in peers)


def _bound_unread(peers: Iterable[GuestPeer], most: int) -> int:
    open_peers = [peer for peer in peers if not peer.is_closed]
    unread, closed = _unread(open_peers), 0
    if unread > most:
        open_peers.sort(key=lambda peer: peer.unsent)
    while unread > most:
        largest = open_peers.pop()
        unread -= largest.unsent
        largest.close_unread()
        closed += 1
    return closed


class GuestLimits:
    """Applies the limits of guests to their connections, and to the PMIx servers of their jobs.

    Args:
        quotas: what each guest uses.
        connections: the connections of all users, by peer.
        servers: the PMIx servers of the jobs of guests, by peer.
    """

    def __init__(
        self,
        quotas: Quotas,
        connections: Mapping[int, Connection],
        servers: Mapping[int, GuestServer],
    ) -> None:
        self._quotas = quotas
        self._connections = connections
        self._servers = servers
        # The tasks that wait until a guest has read more.
        self._waiting: dict[int, trio.lowlevel.ParkingLot] = {}

    def charge_turn(self, remote: GuestPeer, size: int, seconds: float) -> bool:
        """Ends the turn of a guest whose requests have led to much, which count as several.

        Args:
            remote: the guest's peer.
            size: the bytes of the responses in this turn.
            seconds: the length of this turn.

        Returns:
            Whether the turn has ended.
        """
        if size <= GUEST_RESPONSE_BYTES and seconds <= GUEST_TURN_S:
            return False
        remote.is_charged = True
        self._quotas.charge(remote.uid, size, max(0.0, seconds - GUEST_TURN_S))
        return True

    async def wait_read(self, uid: int) -> None:
        """Returns when a guest leaves little unread on all of its connections together."""
        while self._leaves_much_unread(uid):
            lot = self._waiting.setdefault(uid, trio.lowlevel.ParkingLot())
            await lot.park()

    def record_read(self, uid: int) -> None:
        """Wakes the tasks that wait until a guest leaves less unread, if it does now."""
        if uid in self._waiting and not self._leaves_much_unread(uid):
            self._waiting.pop(uid).unpark_all()

    def _leaves_much_unread(self, uid: int) -> bool:
        remotes = [remote for remote in self._connections.values() if remote.uid == uid]
        if _unread(remotes) <= GUEST_UNREAD_BYTES:
            return False
        return any(not remote.is_writable for remote in remotes if not remote.is_closed)

    def bound_unread(self, uid: int) -> int:
        """Closes the peers that leave the most unread, of a guest or of all guests.

        Returns:
            The number of peers that it has closed.
        """
        guests: list[GuestPeer] = [each for each in self._connections.values() if each.is_guest]
        guests.extend(self._servers.values())
        closed = _bound_unread((peer for peer in guests if peer.uid == uid), MAX_GUEST_UNREAD_BYTES)
        return closed + _bound_unread(guests, MAX_ALL_GUESTS_UNREAD_BYTES)

    def blame(self, batch: Batch) -> None:
        """Counts a failure for the guest who alone has sent the messages at which it happened.

        One whose requests fail again and again is disconnected, before a service is suspended.
        """
        messages = [batch[index] for index in range(len(batch))]
        userids = {message.userid for message in messages}
        if len(userids) != 1 or any(message.has_owner_role for message in messages):
            return
        uid = userids.pop()
        self._quotas.count_failure(uid)
        if self._quotas.is_rejected(uid):
            log.warning("user %d: disconnected: services have failed at its requests", uid)
            for remote in list(self._connections.values()):
                if remote.is_guest and remote.uid == uid:
                    remote.discard()

    def stats(self, rejections: dict[str, int]) -> dict[str, object]:
        """The statistics of guests.

        Args:
            rejections: the numbers of requests that the router has rejected.
        """
        stats = self._quotas.stats()
        rejected = stats["rejected"]
        assert isinstance(rejected, dict)
        rejected.update(rejections)
        return stats
