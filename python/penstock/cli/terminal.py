"""The local terminal: its window, and raw mode that does not outlive the process."""

from __future__ import annotations

import os
import signal
import stat
import sys
import termios
import tty
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

STDIN = 0
NULL_DEVICE = os.makedev(1, 3)


class Window(NamedTuple):
    """The size of a terminal, in characters."""

    rows: int
    columns: int


def is_terminal() -> bool:
    """Whether standard input is a terminal."""
    return os.isatty(STDIN)


@contextmanager
def opened() -> Iterator[int | None]:
    """A descriptor of the controlling terminal, or of standard input if that is one; None without.

    It is no terminal any longer when that is closed.
    """
    try:
        descriptor = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        yield STDIN if is_terminal() else None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def has_input() -> bool:
    """Whether standard input can have something to read: it is open, and not `/dev/null`."""
    try:
        status = os.fstat(STDIN)
    except OSError:
        return False
    return not (stat.S_ISCHR(status.st_mode) and status.st_rdev == NULL_DEVICE)


def is_in_foreground() -> bool:
    """Whether this process may read from the terminal that is its standard input."""
    try:
        return os.tcgetpgrp(STDIN) == os.getpgrp()
    except OSError:
        # It is not the controlling terminal.
        return True


def window() -> Window | None:
    """The size of the terminal; None without one."""
    try:
        size = os.get_terminal_size(STDIN)
    except OSError:
        return None
    return Window(size.lines, size.columns)


@contextmanager
def raw_mode() -> Iterator[None]:
    """Passes every key on to the reader of standard input, until the block or the process ends.

    A child process restores the terminal if this process is killed.
    """
    before = termios.tcgetattr(STDIN)
    sys.stdout.flush()
    reader, writer = os.pipe()
    watcher = os.fork()
    if watcher == 0:
        _watch(reader, writer, before)
    os.close(reader)
    try:
        tty.setraw(STDIN, termios.TCSADRAIN)
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(STDIN, termios.TCSADRAIN, before)
        os.write(writer, b"restored")
        os.close(writer)
        os.waitpid(watcher, 0)


def _watch(reader: int, writer: int, before: list[Any]) -> None:
    """Restores the terminal when the parent has ended without having done so. Does not return."""
    try:
        for number in signal.valid_signals():
            with suppress(OSError):
                signal.signal(number, signal.SIG_IGN)
        os.close(writer)
        if not os.read(reader, 1):
            termios.tcsetattr(STDIN, termios.TCSADRAIN, before)
    finally:
        os._exit(0)
