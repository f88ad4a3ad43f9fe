"""The processes that the instance starts for itself, beside those of its jobs."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence


class ChildProcesses:
    """The command, the scheduler, the hooks: whoever reaps what jobs leave behind spares them."""

    def __init__(self) -> None:
        self._pids: set[int] = set()
        self._opening = 0

    @property
    def pids(self) -> set[int] | None:
        """The processes; None while one is being started, whose number is not known yet."""
        return None if self._opening else set(self._pids)

    @asynccontextmanager
    async def open(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        start_new_session: bool = False,
        pass_fds: Sequence[int] = (),
    ) -> AsyncIterator[trio.Process]:
        """Starts a process; at the end it is told to terminate, if it has not ended.

        Raises:
            OSError: it cannot be started.
        """
        self._opening += 1
        try:
            process = await trio.lowlevel.open_process(
                command,
                env=env,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=start_new_session,
                pass_fds=pass_fds,
            )
            self._pids.add(process.pid)
        finally:
            self._opening -= 1
        try:
            yield process
        finally:
            # Where the instance fails, the process has nothing to talk to any more.
            if process.returncode is None:
                process.terminate()
            else:
                self._pids.discard(process.pid)
