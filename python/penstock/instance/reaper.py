"""Whoever ends is reaped: tasks, and what tasks have left behind."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.instance.processes import ChildProcesses
    from penstock.instance.task import Task

log = logging.getLogger("penstock.exec")

PR_SET_CHILD_SUBREAPER = 36
# A child that has ended, without taking its status yet.
ENDED = os.WEXITED | os.WNOHANG | os.WNOWAIT


def become_subreaper() -> None:
    """Makes processes that escape their parents children of this one, so that none is lost."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl: {os.strerror(number)}")


class Reaper:
    """Takes the status of the children that end, however many, without a descriptor for each.

    Args:
        children: the instance's own processes, which are left to those who wait for them.
    """

    def __init__(self, children: ChildProcesses) -> None:
        self._children = children
        self._tasks: dict[int, Task] = {}
        self._awaited: set[int] = set()
        self._scope = trio.CancelScope(shield=True)

    def add(self, task: Task) -> None:
        """Has a task reaped when it ends."""
        self._tasks[task.pid] = task

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Reaps until `stop`, even where the nursery is cancelled: ending tasks takes a while."""
        become_subreaper()
        # What is in force before and after: Python cannot deliver a signal that arrives while its
        # handler makes way for the default, and says so on the standard error.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        with self._scope, trio.open_signal_receiver(signal.SIGCHLD) as signals:
            task_status.started()
            async for _ in signals:
                self._reap()

    def stop(self) -> None:
        """Ends `run`."""
        self._scope.cancel()

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, ENDED):
                if not self._take(ended.si_pid):
                    # Somebody else takes this one soon; until then it hides the others.
                    return self._reap_each()
        return None

    def _reap_each(self) -> None:
        for pid in own_children():
            with suppress(ChildProcessError):
                if os.waitid(os.P_PID, pid, ENDED):
                    self._take(pid)

    def _take(self, pid: int) -> bool:
        """Reaps a child that has ended, unless that is for somebody else to do."""
        task = self._tasks.pop(pid, None)
        if task is not None:
            task.reap()
            return True
        own = self._children.pids
        # While one is being started it is not known which.
        if own is None or pid in own or pid in self._awaited:
            return False
        os.waitpid(pid, 0)
        return True

    async def end_escaped(self, markers: set[bytes]) -> None:
        """Kills and reaps the processes of a job that have left their groups.

        As this process is the subreaper, they are its children by now, or children of such.

        Args:
            markers: `NAME=value` entries of the environment that together tell the job's
                processes.
        """
        untouchable: set[int] = set()
        while escaped := self._find_escaped(markers) - untouchable:
            self._awaited |= escaped
            for pid in escaped:
                with suppress(ProcessLookupError):
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except PermissionError:
                        log.warning("process %d outlives its job: it must not be killed", pid)
                        untouchable.add(pid)
            try:
                await self._reap_killed(escaped - untouchable)
            finally:
                self._awaited -= escaped
        # Those that its group's end has killed, too, are gone before the job is.
        self._reap()

    async def _reap_killed(self, pids: Iterable[int]) -> None:
        for pid in pids:
            with suppress(ProcessLookupError, ChildProcessError):
                descriptor = os.pidfd_open(pid)
                try:
                    await trio.lowlevel.wait_readable(descriptor)
                finally:
                    os.close(descriptor)
                os.waitpid(pid, 0)  # noqa: ASYNC222 - it has ended

    def _find_escaped(self, markers: set[bytes]) -> set[int]:
        """The children that carry the marks; those that have ended have no environment."""
        spared = self._tasks.keys() | (self._children.pids or set())
        escaped = set()
        for pid in own_children() - spared:
            with suppress(OSError):
                environment = Path(f"/proc/{pid}/environ").read_bytes()
                if markers <= set(environment.split(b"\0")):
                    escaped.add(pid)
        return escaped


def own_children() -> set[int]:
    """The children of this process, those included that have ended and are not reaped yet."""
    children: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            children.update(map(int, (thread / "children").read_text().split()))
    return children
