"""Reaps the children of the daemon: tasks, and processes that tasks have left behind."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import trio

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.instance.processes import Children

log = logging.getLogger("penstock.exec")

PR_SET_CHILD_SUBREAPER = 36
# Children that have ended; their status is left for `waitpid`.
ENDED = os.WEXITED | os.WNOHANG | os.WNOWAIT


class Reapable(Protocol):
    """A child that is reaped in a way of its own.

    Attributes:
        pid: its process id.
    """

    pid: int

    def reap(self) -> None:
        """Takes the status of the child, which has ended."""


def become_subreaper() -> None:
    """Makes orphaned descendants children of this process, so that none is lost."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl: {os.strerror(number)}")


class Reaper:
    """Takes the status of children that end, without a descriptor for each of them.

    Args:
        children: the instance's own processes, which their own waiters reap.
    """

    def __init__(self, children: Children) -> None:
        self._children = children
        self._tasks: dict[int, Reapable] = {}
        self._awaited: set[int] = set()
        self._scope = trio.CancelScope(shield=True)

    def add(self, task: Reapable) -> None:
        """Reaps a task when it ends."""
        self._tasks[task.pid] = task

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Reaps until `stop`, even if the nursery is cancelled: jobs still end then."""
        become_subreaper()
        # The handler in force before and after: Python cannot deliver a signal that arrives while
        # its handler is replaced by the default, and complains about it on the standard error.
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
                    # Until another waiter takes this one, `P_ALL` shows no other child.
                    return self._reap_each()
        return None

    def _reap_each(self) -> None:
        for pid in own_children():
            with suppress(ChildProcessError):
                if os.waitid(os.P_PID, pid, ENDED):
                    self._take(pid)

    def _take(self, pid: int) -> bool:
        """Reaps a child that has ended, unless another waiter does that."""
        task = self._tasks.pop(pid, None)
        if task is not None:
            task.reap()
            return True
        own = self._children.pids
        # None: a child is being started, and it could be this one.
        if own is None or pid in own or pid in self._awaited:
            return False
        os.waitpid(pid, 0)
        return True

    async def kill_escaped(self, mark: bytes) -> None:
        """Kills and reaps the processes of a job that have left their groups.

        This process is the subreaper: they are its children, or descendants of such children.

        Args:
            mark: the entry of the environment that marks the job's processes.
        """
        protected: set[int] = set()
        while escaped := self._find_escaped(mark) - protected:
            self._awaited |= escaped
            for pid in escaped:
                with suppress(ProcessLookupError):
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except PermissionError:
                        log.warning("process %d outlives its job: no permission to kill it", pid)
                        protected.add(pid)
            try:
                await self._reap_killed(escaped - protected)
            finally:
                self._awaited -= escaped
        # Processes that were killed with their group are reaped before the job ends.
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

    def _find_escaped(self, mark: bytes) -> set[int]:
        """The children with the mark; ended processes have no environment."""
        spared = self._tasks.keys() | (self._children.pids or set())
        escaped = set()
        for pid in own_children() - spared:
            with suppress(OSError):
                environment = Path(f"/proc/{pid}/environ").read_bytes()
                if mark in environment.split(b"\0"):
                    escaped.add(pid)
        return escaped


def own_children() -> set[int]:
    """The children of this process, ended ones that are not reaped included."""
    children: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            children.update(map(int, (thread / "children").read_text().split()))
    return children
