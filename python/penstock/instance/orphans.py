"""Processes that the jobs of a killed instance have left behind: found by their mark and killed."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, suppress
from pathlib import Path

import trio

# Seconds until a killed process counts as one that cannot be killed.
KILL_TIMEOUT_S = 5.0


class Orphans:
    """Kills processes of jobs that ran when the instance was killed."""

    def __init__(self) -> None:
        # By mark, for all marks of an instance: found in one search, at the first lost job.
        self._found: dict[bytes, set[int]] | None = None

    async def kill(self, mark: bytes) -> set[int]:
        """Kills the remaining processes of a job.

        Args:
            mark: the entry of the environment that marks the job's processes.

        Returns:
            The processes that are still there.
        """
        if self._found is None:
            # The last word of the mark is the job's id; the rest is the same for all jobs.
            self._found = find_marked(mark.rpartition(b" ")[0])
        pids = self._found.pop(mark, set())
        with trio.move_on_after(KILL_TIMEOUT_S):
            return await kill_marked(mark, pids)
        return pids


def find_marked(prefix: bytes) -> dict[bytes, set[int]]:
    """The processes of this machine with such an entry in their environment, by entry.

    Args:
        prefix: how the entry, `NAME=value`, starts.
    """
    found: dict[bytes, set[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        for entry in _environment(path):
            if entry.startswith(prefix):
                found.setdefault(entry, set()).add(int(path.name))
    return found


async def kill_marked(mark: bytes, pids: set[int]) -> set[int]:
    """Kills processes, and processes that they start meanwhile.

    Args:
        mark: the entry of their environment.
        pids: processes that had the mark when they were looked for.

    Returns:
        The processes that this user may not kill.
    """
    protected: set[int] = set()
    while pids := pids - protected:
        with ExitStack() as stack:
            killed = []
            for pid in pids:
                with suppress(ProcessLookupError):
                    descriptor = os.pidfd_open(pid)
                    stack.callback(os.close, descriptor)
                    # The kernel may have reused the number for another process.
                    if mark not in _environment(Path(f"/proc/{pid}")):
                        continue
                    try:
                        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                        killed.append(descriptor)
                    except PermissionError:
                        protected.add(pid)
            for descriptor in killed:
                await trio.lowlevel.wait_readable(descriptor)
        pids = find_marked(mark).get(mark, set())
    return protected


def _environment(process: Path) -> list[bytes]:
    """The entries of a process's environment; none if it has ended or is another user's."""
    with suppress(OSError):
        return (process / "environ").read_bytes().split(b"\0")
    return []
