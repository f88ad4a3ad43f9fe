"""What an instance has for itself alone: its state directory and its socket."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.errors import Error

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# What fits into a `sockaddr_un` (unix(7)), without the NUL.
LONGEST_PATH = 107


class StartError(Error):
    """The instance cannot be started; the text says why and what to do."""


@contextmanager
def claim_state(state: Path) -> Iterator[None]:
    """Holds the state directory.

    Raises:
        StartError: another instance has it.
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


def clear_stale_socket(path: Path) -> None:
    """Removes the socket that an instance has left behind, and nothing else.

    Raises:
        StartError: an instance listens there, something else than a socket is there, or the path
            is too long for one.
    """
    length = len(os.fsencode(path))
    if length > LONGEST_PATH:
        raise StartError(
            f"`{path}` is too long for a socket: {length} bytes, at most {LONGEST_PATH} are "
            "possible\nhint: give a shorter one with `--socket PATH`"
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
