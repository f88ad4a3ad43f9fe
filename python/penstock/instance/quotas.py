"""Quotas: the connections, unfinished messages and request rates of guests.

The owner, and root, have none. The numbers of outstanding requests are counted by the `Router`,
those of jobs by the job manager.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.config import Quota

if TYPE_CHECKING:
    from penstock.clock import Clock

# Of long responses, each of these bytes counts as a request.
RESPONSE_BYTES = 32 * 1024
# The greatest share of the time that requests take beyond their turns.
GUEST_SHARE = 0.2
# File descriptors that guests leave to the daemon and the owner, apart from those of hooks.
OWNER_DESCRIPTORS = 64
# A guest is not served for this long after requests that services have failed at, as many as this
# within that time, in seconds. A service that fails more often is suspended for all.
MAX_FAILURES = 3
REJECTION_S = 600.0
# The most hooks that run at once, and the file descriptors of one while it is started.
MAX_RUNNING_HOOKS = 64
HOOK_DESCRIPTORS = 8


def reserved_descriptors(limit: int) -> int:
    """The file descriptors that guests leave, for the owner and for hooks: at most half of them.

    Args:
        limit: the most files that the daemon may open.
    """
    wanted = OWNER_DESCRIPTORS + MAX_RUNNING_HOOKS * HOOK_DESCRIPTORS
    return max(OWNER_DESCRIPTORS, min(wanted, limit // 2))


def max_running_hooks(limit: int) -> int:
    """The hooks that may run at once with the file descriptors that guests leave.

    Args:
        limit: the most files that the daemon may open.
    """
    return max(1, (reserved_descriptors(limit) - OWNER_DESCRIPTORS) // HOOK_DESCRIPTORS)


@dataclass(frozen=True)
class Excess:
    """A limit that is exceeded, and the peer that is to be disconnected for it."""

    uid: int
    number: int
    problem: str


@dataclass
class _Usage:
    """The use that one guest makes of the instance."""

    connections: int = 0
    # Bytes of unfinished messages, by connection, and of all of these connections.
    unfinished: dict[int, int] = field(default_factory=dict)
    unfinished_bytes: int = 0
    # Requests that may be sent at once, as of a time; negative if there were too many.
    allowance: float = 0.0
    counted_at: float = 0.0


class Quotas:
    """Counts what each guest uses, and what was rejected.

    Args:
        clock: the time.
        descriptor_limit: the most files that the daemon may open.
    """

    def __init__(self, clock: Clock, descriptor_limit: int) -> None:
        self._clock = clock
        self._max_connections = max(1, descriptor_limit - reserved_descriptors(descriptor_limit))
        self._settings = Quota()
        self._usage: dict[int, _Usage] = {}
        self._connections = 0
        self._unfinished_bytes = 0
        self._rejected = {
            "connections": 0,
            "message_bytes": 0,
            "unfinished_bytes": 0,
            "all_unfinished_bytes": 0,
        }
        self._delayed = 0
        # The times at which services have failed at a guest's requests, the newest last.
        self._failures: dict[int, list[float]] = {}

    def set_settings(self, settings: Quota) -> None:
        """Applies changed limits from now on."""
        self._settings = settings

    def add_connection(self, uid: int) -> str | None:
        """Counts a guest's new connection.

        Returns:
            The limit that it would exceed, for the log; it is not counted then.
        """
        if self.is_rejected(uid):
            self._rejected["connections"] += 1
            return f"services have failed at {MAX_FAILURES} of its requests"
        used = self._usage[uid].connections if uid in self._usage else 0
        limit = self._settings.connections
        problem = None
        if 0 <= limit <= used:
            problem = f"{used} connections, expected at most {limit} (penstock.quota.connections)"
        elif self._connections >= self._max_connections:
            problem = f"all guests have {self._connections} connections: the rest is the owner's"
        if problem is not None:
            self._rejected["connections"] += 1
            return problem
        usage = self._usage.setdefault(uid, self._new_usage())
        usage.connections += 1
        self._connections += 1
        return None

    def count_failure(self, uid: int) -> None:
        """Counts a failure of a service at a request of a guest."""
        now = self._clock.monotonic()
        for other, times in list(self._failures.items()):
            if times[-1] + REJECTION_S <= now:
                del self._failures[other]
        self._failures[uid] = [*self._failures.get(uid, []), now][-MAX_FAILURES:]

    def is_rejected(self, uid: int) -> bool:
        """Whether a guest is not served now, because services have failed at its requests."""
        times = self._failures.get(uid, [])
        recent = [time for time in times if time + REJECTION_S > self._clock.monotonic()]
        return len(recent) >= MAX_FAILURES

    def remove_connection(self, uid: int, number: int) -> None:
        """Forgets a guest's connection, which was counted."""
        usage = self._usage[uid]
        self._count_unfinished(usage, number, 0)
        usage.connections -= 1
        self._connections -= 1
        # The rate counts for a second after the last connection.
        for other in [uid for uid, each in self._usage.items() if self._is_idle(each)]:
            del self._usage[other]

    def set_unfinished(self, uid: int, number: int, size: int) -> Excess | None:
        """Sets the bytes that a guest's peer has sent of an unfinished message.

        Args:
            uid: the guest.
            number: the connection, or the PMIx server of a job.
            size: the bytes.

        Returns:
            The limit that they exceed, for the log: the guest's own, or that of all guests, for
            which the largest of the guest with the most in all is to be disconnected.
        """
        usage = self._usage.setdefault(uid, self._new_usage())
        self._count_unfinished(usage, number, size)
        if size == 0:
            return None
        total, limit = usage.unfinished_bytes, self._settings.unfinished_bytes
        if 0 <= limit < total:
            self._rejected["unfinished_bytes"] += 1
            problem = (
                f"unfinished messages of {total} bytes, expected at most {limit} "
                "(penstock.quota.unfinished-bytes)"
            )
            return Excess(uid, number, problem)
        total, limit = self._unfinished_bytes, self._settings.all_unfinished_bytes
        if 0 <= limit < total:
            self._rejected["all_unfinished_bytes"] += 1
            problem = (
                f"unfinished messages of all guests of {total} bytes, expected at most {limit} "
                "(penstock.quota.all-unfinished-bytes)"
            )
            greatest, usage = max(self._usage.items(), key=lambda item: item[1].unfinished_bytes)
            largest, _ = max(usage.unfinished.items(), key=lambda item: item[1])
            return Excess(greatest, largest, problem)
        return None

    def _count_unfinished(self, usage: _Usage, number: int, size: int) -> None:
        change = size - usage.unfinished.pop(number, 0)
        if size:
            usage.unfinished[number] = size
        usage.unfinished_bytes += change
        self._unfinished_bytes += change

    @property
    def message_bytes(self) -> int:
        """The greatest size of one message."""
        return self._settings.message_bytes

    def reject_messages(self, count: int) -> str:
        """Counts messages that are too large.

        Returns:
            The limit that they exceed, for the responses.
        """
        self._rejected["message_bytes"] += count
        limit = self._settings.message_bytes
        return f"expected a message of at most {limit} bytes (penstock.quota.message-bytes)"

    def count_requests(self, uid: int, count: int, size: int = 0) -> None:
        """Counts requests of a guest, and the bytes of long ones."""
        self._spend(uid, max(count, size / RESPONSE_BYTES))

    def charge(self, uid: int, size: int, seconds: float) -> None:
        """Counts requests that have led to much as several.

        Args:
            uid: the guest.
            size: the bytes of the responses.
            seconds: the time that the requests have taken beyond a turn.
        """
        share = seconds * self._settings.request_rate / GUEST_SHARE
        self._spend(uid, max(size / RESPONSE_BYTES, share))

    def pause(self, uid: int) -> float:
        """The seconds until a guest's next request may be read; 0 for at once."""
        usage = self._usage.setdefault(uid, self._new_usage())
        self._refill(usage)
        if usage.allowance >= 0:
            return 0.0
        return -usage.allowance / self._settings.request_rate

    def stats(self) -> dict[str, object]:
        """The use that guests make of the instance, and how often a limit was reached."""
        return {
            "connections": self._connections,
            "unfinished_bytes": self._unfinished_bytes,
            "rejected": dict(self._rejected),
            "delayed": self._delayed,
        }

    def _new_usage(self) -> _Usage:
        rate = float(self._settings.request_rate)
        return _Usage(allowance=rate, counted_at=self._clock.monotonic())

    def _spend(self, uid: int, requests: float) -> None:
        if self._settings.request_rate > 0:
            usage = self._usage.setdefault(uid, self._new_usage())
            self._refill(usage)
            usage.allowance -= requests
            self._delayed += usage.allowance < 0

    def _refill(self, usage: _Usage) -> None:
        """Adds what the time since the last count permits, up to the requests of a second."""
        now, rate = self._clock.monotonic(), float(self._settings.request_rate)
        # Requests that were counted under a limit are forgotten when there is none.
        spent = usage.allowance if rate else 0.0
        usage.allowance = min(rate, spent + (now - usage.counted_at) * rate)
        usage.counted_at = now

    def _is_idle(self, usage: _Usage) -> bool:
        if usage.connections or usage.unfinished:
            return False
        self._refill(usage)
        return usage.allowance >= self._settings.request_rate
