"""What an instance is started with, and the locks that keep it alone on its state and socket."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.errors import StartError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.config import Config
    from penstock.instance.parent_instance import Parent

# The longest path in a `sockaddr_un` (unix(7)), without the NUL.
MAX_SOCKET_PATH_BYTES = 107


@dataclass(frozen=True)
class StartOptions:
    """The options of `penstock start`, checked, with configuration and defaults filled in."""

    state: Path
    socket: Path
    config: Config
    R: Path | None = None
    nodes: int | None = None
    cores: int | None = None
    gpus: int | None = None
    exec: Literal["local", "sim", "none"] = "local"
    oversubscribe: bool = False
    sched: Literal["inside", "process", "none"] = "inside"
    command: tuple[str, ...] = ()
    parent: Parent | None = None

    @property
    def inherits(self) -> bool:
        """Whether the instance uses the resources of the job in which it is started."""
        resource = self.config.resource
        named = self.R or resource.path or resource.config or self.nodes is not None
        return self.parent is not None and not named


@contextmanager
def lock_state_directory(state: Path) -> Iterator[None]:
    """Locks the state directory for the length of the block.

    Raises:
        StartError: another instance holds the lock.
    """
    with (state / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartError(
                f"state directory `{state}` is in use by another instance\n"
                "hint: give this one its own with `--state DIR`"
            ) from None
        yield


def remove_stale_socket(path: Path) -> None:
    """Removes a socket on which nothing listens, left behind by a killed instance.

    Raises:
        StartError: an instance listens there, the path is not a socket, or it is too long for one.
    """
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH_BYTES:
        raise StartError(
            f"`{path}` is too long for a socket: {length} bytes, expected at most "
            f"{MAX_SOCKET_PATH_BYTES}\nhint: give a shorter one with `--socket PATH`"
        )
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise StartError(
            f"`{path}` exists and is not a socket\nhint: give another path with `--socket PATH`"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise StartError(
        f"an instance listens at `{path}` already\nhint: give this one its own with `--socket PATH`"
    )
