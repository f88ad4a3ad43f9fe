"""Virtual time: the clock of an instance under Trio's mock clock, or under a test's control."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from penstock.clock import SystemClock
from penstock.instance.broker import Broker

if TYPE_CHECKING:
    from penstock.clock import Clock

# An arbitrary time in 2027.
EPOCH = 1_800_000_000.0


class VirtualClock:
    """The clock of an instance whose tasks run under a `trio.testing.MockClock`.

    Args:
        clock: the mock clock.
        epoch: the time at which it stands at 0, seconds since the epoch.
    """

    def __init__(self, clock: Any, epoch: float = EPOCH) -> None:
        self._clock = clock
        self._epoch = epoch

    def set(self, step: float) -> None:
        """Sets the clock forward, or back, by some seconds."""
        self._epoch += step

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._epoch + self._clock.current_time()

    def monotonic(self) -> float:
        """Seconds since some fixed time."""
        return self._clock.current_time()


class SteppedClock:
    """A clock that stands still until a test moves it.

    Args:
        time: seconds since the epoch.
    """

    def __init__(self, time: float = EPOCH) -> None:
        self.time = time

    def now(self) -> float:
        """Seconds since the epoch."""
        return self.time

    def monotonic(self) -> float:
        """Seconds since some fixed time."""
        return self.time


def make_broker(owner: int, clock: Clock | None = None, *, only_guests: bool = False) -> Broker:
    """A broker, by default on the system's clock; root may be a guest."""
    return Broker(
        owner=owner,
        pid=os.getpid(),
        clock=clock or SystemClock(),
        random_bytes=os.urandom,
        allow_guests=only_guests,
        allow_root=not only_guests,
    )
