"""The instance: its services put together, run, and ended in order."""

from __future__ import annotations

import dataclasses
import json
import logging
import signal
from contextlib import AsyncExitStack, suppress
from functools import partial
from itertools import chain, starmap
from typing import TYPE_CHECKING, Any

import trio

from penstock import inventory
from penstock._core import ResourceSet, __version__, fluid_f58, topic
from penstock.client.calls import raw_call
from penstock.client.methods import Methods
from penstock.client.outstanding import silent_request
from penstock.errors import Error, RequestError, StartError
from penstock.instance.broker import Broker
from penstock.instance.config_reload import check_queues, merge
from penstock.instance.control import ControlService
from penstock.instance.environment import command_environment
from penstock.instance.exec_process import ExecProcess
from penstock.instance.heartbeat import Heartbeat
from penstock.instance.hooks import HookService
from penstock.instance.host import host_system, private_umask, raise_descriptor_limit
from penstock.instance.internal_client import InternalClient
from penstock.instance.log_service import LogService
from penstock.instance.metrics_listener import MetricsListener
from penstock.instance.output_purge import OutputPurge
from penstock.instance.parent_instance import OVERSUBSCRIBE_ATTRIBUTE, ParentLink
from penstock.instance.pmix_service import PmixService
from penstock.instance.queue_warnings import queue_restricted, queues_lost
from penstock.instance.resource import ResourceService
from penstock.instance.service_manager import ServiceManager
from penstock.instance.services import ManagerService, MockExecService, SchedulerService
from penstock.instance.settings import manager_settings, scheduler_settings
from penstock.instance.supervision import Backoff, contain, supervise
from penstock.interpreter import environment_of, penstock_command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock._core import ShutdownRequest
    from penstock.config import Config
    from penstock.instance.restart import Restarts
    from penstock.instance.startup import StartOptions
    from penstock.instance.system import ChildProcess, Host, System
    from penstock.rows import JobRow

log = logging.getLogger("penstock")

EXEC_NAME = "job-exec"
# The counts of jobs, by which a changed configuration is checked.
JOB_STATS_CALL = raw_call(topic.job_list.JOB_STATS, {})
# Added to twice the kill timeout of jobs, for their end at shutdown.
SHUTDOWN_MARGIN_S = 5.0


def run(options: StartOptions) -> int | None:
    """Runs an instance until it is stopped, or until its command ends.

    Args:
        options: from the command line and the configuration.

    Returns:
        The exit code of the command, 0 without one; None if the instance is to be started again.

    Raises:
        StartError: another instance uses the state directory or the socket, or the files of the
            execution service are of another version.
        InventoryError: the resources cannot be determined.
        StoreError: the store cannot be opened, or the last changes cannot be committed; no response
            was sent that depends on them.
    """
    try:
        return trio.run(_run, options, strict_exception_groups=True)
    except BaseExceptionGroup as group:
        # The first failure cancels all other tasks: it is the one to report.
        raise _first_failure(group) from group


def _first_failure(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first_failure(first) if isinstance(first, BaseExceptionGroup) else first


async def _run(options: StartOptions) -> int | None:
    with private_umask() as umask:
        system = host_system(options, umask, raise_descriptor_limit())
        claim = system.host.claim(
            options.state, options.socket, options.kind, any_state=options.any_state
        )
        service_manager = ServiceManager(system.host.environment, system.host.pid)
        with claim:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(service_manager.keep_alive)
                options = _notifying(options, service_manager)
                try:
                    code = await Instance(options, system).run()
                finally:
                    service_manager.notify("STOPPING=1")
                nursery.cancel_scope.cancel()
            return code


def _notifying(options: StartOptions, service_manager: ServiceManager) -> StartOptions:
    """The options with which the instance notifies the service manager that it is ready."""
    on_ready = options.on_ready

    def notify(resources: ResourceSet) -> None:
        service_manager.notify(
            f"READY=1\nSTATUS={resources.nnodes} nodes, {resources.ncores} cores"
        )
        if on_ready is not None:
            on_ready(resources)

    return dataclasses.replace(options, on_ready=notify)


class Instance:
    """One running instance.

    Args:
        options: what it is started with.
        system: the operating system.
    """

    def __init__(self, options: StartOptions, system: System) -> None:
        self._options = options
        self._system = system
        self._uri = f"local://{options.socket}"
        self._resources = _inventory(options, system.host)
        self._stopping = trio.Event()
        self._keep_running = self._restart = False
        self._exec_process: ExecProcess | None = None
        # The settings that the scheduler was sent last.
        self._sent_scheduler_settings = ""
        config = options.config
        self._broker = Broker(
            owner=system.host.uid,
            pid=system.host.pid,
            clock=system.clock,
            random_bytes=system.random_bytes,
            allow_guests=config.access.allow_guest_user,
            allow_root=config.access.allow_root_owner,
            descriptor_limit=system.host.descriptor_limit,
        )
        self._broker.set_quota(config.penstock.quota)
        self._manager = system.open_manager(self._manager_settings(), system.clock.now())
        # The restarts of the services, by their names in errors.
        self._restarts: dict[str, Restarts] = {}

    def _manager_settings(self) -> str:
        """The job manager's settings, from the configuration."""
        return json.dumps(manager_settings(self._options, self._broker.owner))

    def _attach_services(self) -> None:
        options, broker, system = self._options, self._broker, self._system
        self._control = ControlService(
            broker,
            attributes={
                "size": str(self._resources.nnodes),
                "rank": "0",
                "version": __version__,
                "hostname": next(self._resources.nodes()).host,
                "hostlist": str(self._resources.nodelist),
                "security.owner": str(broker.owner),
                "local-uri": self._uri,
                "broker.pid": str(broker.pid),
                "broker.starttime": str(system.clock.now()),
                "statedir": str(options.state),
                OVERSUBSCRIBE_ATTRIBUTE: str(int(options.oversubscribe)),
                **_nesting(options),
            },
            config=options.config.to_dict(),
            shut_down=self._shut_down,
            reload=self._reload,
            usage=system.host.usage,
        )
        self._log = LogService(broker)
        self._output_purge = OutputPurge(system.output, self._manager, system.in_thread)
        # The job manager posts first: responses of the other services are durable by then.
        self._jobs = ManagerService(
            broker,
            self._manager,
            self._manager_settings,
            self._output_purge.schedule,
            lambda: self._options.config.penstock.clock_step_limit,
            system.reserve,
        )
        hooks = options.config.job_manager
        self._hooks = HookService(broker, hooks, uri=self._uri, system=system)
        self._pmix = PmixService(broker, system.pmix_servers)
        # Tasks are bound to this machine's cores, which other ranks do not have.
        is_bound = options.exec == "local" and not options.oversubscribe
        self._resource = ResourceService(
            broker,
            self._manager,
            self._resources,
            options.config.resource,
            self._resources.ranks if is_bound else None,
            lambda: not self._jobs.restarts.failed or self._manager.is_reading,
        )
        self._restarts |= {
            "job manager": self._jobs.restarts,
            "resource module": self._resource.restarts,
            "control service": self._control.restarts,
            "service of the hooks": self._hooks.restarts,
            "log service": self._log.restarts,
            "service of the PMIx servers": self._pmix.restarts,
        }
        self._jobs.on_rebuild.append(self._resource.restarts.replace)
        self._jobs.on_failure.append(self._resource.withhold)

    def _shut_down(self, request: ShutdownRequest) -> None:
        """Stops the instance.

        Raises:
            StartError: its jobs cannot continue without it, or it cannot be started again.
        """
        keep_running = request.keep_running or request.restart
        if keep_running and self._options.is_temporary:
            raise StartError(
                "the state of the instance is temporary: its jobs end with it\n"
                "hint: start it with `--state DIR`"
            )
        if request.restart and self._options.command:
            raise StartError(
                "the instance runs a command, which would run twice\n"
                "hint: end the instance by `penstock stop --keep-running`, and start it again"
            )
        self._restart, self._keep_running = request.restart, keep_running
        self._stopping.set()

    def _reload(self, document: dict[str, Any]) -> tuple[Config, list[str]]:
        """Applies a new configuration, or none of it.

        Returns:
            The effective configuration, and the dotted names of the keys that differ.

        Raises:
            Error: the configuration is invalid, or a service rejects it.
        """
        old = self._options
        config, changed = merge(old.config, document)
        check_queues(old.config, config, lambda: self._jobs.do(JOB_STATS_CALL))
        new = dataclasses.replace(old, config=config)
        self._configure_manager(old, new)
        try:
            self._resource.reconfigure(config.resource)
        except Error:
            self._configure_manager(new, old)
            raise
        if self._exec_process is not None:
            self._exec_process.set_settings(config.penstock.exec)
        self._broker.set_quota(config.penstock.quota)
        self._options = new
        self._configure_scheduler()
        log.info("configuration: %s", ", ".join(changed) or "unchanged")
        return config, changed

    def _scheduler_settings(self) -> str:
        """The scheduler's settings, from the configuration and the nodes of each queue."""
        return json.dumps(scheduler_settings(self._options.config, self._resource.resources))

    def _configure_scheduler(self) -> None:
        """Sends changed settings to the scheduler, within the daemon or outside."""
        settings = self._scheduler_settings()
        if self._options.sched != "none" and settings != self._sent_scheduler_settings:
            self._sent_scheduler_settings = settings
            payload = json.loads(settings)
            request = silent_request(topic.sched.CONFIG_RELOAD, payload)
            self._broker.post_messages(self._control.peer, [request])

    def _configure_manager(self, before: StartOptions, after: StartOptions) -> None:
        owner = self._broker.owner
        settings = manager_settings(after, owner)
        if settings != manager_settings(before, owner):
            with self._jobs.guard():
                self._manager.set_settings(json.dumps(settings), self._system.clock.now())
            self._broker.nudge()
        self._hooks.set_settings(after.config.job_manager)

    async def run(self) -> int | None:
        """Serves until stopped; returns the exit code, None if it is to be started again."""
        options, network = self._options, self._system.network
        self._attach_services()
        mode = 0o777 if options.config.access.allow_guest_user else 0o700
        async with (
            network.listen(options.socket, mode=mode) as listener,
            trio.open_nursery() as nursery,
        ):
            self._supervise(nursery, "broker", self._broker.pump)
            self._supervise(nursery, "job manager", self._jobs.run)
            watch_syncs = partial(self._jobs.watch_syncs, self._system.read_input)
            self._supervise(nursery, "syncs of the store", watch_syncs)
            self._supervise(nursery, "reserve of disk space", self._jobs.watch_space)
            self._supervise(nursery, "return of memory", self._jobs.return_memory)
            self._supervise(nursery, "hooks", self._hooks.run)
            self._supervise(nursery, "PMIx servers", self._pmix.run)
            for name, restarts in self._restarts.items():
                self._supervise(nursery, f"restarts of the {name}", restarts.run)
            self._supervise(nursery, "purge of output", self._output_purge.run)
            self._supervise(nursery, "log", self._log.run)
            heartbeat = Heartbeat(self._broker, self._control)
            self._supervise(nursery, "heartbeat", heartbeat.run)
            nursery.start_soon(self._watch_signals)
            self._start_execution(nursery)
            await nursery.start(self._broker.listen, listener, network)
            address = options.config.penstock.metrics.listen
            if address is not None:
                metrics = MetricsListener(self._broker, network, self._system.host, address)
                await nursery.start(metrics.run)
            log.info("%s: %s", self._uri, self._resources.summary())
            if options.on_ready is not None:
                options.on_ready(self._resources)
            # A job manager that has failed is built again.
            with suppress(RequestError):
                self._warn_about_queues()
            if options.parent is not None:
                link = ParentLink(
                    self._broker,
                    options.parent,
                    self._uri,
                    inherits=options.inherits,
                    network=network,
                )
                nursery.start_soon(contain, "link to the parent", link.run)
            code = await self._run_scheduler_and_command(nursery)
            if options.command and self._report_failures():
                code = code or 1
            await self._end_jobs()
            await self._broker.send_posted()
            nursery.cancel_scope.cancel()
        if self._jobs.restarts.failed:
            log.error("changes since the last commit are lost: the job manager has failed")
            code = code or 1
        else:
            self._manager.flush()
        # The service of continuing jobs enforces their limits until the next start. At a restart,
        # that is now: the next daemon starts its own.
        if self._exec_process is not None and (self._restart or not self._keep_running):
            await self._exec_process.end(at_once=self._restart)
        return None if self._restart else code

    def _report_failures(self) -> bool:
        """Logs the services that have failed now. Returns whether there are any."""
        failures = {name: restarts.failure for name, restarts in self._restarts.items()}
        for name, failure in failures.items():
            if failure is not None:
                log.error("the %s had failed when the command ended: %s", name, failure.text)
        return any(failures.values())

    def _warn_about_queues(self) -> None:
        """Logs what keeps jobs from their queues.

        Raises:
            RequestError: the job manager has failed.
        """
        config = self._options.config
        stats = self._jobs.do(JOB_STATS_CALL)
        names: list[str | None] = [*config.queues] or [None]
        statuses = {name: self._jobs.do(Methods.queue_status.call(name)) for name in names}
        for warning in [
            *queues_lost(config, stats),
            *chain.from_iterable(starmap(queue_restricted, statuses.items())),
        ]:
            log.warning("%s", warning)

    def _supervise(
        self,
        nursery: trio.Nursery,
        name: str,
        run: Callable[[], Awaitable[None]],
    ) -> None:
        nursery.start_soon(supervise, name, run, self._system.clock)

    def _start_execution(self, nursery: trio.Nursery) -> None:
        """Starts the execution service, simulated or as a process, unless there is to be none."""
        options = self._options
        if options.exec == "sim":
            mock = MockExecService(self._broker, EXEC_NAME)
            self._jobs.on_rebuild.append(mock.restarts.replace)
            self._restarts["simulated execution"] = mock.restarts
            self._supervise(nursery, "simulated execution", mock.run)
        if options.exec == "local":
            if options.exec_program is None:
                raise StartError("no program `penstock-exec`, which runs the jobs")
            if options.config.penstock.exec.output_directory is not None:
                self._system.host.prepare_output(options.output_directory)
            job_directory = options.config.penstock.exec.job_directory
            if job_directory is not None:
                self._system.host.prepare_jobs(job_directory)
            self._exec_process = ExecProcess(
                self._broker,
                options.exec_program,
                options.exec_directory,
                uri=self._uri,
                settings=options.config.penstock.exec,
                oversubscribe=options.oversubscribe or _flux_counts(options),
                system=self._system,
            )
            self._supervise(nursery, "execution service", self._exec_process.run)
            nursery.start_soon(self._exec_process.check_version)

    async def _run_scheduler_and_command(self, nursery: trio.Nursery) -> int:
        """Runs the scheduler, and the command if there is one, until the instance is to stop."""
        limit = self._options.config.penstock.scheduler.limit or None
        if self._options.sched == "inside":
            service = SchedulerService(self._broker, limit, self._scheduler_settings)
            self._jobs.on_rebuild.append(service.restarts.replace)
            self._restarts["scheduler"] = service.restarts
            self._supervise(nursery, "scheduler", service.run)
        elif self._options.sched == "process":
            keep = partial(self._keep_scheduler_process, limit)
            self._supervise(nursery, "scheduler process", keep)
        if not self._options.command:
            await self._stopping.wait()
            return 0
        if self._exec_process is not None:
            # A command that requests output at once finds the service.
            await self._exec_process.wait_for_start()
        return await self._run_command(self._options.command)

    async def _run_command(self, command: tuple[str, ...]) -> int:
        environment = command_environment(
            self._system.host.environment, self._uri, nested=self._options.parent is not None
        )
        async with AsyncExitStack() as stack:
            try:
                opening = self._system.children.open(command, environment=environment)
                process = await stack.enter_async_context(opening)
            except FileNotFoundError:
                log.warning("%s: command not found", command[0])
                return 127
            except OSError as error:
                log.warning("%s: cannot be executed: %s", command[0], error.strerror)
                return 126
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._stop_command, process)
                code = await process.wait()
                nursery.cancel_scope.cancel()
        return 128 - code if code < 0 else code

    async def _stop_command(self, process: ChildProcess) -> None:
        """Ends the command when the instance stops: shells ignore SIGTERM, but not SIGHUP."""
        await self._stopping.wait()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
            try:
                process.signal(number)
                # A stopped process does not handle a signal until it continues.
                process.signal(signal.SIGCONT)
            except PermissionError:
                log.warning("process %d: no permission to end it", process.pid)
                return
            await trio.sleep(self._options.config.penstock.exec.kill_timeout)

    async def _keep_scheduler_process(self, limit: int | None) -> None:
        """Runs a scheduler process; restarts it with backoff when it ends."""
        command = penstock_command("sched", "--uri", self._uri)
        if limit is not None:
            command += ["--limit", str(limit)]
        backoff = Backoff(self._system.clock)
        while True:
            settings = ["--settings", self._scheduler_settings()]
            backoff.begin()
            environment = environment_of(self._system.host.environment)
            opening = self._system.children.open(
                [*command, *settings], environment=environment, stdin=False
            )
            async with opening as process:
                code = await process.wait()
            log.warning("scheduler process %d ended with status %d", process.pid, code)
            await backoff.pause()

    async def _watch_signals(self) -> None:
        with self._system.stop_signals() as signals:
            async for _ in signals:
                self._stopping.set()

    async def _end_jobs(self) -> None:
        """Ends running jobs, unless they are to continue; pending jobs stay in the store."""
        # Resources that the running jobs free must not start pending ones.
        with suppress(RequestError), self._jobs.guard():
            self._manager.stop_scheduling()
        # Jobs of an external service continue; it reattaches them at the next start.
        if self._options.exec != "none" and not self._keep_running:
            await self._cancel_running()

    async def _cancel_running(self) -> None:
        """Cancels the running jobs and waits for their end."""
        client = InternalClient(self._broker)
        rows: list[JobRow] = []
        running = Methods.iter_job_rows.call(constraint={"states": ["running"]}, attrs=["id"])
        listed = client.stream(running, rows)
        while not listed.is_set():
            self._broker.run_round()
        if not rows:
            return
        ids = [row["id"] for row in rows]
        ended = client.stream(Methods.wait_rows.call(ids), [])
        client.send(Methods.cancel.call(ids, note="the instance was shut down"))
        timeout = 2 * self._options.config.penstock.exec.kill_timeout + SHUTDOWN_MARGIN_S
        with trio.move_on_after(timeout):
            await ended.wait()


def _inventory(options: StartOptions, host: Host) -> ResourceSet:
    """The resources that the options or the configuration name, by default this machine's.

    Raises:
        StartError: jobs run on this machine, which lacks some of the resources.
    """
    resources = _named_resources(options, host)
    if options.exec == "local" and not options.oversubscribe:
        if options.inherits:
            # All cores that the job has here, not only those of the daemon's task.
            host.bind(next(resources.nodes()).cores)
        own = host.discover()
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
    """Whether Flux has numbered the resources' cores, by hwloc and not as the kernel does.

    Tasks then run unbound, on the CPUs that Flux has bound this process to.
    """
    return options.inherits and options.parent is not None and options.parent.flux


def _nesting(options: StartOptions) -> dict[str, str]:
    """The attributes of a nested instance."""
    parent = options.parent
    if parent is None:
        return {"instance-level": "0"}
    return {
        "instance-level": str(parent.level + 1),
        "parent-uri": parent.uri,
        "jobid": fluid_f58(parent.job),
    }


def _named_resources(options: StartOptions, host: Host) -> ResourceSet:
    resource = options.config.resource
    if options.R is not None:
        return host.read_resources(options.R)
    if options.nodes is not None:
        return inventory.simulated(options.nodes, options.cores or 1, options.gpus or 0)
    if resource.path is not None:
        return host.read_resources(resource.path)
    if resource.config:
        return inventory.from_config(resource.config)
    if options.parent is not None:
        return options.parent.resources
    return host.discover()
