"""Tasks as processes: spawned bound to their cores, each in a group of its own, and reaped."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from penstock.errors import SpawnError
from penstock.instance.orphans import Orphans
from penstock.instance.reaper import Reaper

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.instance.processes import Children

log = logging.getLogger("penstock.exec")

NOT_FOUND, NOT_EXECUTABLE = 127 << 8, 126 << 8


class TaskProcess:
    """A running task: the process that was started, and the group that it leads.

    Attributes:
        pid: its process id.
        status: its wait status; None until it is reaped.
        ended: set when it is reaped.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid
        self.status: int | None = None
        self.ended = trio.Event()

    def signal(self, signum: int) -> None:
        """Sends a signal to the task's process group, if the task has not been reaped."""
        # Until the task is reaped, the kernel does not reuse the number of its group.
        if self.status is None:
            try:
                os.killpg(self.pid, signum)
            except ProcessLookupError:
                pass
            except PermissionError:
                # Such as `sudo`, which runs as root.
                log.warning("process %d: no permission to send signal %d", self.pid, signum)

    def reap(self) -> None:
        """Kills what is left of the group of a process that has ended, and takes its status."""
        self.signal(signal.SIGKILL)
        _, self.status = os.waitpid(self.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(self.status)
        self.ended.set()


class TaskProcesses:
    """Spawns and reaps tasks on this machine.

    Args:
        children: the instance's own processes, which are not reaped here.
    """

    def __init__(self, children: Children) -> None:
        self.cpus = os.sched_getaffinity(0)
        self._reaper = Reaper(children)
        self._orphans = Orphans()

    def is_directory(self, path: str) -> bool:
        """Whether a task can have this working directory."""
        try:
            return Path(path).is_dir()
        except ValueError:
            # A NUL, or a lone surrogate.
            return False

    def spawn(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        cwd: str | None,
        stdout: int,
        stderr: int,
        cores: Iterable[int] | None,
    ) -> TaskProcess:
        """Starts a task in a process group of its own, and has it reaped when it ends.

        Raises:
            SpawnError: there is no such program, or it cannot be executed.
        """
        task = spawn(
            command, environment=environment, cwd=cwd, stdout=stdout, stderr=stderr, cores=cores
        )
        self._reaper.add(task)
        return task

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Reaps tasks until `stop`, even if the nursery is cancelled."""
        await self._reaper.run(task_status=task_status)

    def stop(self) -> None:
        """Ends `run`."""
        self._reaper.stop()

    async def kill_escaped(self, mark: bytes) -> None:
        """Kills and reaps the processes of a job that have left their groups.

        Raises:
            OSError: the processes cannot be listed.
        """
        await self._reaper.kill_escaped(mark)

    async def kill_orphans(self, mark: bytes) -> set[int]:
        """Kills what is left of a job from before a restart; returns what is still there."""
        return await self._orphans.kill(mark)


def spawn(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    cwd: str | None,
    stdout: int,
    stderr: int,
    cores: Iterable[int] | None,
) -> TaskProcess:
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
    return TaskProcess(process)
