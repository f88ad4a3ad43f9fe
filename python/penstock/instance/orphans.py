"""What jobs have left behind of an instance that was killed: found by its mark, and ended."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, suppress
from pathlib import Path

import trio

from penstock.instance.environment import own_mark

# Seconds until a killed process counts as one that cannot be killed.
DEATH_TIMEOUT = 5.0


class Orphans:
    """Ends what is left of jobs that ran when the instance was killed.

    Args:
        uri: the instance's address, which belongs to the marks of its jobs.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        # Processes by mark, from when the first job is lost: they are looked for once.
        self._left: dict[bytes, set[int]] | None = None

    async def end(self, job: int) -> set[int]:
        """Kills what is left of a job; returns the processes that are still there.

        Args:
            job: its id.
        """
        mark = "=".join(own_mark(self._uri, job)).encode()
        if self._left is None:
            self._left = marked(mark.rpartition(b" ")[0])
        left = self._left.pop(mark, set())
        with trio.move_on_after(DEATH_TIMEOUT):
            return await end_marked(mark, left)
        return left


def marked(beginning: bytes) -> dict[bytes, set[int]]:
    """The processes of this machine with an entry of their environment that begins so, by entry.

    Args:
        beginning: of `NAME=value`.
    """
    found: dict[bytes, set[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        for entry in _environment(path):
            if entry.startswith(beginning):
                found.setdefault(entry, set()).add(int(path.name))
    return found


async def end_marked(mark: bytes, pids: set[int]) -> set[int]:
    """Kills processes, and what they start meanwhile; returns those that must not be killed.

    Args:
        mark: the entry of their environment.
        pids: those that had it a while ago.
    """
    untouchable: set[int] = set()
    while pids := pids - untouchable:
        with ExitStack() as stack:
            killed = []
            for pid in pids:
                with suppress(ProcessLookupError):
                    descriptor = os.pidfd_open(pid)
                    stack.callback(os.close, descriptor)
                    # The number may be another process's by now.
                    if mark not in _environment(Path(f"/proc/{pid}")):
                        continue
                    try:
                        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                        killed.append(descriptor)
                    except PermissionError:
                        untouchable.add(pid)
            for descriptor in killed:
                await trio.lowlevel.wait_readable(descriptor)
        pids = marked(mark).get(mark, set())
    return untouchable


def _environment(process: Path) -> list[bytes]:
    """Its entries; none of one that has ended, or that is not for us to look at."""
    with suppress(OSError):
        return (process / "environ").read_bytes().split(b"\0")
    return []
