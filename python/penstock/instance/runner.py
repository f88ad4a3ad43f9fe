"""The execution service of this machine (RFC 32): jobs as processes."""

from __future__ import annotations

import errno
import functools
import logging
import math
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import trio

from penstock._core import IDset, ResourceSet, fluid_f58, lay_out
from penstock.errors import Error
from penstock.instance import pmix_server
from penstock.instance.environment import job_environment, own_mark, task_environment
from penstock.instance.orphans import DEATH_TIMEOUT, Orphans
from penstock.instance.output_files import FileWatcher, Output, say
from penstock.instance.output_streams import OutputStreams
from penstock.instance.reaper import Reaper
from penstock.instance.task import SpawnError, Task, spawn
from penstock.protocol.execution import StartStream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from pathlib import Path

    from penstock._core import Message, TaskPlacement
    from penstock.config import ExecSettings
    from penstock.instance.pmix_server import Ask
    from penstock.instance.processes import ChildProcesses

log = logging.getLogger("penstock.exec")

# Seconds between two looks at how much output is kept.
OUTPUT_CHECK = 1.0


class Job:
    """A job that this service runs."""

    def __init__(self, stream: StartStream) -> None:
        self.stream = stream
        self.tasks: list[Task] = []
        self.output: Output | None = None
        self.expiration = 0.0
        self.expiration_changed = trio.Event()
        self.ending = trio.Event()
        self.over = trio.Event()
        # Another service has it now: what is said of it here is not heard any more.
        self.replaced = False

    def signal(self, signum: int) -> None:
        """Sends a signal to every task."""
        for task in self.tasks:
            task.signal(signum)


class LocalRunner:
    """Runs jobs as processes.

    Args:
        send: sends messages to the broker.
        owner: user id of the instance owner, the only one who is served.
        output_dir: keeps output that no job's options send elsewhere, a directory a job.
        uri: the instance's address, for the tasks' environment.
        lookup_r: gives the R of a job whose start request came without.
        wait_inactive: returns when a job is over, started or not.
        ask: asks the instance in the name of a job's PMIx server.
        room: returns when the sender of a request has little left to read.
        settings: the configuration's `[penstock.exec]`.
        oversubscribe: whether tasks run without being bound to cores.
        children: the instance's own processes, which no job's end touches.
    """

    def __init__(
        self,
        send: Callable[[list[Message]], None],
        *,
        owner: int,
        output_dir: Path,
        uri: str,
        lookup_r: Callable[[int], Awaitable[str]],
        wait_inactive: Callable[[int], Awaitable[None]],
        ask: Ask,
        room: Callable[[Message], Awaitable[None]],
        settings: ExecSettings,
        oversubscribe: bool,
        children: ChildProcesses,
    ) -> None:
        self._send = send
        self._owner = owner
        self._output_dir = output_dir
        self._uri = uri
        self._lookup_r = lookup_r
        self._ask = ask
        self._settings = settings
        self._children = children
        self._reaper = Reaper(children)
        self._cpus = os.sched_getaffinity(0)
        self._bind = not oversubscribe
        self._jobs: dict[int, Job] = {}
        self._lost = Orphans(uri)
        self._inbox, self._outbox = trio.open_memory_channel[tuple[Any, ...]](float("inf"))
        self._followers = OutputStreams(
            send=send,
            refuse=self._refuse,
            begin=self._begin,
            jobs=self._jobs,
            output_dir=output_dir,
            wait_inactive=wait_inactive,
            room=room,
        )
        self._methods: dict[str, Callable[[Message, dict[str, Any]], None]] = {
            "start": self._start,
            "kill": self._kill,
            "expiration": self._expiration,
            "replaced": self._replaced,
            "shrink": self._shrink,
            "output": self._followers.output,
            "output-cancel": self._followers.cancel,
            "ping": self._ping,
            "stats-get": self._stats,
        }

    # --- messages in

    def handle(self, messages: Iterable[Message]) -> None:
        """Takes requests for this service, and the event `job-exception`."""
        for message in messages:
            if message.kind == "event" and message.topic == "job-exception":
                self._interrupt(message)
            elif message.kind == "request":
                self._serve(message)

    def _serve(self, request: Message) -> None:
        _service, _, method = (request.topic or "").partition(".")
        if method == "disconnect":
            return self._followers.disconnect(request)
        serve = self._methods.get(method)
        try:
            if serve is None:
                raise OSError(errno.ENOSYS, f"unknown method `{request.topic}`")
            payload = request.object()
            if request.userid != self._owner:
                # A start request is a command that runs with the owner's rights.
                raise OSError(errno.EPERM, "only the instance owner may ask for execution")
            if method in ("ping", "stats-get") and payload is None:
                payload = {}
            if not isinstance(payload, dict) or not _is_job_id(payload.get("id", 0)):
                raise OSError(errno.EPROTO, f"{request.topic}: malformed payload")
            serve(request, payload)
        except OSError as error:
            self._refuse(request, error.errno or errno.EINVAL, error.strerror or str(error))
        except (Error, KeyError, TypeError, ValueError, OverflowError) as error:
            self._refuse(request, errno.EPROTO, f"{request.topic}: {error}")
        except Exception as error:
            # Whatever a request brings about, it costs that request.
            log.exception("%s", request.topic)
            self._refuse(request, errno.EPROTO, f"{request.topic}: {error!r}")
        return None

    def _refuse(self, request: Message, errnum: int, text: str) -> None:
        if not request.noresponse:
            self._send([request.respond(errnum=errnum, errtext=text)])

    def _begin(self, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Runs a function in the background, from when the service runs."""
        self._inbox.send_nowait((function, *args))

    def _interrupt(self, event: Message) -> None:
        try:
            payload = event.object()
            job = self._jobs.get(payload["id"])
            fatal = payload["severity"] == 0
            wait_status = payload.get("wait_status")
            if not isinstance(wait_status, int | None):
                raise TypeError(f"wait_status {wait_status!r}")
        except (Error, KeyError, TypeError) as error:
            # Only the job manager publishes these; others are no reason to stop serving.
            log.warning("%s: malformed event: %s", event.topic, error)
            return
        if job is not None and fatal:
            job.stream.interrupt(wait_status)
            job.ending.set()

    def _start(self, request: Message, payload: dict[str, Any]) -> None:
        job_id = payload["id"]
        stream = StartStream(request, job_id, reattach=bool(payload.get("reattach")))
        if job_id in self._jobs:
            # RFC 32 allows one request a job: this one is not ours to answer twice.
            log.error("job %s is running already: start request ignored", fluid_f58(job_id))
        elif payload.get("reattach"):
            self._begin(self._end_lost, stream)
        else:
            self._jobs[job_id] = Job(stream)
            self._begin(self._run_job, self._jobs[job_id], payload)

    def _kill(self, request: Message, payload: dict[str, Any]) -> None:
        job = self._jobs.get(payload["id"])
        signum = payload["signum"]
        if not isinstance(signum, int) or not 0 < signum < signal.NSIG:
            raise OSError(errno.EINVAL, f"`{signum}` is no signal: expected 1 to {signal.NSIG - 1}")
        if job is not None:
            job.signal(signum)
        if not request.noresponse:
            self._send([request.respond()])

    def _expiration(self, request: Message, payload: dict[str, Any]) -> None:
        job = self._jobs.get(payload["id"])
        if job is None:
            raise OSError(errno.ENOENT, f"job {fluid_f58(payload['id'])} is not running")
        expiration = float(payload["expiration"])
        if not math.isfinite(expiration) or expiration < 0:
            raise OSError(errno.EINVAL, f"`{expiration}` is no expiration: expected 0 or a time")
        job.expiration = expiration
        job.expiration_changed.set()
        self._send([request.respond()])

    def _replaced(self, request: Message, payload: dict[str, Any]) -> None:
        """Another service has every job now: those that run here are ended, and nothing is said."""
        log.warning("`%s` runs the jobs now: ending %d here", payload["service"], len(self._jobs))
        for job in self._jobs.values():
            job.replaced = True
            job.stream.interrupt()
            job.ending.set()
        if not request.noresponse:
            self._send([request.respond()])

    def _shrink(self, request: Message, payload: dict[str, Any]) -> None:
        """A job has given ranks back: its tasks there are ended."""
        job, ranks = self._jobs.get(payload["id"]), IDset(payload["ranks"])
        if job is not None:
            dismissed = [task for task in job.tasks if task.target in ranks and not task.dismissed]
            for task in dismissed:
                task.dismissed = True
            self._inbox.send_nowait((self._end_tasks, dismissed))
        if not request.noresponse:
            self._send([request.respond()])

    async def _end_tasks(self, tasks: list[Task]) -> None:
        """SIGTERM, and SIGKILL for those that do not heed that."""
        for task in tasks:
            task.signal(signal.SIGTERM)
            task.signal(signal.SIGCONT)
        with trio.move_on_after(self._settings.kill_timeout):
            for task in tasks:
                await task.ended.wait()
        for task in tasks:
            task.signal(signal.SIGKILL)

    def _tell(self, job: Job, response: Message) -> None:
        if not job.replaced:
            self._send([response])

    def _fail(self, job: Job, kind: str, note: str) -> None:
        """Ends a job that is not ending yet, with an exception."""
        if not job.ending.is_set():
            self._tell(job, job.stream.exception(kind, note))
            job.ending.set()

    def _ping(self, request: Message, payload: dict[str, Any]) -> None:
        if not request.noresponse:
            self._send([request.respond(payload)])

    def _stats(self, request: Message, _payload: dict[str, Any]) -> None:
        if not request.noresponse:
            tasks = sum(len(job.tasks) for job in self._jobs.values())
            numbers = {"jobs": len(self._jobs), "tasks": tasks, "followers": len(self._followers)}
            self._send([request.respond(numbers)])

    # --- jobs

    def set_settings(self, settings: ExecSettings) -> None:
        """Takes other settings, for what begins from now on."""
        self._settings = settings

    async def run(self) -> None:
        """Runs jobs until cancelled; whatever runs then is killed and reaped."""
        self._followers.watcher = FileWatcher()
        try:
            async with trio.open_nursery() as outer:
                # One that is cancelled here has nothing to end yet, and nobody to tell the reaper.
                with trio.CancelScope(shield=True):
                    await outer.start(self._reaper.run)
                try:
                    await self._run_jobs()
                finally:
                    self._reaper.stop()
        finally:
            self._followers.watcher.close()

    async def _run_jobs(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._followers.watcher.run)
            nursery.start_soon(self._watch_kept_output)
            async for function, *args in self._outbox:
                nursery.start_soon(function, *args)

    async def _end_lost(self, stream: StartStream) -> None:
        """Ends what is left of a job that ran when the instance was killed."""
        for pid in await self._lost.end(stream.job):
            log.warning("job %s: process %d outlives it", fluid_f58(stream.job), pid)
        note = "lost: the instance was ended while the job ran, and restarted"
        self._send([stream.exception("exec", note), stream.release()])

    async def _run_job(self, job: Job, payload: dict[str, Any]) -> None:
        job_id, stream = payload["id"], job.stream
        try:
            try:
                status = await self._run_tasks(job, payload)
            except (Error, OSError) as error:
                note = getattr(error, "strerror", None) or str(error)
                self._tell(job, stream.exception("exec", note))
            except Exception as error:
                # A fault of ours, or of a jobspec that nobody has checked: it costs this job.
                log.exception("job %s", fluid_f58(job_id))
                self._tell(job, stream.exception("exec", f"internal error: {error!r}"))
            else:
                if status is not None:
                    self._tell(job, stream.finish(status))
        finally:
            with trio.CancelScope(shield=True):
                await self._clean_up(job)
            del self._jobs[job_id]
            if not stream.ended:
                self._tell(job, stream.exception("exec", "the execution service was stopped"))
            self._tell(job, stream.release())
            job.over.set()

    async def _run_tasks(self, job: Job, payload: dict[str, Any]) -> int | None:
        """Runs the tasks; returns the greatest wait status, None where nothing was started."""
        r = payload.get("R")
        resources = ResourceSet(r if r is not None else await self._lookup_r(payload["id"]))
        job.expiration = resources.expiration or 0.0
        jobspec = payload["jobspec"]
        places = lay_out(jobspec, resources)
        if job.ending.is_set():
            return None
        if not pmix_server.wanted(jobspec):
            return await self._run_places(job, jobspec, payload["id"], places, {}, None)
        async with pmix_server.serving(
            payload["id"],
            places,
            ask=self._ask,
            fail=functools.partial(self._fail, job),
            start_soon=self._begin,
            children=self._children,
        ) as (variables, ended):
            if job.ending.is_set():
                return None
            return await self._run_places(job, jobspec, payload["id"], places, variables, ended)

    async def _run_places(
        self,
        job: Job,
        jobspec: dict[str, Any],
        job_id: int,
        places: list[TaskPlacement],
        variables: dict[int, dict[str, str]],
        ended: Callable[[int], None] | None,
    ) -> int:
        status = self._spawn_all(job, jobspec, job_id, places, variables)
        self._followers.arrived(job_id)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_expiration, job)
            nursery.start_soon(self._watch_ending, job)
            async with trio.open_nursery() as waiting:
                # Where one could not be started, there are fewer tasks.
                for task, place in zip(job.tasks, places, strict=False):
                    waiting.start_soon(_wait, task, place.rank, ended)
            nursery.cancel_scope.cancel()
        return max([status, *(it.status or 0 for it in job.tasks if not it.dismissed)])

    def _spawn_all(
        self,
        job: Job,
        jobspec: dict[str, Any],
        job_id: int,
        places: list[TaskPlacement],
        variables: dict[int, dict[str, str]],
    ) -> int:
        """Starts the tasks; a task that cannot be started ends those that were.

        Args:
            job: the job.
            jobspec: its jobspec.
            job_id: its id.
            places: its tasks.
            variables: what a rank finds in its environment beside what every task does.

        Returns:
            The wait status of a failure to start, else 0.
        """
        cwd = jobspec["attributes"]["system"].get("cwd")
        if cwd is not None and not os.path.isdir(cwd):  # noqa: PTH112 - a Path may refuse the text
            raise OSError(errno.ENOENT, f"working directory `{cwd}` does not exist")
        job.output = Output(jobspec, job_id, self._output_dir / str(job_id))
        nnodes = len({place.target for place in places})
        shared = job_environment(jobspec, job_id, uri=self._uri, ntasks=len(places), nnodes=nnodes)
        status = 0
        try:
            for place in places:
                stdout, stderr = job.output.descriptors(place)
                bind = self._bind and self._cpus.issuperset(place.cores)
                try:
                    task = spawn(
                        jobspec["tasks"][0]["command"],
                        environment=task_environment(shared, place) | variables.get(place.rank, {}),
                        cwd=cwd,
                        stdout=stdout,
                        stderr=stderr,
                        cores=place.cores if bind else None,
                    )
                except SpawnError as error:
                    say(stderr, f"penstock: {error.text}\n")
                    job.ending.set()
                    status = error.status
                    break
                task.target = place.target
                self._reaper.add(task)
                job.tasks.append(task)
        finally:
            job.output.close()
        self._tell(job, job.stream.start())
        return status

    async def _watch_expiration(self, job: Job) -> None:
        """Ends the job when its time is over."""
        while True:
            job.expiration_changed = trio.Event()
            left = job.expiration - time.time() if job.expiration else float("inf")
            with trio.move_on_after(max(left, 0.0)):
                await job.expiration_changed.wait()
                continue
            return self._fail(job, "timeout", "resource allocation expired")

    async def _watch_ending(self, job: Job) -> None:
        """SIGTERM when the job is to end, SIGKILL when it does not heed that."""
        await job.ending.wait()
        job.signal(signal.SIGTERM)
        # A stopped process must go on to be terminated.
        job.signal(signal.SIGCONT)
        await trio.sleep(self._settings.kill_timeout)
        job.signal(signal.SIGKILL)

    async def _watch_kept_output(self) -> None:
        """Ends jobs that leave more output with the instance than it keeps."""
        limit = self._settings.output_limit
        while limit:
            await trio.sleep(OUTPUT_CHECK)
            for job in list(self._jobs.values()):
                if job.output is None or job.ending.is_set() or job.output.kept_bytes() <= limit:
                    continue
                note = (
                    f"more than {limit} bytes of output: send it to a file with `--output`, or "
                    "raise `penstock.exec.output-limit`"
                )
                self._fail(job, "exec", note)

    async def _clean_up(self, job: Job) -> None:
        """Nothing of the job outlives it, as far as that is in our power."""
        name = fluid_f58(job.stream.job)
        job.signal(signal.SIGKILL)
        with trio.move_on_after(DEATH_TIMEOUT):
            for task in job.tasks:
                await task.ended.wait()
        for task in job.tasks:
            if task.status is None:
                log.warning("job %s: process %d outlives it", name, task.pid)
        if job.tasks:
            mark = "=".join(own_mark(self._uri, job.stream.job)).encode()
            try:
                await self._reaper.end_escaped({mark})
            except OSError as error:
                log.warning("job %s: cannot look for what it left behind: %s", name, error)


async def _wait(task: Task, rank: int, ended: Callable[[int], None] | None) -> None:
    await task.ended.wait()
    if ended is not None:
        ended(rank)


def _is_job_id(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < 2**64
