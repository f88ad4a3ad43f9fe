"""Sends the output of jobs that the instance keeps to those who ask, as it comes."""

from __future__ import annotations

import base64
import errno
import logging
from typing import TYPE_CHECKING, Any

import trio

from penstock._core import fluid_f58
from penstock.instance.output_files import STREAMS, FileWatcher

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from pathlib import Path

    from penstock._core import Message
    from penstock.instance.runner import Job

log = logging.getLogger("penstock.exec")

CHUNK = 64 * 1024


class OutputStreams:
    """Those who ask for output.

    Args:
        send: sends messages to the broker.
        refuse: answers a request with an error number and a text.
        begin: runs a function in the background.
        jobs: the jobs that run, by id.
        output_dir: where the output is, a directory a job.
        wait_inactive: returns when a job is over, started or not.
        room: returns when the sender of a request has little left to read.

    Attributes:
        watcher: says when files change; set while requests are served.
    """

    watcher: FileWatcher

    def __init__(
        self,
        *,
        send: Callable[[list[Message]], None],
        refuse: Callable[[Message, int, str], None],
        begin: Callable[..., None],
        jobs: Mapping[int, Job],
        output_dir: Path,
        wait_inactive: Callable[[int], Awaitable[None]],
        room: Callable[[Message], Awaitable[None]],
    ) -> None:
        self._send = send
        self._refuse = refuse
        self._begin = begin
        self._jobs = jobs
        self._output_dir = output_dir
        self._wait_inactive = wait_inactive
        self._room = room
        self._arrivals: dict[int, trio.Event] = {}
        self._scopes: dict[tuple[bytes, int], trio.CancelScope] = {}

    def __len__(self) -> int:
        return len(self._scopes)

    def arrived(self, job_id: int) -> None:
        """The tasks of a job have started."""
        if job_id in self._arrivals:
            self._arrivals.pop(job_id).set()

    def output(self, request: Message, payload: dict[str, Any]) -> None:
        """Serves a request for a job's output."""
        if not request.streaming:
            raise OSError(errno.EPROTO, "output is a streaming request")
        self._begin(self._follow, request, payload)

    def cancel(self, request: Message, payload: dict[str, Any]) -> None:
        """Ends an answer that goes on."""
        scope = self._scopes.get(((request.routes or [b""])[-1], payload["matchtag"]))
        if scope is not None:
            scope.cancel()
        if not request.noresponse:
            self._send([request.respond()])

    def disconnect(self, request: Message) -> None:
        """Forgets those who ask over a connection that is gone."""
        origin = (request.routes or [b""])[-1]
        for (peer, _tag), scope in list(self._scopes.items()):
            if peer == origin:
                scope.cancel()

    async def _follow(self, request: Message, payload: dict[str, Any]) -> None:
        key = ((request.routes or [b""])[-1], request.matchtag)
        with trio.CancelScope() as scope:
            self._scopes[key] = scope
            try:
                await self._send_output(
                    request, payload["id"], payload.get("streams", STREAMS), payload.get("follow")
                )
                self._refuse(request, errno.ENODATA, "")
            except OSError as error:
                self._refuse(request, error.errno or errno.EIO, error.strerror or str(error))
            except Exception:
                log.exception("%s", request.topic)
                self._refuse(request, errno.EPROTO, f"{request.topic}: malformed payload")
            finally:
                self._scopes.pop(key, None)
        if scope.cancelled_caught:
            self._refuse(request, errno.ENODATA, "")

    async def _send_output(
        self, request: Message, job_id: int, streams: Iterable[str], follow: bool | None
    ) -> None:
        directory = self._output_dir / str(job_id)
        if follow and job_id not in self._jobs and not directory.exists():
            await self._wait_for_start(job_id)
        job = self._jobs.get(job_id)
        if job is not None and not job.tasks and follow:
            await self._wait_for_start(job_id)
        elsewhere = job.output.elsewhere if job is not None and job.output else None
        if elsewhere is not None:
            raise OSError(errno.ENOENT, f"the output of this job goes to `{elsewhere}`")
        paths = {stream: directory / stream for stream in STREAMS if stream in streams}
        if not directory.exists():
            if follow:
                return
            raise OSError(errno.ENOENT, f"no output of job {fluid_f58(job_id)} is kept")
        async with trio.open_nursery() as nursery:
            for stream, path in paths.items():
                if path.exists():
                    nursery.start_soon(
                        self._send_stream, request, stream, path, job if follow else None
                    )

    async def _wait_for_start(self, job_id: int) -> None:
        """Returns when the job has started, or is over without having done so."""
        arrival = self._arrivals.setdefault(job_id, trio.Event())

        async def end_with_the_job(scope: trio.CancelScope) -> None:
            await self._wait_inactive(job_id)
            scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(end_with_the_job, nursery.cancel_scope)
            await arrival.wait()
            nursery.cancel_scope.cancel()

    async def _send_stream(
        self, request: Message, stream: str, path: Path, job: Job | None
    ) -> None:
        with path.open("rb") as file, self.watcher.watch(path) as number:
            while True:
                # Taken before the last read: what comes after it is not missed.
                over = job is None or job.over.is_set()
                changed = self.watcher.changed(number)
                while data := file.read(CHUNK):
                    text = base64.b64encode(data).decode()
                    self._send([request.respond({"stream": stream, "data": text})])
                    await self._room(request)
                if over or job is None:
                    return
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_first, changed, nursery.cancel_scope)
                    nursery.start_soon(_first, job.over, nursery.cancel_scope)


async def _first(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
