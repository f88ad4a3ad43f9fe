"""Processes: spawned bound to their cores, in a group of their own, and reaped for certain."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

log = logging.getLogger("penstock.exec")

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


class Task:
    """A running task: the process that was started, and the group it leads.

    Attributes:
        pid: the process.
        status: its wait status, None until it is reaped.
        ended: set when it is reaped.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid
        self.status: int | None = None
        self.ended = trio.Event()
        # The rank on which it runs.
        self.target: int | None = None
        # Its node was given back: how it ends says nothing of the job.
        self.dismissed = False

    def signal(self, signum: int) -> None:
        """Sends a signal to the task's process group, as far as that is allowed."""
        # Not reaped yet, so the group's number cannot have passed to somebody else.
        if self.status is None:
            try:
                os.killpg(self.pid, signum)
            except ProcessLookupError:
                pass
            except PermissionError:
                # Such as `sudo`, which belongs to root.
                log.warning("process %d must not be sent signal %d", self.pid, signum)

    def reap(self) -> None:
        """Kills what is left of the group of a process that has ended, and takes its status."""
        self.signal(signal.SIGKILL)
        _, self.status = os.waitpid(self.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(self.status)
        self.ended.set()


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
