"""Watches files for growth, by inotify."""

from __future__ import annotations

import ctypes
import os
import struct
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

IN_MODIFY = 0x2
IN_NONBLOCK, IN_CLOEXEC = 0o4000, 0o2000000
EVENT = struct.Struct("iIII")


class FileWatcher:
    """Sets events when files grow."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(IN_NONBLOCK | IN_CLOEXEC)
        if self._fd < 0:
            raise self._error("inotify_init1")
        self._changed: dict[int, trio.Event] = {}
        self._users: dict[int, int] = {}

    @staticmethod
    def _error(call: str) -> OSError:
        number = ctypes.get_errno()
        return OSError(number, f"{call}: {os.strerror(number)}")

    def close(self) -> None:
        """Closes the descriptor."""
        os.close(self._fd)

    @contextmanager
    def watch(self, path: Path) -> Iterator[int]:
        """Watches a file in the block; the number is for `changed`."""
        number = self._libc.inotify_add_watch(self._fd, os.fsencode(path), IN_MODIFY)
        if number < 0:
            raise self._error("inotify_add_watch")
        self._changed.setdefault(number, trio.Event())
        self._users[number] = self._users.get(number, 0) + 1
        try:
            yield number
        finally:
            self._users[number] -= 1
            if not self._users[number]:
                del self._users[number], self._changed[number]
                self._libc.inotify_rm_watch(self._fd, number)

    def changed(self, number: int) -> trio.Event:
        """The event that the file's next growth sets. Take it before reading the file."""
        return self._changed[number]

    async def run(self) -> None:
        """Sets the events of changed files until cancelled."""
        while True:
            await trio.lowlevel.wait_readable(self._fd)
            with suppress(BlockingIOError):
                data = os.read(self._fd, 64 * 1024)
                offset = 0
                while offset < len(data):
                    number, _mask, _cookie, length = EVENT.unpack_from(data, offset)
                    offset += EVENT.size + length
                    if number in self._changed:
                        self._changed[number].set()
                        self._changed[number] = trio.Event()
