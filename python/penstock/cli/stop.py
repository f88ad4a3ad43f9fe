"""`penstock stop`: ends an instance."""

from __future__ import annotations

import os
import select
import socket
import struct
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from penstock.client import Client, connect
from penstock.errors import NoInstanceError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

SUMMARY = """Stop the instance, and return when its daemon has ended.

Running jobs are cancelled; pending jobs stay for the next start with the same state. With
--keep-running the jobs of `--exec local` and of `penstock exec` continue, and the next start with
the same state reattaches them."""


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument(
        "--keep-running", action="store_true", help="do not cancel running jobs: they continue"
    )


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    with Client() as client, DaemonProcess.of(client.uri) as daemon:
        # The daemon may end before its response is read.
        with suppress(NoInstanceError):
            client.shutdown(keep_running=args.keep_running)
        daemon.wait()
    return 0


class DaemonProcess:
    """The daemon at the other end of a connection.

    Args:
        connection: a connection to it.
        process: a descriptor of its process; None if that is not visible here, as in a container.
    """

    def __init__(self, connection: socket.socket, process: int | None) -> None:
        self._connection = connection
        self._process = process

    @classmethod
    @contextmanager
    def of(cls, uri: str) -> Iterator[DaemonProcess]:
        """The daemon that listens at an address."""
        with connect(uri) as connection:
            size = struct.calcsize("3i")
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
            (pid, _, _) = struct.unpack("3i", credentials)
            process = os.pidfd_open(pid) if pid > 0 else None
            try:
                yield cls(connection, process)
            finally:
                if process is not None:
                    os.close(process)

    def wait(self) -> None:
        """Returns when the process has ended; if it is not visible, when it closes the socket."""
        if self._process is not None:
            select.select([self._process], [], [])
        else:
            self.wait_for_close()

    def wait_for_close(self) -> None:
        """Returns when the daemon has closed the connection."""
        with suppress(ConnectionError):
            while self._connection.recv(1):
                pass

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        if self._process is None:
            return False
        ready, _, _ = select.select([self._process], [], [], 0)
        return bool(ready)
