"""Processes: spawned bound to their cores, in a group of their own, and reaped for certain."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

PR_SET_CHILD_SUBREAPER = 36
NOT_FOUND, NOT_EXECUTABLE = 127 << 8, 126 << 8


class SpawnError(Exception):
    """A task could not be started.

    Args:
        text: why, as a shell would say it.
        status: the wait status that stands for it.
    """

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.text = text
        self.status = status


def become_subreaper() -> None:
    """Makes processes that escape their parents children of this one, so that none is lost."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl: {os.strerror(number)}")


class Task:
    """A running task: the process that was started, and the group it leads."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid
        self.status: int | None = None

    def signal(self, signum: int) -> None:
        """Sends a signal to the task's process group."""
        if self.status is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signum)

    async def wait(self) -> int:
        """Waits for the task's process to end, kills what is left of its group, and reaps it.

        Returns:
            The wait status.
        """
        descriptor = os.pidfd_open(self.pid)
        try:
            await trio.lowlevel.wait_readable(descriptor)
        finally:
            os.close(descriptor)
        return self.reap()

    def reap(self) -> int:
        """Takes the status of a process that has ended, or is being killed."""
        if self.status is None:
            # Not reaped yet, so the group's number cannot have passed to somebody else.
            self.signal(signal.SIGKILL)
            _, self.status = os.waitpid(self.pid, 0)
            self._process.returncode = os.waitstatus_to_exitcode(self.status)
        return self.status


def spawn(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    cwd: str | None,
    stdout: int,
    stderr: int,
    cores: Iterable[int] | None,
) -> Task:
    """Starts a command in a process group of its own.

    Args:
        command: program and arguments; the program is looked up on the task's own `PATH`.
        environment: the whole environment.
        cwd: working directory.
        stdout: file descriptor.
        stderr: file descriptor.
        cores: the CPUs that the task may run on, from its first instruction on; None for any.

    Raises:
        SpawnError: there is no such program, or it cannot be executed.
    """
    own = os.sched_getaffinity(0) if cores is not None else None
    try:
        if cores is not None:
            # The child inherits this thread's affinity: nothing runs unbound, not even `exec`.
            os.sched_setaffinity(0, cores)
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=environment,
            cwd=cwd,
            process_group=0,
        )
    except FileNotFoundError:
        raise SpawnError(f"{command[0]}: command not found", NOT_FOUND) from None
    except OSError as error:
        raise SpawnError(f"{command[0]}: {error.strerror}", NOT_EXECUTABLE) from None
    except ValueError as error:
        raise SpawnError(f"{command[0]!r}: {error}", NOT_EXECUTABLE) from None
    finally:
        if own is not None:
            os.sched_setaffinity(0, own)
    return Task(process)


async def reap_escaped(markers: set[bytes], spared: Callable[[], set[int] | None]) -> None:
    """Kills and reaps the processes of a job that have left their groups.

    As this process is the subreaper, they are its children by now, or children of such.

    Args:
        markers: `NAME=value` entries of the environment that together tell the job's processes.
        spared: the children that somebody waits for; None while that is not known, in which case
            the dead that nobody waits for are left to the next call.
    """
    while escaped := _find_escaped(markers, spared()):
        for pid in escaped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in escaped:
            with suppress(ProcessLookupError, ChildProcessError):
                descriptor = os.pidfd_open(pid)
                try:
                    await trio.lowlevel.wait_readable(descriptor)
                finally:
                    os.close(descriptor)
                os.waitpid(pid, 0)  # noqa: ASYNC222 - it has ended


def _find_escaped(markers: set[bytes], spared: set[int] | None) -> list[int]:
    """The children that carry the marks; reaps the dead, whose environment cannot be read."""
    escaped = []
    for pid in _children() - (spared or set()):
        environment = b""
        with suppress(OSError):
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        if environment:
            if markers <= set(environment.split(b"\0")):
                escaped.append(pid)
        elif spared is not None:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
    return escaped


def _children() -> set[int]:
    children: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            children.update(map(int, (thread / "children").read_text().split()))
    return children
