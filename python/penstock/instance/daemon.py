"""The instance: everything put together, run, and taken down again in order."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import trio

from penstock._core import Batch, JobManager, Message, ResourceSet, fluid_f58
from penstock.errors import Error, StartError
from penstock.instance import inventory
from penstock.instance.broker import Broker
from penstock.instance.config_reload import check_queues, merge, queues_lost
from penstock.instance.control import ControlService
from penstock.instance.environment import command_environment
from penstock.instance.hooks import HookService
from penstock.instance.log_service import LogService
from penstock.instance.output_retention import OutputRetention
from penstock.instance.parent_instance import ParentLink
from penstock.instance.processes import ChildProcesses
from penstock.instance.resource import ResourceService
from penstock.instance.services import ManagerService, MockExecService, SchedulerService
from penstock.instance.settings import manager_settings, scheduler_settings
from penstock.instance.startup import lock_state_directory, remove_stale_socket
from penstock.instance.supervision import Backoff
from penstock.protocol.message import NORESPONSE, STREAMING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from penstock.config import Config
    from penstock.instance.exec_service import LocalExecService
    from penstock.instance.startup import StartOptions

log = logging.getLogger("penstock")

EXEC_NAME = "job-exec"


def run(options: StartOptions) -> int:
    """Runs an instance until it is told to stop, or until its command ends.

    Args:
        options: what to run, from the command line and the configuration.

    Returns:
        The exit code of the command, 0 where there was none.

    Raises:
        StartError: another instance has the state directory or the socket.
        InventoryError: the resources cannot be made out.
        StoreError: the store failed; nothing was told to anybody that is not in it.
    """
    try:
        return trio.run(_run, options, strict_exception_groups=True)
    except BaseExceptionGroup as group:
        # One failure ends everything else: that one is what there is to tell.
        raise _cause(group) from group


def _cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _cause(first) if isinstance(first, BaseExceptionGroup) else first


async def _run(options: StartOptions) -> int:
    options.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    options.socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with lock_state_directory(options.state):
        remove_stale_socket(options.socket)
        return await Instance(options).run()


class Instance:
    """One running instance.

    Args:
        options: what to run.
    """

    def __init__(self, options: StartOptions) -> None:
        self._options = options
        self._uri = f"local://{options.socket}"
        self._resources = _inventory(options)
        self._stopping = trio.Event()
        self._children = ChildProcesses()
        self._local: LocalExecService | None = None
        # What the scheduler was told last of the configuration.
        self._told = ""
        config = options.config
        self._broker = Broker(
            owner=os.geteuid(),
            allow_guests=config.access.allow_guest_user,
            allow_root=config.access.allow_root_owner,
        )
        self._manager = JobManager(
            options.state / "jobs.sqlite",
            json.dumps(manager_settings(options)),
            time.time(),
            synchronous=config.penstock.store.synchronous,
        )

    def _attach_services(self) -> None:
        options, broker = self._options, self._broker
        self._control = ControlService(
            broker,
            attributes={
                "size": str(self._resources.nnodes),
                "security.owner": str(broker.owner),
                "local-uri": self._uri,
                "broker.pid": str(os.getpid()),
                "broker.starttime": str(time.time()),
                "statedir": str(options.state),
                **_nesting(options),
            },
            config=options.config.to_dict(),
            shut_down=self._stopping.set,
            reload=self._reload,
        )
        self._logbook = LogService(broker)
        # The manager settles first: what the others answer is on disk by then.
        self._output = OutputRetention(options.state / "output", self._manager)
        self._jobs = ManagerService(broker, self._manager, self._output.forget)
        hooks = options.config.job_manager
        self._hooks = HookService(broker, hooks, uri=self._uri, children=self._children)
        self._resource = ResourceService(
            broker, self._manager, self._resources, options.config.resource, self._admit
        )

    def _admit(self, resources: ResourceSet) -> None:
        """Refuses resources on which jobs cannot be run here."""
        options = self._options
        more = resources.ranks - self._resources.ranks
        if more and options.exec == "local" and not options.oversubscribe:
            raise StartError(
                f"jobs run on this machine, which does not have ranks {more}\n"
                "hint: simulate execution with `--exec sim`, or share this machine's cores among "
                "all jobs with `--oversubscribe`"
            )

    def _reload(self, document: dict[str, Any]) -> tuple[Config, list[str]]:
        """Takes a new configuration: all of it, or, with an error, nothing."""
        old = self._options
        config, changed = merge(old.config, document)
        check_queues(old.config, config, lambda: self._jobs.ask("job-list.job-stats"))
        new = dataclasses.replace(old, config=config)
        self._set_manager(old, new)
        try:
            self._resource.reconfigure(config.resource)
        except Error:
            self._set_manager(new, old)
            raise
        if self._local is not None:
            self._local.set_settings(config.penstock.exec)
        self._options = new
        self._set_scheduler()
        log.info("configuration: %s", ", ".join(changed) or "nothing has changed")
        return config, changed

    def _scheduler_settings(self) -> str:
        """The scheduler's settings, from the configuration and the nodes of each queue."""
        return json.dumps(scheduler_settings(self._options.config, self._resource.resources))

    def _set_scheduler(self) -> None:
        """Tells the scheduler, ours inside or outside, what it is to know from now on."""
        settings = self._scheduler_settings()
        if self._options.sched != "none" and settings != self._told:
            self._told = settings
            payload = json.loads(settings)
            request = Message.request("sched.config-reload", payload, flags=NORESPONSE)
            self._broker.post_messages(self._control.peer, [request])

    def _set_manager(self, before: StartOptions, after: StartOptions) -> None:
        settings = manager_settings(after)
        if settings != manager_settings(before):
            self._manager.set_settings(json.dumps(settings), time.time())
            self._broker.nudge()
        self._hooks.set_settings(after.config.job_manager)

    async def run(self) -> int:
        """Serves until told to stop; returns the exit code."""
        options = self._options
        self._attach_services()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._broker.pump)
            nursery.start_soon(self._jobs.run)
            nursery.start_soon(self._hooks.run)
            nursery.start_soon(self._output.run)
            nursery.start_soon(self._logbook.run)
            nursery.start_soon(self._watch_signals)
            async with self._execution(nursery):
                await nursery.start(self._broker.listen, options.socket)
                log.info("%s: %s", self._uri, self._resources.summary())
                for problem in queues_lost(options.config, self._jobs.ask("job-list.job-stats")):
                    log.warning("%s", problem)
                if options.parent is not None:
                    inherits = options.inherits
                    link = ParentLink(self._broker, options.parent, self._uri, inherits=inherits)
                    nursery.start_soon(link.run)
                code = await self._serve(nursery)
                await self._wind_down()
            nursery.cancel_scope.cancel()
        self._manager.flush()
        return code

    @asynccontextmanager
    async def _execution(self, nursery: trio.Nursery) -> AsyncIterator[None]:
        """Attaches the execution service, simulated or real, where it is to be inside."""
        options = self._options
        if options.exec == "sim":
            mock = MockExecService(self._broker, EXEC_NAME)
            nursery.start_soon(mock.run)
        if options.exec != "local":
            yield
            return
        from penstock.instance.exec_service import LocalExecService

        service = LocalExecService(
            self._broker,
            EXEC_NAME,
            uri=self._uri,
            output_dir=options.state / "output",
            settings=options.config.penstock.exec,
            oversubscribe=options.oversubscribe or _flux_counts(options),
            children=self._children,
        )
        self._local = service
        async with service.running():
            yield

    async def _serve(self, nursery: trio.Nursery) -> int:
        """Runs the scheduler and the command, if there is one, until it is time to stop."""
        limit = self._options.config.penstock.scheduler.limit or None
        if self._options.sched == "inside":
            service = SchedulerService(self._broker, limit, self._scheduler_settings)
            nursery.start_soon(service.run)
        elif self._options.sched == "process":
            nursery.start_soon(self._keep_scheduler, limit)
        if not self._options.command:
            await self._stopping.wait()
            return 0
        return await self._run_command(self._options.command)

    async def _run_command(self, command: tuple[str, ...]) -> int:
        environment = command_environment(self._uri, nested=self._options.parent is not None)
        async with AsyncExitStack() as stack:
            try:
                opening = self._children.open(command, env=environment)
                process = await stack.enter_async_context(opening)
            except FileNotFoundError:
                log.warning("%s: command not found", command[0])
                return 127
            except PermissionError:
                log.warning("%s: not executable", command[0])
                return 126
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._stop_command, process)
                code = await process.wait()
                nursery.cancel_scope.cancel()
        return 128 - code if code < 0 else code

    async def _stop_command(self, process: trio.Process) -> None:
        """Ends the command, and more firmly what does not heed that, such as a shell."""
        await self._stopping.wait()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
            try:
                process.send_signal(number)
                # A stopped process must go on to be terminated.
                process.send_signal(signal.SIGCONT)
            except PermissionError:
                log.warning("process %d must not be signalled: waiting for its end", process.pid)
                return
            await trio.sleep(self._options.config.penstock.exec.kill_timeout)

    async def _keep_scheduler(self, limit: int | None) -> None:
        """Keeps a scheduler process attached: when one ends, another is started."""
        plain = [sys.executable, "-m", "penstock", "sched", "--uri", self._uri]
        if limit is not None:
            plain += ["--limit", str(limit)]
        backoff = Backoff()
        while True:
            command = [*plain, "--settings", self._scheduler_settings()]
            backoff.begin()
            async with self._children.open(command, stdin=subprocess.DEVNULL) as process:
                code = await process.wait()
            log.warning("scheduler process %d ended with status %d", process.pid, code)
            await backoff.pause()

    async def _watch_signals(self) -> None:
        numbers = [signal.SIGINT, signal.SIGTERM]
        # Under nohup the end of the terminal is not the end of the instance.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        with trio.open_signal_receiver(*numbers) as signals:
            async for _ in signals:
                self._stopping.set()

    async def _wind_down(self) -> None:
        """Ends what runs; what is pending stays for the next start."""
        # What the running jobs give back must not let others begin.
        self._manager.stop_scheduling()
        if self._options.exec == "none":
            # What runs elsewhere goes on, and is handed to its service at the next start.
            return
        rows = self._rows({"states": ["running"]})
        if not rows:
            return
        ids = [row["id"] for row in rows]
        waiter = Waiter(self._broker)
        waiter.ask(Message.request("job-list.wait", {"ids": ids}, flags=STREAMING, matchtag=1))
        note = "the instance was shut down"
        request = {"ids": ids, "type": "cancel", "severity": 0, "note": note}
        waiter.ask(Message.request("job-manager.raise", request, matchtag=2))
        with trio.move_on_after(2 * self._options.config.penstock.exec.kill_timeout + 5.0):
            await waiter.ended.wait()

    def _rows(self, constraint: dict[str, Any]) -> list[dict[str, Any]]:
        waiter = Waiter(self._broker)
        payload = {"constraint": constraint, "attrs": ["id"]}
        waiter.ask(Message.request("job-list.list", payload, flags=STREAMING, matchtag=1))
        while not waiter.ended.is_set():
            self._broker.run_round()
        return [row for answer in waiter.answers for row in answer["jobs"]]


class Waiter:
    """A peer that asks something of the daemon's own services and keeps the answers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.answers: list[dict[str, Any]] = []
        self.ended = trio.Event()
        self._peer = broker.attach(self)

    def ask(self, request: Message) -> None:
        """Sends a request. The stream with matchtag 1 is the one that is kept."""
        self._broker.post_messages(self._peer, [request])

    def deliver(self, batch: Batch) -> None:
        """Keeps the answers of the stream, and sets `ended` at its end."""
        for message in batch:
            if message.matchtag == 1:
                if message.errnum:
                    self.ended.set()
                else:
                    self.answers.append(message.object())

    def settle(self, now: float) -> None:
        """Has nothing to settle."""


def _inventory(options: StartOptions) -> ResourceSet:
    """The resources that the options or the configuration name, or this machine's own.

    Raises:
        StartError: jobs are to run here on cores that this machine does not have.
    """
    resources = _named_resources(options)
    if options.exec == "local" and not options.oversubscribe:
        if options.inherits:
            _settle_on(resources)
        own = inventory.discover()
        cores = own.node(0).cores
        if _flux_counts(options):
            here = set(resources.nodelist) == set(own.nodelist)
        else:
            here = resources.nnodes == 1 and next(resources.nodes()).cores <= cores
        if not here:
            raise StartError(
                f"this machine is {own.nodelist} with rank0/core[{cores}], the resources are "
                f"{resources.summary()} of {resources.nodelist}\n"
                "hint: simulate execution with `--exec sim`, or share this machine's cores among "
                "all jobs with `--oversubscribe`"
            )
    return resources


def _flux_counts(options: StartOptions) -> bool:
    """Whether the resources' cores are numbered by Flux, whose numbers are not those of CPUs.

    What runs on them keeps to the CPUs that Flux has bound this process to.
    """
    return options.inherits and options.parent is not None and options.parent.flux


def _settle_on(resources: ResourceSet) -> None:
    """Has this process run on all the cores that its job has here, not only on its task's."""
    with suppress(OSError):
        os.sched_setaffinity(0, next(resources.nodes()).cores)


def _nesting(options: StartOptions) -> dict[str, str]:
    """The attributes that say where among instances this one stands."""
    parent = options.parent
    if parent is None:
        return {"instance-level": "0"}
    return {
        "instance-level": str(parent.level + 1),
        "parent-uri": parent.uri,
        "jobid": fluid_f58(parent.job),
    }


def _named_resources(options: StartOptions) -> ResourceSet:
    resource = options.config.resource
    if options.R is not None:
        return inventory.from_file(options.R)
    if options.nodes is not None:
        return inventory.made_up(options.nodes, options.cores or 1, options.gpus or 0)
    if resource.path is not None:
        return inventory.from_file(resource.path)
    if resource.config:
        return inventory.from_config(resource.config)
    if options.parent is not None:
        return options.parent.resources
    return inventory.discover()
