"""`pmix-exec`: connections to the PMIx servers of jobs, for the execution service.

The execution service starts the server of a job, and requests the environment of the job's tasks
before it starts them. A server that fails, or a task that aborts, is an exception on the job.
Servers outlive the daemon: after a restart the execution service requests connections to them.
"""

from __future__ import annotations

import errno
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import trio

from penstock._core import (
    PmixEndedRequest,
    PmixStartRequest,
    PmixStopRequest,
    fluid_f58,
    topic,
)
from penstock.client.calls import raw_call
from penstock.client.methods import Methods
from penstock.errors import Error
from penstock.instance.failure import FAILED_SERVICE_ERRNOS
from penstock.instance.guests import GuestServer
from penstock.instance.internal_client import InternalClient
from penstock.instance.requests import (
    DEFERRED,
    MethodTable,
    error_response,
    for_owner,
    require_streaming,
    serve_batch,
)
from penstock.instance.restart import OUTAGE_PAUSE_S, Restarts
from penstock.instance.supervision import FAULTS, contain
from penstock.instance.system import PmixTask

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock._core import Batch, Message
    from penstock.instance.broker import Broker
    from penstock.instance.system import PmixLink, PmixServers

log = logging.getLogger("penstock.exec")

NAME = "pmix-exec"


class PmixService:
    """Serves `pmix-exec.start`, `pmix-exec.ended` and `pmix-exec.stop`, to the owner only.

    Args:
        broker: the broker.
        servers: connects to the servers.
    """

    peer: int

    def __init__(self, broker: Broker, servers: PmixServers) -> None:
        self._broker = broker
        self._servers = servers
        self._client = InternalClient(broker)
        self._jobs: dict[int, _Job] = {}
        self._inbox, self._outbox = trio.open_memory_channel[tuple[Any, ...]](float("inf"))
        self.restarts = Restarts(broker, self, (NAME,))
        self.restarts.start()

    def restart(self) -> None:
        """Does nothing: the connections are still needed."""

    def deliver(self, batch: Batch) -> None:
        """Serves requests; `start` is answered when the server has the job."""
        self._broker.post_messages(self.peer, serve_batch(self, batch))

    def disconnect(self, notice: Message) -> None:
        """Does nothing: connections to servers outlast the execution service."""

    def post_output(self, now: float) -> None:
        """Does nothing: every response is posted at once."""

    def _start(self, request: Message) -> Any:
        start = PmixStartRequest.read(request)
        require_streaming(request)
        job = self._jobs.get(start.id)
        if job is not None:
            # The execution service has restarted: its job continues.
            job.request = request
            self._respond(job)
        else:
            self._jobs[start.id] = job = _Job(start.id, request)
            tasks = [PmixTask(task.rank, task.host) for task in start.tasks]
            self._start_soon(self._serve_job, job, tasks, start.directory, start.userid)
        return DEFERRED

    def _report_end(self, request: Message) -> None:
        ended = PmixEndedRequest.read(request)
        job = self._jobs.get(ended.id)
        if job is not None and job.link is not None:
            job.link.report_task_end(ended.rank)

    def _stop(self, request: Message) -> None:
        job = self._jobs.get(PmixStopRequest.read(request).id)
        if job is not None:
            job.scope.cancel()

    METHODS: ClassVar[MethodTable] = {
        topic.pmix_exec.START: for_owner(_start),
        topic.pmix_exec.ENDED: for_owner(_report_end),
        topic.pmix_exec.STOP: for_owner(_stop),
    }

    def _start_soon(self, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Runs a function in the background, once the service runs."""
        self._inbox.send_nowait((function, *args))

    async def run(self) -> None:
        """Serves jobs until cancelled."""
        async with trio.open_nursery() as nursery:
            async for function, *args in self._outbox:
                nursery.start_soon(contain, f"PMIx: {function.__name__}", function, *args)

    async def _serve_job(
        self, job: _Job, tasks: list[PmixTask], directory: str, userid: int | None
    ) -> None:
        """Connects to the server of a job, and answers its start request, whatever happens."""
        end = errno.ENODATA, ""
        self._start_soon(self._stop_with_job, job)
        # Any process of a guest could send what its server sends.
        client = self._client
        if userid is not None:
            client = InternalClient(self._broker, GuestServer(userid, job.disconnect))
        try:
            with job.scope:
                async with self._servers(
                    job.id,
                    tasks,
                    directory,
                    userid=userid,
                    send_request=client.open,
                    pace=client.pace,
                    set_unread=client.set_unread,
                    fail=partial(self._fail, job.id),
                    start_soon=self._start_soon,
                ) as job.link:
                    self._respond(job)
                    end = errno.EIO, await job.link.wait_end()
        except (Error, OSError) as error:
            end = errno.EIO, getattr(error, "strerror", None) or str(error)
        except FAULTS as error:
            log.exception("job %s: PMIx", fluid_f58(job.id))
            end = errno.EIO, f"internal error: {error!r}"
        finally:
            del self._jobs[job.id]
            if client is not self._client:
                client.close()
        if job.problem is not None:
            end = errno.EIO, job.problem
        response = error_response(job.request, *end)
        if response is not None:
            self._broker.post_messages(self.peer, [response])

    async def _stop_with_job(self, job: _Job) -> None:
        """Closes the connection to the server of a job that has ended without `stop`."""
        while True:
            with self._client.responses(Methods.wait_rows.call([job.id])) as responses:
                response = await responses.receive()
            if response.errnum not in FAILED_SERVICE_ERRNOS:
                break
            await trio.sleep(OUTAGE_PAUSE_S)
        job.scope.cancel()

    def _respond(self, job: _Job) -> None:
        if job.link is not None:
            environment = job.link.environment
            payload = {"environment": {str(rank): each for rank, each in environment.items()}}
            response = job.request.respond(payload)
            self._broker.post_messages(self.peer, [response])

    def _fail(self, job: int, kind: str, note: str) -> None:
        """Ends a job, with an exception's type and note."""
        payload = {"id": job, "type": kind, "severity": 0, "note": note}
        self._client.send(raw_call(topic.job_manager.RAISE, payload))


class _Job:
    """A job to whose server a connection is open or being opened.

    Args:
        job: its id.
        request: the start request to answer.
    """

    def __init__(self, job: int, request: Message) -> None:
        self.id = job
        self.request = request
        self.link: PmixLink | None = None
        # Cancelled when the job has ended, or its server is disconnected.
        self.scope = trio.CancelScope()
        # Why the server was disconnected.
        self.problem: str | None = None

    def disconnect(self, reason: str) -> None:
        """Closes the connection to the server."""
        self.problem = f"the connection to the job's PMIx server is closed: {reason}"
        self.scope.cancel()
