"""Streams retained output of jobs to clients, while it is written if they want to follow it."""

from __future__ import annotations

import base64
import errno
from typing import TYPE_CHECKING, Any

import trio

from penstock._core import OutputResponse, StreamCancelRequest, fluid_f58
from penstock.errors import RequestError
from penstock.instance.output_files import STREAMS
from penstock.instance.requests import (
    DEFERRED,
    error_response,
    internal_error,
    requester,
)
from penstock.instance.supervision import FAULTS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from penstock._core import Message, OutputRequest
    from penstock.instance.running_job import RunningJob
    from penstock.instance.system import OutputDirectory

CHUNK = 64 * 1024


class OutputStreams:
    """Serves streaming requests for output.

    Args:
        send: sends messages to the broker.
        start_soon: runs a function in the background.
        jobs: the running jobs, by id.
        output: the retained output.
        wait_inactive: returns when a job is inactive.
        wait_writable: returns when the requester has little unread.
    """

    def __init__(
        self,
        *,
        send: Callable[[list[Message]], None],
        start_soon: Callable[..., None],
        jobs: Mapping[int, RunningJob],
        output: OutputDirectory,
        wait_inactive: Callable[[int], Awaitable[None]],
        wait_writable: Callable[[Message], Awaitable[None]],
    ) -> None:
        self._send = send
        self._start_soon = start_soon
        self._jobs = jobs
        self._output = output
        self._wait_inactive = wait_inactive
        self._wait_writable = wait_writable
        self._started: dict[int, trio.Event] = {}
        self._scopes: dict[tuple[bytes, int], trio.CancelScope] = {}

    def __len__(self) -> int:
        return len(self._scopes)

    def job_started(self, job_id: int) -> None:
        """Wakes the streams that wait for the first output of a job."""
        if job_id in self._started:
            self._started.pop(job_id).set()

    def begin(self, request: Message, options: OutputRequest) -> Any:
        """Serves `output`: streams the output of a job.

        Raises:
            RequestError: the request is not streaming.
        """
        if not request.streaming:
            raise RequestError(errno.EPROTO, f"{request.topic} is a streaming request")
        streams = STREAMS if options.streams is None else options.streams
        self._start_soon(self._respond, request, options.id, streams, bool(options.follow))
        return DEFERRED

    def cancel(self, request: Message) -> None:
        """Serves `output-cancel`: ends a stream of the same requester."""
        key = requester(request), StreamCancelRequest.read(request).matchtag
        scope = self._scopes.get(key)
        if scope is not None:
            scope.cancel()

    def disconnect(self, request: Message) -> None:
        """Ends the streams of a requester that has disconnected."""
        gone = requester(request)
        for (peer, _tag), scope in list(self._scopes.items()):
            if peer == gone:
                scope.cancel()

    async def _respond(
        self, request: Message, job_id: int, streams: Sequence[str], follow: bool
    ) -> None:
        key = requester(request), request.matchtag
        end = error_response(request, errno.ENODATA)
        with trio.CancelScope() as scope:
            self._scopes[key] = scope
            try:
                await self._stream_job(request, job_id, streams, follow)
            except* RequestError as group:
                error = group.exceptions[0]
                assert isinstance(error, RequestError)
                end = error_response(request, error.errnum, error.text)
            except* OSError as group:
                text = "; ".join(str(error) for error in group.exceptions)
                end = error_response(request, errno.EIO, f"{request.topic}: {text}")
            except* FAULTS:
                end = internal_error(request)
            finally:
                self._scopes.pop(key, None)
        if end is not None:
            self._send([end])

    async def _stream_job(
        self, request: Message, job_id: int, streams: Sequence[str], follow: bool
    ) -> None:
        if follow and job_id not in self._jobs and not self._output.has(job_id):
            await self._wait_for_start(job_id)
        job = self._jobs.get(job_id)
        if job is not None and not job.tasks and follow:
            await self._wait_for_start(job_id)
        template = job.output.redirected_to if job is not None and job.output else None
        if template is not None:
            raise RequestError(errno.ENOENT, f"the output of this job goes to `{template}`")
        if not self._output.has(job_id):
            if follow:
                return
            raise RequestError(errno.ENOENT, f"no output of job {fluid_f58(job_id)} is retained")
        async with trio.open_nursery() as nursery:
            for stream in STREAMS:
                if stream in streams:
                    followed = job if follow else None
                    nursery.start_soon(self._stream_file, request, job_id, stream, followed)

    async def _wait_for_start(self, job_id: int) -> None:
        """Returns when the job has started, or is inactive without having started."""
        started = self._started.setdefault(job_id, trio.Event())

        async def cancel_when_inactive(scope: trio.CancelScope) -> None:
            await self._wait_inactive(job_id)
            scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel_when_inactive, nursery.cancel_scope)
            await started.wait()
            nursery.cancel_scope.cancel()

    async def _stream_file(
        self, request: Message, job_id: int, stream: str, job: RunningJob | None
    ) -> None:
        with self._output.reader(job_id, stream) as reader:
            if reader is None:
                return
            while True:
                # Taken before the last read, so that no later output is missed.
                over = job is None or job.over.is_set()
                changed = reader.changed()
                while data := reader.read(CHUNK):
                    text = base64.b64encode(data).decode()
                    self._send([request.respond(OutputResponse.output(stream, text))])
                    await self._wait_writable(request)
                if over or job is None:
                    return
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_cancel_at, changed, nursery.cancel_scope)
                    nursery.start_soon(_cancel_at, job.over, nursery.cancel_scope)


async def _cancel_at(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
