"""Restarts of services within the daemon: after a fault they are attached to the broker again."""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING, Protocol

import trio

from penstock.errors import StoreError
from penstock.instance.failure import Failure
from penstock.instance.supervision import FAULTS, MAX_SHORT_RUNS, SUSPENSION_S, Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock._core import Batch
    from penstock.instance.broker import Broker

log = logging.getLogger("penstock")

# Seconds between attempts to write to the store.
OUTAGE_PAUSE_S = 1.0


class RestartedService(Protocol):
    """A service at the broker that can start again after a fault.

    Attributes:
        peer: the number of its current peer.
    """

    peer: int

    def deliver(self, batch: Batch) -> None:
        """As in `penstock.instance.broker.Service`."""

    def post_output(self, now: float) -> None:
        """As in `penstock.instance.broker.Service`."""

    def restart(self) -> None:
        """Returns to the initial state, as a new peer of the broker."""


class Restarts:
    """Attaches a service to the broker, and again with backoff whenever it has failed.

    Until its restart, a service with names answers EIO (`Broker.attach`). One without, such as the
    scheduler, disconnects at once: by that its peers learn of the failure (RFC 27, RFC 28).

    A service that fails again and again is suspended: it is restarted after a longer time only. A
    failure of the store is no failure of the service, which is restarted when the store can be
    written.

    Args:
        broker: the broker.
        service: the service.
        names: the first words of the topics that it serves.
        title: the name of a service without names, for the log and the broker's statistics.
        rebuild: replaces the state that a fault has left; it is called before the service is
            attached again.
        max_pause_s: the longest pause before a restart without a fault, in seconds.
        in_memory: as for `Broker.attach`.
        answer_on_failure: as for `Broker.attach`.
        on_failure: called with the fault at once.
        open_for_reading: called at once when the store has failed.
        is_reading: whether requests that change nothing are served since then.
        serve_reads: as for `Broker.attach`.
    """

    def __init__(
        self,
        broker: Broker,
        service: RestartedService,
        names: Iterable[str] = (),
        *,
        title: str = "",
        rebuild: Callable[[], None] | None = None,
        max_pause_s: float = OUTAGE_PAUSE_S,
        in_memory: bool = False,
        answer_on_failure: bool = False,
        on_failure: Callable[[BaseException], None] = lambda _: None,
        open_for_reading: Callable[[StoreError], None] | None = None,
        is_reading: Callable[[], bool] = lambda: False,
        serve_reads: Callable[[Batch], bool] | None = None,
    ) -> None:
        self._on_failure = on_failure
        self._open_for_reading = open_for_reading
        self._is_reading = is_reading
        self._serve_reads = serve_reads
        self._broker = broker
        self._service = service
        self._names = tuple(names)
        self._titles = self._names or (title,)
        self._rebuild = rebuild
        self._in_memory = in_memory
        self._answer_on_failure = answer_on_failure
        self._failed = trio.Event()
        self._faults = Backoff(broker.clock)
        # Of runs that have ended without a fault of the service.
        self._ends = Backoff(broker.clock, max_pause_s)
        self._has_fault = False
        # Why the service has failed last.
        self._fault: BaseException | None = None

    @property
    def failed(self) -> bool:
        """Whether the service has failed and is not yet restarted."""
        return self._failed.is_set()

    @property
    def failure(self) -> Failure | None:
        """Why the service is not served now, by a fault of its own or of the store."""
        return Failure.of(self._fault) if self.failed and self._fault is not None else None

    @property
    def is_disk_full(self) -> bool:
        """Whether the service has failed last because the disk of the store is full."""
        return isinstance(self._fault, StoreError) and self._fault.errno == errno.ENOSPC

    def fail(self, fault: BaseException) -> None:
        """Has the service restarted after a fault that its peer has at the broker."""
        self._fault = fault
        self._has_fault = not isinstance(fault, StoreError)
        self._failed.set()
        self._on_failure(fault)
        self._begin_outage()

    def fail_peer(self, fault: BaseException) -> None:
        """Has the service restarted after a fault that was found elsewhere."""
        self._broker.fail(self._service.peer, fault)

    def replace(self) -> None:
        """Has the service restarted without a fault, such as after one on which it depends."""
        if not self.failed:
            self._broker.replace(self._service.peer)
            self._has_fault = False
            self._fault = None
            self._failed.set()

    def start(self) -> None:
        """Attaches the service and starts it."""
        self._failed = trio.Event()
        self._service.peer = self._broker.attach(
            self._service,
            names=self._names,
            on_failure=self.fail,
            in_memory=self._in_memory,
            answer_on_failure=self._answer_on_failure,
            serve_reads=self._serve_reads,
        )
        self._service.restart()

    async def run(self) -> None:
        """Restarts the service until cancelled."""
        self._begin()
        while True:
            await self._failed.wait()
            if not self._names:
                self._broker.detach(self._service.peer)
            await self._pause()
            try:
                if self._rebuild is not None:
                    self._rebuild()
                self._broker.detach(self._service.peer)
                self.start()
            except FAULTS as fault:
                self._failed.set()
                if not self._is_same_outage(fault):
                    self.fail_peer(fault)
            else:
                log.info("service %s is restarted", type(self._service).__name__)
            self._begin()

    def _is_same_outage(self, fault: BaseException) -> bool:
        """Whether the store still cannot be written, for the same reason, and is read meanwhile."""
        return (
            isinstance(fault, StoreError)
            and isinstance(self._fault, StoreError)
            and fault.errno == self._fault.errno
            and self._is_reading()
        )

    def _begin_outage(self) -> None:
        if self._open_for_reading is None or not isinstance(self._fault, StoreError):
            return
        try:
            self._open_for_reading(self._fault)
        except FAULTS as fault:
            log.warning("the store cannot be read, either: %s", fault)

    def _begin(self) -> None:
        self._faults.begin()
        self._ends.begin()

    async def _pause(self) -> None:
        pause = (self._faults if self._has_fault else self._ends).end()
        if not self._has_fault or self._faults.short_runs < MAX_SHORT_RUNS:
            await trio.sleep(pause)
            return
        titles = ", ".join(self._titles)
        log.error(
            "%s: suspended for %g s after %d failures in a row",
            titles,
            SUSPENSION_S,
            self._faults.short_runs,
        )
        for title in self._titles:
            self._broker.set_suspended(title)
        try:
            await trio.sleep(SUSPENSION_S)
        finally:
            for title in self._titles:
                self._broker.clear_suspended(title)
