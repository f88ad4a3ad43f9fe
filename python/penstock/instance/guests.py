"""Limits of guests at the broker: their turns, what they leave unread, and their failures."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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


def _unread(remotes: Iterable[Connection]) -> int:
    return sum(remote.unsent for remote in remotes)


def _bound_unread(remotes: Iterable[Connection], most: int) -> int:
    open_remotes = [remote for remote in remotes if not remote.scope.cancel_called]
    unread, closed = _unread(open_remotes), 0
    if unread > most:
        open_remotes.sort(key=lambda remote: remote.unsent)
    while unread > most:
        largest = open_remotes.pop()
        unread -= largest.unsent
        largest.close_unread()
        closed += 1
    return closed


class GuestLimits:
    """Applies the limits of guests to their connections.

    Args:
        quotas: what each guest uses.
        connections: the connections of all users, by peer.
    """

    def __init__(self, quotas: Quotas, connections: Mapping[int, Connection]) -> None:
        self._quotas = quotas
        self._connections = connections

    def charge_turn(self, remote: Connection, size: int, seconds: float) -> bool:
        """Ends the turn of a guest whose requests have led to much, which count as several.

        Args:
            remote: the connection.
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

    def most_unread(self, uid: int) -> Connection | None:
        """A guest's connection with the most unread, if it is to be waited for."""
        remotes = [remote for remote in self._connections.values() if remote.uid == uid]
        if _unread(remotes) <= GUEST_UNREAD_BYTES:
            return None
        largest = max(remotes, key=lambda remote: remote.unsent)
        return None if largest.is_writable or largest.scope.cancel_called else largest

    def bound_unread(self, uid: int) -> int:
        """Closes the connections that leave the most unread, of a guest or of all guests.

        Returns:
            The number of connections that it has closed.
        """
        guests = [remote for remote in self._connections.values() if remote.is_guest]
        closed = _bound_unread(
            (remote for remote in guests if remote.uid == uid), MAX_GUEST_UNREAD_BYTES
        )
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
