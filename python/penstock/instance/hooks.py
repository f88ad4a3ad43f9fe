"""`hooks`: runs the site's prolog and epilog for the job manager (RFC 21).

A command is run with a timeout, its output is logged, and its status is returned; the job manager
decides what follows from it. Its environment has, with the prefixes `PENSTOCK_` and `FLUX_`,
`JOB_ID`, `JOB_USERID`, `JOB_HOSTS` and `JOB_RANKS`, for an epilog also `JOB_STATUS` (the wait
status, if there is one), and `PENSTOCK_HOOK` (`prolog` or `epilog`). Processes that a prolog leaves
behind in that environment are ended with the job's own.
"""

from __future__ import annotations

import errno
import logging
import signal
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, ClassVar

import trio

from penstock._core import HookCancelRequest, HookRequest, HookResponse, fluid_f58, topic
from penstock.instance.environment import command_environment
from penstock.instance.quotas import max_running_hooks
from penstock.instance.requests import (
    DEFERRED,
    MethodTable,
    for_owner,
    printable,
    requester,
    serve_batch,
)
from penstock.instance.restart import Restarts
from penstock.instance.supervision import FAULTS, Backoff

if TYPE_CHECKING:
    from penstock._core import Batch, Message
    from penstock.config import Hook, JobManagerSettings
    from penstock.instance.broker import Broker
    from penstock.instance.system import ChildProcess, System

log = logging.getLogger("penstock.hooks")

# Errors of a command that can be started when other processes have ended, and the seconds until the
# next attempt at most.
SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM})
MAX_START_PAUSE_S = 1.0
# Output of one command that is logged: lines, and characters of a line.
MAX_LOGGED_LINES = 1000
MAX_LINE_CHARACTERS = 4096
# Seconds between SIGTERM and SIGKILL.
KILL_DELAY_S = 5.0
# The wait status of a command that a fault of this service has ended: exit code 1.
FAULT_STATUS = 1 << 8


class HookService:
    """Serves `hooks.prolog`, `hooks.epilog` and `hooks.cancel`, to the owner only.

    Args:
        broker: the broker.
        settings: the configuration's `[job-manager]`.
        uri: the instance's address, for the commands' environment.
        system: starts the commands.
    """

    peer: int

    def __init__(
        self, broker: Broker, settings: JobManagerSettings, *, uri: str, system: System
    ) -> None:
        self._broker = broker
        self._settings = settings
        self._uri = uri
        self._children = system.children
        self._inherited = system.host.environment
        self._slots = trio.CapacityLimiter(max_running_hooks(system.host.descriptor_limit))
        # The commands that are to be started again when another one has ended.
        self._short = trio.lowlevel.ParkingLot()
        self._queued: list[_Run] = []
        self._wake = trio.Event()
        self._running: dict[int, _Run] = {}
        self.restarts = Restarts(broker, self, ("hooks",))
        self.restarts.start()

    def restart(self) -> None:
        """Does nothing: queued and running commands continue and are answered."""

    def set_settings(self, settings: JobManagerSettings) -> None:
        """Applies changed settings at run time, to commands that start from now on."""
        self._settings = settings

    def deliver(self, batch: Batch) -> None:
        """Serves requests, each of which is answered when the command has ended."""
        self._broker.post_messages(self.peer, serve_batch(self, batch))

    def disconnect(self, notice: Message) -> None:
        """Cancels the commands of a client that has disconnected: it would request them again."""
        client = requester(notice)
        for run in self._running.values():
            if requester(run.request) == client:
                run.cancel()

    def post_output(self, now: float) -> None:
        """Does nothing: every response is posted at once."""

    def _begin(self, request: Message) -> Any:
        run = _Run(request)
        # The epilog of a job is requested after its prolog has ended: one entry per job. Only a job
        # manager that is built again may request a command that has not ended.
        previous = self._running.get(run.job)
        run.previous = None if previous is None else previous.ended
        self._running[run.job] = run
        self._queued.append(run)
        self._wake.set()
        return DEFERRED

    def _cancel(self, request: Message) -> Any:
        run = self._running.get(HookCancelRequest.read(request).id)
        if run is None:
            return {}
        run.cancel()
        if not request.noresponse:
            run.cancellations.append(request)
        return DEFERRED

    METHODS: ClassVar[MethodTable] = {
        topic.hooks.PROLOG: for_owner(_begin),
        topic.hooks.EPILOG: for_owner(_begin),
        topic.hooks.CANCEL: for_owner(_cancel),
    }

    async def run(self) -> None:
        """Runs the requested commands, each in a task of its own."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._wake.wait()
                self._wake = trio.Event()
                queued, self._queued = self._queued, []
                for run in queued:
                    nursery.start_soon(self._respond, run)

    async def _respond(self, run: _Run) -> None:
        """Runs a command and answers its request, whatever happens."""
        response: Message | None = None
        try:
            if run.previous is not None:
                await run.previous.wait()
            response = await self._run_in_slot(run)
        except* FAULTS:
            log.exception("%s: internal error", run.name)
            # No error: after one the job manager takes the command as one that may still run.
            note = "internal error: see the instance's log"
            ended = HookResponse.ended(run.job, FAULT_STATUS, note)
            response = run.request.respond(ended)
        run.ended.set()
        if self._running.get(run.job) is run:
            del self._running[run.job]
        responses = [] if response is None else [response]
        responses += [request.respond({}) for request in run.cancellations]
        self._broker.post_messages(self.peer, responses)

    async def _run_in_slot(self, run: _Run) -> Message:
        acquired = False
        try:
            with run.scope:
                await self._slots.acquire_on_behalf_of(run)
                acquired = True
            if run.cancelled:
                status, note = int(signal.SIGTERM), f"{run.kind} was cancelled"
            else:
                status, note = await self._execute(run)
        finally:
            if acquired:
                self._slots.release_on_behalf_of(run)
                self._short.unpark_all()
        return run.request.respond(HookResponse.ended(run.job, status, printable(note)))

    async def _execute(self, run: _Run) -> tuple[int, str]:
        """Runs a command; returns its wait status and a note for a failure."""
        hook: Hook = getattr(self._settings, run.kind)
        if not hook.command:
            return 0, ""
        async with AsyncExitStack() as opened:
            try:
                process = await self._start(run, hook, opened)
            except OSError as error:
                return 127 << 8, f"{run.kind}: cannot run `{hook.command[0]}`: {error.strerror}"
            if process is None:
                return int(signal.SIGTERM), f"{run.kind} was cancelled"
            return await _wait(process, run, hook.timeout)

    async def _start(self, run: _Run, hook: Hook, opened: AsyncExitStack) -> ChildProcess | None:
        """Starts a command, later if there is a shortage of descriptors, processes or memory.

        Returns:
            The process, which is one of `opened`; None if the command was cancelled before.

        Raises:
            OSError: it cannot be run.
        """
        backoff = Backoff(self._broker.clock, MAX_START_PAUSE_S)
        while not run.cancelled:
            backoff.begin()
            opening = self._children.open(
                hook.command,
                environment=self._environment(run),
                stdin=False,
                capture=True,
                new_session=True,
            )
            try:
                return await opened.enter_async_context(opening)
            except OSError as error:
                if error.errno not in SHORTAGES:
                    raise
                if not backoff.short_runs:
                    text = "%s: cannot run `%s` now: %s; trying again"
                    log.warning(text, run.name, hook.command[0], error.strerror)
            run.scope = trio.CancelScope(relative_deadline=backoff.end())
            if not run.cancelled:
                with run.scope:
                    await self._short.park()
        return None

    def _environment(self, run: _Run) -> dict[str, str]:
        environment = command_environment(self._inherited, self._uri, nested=True)
        for key, value in run.variables.items():
            environment[f"FLUX_{key}"] = environment[f"PENSTOCK_{key}"] = value
        environment["PENSTOCK_HOOK"] = run.kind
        return environment


class _Run:
    """One queued or running command.

    Args:
        request: the request to run it.

    Raises:
        RequestError: the payload is malformed.
    """

    def __init__(self, request: Message) -> None:
        self.request = request
        self.kind = (request.topic or "").rpartition(".")[2]
        payload = HookRequest.read(request)
        self.job = payload.id
        self.name = f"{self.kind} of {fluid_f58(self.job)}"
        self.variables = _read_variables(payload)
        self.cancelled = False
        # The requests that are answered when it has ended.
        self.cancellations: list[Message] = []
        # The end of the job's command before this one, if there was one.
        self.previous: trio.Event | None = None
        self.ended = trio.Event()
        # Cancels the current wait, for a slot or for the command.
        self.scope = trio.CancelScope()

    def cancel(self) -> None:
        """Ends the command, or does not start it."""
        self.cancelled = True
        self.scope.cancel()


def _read_variables(request: HookRequest) -> dict[str, str]:
    """The environment's entries about the job, without their prefixes."""
    variables = {"JOB_ID": fluid_f58(request.id), "JOB_USERID": str(request.userid)}
    if request.r is not None:
        variables["JOB_HOSTS"] = str(request.r.nodelist)
        variables["JOB_RANKS"] = str(request.r.ranks)
    if request.status is not None:
        variables["JOB_STATUS"] = str(request.status)
    return variables


async def _wait(process: ChildProcess, run: _Run, limit: float) -> tuple[int, str]:
    """Waits for a command and logs its output; ends it at its timeout or when it is cancelled."""
    note = ""
    output = _Output(process, run.name)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(output.read)
        run.scope = trio.CancelScope(relative_deadline=limit or float("inf"))
        if run.cancelled:
            run.scope.cancel()
        with run.scope:
            await process.wait()
        if run.scope.cancelled_caught:
            reason = "was cancelled" if run.cancelled else f"timed out after {limit:g} s"
            note = f"{run.kind} {reason}"
            await _end(process)
        nursery.cancel_scope.cancel()
    output.drain()
    code = process.returncode or 0
    status = -code if code < 0 else code << 8
    if note:
        # Exit code 0 after SIGTERM does not mean that the command has done its work.
        return status or int(signal.SIGTERM), note
    if code < 0:
        return status, f"{run.kind} was killed by signal {-code}"
    return status, f"{run.kind} failed with exit code {code}" if code else ""


async def _end(process: ChildProcess) -> None:
    """Ends a command and its process group: SIGTERM, then SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        process.signal_group(number)
        with trio.move_on_after(KILL_DELAY_S):
            await process.wait()
        if process.returncode is not None:
            return
    await process.wait()


class _Output:
    """Logs a command's output line by line, up to a limit."""

    def __init__(self, process: ChildProcess, name: str) -> None:
        self._process = process
        self._name = name
        self._left = MAX_LOGGED_LINES
        self._line = b""

    async def read(self) -> None:
        """Logs the output until the last writer closes the pipe."""
        while data := await self._process.read():
            self._append(data)

    def drain(self) -> None:
        """Logs the remaining output in the pipe, which surviving processes may hold open."""
        while data := self._process.drain():
            self._append(data)
        self._log(self._line)

    def _append(self, data: bytes) -> None:
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            self._log(line)
        if len(self._line) > MAX_LINE_CHARACTERS:
            self._log(self._line)
            self._line = b""

    def _log(self, line: bytes) -> None:
        if not line or self._left < 0:
            return
        self._left -= 1
        text = (
            line[:MAX_LINE_CHARACTERS].decode(errors="replace")
            if self._left >= 0
            else "(further output is not logged)"
        )
        log.info("%s: %s", self._name, text)
