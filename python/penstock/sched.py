"""The scheduler as a process of its own, attached to an instance's socket.

It is the same scheduler that serves inside the daemon; here it has a connection of its own,
so it can be killed, replaced and watched like any process.
"""

from __future__ import annotations

import contextlib
import logging
import select
import signal
import socket
from typing import TYPE_CHECKING

from penstock._core import Decoder, Scheduler
from penstock.client import connect
from penstock.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock._core import Batch
    from penstock.clock import Clock

log = logging.getLogger("penstock.sched")

READ_BYTES = 256 * 1024


def run(
    uri: str | None = None, limit: int | None = None, *, grow: bool = True, settings: str = "{}"
) -> int:
    """Schedules for the instance at `uri` until either ends, or until SIGTERM or SIGINT.

    Such a signal unregisters the services first, so that another scheduler can start afterwards.

    Args:
        uri: the instance's address; by default `PENSTOCK_URI`, else the default socket.
        limit: the most alloc requests to be outstanding at a time; no limit by default.
        grow: whether to ask for new ranks in the payload of `resource.acquire`, which has none in
            RFC 28: to be off for a Flux broker.
        settings: `policy`, `selection`, `overlong`, `annotate` as JSON, as they are called in the
            configuration; what is left out has its default.

    Returns:
        An exit code: 0 when the instance has ended or after a signal, 1 on a protocol error (RFC
        27: a scheduler logs the error of hello or ready and exits).
    """
    with connect(uri) as connection, _stop_signals() as stop:
        scheduler = Scheduler(limit=limit, grow=grow, settings=settings)
        return _converse(connection, scheduler, SystemClock(), stop)


@contextlib.contextmanager
def _stop_signals() -> Iterator[socket.socket]:
    """A socket that becomes readable at SIGTERM or SIGINT; the second one ends the process."""
    near, far = socket.socketpair()
    signals = (signal.SIGTERM, signal.SIGINT)

    def handle(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)

    with near, far:
        far.setblocking(False)  # noqa: FBT003 - socket's signature
        wakeup = signal.set_wakeup_fd(far.fileno())
        before = [signal.signal(number, handle) for number in signals]
        try:
            yield near
        finally:
            for number, handler in zip(signals, before, strict=True):
                signal.signal(number, handler)
            signal.set_wakeup_fd(wakeup)


def _readable(sources: list[socket.socket], delay: float | None) -> list[socket.socket]:
    """The sources that are readable within `delay` seconds."""
    return select.select(sources, [], [], delay)[0]


def _converse(
    connection: socket.socket,
    scheduler: Scheduler,
    clock: Clock,
    stop: socket.socket,
    readable: Callable[[list[socket.socket], float | None], list[socket.socket]] = _readable,
) -> int:
    """Runs a scheduler until `stop` is readable or the connection ends."""
    decoder = Decoder()
    scheduler.start()
    watched = [connection, stop]
    is_registered = has_more = False
    while True:
        if not _send(connection, scheduler):
            return 0
        if not is_registered and scheduler.phase not in ("registering", "failed"):
            is_registered = True
            log.debug("registered")
        if scheduler.failure is not None:
            return 1
        if scheduler.phase == "stopped":
            return 0
        sources = readable(watched, 0.0 if has_more else _delay(scheduler, clock))
        if stop in sources:
            watched.remove(stop)
            scheduler.stop()
        if connection in sources:
            try:
                data = connection.recv(READ_BYTES)
            except ConnectionResetError:
                return 0
            if not data:
                return 0
            batch = decoder.feed(data)
            rejected = batch.normalise()
            if rejected and not _send_messages(connection, rejected):
                return 0
            scheduler.handle(batch)
        # Estimates are made in parts, with the messages of others between them.
        has_more = scheduler.schedule(clock.now())
        if _delay(scheduler, clock) == 0:
            now, began = clock.now(), clock.monotonic()
            scheduler.annotate(now)
            scheduler.defer_annotations(now, clock.monotonic() - began)


def _delay(scheduler: Scheduler, clock: Clock) -> float | None:
    """Seconds until the scheduler's deadline; None without one."""
    deadline = scheduler.deadline
    return None if deadline is None else max(0.0, deadline - clock.now())


def _send(connection: socket.socket, scheduler: Scheduler) -> bool:
    level = logging.INFO if scheduler.failure is None else logging.ERROR
    for line in scheduler.take_log():
        log.log(level, "%s", line)
    return _send_messages(connection, scheduler.take_out())


def _send_messages(connection: socket.socket, messages: Batch) -> bool:
    """Sends messages; False if the instance has ended."""
    try:
        connection.sendall(messages.encode())
    except (BrokenPipeError, ConnectionResetError):
        # Linux reports a reset to a sender that waited for room when the instance ended.
        return False
    return True
