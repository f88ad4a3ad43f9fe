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
    """A `Task`: the process that was started, and the group that it leads.

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
        """Kills the remaining group of an ended process, and reaps the process."""
        self.signal(signal.SIGKILL)
        _, self.status = os.waitpid(self.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(self.status)
        self.ended.set()


class TaskProcesses:
    """Spawns and reaps tasks on this machine: `Tasks`.

    Args:
        children: the instance's own processes, which are not reaped here.
    """

    def __init__(self, children: Children) -> None:
        self.cpus = os.sched_getaffinity(0)
        self._reaper = Reaper(children)
        self._orphans = Orphans()

    def is_directory(self, path: str) -> bool:
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
        task = spawn(
            command, environment=environment, cwd=cwd, stdout=stdout, stderr=stderr, cores=cores
        )
        self._reaper.add(task)
        return task

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        await self._reaper.run(task_status=task_status)

    def stop(self) -> None:
        self._reaper.stop()

    async def kill_escaped(self, mark: bytes) -> None:
        await self._reaper.kill_escaped(mark)

    async def kill_orphans(self, mark: bytes) -> set[int]:
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
