"""The scheduler as a process of its own, attached to an instance's socket.

It is the same scheduler that serves inside the daemon; here it has a connection of its own,
so it can be killed, replaced and watched like any process.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from penstock._core import Decoder, Scheduler
from penstock.client import connect

if TYPE_CHECKING:
    import socket

log = logging.getLogger("penstock.sched")

READ_SIZE = 256 * 1024


def run(uri: str | None = None, limit: int | None = None, *, grow: bool = True) -> int:
    """Schedules for the instance at `uri` until either ends.

    Args:
        uri: the instance's address; by default `PENSTOCK_URI`, else the default socket.
        limit: the most alloc requests to be outstanding at a time; no limit by default.
        grow: whether to ask for new ranks in the payload of `resource.acquire`, which has none in
            RFC 28: to be off for a Flux broker.

    Returns:
        An exit code: 0 when the instance has ended, 1 on a protocol error (RFC 27: a scheduler
        logs the error of hello or ready and exits).
    """
    with connect(uri) as connection:
        return _converse(connection, Scheduler(limit=limit, grow=grow))


def _converse(connection: socket.socket, scheduler: Scheduler) -> int:
    decoder = Decoder()
    scheduler.start()
    while True:
        if not _send(connection, scheduler):
            return 0
        if scheduler.failure is not None:
            return 1
        try:
            data = connection.recv(READ_SIZE)
        except ConnectionResetError:
            return 0
        if not data:
            return 0
        batch = decoder.feed(data)
        batch.normalise()
        scheduler.handle(batch)
        while scheduler.schedule(time.time()):
            if not _send(connection, scheduler):
                return 0


def _send(connection: socket.socket, scheduler: Scheduler) -> bool:
    for line in scheduler.take_log():
        log.info("%s", line)
    try:
        connection.sendall(scheduler.take_out().encode())
    except BrokenPipeError:
        return False
    return True
