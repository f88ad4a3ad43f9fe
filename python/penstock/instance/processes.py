"""Processes that the instance starts for itself, apart from the tasks of jobs."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

READ_BYTES = 64 * 1024
# A process that has begun may have started others: it begins with the limit.
WITH_DESCRIPTOR_LIMIT = ("/bin/sh", "-c", 'ulimit -S -n "$0" && exec "$@"')

# The text of the error of a thread that cannot be started.
NO_THREAD = "can't start new thread"


class Child:
    """A process of the instance's own: a `ChildProcess`.

    Args:
        process: the process.
    """

    def __init__(self, process: trio.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    async def wait(self) -> int:
        return await self._process.wait()

    def signal(self, signum: int) -> None:
        self._process.send_signal(signal.Signals(signum))

    def signal_group(self, signum: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signum)

    async def read(self) -> bytes:
        return bytes(await self._output().receive_some(READ_BYTES))

    def drain(self) -> bytes:
        with suppress(BlockingIOError):
            return os.read(self._output().fileno(), READ_BYTES)
        return b""

    def _output(self) -> trio.lowlevel.FdStream:
        stream = self._process.stdout
        assert isinstance(stream, trio.lowlevel.FdStream)
        return stream


def _check_program(name: str, environment: Mapping[str, str]) -> None:
    """Raises what `execve` would for a program that is missing or not executable."""
    path = environment.get("PATH", os.defpath)
    if shutil.which(name, path=path) is None:
        exists = shutil.which(name, os.F_OK, path) is not None
        code = errno.EACCES if exists else errno.ENOENT
        raise OSError(code, os.strerror(code), name)


class Children:
    """Starts the instance's own processes: `ChildProcesses`.

    Args:
        umask: the umask of the processes.
        descriptors: their soft limit of open files; the daemon's own is higher.
    """

    def __init__(self, umask: int, descriptors: int) -> None:
        self._umask = umask
        self._descriptors = descriptors

    @asynccontextmanager
    async def open(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        stdin: bool = True,
        capture: bool = False,
        new_session: bool = False,
        outlives: bool = False,
    ) -> AsyncIterator[Child]:
        _check_program(command[0], os.environ if environment is None else environment)
        try:
            process = await trio.lowlevel.open_process(
                [*WITH_DESCRIPTOR_LIMIT, str(self._descriptors), *command],
                env=environment,
                stdin=None if stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE if capture else None,
                stderr=subprocess.STDOUT if capture else None,
                start_new_session=new_session,
                umask=self._umask,
            )
        except RuntimeError as error:
            # A thread starts the process: at the limit of processes there is none.
            if str(error) != NO_THREAD:
                raise
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN), command[0]) from error
        try:
            yield Child(process)
        finally:
            # If the instance fails, the process has no instance to talk to.
            if process.returncode is None and not outlives:
                process.terminate()
