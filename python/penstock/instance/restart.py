"""Restarts of services within the daemon: after a fault they are attached to the broker again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

import trio

from penstock.instance.supervision import FAULTS, Backoff

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock._core import Batch
    from penstock.instance.broker import Broker

log = logging.getLogger("penstock")


class RestartedService(Protocol):
    """A service at the broker that can start again after a fault.

    Attributes:
        peer: the number of its current peer.
    """

    peer: int

    def deliver(self, batch: Batch) -> None:
        """As in `penstock.instance.broker.Service`."""

    def settle(self, now: float) -> None:
        """As in `penstock.instance.broker.Service`."""

    def restart(self) -> None:
        """Returns to the initial state, as a new peer of the broker."""


class Restarts:
    """Attaches a service to the broker, and again with backoff whenever it has failed.

    Until its restart, a service with names answers EIO (`Broker.attach`). One without, such as the
    scheduler, disconnects at once: by that its peers learn of the failure (RFC 27, RFC 28).

    Args:
        broker: the broker.
        service: the service.
        names: the first words of the topics that it serves.
        transient: as for `Broker.attach`.
    """

    def __init__(
        self,
        broker: Broker,
        service: RestartedService,
        names: Iterable[str] = (),
        *,
        transient: bool = False,
    ) -> None:
        self._broker = broker
        self._service = service
        self._names = tuple(names)
        self._transient = transient
        self._failed = trio.Event()

    @property
    def failed(self) -> bool:
        """Whether the service has failed and is not yet restarted."""
        return self._failed.is_set()

    def fail(self) -> None:
        """Marks the service as failed."""
        self._failed.set()

    def start(self) -> None:
        """Attaches the service and starts it."""
        self._failed = trio.Event()
        self._service.peer = self._broker.attach(
            self._service,
            names=self._names,
            on_failure=self.fail,
            transient=self._transient,
        )
        self._service.restart()

    async def run(self) -> None:
        """Restarts the service until cancelled."""
        backoff = Backoff(self._broker.clock)
        while True:
            await self._failed.wait()
            if self._names:
                await backoff.pause()
                self._broker.detach(self._service.peer)
            else:
                self._broker.detach(self._service.peer)
                await backoff.pause()
            backoff.begin()
            try:
                self.start()
            except FAULTS:
                log.exception("service %s cannot start", type(self._service).__name__)
                self.fail()
