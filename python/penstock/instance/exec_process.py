"""The execution service of this machine: the program `penstock-exec`, started and kept running.

The service and its tasks outlive the daemon. A daemon that finds a service of an earlier one in
its state directory has its own replace it (`--take-over`); the tasks continue.
"""

from __future__ import annotations

import errno
import logging
import signal
from collections import deque
from typing import TYPE_CHECKING

import trio

from penstock._core import topic
from penstock.client.calls import raw_call
from penstock.client.responses import error_of
from penstock.errors import StartError
from penstock.instance.internal_client import InternalClient
from penstock.instance.supervision import Backoff

if TYPE_CHECKING:
    from pathlib import Path

    from penstock._core import Message
    from penstock.config import ExecSettings
    from penstock.instance.broker import Broker
    from penstock.instance.system import ChildProcess, System

log = logging.getLogger("penstock.exec")

# The service's name at the broker.
NAME = "job-exec"
# Seconds until a service that is to end gets SIGTERM, and SIGKILL.
STOP_TIMEOUT_S = 10.0
# Seconds for its first start, after which the command is run without it.
START_TIMEOUT_S = 10.0
# Seconds to its next start when it ends again and again: meanwhile no job starts or ends.
MAX_PAUSE_S = 2.0
# The exit code of a service that finds files, or a reaper, of another version, or the output of
# another service.
UNSUITABLE_EXIT_CODE = 78
# The newest lines of a process's output that a message quotes.
MAX_QUOTED_LINES = 3
PREFIX = "penstock-exec: "


class ExecProcess:
    """Keeps a `penstock-exec` running.

    Args:
        broker: the broker.
        program: the path of the program.
        directory: its directory.
        uri: the instance's address.
        settings: the configuration's `[penstock.exec]`.
        oversubscribe: whether tasks run without being bound to cores.
        system: starts the process.
    """

    def __init__(
        self,
        broker: Broker,
        program: Path,
        directory: Path,
        *,
        uri: str,
        settings: ExecSettings,
        oversubscribe: bool,
        system: System,
    ) -> None:
        self._command = [str(program), "--uri", uri, "--directory", str(directory), "--name", NAME]
        self._command += ["--take-over", "--end-when-idle", "--own-directory"]
        if settings.output_directory is not None:
            self._command += ["--output-directory", str(settings.output_directory)]
        if settings.job_directory is not None:
            self._command += ["--job-directory", str(settings.job_directory)]
        self._command += ["--cgroup", settings.cgroup]
        self._command += ["--min-guest-uid", str(settings.min_guest_uid)]
        if settings.allow_new_privileges:
            self._command.append("--allow-new-privileges")
        if oversubscribe:
            self._command.append("--oversubscribe")
        self._settings = settings
        # The settings of the running process.
        self._sent = settings
        self._clock = system.clock
        self._children = system.children
        self._client = InternalClient(broker)
        # The process that was started last.
        self._process: ChildProcess | None = None
        # The route of the registered service.
        self._route: bytes | None = None
        self._tried = trio.Event()
        # Why the first process could not work with its directory.
        self._rejection: str | None = None
        broker.watch_services(self._set_services)
        # A service that was started by hand for an earlier instance at this address reconnects.
        broker.reserve_service(NAME, self._is_own)

    def _is_own(self, pid: int) -> bool:
        """Whether a process is the running service."""
        return self._process is not None and self._process.pid == pid

    def _set_services(self, services: dict[str, bytes]) -> None:
        route = services.get(NAME)
        if route is not None and route != self._route:
            self._tried.set()
            self._send_settings()
        self._route = route

    def set_settings(self, settings: ExecSettings) -> None:
        """Applies changed settings at run time."""
        self._settings = settings
        if self._route is not None:
            self._send_settings()

    def _send_settings(self) -> None:
        """Sends the settings to the service, if they have changed since it was started."""
        settings = self._settings
        if settings != self._sent:
            self._sent = settings
            payload = _changeable(settings)
            reload = raw_call(f"{NAME}.{topic.exec_method.CONFIG_RELOAD}", payload)
            self._client.send(reload, _check_settings)

    async def wait_for_start(self) -> None:
        """Returns when the first process has registered or ended, or does neither for long.

        Raises:
            StartError: its directory is one of another version.
        """
        with trio.move_on_after(START_TIMEOUT_S):
            await self.check_version()

    async def check_version(self) -> None:
        """Returns when the first process has registered or ended.

        Raises:
            StartError: its directory is one of another version.
        """
        await self._tried.wait()
        if self._rejection is not None:
            raise StartError(self._rejection)

    async def run(self) -> None:
        """Runs the service until cancelled; restarts it with backoff whenever it ends.

        The process is left running then.
        """
        backoff = Backoff(self._clock, MAX_PAUSE_S)
        while True:
            backoff.begin()
            try:
                await self._run_once()
            except OSError as error:
                log.exception("cannot start `%s`: %s", self._command[0], error.strerror)
            self._tried.set()
            await backoff.pause()

    async def _run_once(self) -> None:
        settings = self._sent = self._settings
        options = []
        for name, value in _changeable(settings).items():
            options += [f"--{name}", str(value)]
        async with self._children.open(
            [*self._command, *options], stdin=False, capture=True, new_session=True, outlives=True
        ) as process:
            self._process = process
            output = _Output(process)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(output.read)
                code = await process.wait()
                nursery.cancel_scope.cancel()
            output.drain()
        if code == UNSUITABLE_EXIT_CODE and not self._tried.is_set():
            self._rejection = "\n".join(output.lines)
            return
        log.warning("process %d ended with status %d and is restarted", process.pid, code)

    async def end(self, *, at_once: bool) -> None:
        """Ends the service, which is no longer connected, and returns when it has ended.

        Args:
            at_once: whether it is ended while tasks run. Otherwise it has time to end by itself,
                after its reaper; it does that when no task runs.
        """
        process = self._process
        if process is None:
            return
        if not at_once:
            with trio.move_on_after(STOP_TIMEOUT_S):
                await process.wait()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.returncode is None:
                process.signal(number)
                with trio.move_on_after(STOP_TIMEOUT_S):
                    await process.wait()


def _changeable(settings: ExecSettings) -> dict[str, float]:
    """The settings that apply at run time, by the names of the request and the options."""
    return {
        "kill-timeout": settings.kill_timeout,
        "output-limit": settings.output_limit,
        "output-reserve": settings.output_reserve,
        "user-output-limit": settings.user_output_limit,
    }


def _check_settings(response: Message) -> None:
    # ENOSYS: the service has just ended; the next one gets the settings when it is started.
    if response.errnum not in (0, errno.ENOSYS):
        log.warning("changed settings do not apply: %s", error_of(response).strerror)


class _Output:
    """Logs the lines that a service writes."""

    def __init__(self, process: ChildProcess) -> None:
        self._process = process
        self._line = b""
        # The last ones.
        self.lines: deque[str] = deque(maxlen=MAX_QUOTED_LINES)

    async def read(self) -> None:
        """Logs the output until it is closed."""
        while data := await self._process.read():
            self._log(data)

    def drain(self) -> None:
        """Logs the remaining output of a process that has ended."""
        while data := self._process.drain():
            self._log(data)

    def _log(self, data: bytes) -> None:
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace").removeprefix(PREFIX)
            self.lines.append(text)
            # It announces that it has registered; everything else is about something wrong.
            log.log(logging.INFO if text.startswith("ready") else logging.WARNING, "%s", text)
