"""The service manager (systemd) that has started the daemon: sd_notify(3) without a library."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Mapping

# The variables by which systemd tells a service how to notify it.
VARIABLES = frozenset(["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"])


class ServiceManager:
    """Tells the service manager that the daemon is ready, alive and stopping, if there is one.

    Args:
        environment: of the daemon: `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`.
        pid: the daemon's process id.
    """

    def __init__(self, environment: Mapping[str, str], pid: int) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        # A leading `@` stands for the NUL of an abstract socket.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._interval_s: float | None = None
        if environment.get("WATCHDOG_PID", str(pid)) == str(pid):
            with suppress(ValueError):
                # Half of the time, as sd_watchdog_enabled(3) recommends.
                self._interval_s = int(environment.get("WATCHDOG_USEC", "")) / 2e6

    def notify(self, state: str) -> None:
        """Sends a state, such as `READY=1`; without a service manager it does nothing."""
        if not self._address.startswith(("/", "\0")):
            return
        flags = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
        with suppress(OSError), socket.socket(socket.AF_UNIX, flags) as sender:
            sender.sendto(os.fsencode(state), socket.MSG_DONTWAIT, os.fsencode(self._address))

    async def keep_alive(self) -> None:
        """Resets the watchdog for as long as tasks of the daemon are run."""
        while self._interval_s:
            self.notify("WATCHDOG=1")
            await trio.sleep(self._interval_s)
