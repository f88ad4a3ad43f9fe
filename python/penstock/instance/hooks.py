"""`hooks`: runs the site's prolog and epilog for the job manager (RFC 21).

A command's status is the job manager's to judge; here it is run, in time, and its output logged.
It finds in its environment, under `PENSTOCK_` and under `FLUX_`: `JOB_ID`, `JOB_USERID`,
`JOB_HOSTS` and `JOB_RANKS`, an epilog also `JOB_STATUS` (the wait status, where there is one), and
`PENSTOCK_HOOK` (`prolog` or `epilog`). What a prolog leaves running under that environment is ended
with the job's own processes.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import trio

from penstock._core import ResourceSet, fluid_f58
from penstock.errors import WireError
from penstock.instance.control import Methods, Refused, answer
from penstock.instance.environment import command_environment

if TYPE_CHECKING:
    from penstock._core import Batch, Message
    from penstock.config import Hook, JobManagerSettings
    from penstock.instance.broker import Broker
    from penstock.instance.children import Children

log = logging.getLogger("penstock.hooks")

# A thousand jobs that start at once must not start a thousand commands at once.
MOST_AT_ONCE = 64
# What one command may write to the log: lines, and characters of a line.
MOST_LINES = 1000
LONGEST = 4096
# Between SIGTERM and SIGKILL.
GRACE = 5.0


class HookService:
    """Serves `hooks.prolog`, `hooks.epilog` and `hooks.cancel`, to the owner only.

    Args:
        broker: the broker.
        settings: the configuration's `[job-manager]`.
        uri: the instance's address, for the commands' environment.
        children: the instance's own processes.
    """

    def __init__(
        self, broker: Broker, settings: JobManagerSettings, *, uri: str, children: Children
    ) -> None:
        self._broker = broker
        self._settings = settings
        self._uri = uri
        self._children = children
        self._room = trio.CapacityLimiter(MOST_AT_ONCE)
        self._asked: list[_Run] = []
        self._wake = trio.Event()
        self._running: dict[int, _Run] = {}
        self._methods: Methods = {"hooks.cancel": self._cancel}
        self.peer = broker.attach(self, names=("hooks",))

    def set_settings(self, settings: JobManagerSettings) -> None:
        """Runs other commands from now on."""
        self._settings = settings

    def deliver(self, batch: Batch) -> None:
        """Takes requests in; the answer to one that runs a command is the command's end."""
        for request in batch:
            if request.kind != "request":
                continue
            response = self._take(request)
            if response is not None:
                self._broker.post_messages(self.peer, [response])

    def settle(self, now: float) -> None:
        """Has nothing to settle."""

    def _take(self, request: Message) -> Message | None:
        if request.userid != self._broker.owner:
            text = f"{request.topic}: only the instance owner may do this"
            return request.respond(errnum=errno.EPERM, errtext=text)
        if request.topic not in ("hooks.prolog", "hooks.epilog"):
            return answer(request, self._methods)
        try:
            run = _Run(request, _number(request, "id"), _number(request, "userid"))
        except Refused as refused:
            return request.respond(errnum=refused.errnum, errtext=refused.text)
        # A job's epilog is asked for when its prolog has ended.
        self._running[run.job] = run
        self._asked.append(run)
        self._wake.set()
        return None

    def _cancel(self, request: Message) -> dict[str, Any]:
        run = self._running.get(_number(request, "id"))
        if run is not None:
            run.cancelled = True
            run.scope.cancel()
        return {}

    async def run(self) -> None:
        """Runs what is asked for, each command for itself."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._wake.wait()
                self._wake = trio.Event()
                asked, self._asked = self._asked, []
                for run in asked:
                    nursery.start_soon(self._run_one, run)

    async def _run_one(self, run: _Run) -> None:
        acquired = False
        try:
            with run.scope:
                await self._room.acquire_on_behalf_of(run)
                acquired = True
            if run.cancelled:
                status, note = int(signal.SIGTERM), f"{run.kind} was cancelled"
            else:
                status, note = await self._execute(run)
        finally:
            if acquired:
                self._room.release_on_behalf_of(run)
        if self._running.get(run.job) is run:
            del self._running[run.job]
        told = {"id": run.job, "status": status, "note": note}
        self._broker.post_messages(self.peer, [run.request.respond(told)])

    async def _execute(self, run: _Run) -> tuple[int, str]:
        """Runs a command; returns its wait status and what there is to say of it."""
        hook: Hook = getattr(self._settings, run.kind)
        if not hook.command:
            return 0, ""
        try:
            async with self._children.open(
                hook.command,
                env=self._environment(run),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ) as process:
                return await _attend(process, run, hook.timeout)
        except OSError as error:
            return 127 << 8, f"{run.kind}: cannot run `{hook.command[0]}`: {error.strerror}"

    def _environment(self, run: _Run) -> dict[str, str]:
        environment = command_environment(self._uri, nested=True)
        payload = run.request.object()
        values = {"JOB_ID": fluid_f58(run.job), "JOB_USERID": str(run.userid)}
        if payload.get("R") is not None:
            resources = ResourceSet(payload["R"])
            values["JOB_HOSTS"] = str(resources.nodelist)
            values["JOB_RANKS"] = str(resources.ranks)
        if payload.get("status") is not None:
            values["JOB_STATUS"] = str(payload["status"])
        for key, value in values.items():
            environment[f"FLUX_{key}"] = environment[f"PENSTOCK_{key}"] = value
        environment["PENSTOCK_HOOK"] = run.kind
        return environment


def _number(request: Message, key: str) -> int:
    try:
        payload = request.object()
    except WireError as error:
        raise Refused(errno.EPROTO, f"{request.topic}: {error}") from error
    value = payload.get(key) if isinstance(payload, dict) else None
    if not isinstance(value, int):
        raise Refused(errno.EPROTO, f"{request.topic}: expected `{key}` (int)")
    return value


class _Run:
    """A command that is to be run, or runs."""

    def __init__(self, request: Message, job: int, userid: int) -> None:
        self.request = request
        self.kind = (request.topic or "").rpartition(".")[2]
        self.job = job
        self.userid = userid
        self.name = f"{self.kind} of {fluid_f58(job)}"
        self.cancelled = False
        # Whatever is waited for now.
        self.scope = trio.CancelScope()


async def _attend(process: trio.Process, run: _Run, limit: float) -> tuple[int, str]:
    """Waits for a command, logs its output, ends it when its time is over or it is cancelled."""
    note = ""
    output = _Output(process, run.name)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(output.read)
        run.scope = trio.CancelScope(deadline=trio.current_time() + (limit or float("inf")))
        with run.scope:
            await process.wait()
        if run.scope.cancelled_caught:
            told = "was cancelled" if run.cancelled else f"timed out after {limit:g} s"
            note = f"{run.kind} {told}"
            await _end(process)
        nursery.cancel_scope.cancel()
    output.rest()
    code = process.returncode or 0
    status = -code if code < 0 else code << 8
    if note:
        # One that ends well when it is told to end has not done its work.
        return status or int(signal.SIGTERM), note
    if code < 0:
        return status, f"{run.kind} was killed by signal {-code}"
    return status, f"{run.kind} failed with exit code {code}" if code else ""


async def _end(process: trio.Process) -> None:
    """Ends a command and what it has started, and more firmly what does not heed that."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with trio.move_on_after(GRACE):
            await process.wait()
        if process.returncode is not None:
            return
    await process.wait()


class _Output:
    """A command's output, line by line into the log, until there is too much of it."""

    def __init__(self, process: trio.Process, name: str) -> None:
        assert isinstance(process.stdout, trio.lowlevel.FdStream)
        self._pipe = process.stdout
        self._name = name
        self._left = MOST_LINES
        self._begun = b""

    async def read(self) -> None:
        """Logs what is written, for as long as somebody may write."""
        while data := await self._pipe.receive_some():
            self._take(bytes(data))

    def rest(self) -> None:
        """Logs what the command has left in the pipe, which others may still have open."""
        with suppress(BlockingIOError):
            while data := os.read(self._pipe.fileno(), 65536):
                self._take(data)
        self._say(self._begun)

    def _take(self, data: bytes) -> None:
        *lines, self._begun = (self._begun + data).split(b"\n")
        for line in lines:
            self._say(line)
        if len(self._begun) > LONGEST:
            self._say(self._begun)
            self._begun = b""

    def _say(self, line: bytes) -> None:
        if not line or self._left < 0:
            return
        self._left -= 1
        text = line[:LONGEST].decode(errors="replace") if self._left >= 0 else "(more is not kept)"
        log.info("%s: %s", self._name, text)
