"""Processes that the instance starts for itself, apart from the tasks of jobs."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

READ_BYTES = 64 * 1024


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
        process = await trio.lowlevel.open_process(
            command,
            env=environment,
            stdin=None if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE if capture else None,
            stderr=subprocess.STDOUT if capture else None,
            start_new_session=new_session,
            umask=self._umask,
        )
        # The process may have ended, or be another user's by now.
        with suppress(OSError):
            _, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
            limits = (self._descriptors, hard)
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limits)
        try:
            yield Child(process)
        finally:
            # If the instance fails, the process has no instance to talk to.
            if process.returncode is None and not outlives:
                process.terminate()
