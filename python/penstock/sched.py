"""The scheduler as a process of its own, attached to an instance's socket.

It is the same scheduler that serves inside the daemon; here it has a connection of its own,
so it can be killed, replaced and watched like any process.
"""

from __future__ import annotations

import logging
import select
from typing import TYPE_CHECKING

from penstock._core import Decoder, Scheduler
from penstock.client import connect
from penstock.clock import SystemClock

if TYPE_CHECKING:
    import socket

    from penstock.clock import Clock

log = logging.getLogger("penstock.sched")

READ_BYTES = 256 * 1024


def run(
    uri: str | None = None, limit: int | None = None, *, grow: bool = True, settings: str = "{}"
) -> int:
    """Schedules for the instance at `uri` until either ends.

    Args:
        uri: the instance's address; by default `PENSTOCK_URI`, else the default socket.
        limit: the most alloc requests to be outstanding at a time; no limit by default.
        grow: whether to ask for new ranks in the payload of `resource.acquire`, which has none in
            RFC 28: to be off for a Flux broker.
        settings: `policy`, `selection`, `overlong`, `annotate` as JSON, as they are called in the
            configuration; what is left out has its default.

    Returns:
        An exit code: 0 when the instance has ended, 1 on a protocol error (RFC 27: a scheduler
        logs the error of hello or ready and exits).
    """
    with connect(uri) as connection:
        scheduler = Scheduler(limit=limit, grow=grow, settings=settings)
        return _converse(connection, scheduler, SystemClock())


def _converse(connection: socket.socket, scheduler: Scheduler, clock: Clock) -> int:
    decoder = Decoder()
    scheduler.start()
    while True:
        if not _send(connection, scheduler):
            return 0
        if scheduler.failure is not None:
            return 1
        try:
            if scheduler.deadline is not None:
                delay = max(0.0, scheduler.deadline - clock.now())
                if not _is_readable_within(connection, delay):
                    now, began = clock.now(), clock.monotonic()
                    scheduler.annotate(now)
                    scheduler.defer_annotations(now, clock.monotonic() - began)
                    continue
            data = connection.recv(READ_BYTES)
        except ConnectionResetError:
            return 0
        if not data:
            return 0
        batch = decoder.feed(data)
        batch.normalise()
        scheduler.handle(batch)
        while scheduler.schedule(clock.now()):
            if not _send(connection, scheduler):
                return 0


def _is_readable_within(connection: socket.socket, delay: float) -> bool:
    """Whether there is something to read within `delay` seconds."""
    return bool(select.select([connection], [], [], delay)[0])


def _send(connection: socket.socket, scheduler: Scheduler) -> bool:
    for line in scheduler.take_log():
        log.info("%s", line)
    try:
        connection.sendall(scheduler.take_out().encode())
    except BrokenPipeError:
        return False
    return True
