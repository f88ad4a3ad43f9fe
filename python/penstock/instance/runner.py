"""The execution service of this machine (RFC 32): runs jobs as processes."""

from __future__ import annotations

import errno
import functools
import json
import logging
import signal
from typing import TYPE_CHECKING, Any

import trio

from penstock._core import (
    ExpirationRequest,
    JobExceptionEvent,
    KillRequest,
    OutputRequest,
    ReplacedRequest,
    ResourceSet,
    ShrinkRequest,
    StartRequest,
    fluid_f58,
    lay_out,
    topic,
)
from penstock.errors import Error, RequestError, SpawnError
from penstock.instance import pmix_server
from penstock.instance.environment import job_environment, own_mark, task_environment
from penstock.instance.output_streams import OutputStreams
from penstock.instance.requests import (
    DEFERRED,
    Methods,
    error_response,
    is_disconnect,
    printable,
    require_owner,
    serve,
)
from penstock.instance.running_job import RankTask, RunningJob
from penstock.instance.supervision import FAULTS, contain
from penstock.protocol.execution import StartStream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from penstock._core import Message, TaskPlacement
    from penstock.clock import Clock
    from penstock.config import ExecSettings
    from penstock.instance.system import (
        OutputDirectory,
        PmixServers,
        SendRequest,
        Task,
        Tasks,
    )

log = logging.getLogger("penstock.exec")

# Seconds between two checks of the size of retained output.
OUTPUT_CHECK_INTERVAL_S = 1.0
# Seconds until a killed process counts as one that cannot be killed.
KILL_TIMEOUT_S = 5.0


class LocalRunner:
    """Runs jobs as processes.

    Args:
        send: sends messages to the broker.
        name: the service's name.
        owner: user id of the instance owner; requests of others are rejected.
        uri: the instance's address, for the tasks' environment.
        settings: the configuration's `[penstock.exec]`.
        oversubscribe: whether tasks run without being bound to cores.
        clock: the time.
        environment: the daemon's environment.
        tasks: starts and reaps the tasks.
        output: retains output that no jobspec redirects.
        pmix_servers: starts the PMIx servers of jobs.
        lookup_r: looks up the R of a job whose start request has none.
        wait_inactive: returns when a job is inactive.
        send_request: sends a request to the instance, for a job's PMIx server.
        wait_writable: returns when a requester has little unread.
    """

    def __init__(
        self,
        send: Callable[[list[Message]], None],
        *,
        name: str,
        owner: int,
        uri: str,
        settings: ExecSettings,
        oversubscribe: bool,
        clock: Clock,
        environment: Mapping[str, str],
        tasks: Tasks,
        output: OutputDirectory,
        pmix_servers: PmixServers,
        lookup_r: Callable[[int], Awaitable[str]],
        wait_inactive: Callable[[int], Awaitable[None]],
        send_request: SendRequest,
        wait_writable: Callable[[Message], Awaitable[None]],
    ) -> None:
        self._send = send
        self._name = name
        self._owner = owner
        self._uri = uri
        self._settings = settings
        self._settings_changed = trio.Event()
        self._bind = not oversubscribe
        self._clock = clock
        self._environment = environment
        self._tasks = tasks
        self._output = output
        self._pmix_servers = pmix_servers
        self._lookup_r = lookup_r
        self._send_request = send_request
        self._jobs: dict[int, RunningJob] = {}
        self._inbox, self._outbox = trio.open_memory_channel[tuple[Any, ...]](float("inf"))
        self._streams = OutputStreams(
            send=send,
            start_soon=self._start_soon,
            jobs=self._jobs,
            output=output,
            wait_inactive=wait_inactive,
            wait_writable=wait_writable,
        )
        method = topic.exec_method
        self._methods: Methods = {
            f"{name}.{method.START}": self._start,
            f"{name}.{method.KILL}": self._kill,
            f"{name}.{method.EXPIRATION}": self._expiration,
            f"{name}.{method.REPLACED}": self._replaced,
            f"{name}.{method.SHRINK}": self._shrink,
            f"{name}.{method.OUTPUT}": self._stream_output,
            f"{name}.{method.OUTPUT_CANCEL}": self._streams.cancel,
            f"{name}.{topic.STATS_GET}": self._stats,
        }

    # --- requests

    def handle(self, messages: Iterable[Message]) -> None:
        """Takes requests for this service, and the event `job-exception`."""
        for message in messages:
            if message.kind == "event" and message.topic == topic.JOB_EXCEPTION:
                self._take_exception(message)
            elif message.kind == "request":
                response = self._serve(message)
                if response is not None:
                    self._send([response])

    def _serve(self, request: Message) -> Message | None:
        if is_disconnect(request):
            self._streams.disconnect(request)
            return None
        try:
            # A start request runs a command as the owner.
            require_owner(request, self._owner)
        except RequestError as error:
            return error_response(request, error.errnum, error.text)
        return serve(request, self._methods)

    def _start_soon(self, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Runs a function in the background, once the service runs."""
        self._inbox.send_nowait((function, *args))

    def _take_exception(self, event: Message) -> None:
        try:
            exception = JobExceptionEvent.read(event)
        except RequestError as error:
            # Any client can publish an event; only the job manager's are well-formed for sure.
            log.warning("malformed event: %s", error.text)
            return
        job = self._jobs.get(exception.id)
        if job is not None and exception.severity == 0:
            job.stream.interrupt(exception.wait_status)
            job.ending.set()

    def _start(self, request: Message) -> Any:
        start = StartRequest.read(request)
        stream = StartStream(request, start.id, reattach=start.reattach)
        if start.id in self._jobs:
            # RFC 32 allows one outstanding request for a job: a second one gets no response.
            log.error("job %s is running already: start request ignored", fluid_f58(start.id))
        elif start.reattach:
            self._start_soon(self._end_lost, stream)
        else:
            self._jobs[start.id] = RunningJob(stream)
            self._start_soon(self._run_job, self._jobs[start.id], start)
        return DEFERRED

    def _kill(self, request: Message) -> None:
        kill = KillRequest.read(request)
        job = self._jobs.get(kill.id)
        if not 0 < kill.signum < signal.NSIG:
            text = f"invalid signal `{kill.signum}`: expected 1 to {signal.NSIG - 1}"
            raise RequestError(errno.EINVAL, text)
        if job is not None:
            job.signal(kill.signum)

    def _expiration(self, request: Message) -> None:
        change = ExpirationRequest.read(request)
        job, expiration = self._jobs.get(change.id), change.expiration
        if job is None:
            raise RequestError(errno.ENOENT, f"job {fluid_f58(change.id)} is not running")
        if expiration < 0:
            text = f"invalid expiration `{expiration}`: expected 0 or seconds since the epoch"
            raise RequestError(errno.EINVAL, text)
        job.expiration = expiration
        job.expiration_changed.set()

    def _replaced(self, request: Message) -> None:
        """Ends all jobs without a further response: another service has taken them over."""
        service = ReplacedRequest.read(request).service
        log.warning("`%s` runs the jobs now: ending %d here", service, len(self._jobs))
        for job in self._jobs.values():
            job.replaced = True
            job.stream.interrupt()
            job.ending.set()

    def _shrink(self, request: Message) -> None:
        """Ends the tasks of a job on ranks that it has released."""
        shrink = ShrinkRequest.read(request)
        job = self._jobs.get(shrink.id)
        if job is not None:
            tasks = [task for task in job.tasks if task.rank in shrink.ranks and not task.released]
            for task in tasks:
                task.released = True
            self._start_soon(self._end_tasks, [task.process for task in tasks])

    def _stream_output(self, request: Message) -> Any:
        return self._streams.begin(request, OutputRequest.read(request))

    def _stats(self, _request: Message) -> dict[str, Any]:
        tasks = sum(len(job.tasks) for job in self._jobs.values())
        return {"jobs": len(self._jobs), "tasks": tasks, "followers": len(self._streams)}

    # --- jobs

    def set_settings(self, settings: ExecSettings) -> None:
        """Applies changed settings at run time."""
        self._settings = settings
        self._settings_changed.set()

    async def run(self) -> None:
        """Runs jobs until cancelled; running jobs are then killed and reaped."""
        with self._output.watching():
            async with trio.open_nursery() as outer:
                # Shielded: if it is cancelled here, `stop` has no reaper to end.
                with trio.CancelScope(shield=True):
                    await outer.start(_reap, self._tasks)
                try:
                    await self._run_jobs()
                finally:
                    self._tasks.stop()

    async def _run_jobs(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._output.run)
            nursery.start_soon(self._check_output_sizes)
            async for function, *args in self._outbox:
                nursery.start_soon(
                    contain, f"execution service: {function.__name__}", function, *args
                )

    async def _end_tasks(self, tasks: list[Task]) -> None:
        """Sends SIGTERM to tasks, and SIGKILL after the kill timeout."""
        for task in tasks:
            _terminate(task)
        with trio.move_on_after(self._settings.kill_timeout):
            for task in tasks:
                await task.ended.wait()
        for task in tasks:
            task.signal(signal.SIGKILL)

    async def _end_lost(self, stream: StartStream) -> None:
        """Ends the remaining processes of a job that ran when the instance was killed."""
        name = fluid_f58(stream.job)
        note = "lost: the instance was ended while the job ran, and restarted"
        try:
            for pid in await self._tasks.kill_orphans(self._mark(stream.job)):
                log.warning("job %s: process %d outlives it", name, pid)
        except OSError as error:
            log.warning("job %s: cannot look for processes of before the restart: %s", name, error)
        self._send([stream.exception("exec", note), stream.release()])

    def _respond(self, job: RunningJob, response: Message) -> None:
        if not job.replaced:
            self._send([response])

    def _raise_exception(self, job: RunningJob, kind: str, note: str) -> None:
        self._respond(job, job.stream.exception(printable(kind), printable(note)))

    def _fail(self, job: RunningJob, kind: str, note: str) -> None:
        """Ends a job with an exception, unless it is ending already."""
        if not job.ending.is_set():
            self._raise_exception(job, kind, note)
            job.ending.set()

    async def _run_job(self, job: RunningJob, start: StartRequest) -> None:
        """Runs a job from its start to its release, whatever happens."""
        job_id, stream = start.id, job.stream
        try:
            try:
                status = await self._run_tasks(job, start)
            except (Error, OSError) as error:
                self._raise_exception(job, "exec", getattr(error, "strerror", None) or str(error))
            except FAULTS as error:
                log.exception("job %s", fluid_f58(job_id))
                self._raise_exception(job, "exec", f"internal error: {error!r}")
            else:
                if status is not None:
                    self._respond(job, stream.finish(status))
        finally:
            with trio.CancelScope(shield=True):
                await self._clean_up(job)
            del self._jobs[job_id]
            if not stream.ended:
                self._raise_exception(job, "exec", "the execution service was stopped")
            self._respond(job, stream.release())
            job.over.set()

    async def _run_tasks(self, job: RunningJob, start: StartRequest) -> int | None:
        """Runs the tasks; returns the greatest wait status, None if no task was started."""
        resources = start.r
        if resources is None:
            resources = ResourceSet(await self._lookup_r(start.id))
        job.expiration = resources.expiration or 0.0
        places = lay_out(start.jobspec, resources)
        jobspec = json.loads(start.jobspec)
        if job.ending.is_set():
            return None
        if not pmix_server.is_requested(jobspec):
            return await self._run_places(job, jobspec, places, {}, None)
        async with self._pmix_servers(
            start.id,
            places,
            send_request=self._send_request,
            fail=functools.partial(self._fail, job),
            start_soon=self._start_soon,
        ) as (variables, task_ended):
            if job.ending.is_set():
                return None
            return await self._run_places(job, jobspec, places, variables, task_ended)

    async def _run_places(
        self,
        job: RunningJob,
        jobspec: dict[str, Any],
        places: list[TaskPlacement],
        variables: dict[int, dict[str, str]],
        task_ended: Callable[[int], None] | None,
    ) -> int:
        status = self._spawn_all(job, jobspec, places, variables)
        self._streams.job_started(job.stream.job)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_expiration, job)
            nursery.start_soon(self._watch_ending, job)
            async with trio.open_nursery() as waiting:
                # If a task could not be started, there are fewer tasks than places.
                for task, place in zip(job.tasks, places, strict=False):
                    waiting.start_soon(_wait, task.process, place.rank, task_ended)
            nursery.cancel_scope.cancel()
        statuses = (task.process.status or 0 for task in job.tasks if not task.released)
        return max([status, *statuses])

    def _spawn_all(
        self,
        job: RunningJob,
        jobspec: dict[str, Any],
        places: list[TaskPlacement],
        variables: dict[int, dict[str, str]],
    ) -> int:
        """Starts the tasks; if one cannot be started, the others are ended.

        Args:
            job: the job.
            jobspec: its jobspec.
            places: its tasks.
            variables: additional environment, by task rank.

        Returns:
            The wait status of a task that could not be started, else 0.
        """
        job_id = job.stream.job
        cwd = jobspec["attributes"]["system"].get("cwd")
        if cwd is not None and not self._tasks.is_directory(cwd):
            raise OSError(errno.ENOENT, f"working directory `{cwd}` does not exist")
        job.output = self._output.create(jobspec, job_id)
        nnodes = len({place.target for place in places})
        shared = job_environment(
            self._environment,
            jobspec,
            job_id,
            uri=self._uri,
            ntasks=len(places),
            nnodes=nnodes,
        )
        status = 0
        try:
            for place in places:
                stdout, stderr = job.output.open(place)
                bind = self._bind and set(self._tasks.cpus).issuperset(place.cores)
                try:
                    process = self._tasks.spawn(
                        jobspec["tasks"][0]["command"],
                        environment=task_environment(shared, place) | variables.get(place.rank, {}),
                        cwd=cwd,
                        stdout=stdout,
                        stderr=stderr,
                        cores=place.cores if bind else None,
                    )
                except SpawnError as error:
                    job.output.write_line(stderr, f"penstock: {error.text}\n")
                    job.ending.set()
                    status = error.status
                    break
                job.tasks.append(RankTask(process, place.target))
        finally:
            job.output.close()
        self._respond(job, job.stream.start())
        return status

    async def _watch_expiration(self, job: RunningJob) -> None:
        """Ends the job when its allocation expires."""
        while True:
            job.expiration_changed = trio.Event()
            left = job.expiration - self._clock.now() if job.expiration else float("inf")
            with trio.move_on_after(max(left, 0.0)):
                await job.expiration_changed.wait()
                continue
            return self._fail(job, "timeout", "resource allocation expired")

    async def _watch_ending(self, job: RunningJob) -> None:
        """Sends SIGTERM when the job is to end, and SIGKILL after the kill timeout."""
        await job.ending.wait()
        for task in job.tasks:
            _terminate(task.process)
        await trio.sleep(self._settings.kill_timeout)
        job.signal(signal.SIGKILL)

    async def _check_output_sizes(self) -> None:
        """Ends jobs whose retained output exceeds the limit."""
        while True:
            self._settings_changed = trio.Event()
            limit = self._settings.output_limit
            if not limit:
                await self._settings_changed.wait()
                continue
            await trio.sleep(OUTPUT_CHECK_INTERVAL_S)
            for job in list(self._jobs.values()):
                if job.output is None or job.ending.is_set():
                    continue
                if job.output.retained_bytes() > limit:
                    note = (
                        f"more than {limit} bytes of output: send it to a file with `--output`, or "
                        "raise `penstock.exec.output-limit`"
                    )
                    self._fail(job, "exec", note)

    async def _clean_up(self, job: RunningJob) -> None:
        """Kills the remaining processes of a job that this user may signal."""
        name = fluid_f58(job.stream.job)
        job.signal(signal.SIGKILL)
        with trio.move_on_after(KILL_TIMEOUT_S):
            for task in job.tasks:
                await task.process.ended.wait()
        for task in job.tasks:
            if task.process.status is None:
                log.warning("job %s: process %d outlives it", name, task.process.pid)
        if job.tasks:
            try:
                await self._tasks.kill_escaped(self._mark(job.stream.job))
            except OSError as error:
                log.warning("job %s: cannot look for processes that it left: %s", name, error)

    def _mark(self, job: int) -> bytes:
        return "=".join(own_mark(self._environment, self._uri, job)).encode()


async def _reap(tasks: Tasks, *, task_status: trio.TaskStatus[None]) -> None:
    await tasks.run(task_status=task_status)


def _terminate(task: Task) -> None:
    task.signal(signal.SIGTERM)
    # A stopped process does not handle SIGTERM until it continues.
    task.signal(signal.SIGCONT)


async def _wait(task: Task, rank: int, task_ended: Callable[[int], None] | None) -> None:
    await task.ended.wait()
    if task_ended is not None:
        task_ended(rank)
