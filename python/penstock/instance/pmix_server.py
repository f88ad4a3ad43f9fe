"""The connection to the PMIx server of a job, and the requests that come from there.

The server is a process of the execution service, which outlives the instance: each instance
connects to its socket. The server's requests are forwarded to the instance's `pmix` service,
always in the name of that job.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import struct
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import trio

from penstock._core import (
    MAX_PMIX_REQUEST_BYTES,
    AbortRequest,
    Decoder,
    Message,
    PmixServerStartResponse,
    fluid_f58,
    read_object,
    topic,
)
from penstock.client.calls import raw_call, raw_stream
from penstock.client.outstanding import Outstanding
from penstock.errors import Error, PmixError, RequestError, WireError
from penstock.instance.requests import printable
from penstock.instance.supervision import FAULTS
from penstock.instance.system import Read

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from penstock.instance.system import PmixLink, PmixTask, SendRequest

log = logging.getLogger("penstock.exec")

READ_BYTES = 64 * 1024
# To connect, and again to start libpmix.
START_TIMEOUT_S = 60.0
# Between attempts to connect to a server that does not listen yet.
MIN_CONNECT_INTERVAL_S, MAX_CONNECT_INTERVAL_S = 0.002, 0.1
# A server with that many unanswered pings, one after each interval, counts as hung.
PING_INTERVAL_S, MAX_UNANSWERED_PINGS = 5.0, 6
# For each job.
MAX_OUTSTANDING_REQUESTS = 10_000
# Of these: each gets a message for each request that ends. A server needs one.
MAX_STREAMS = 16
# Bytes that a server has not read: while there are more, nothing is read from it. With more than
# the latter the connection ends.
MAX_UNSENT_BYTES = 256 * 1024
MAX_UNREAD_BYTES = 32 << 20
# The requests of tasks that are forwarded to the instance.
TOPICS = frozenset({topic.pmix.ALLOC, topic.pmix.QUERY, topic.pmix.CANCEL, topic.pmix.EVENTS})
HINT = "the `pmix.log` of the execution service may say why"


class PmixServers:
    """Connects to PMIx servers on this machine.

    Args:
        random_bytes: makes that many random bytes.
    """

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes

    def __call__(
        self,
        job: int,
        tasks: Sequence[PmixTask],
        directory: str,
        *,
        userid: int | None,
        send_request: SendRequest,
        pace: Callable[[Read], Awaitable[str | None]],
        set_unread: Callable[[int], None],
        fail: Callable[[str, str], None],
        start_soon: Callable[..., None],
    ) -> AbstractAsyncContextManager[PmixLink]:
        # Clients show the namespace as their credential: it must be unique and unpredictable.
        namespace = f"penstock-{self._random_bytes(16).hex()}"
        return _connected(
            job,
            directory,
            userid,
            describe(job, tasks, namespace),
            send_request=send_request,
            pace=pace,
            set_unread=set_unread,
            fail=fail,
            start_soon=start_soon,
        )


@asynccontextmanager
async def _connected(
    job: int,
    directory: str,
    userid: int | None,
    description: dict[str, Any],
    *,
    send_request: SendRequest,
    pace: Callable[[Read], Awaitable[str | None]],
    set_unread: Callable[[int], None],
    fail: Callable[[str, str], None],
    start_soon: Callable[..., None],
) -> AsyncIterator[PmixLink]:
    async with await connect(directory, userid) as stream:
        link = Link(job, stream, send_request, pace, set_unread, fail)
        try:
            start_soon(link.run)
            await link.start(description)
            yield link
        finally:
            with trio.CancelScope(shield=True):
                await link.close()


async def connect(directory: str, userid: int | None = None) -> trio.SocketStream:
    """Connects to the server with this directory, which may still be starting.

    Args:
        directory: its directory.
        userid: its user, if that is a guest: the directory and all in it are the guest's choice.

    Raises:
        PmixError: it does not listen.
        OSError: its socket is not accessible.
    """
    interval = MIN_CONNECT_INTERVAL_S
    with trio.move_on_after(START_TIMEOUT_S):
        while True:
            try:
                if userid is None:
                    connected = _open_socket(directory, userid)
                else:
                    # The file system may be the guest's, and not respond.
                    connected = await trio.to_thread.run_sync(
                        _open_socket,
                        directory,
                        userid,
                        abandon_on_cancel=True,
                        limiter=trio.CapacityLimiter(1),
                    )
                return trio.SocketStream(trio.socket.from_stdlib_socket(connected))
            except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
                await trio.sleep(interval)
            interval = min(2 * interval, MAX_CONNECT_INTERVAL_S)
    raise PmixError(f"the PMIx server does not listen: {HINT}")


def _open_socket(directory: str, userid: int | None) -> socket.socket:
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(directory, flags)
    try:
        with ExitStack() as stack:
            connected = stack.enter_context(socket.socket(socket.AF_UNIX))
            os.set_blocking(connected.fileno(), False)
            # The address of a socket is 107 bytes at most; the directory's can be longer.
            connected.connect(f"/proc/self/fd/{folder}/socket")
            # A link to the socket of another user's server would get messages of the instance.
            if userid is not None and _peer(connected) != userid:
                raise PmixError("the socket of the PMIx server is another user's")
            stack.pop_all()
            return connected
    finally:
        os.close(folder)


def _peer(connected: socket.socket) -> int:
    """The user of the process that listens."""
    credentials = struct.Struct("3i")
    data = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size)
    return int(credentials.unpack(data)[1])


def describe(job: int, tasks: Sequence[PmixTask], namespace: str) -> dict[str, Any]:
    """The payload of `pmix.start`, which describes a job to its server.

    All tasks are local, whatever their nodes: nodes can be simulated.
    """
    nodes: dict[str, list[int]] = {}
    for task in tasks:
        nodes.setdefault(task.host, []).append(task.task_rank)
    ranks = [task.task_rank for task in tasks]
    return {
        "namespace": namespace,
        "job": fluid_f58(job),
        "size": len(ranks),
        "universe": len(ranks),
        "local": ranks,
        "nodes": list(nodes),
        "ranks_per_node": list(nodes.values()),
    }


class Link:
    """The instance's end of the connection to a server: `PmixLink`.

    Args:
        job: the job that the server belongs to.
        stream: the socket.
        send_request: sends a request to the instance.
        pace: waits after a message of the server, or a part of one, until the next; returns the
            limit that it exceeds.
        set_unread: takes the bytes that the server has not read.
        fail: ends the job, with an exception's type and note.
    """

    def __init__(
        self,
        job: int,
        stream: trio.SocketStream,
        send_request: SendRequest,
        pace: Callable[[Read], Awaitable[str | None]],
        set_unread: Callable[[int], None],
        fail: Callable[[str, str], None],
    ) -> None:
        self._job = job
        self._stream = stream
        self._send_request = send_request
        self._pace = pace
        self._set_unread = set_unread
        self._fail = fail
        self._outgoing, self._unsent = trio.open_memory_channel[bytes](float("inf"))
        # Of the messages that were not sent, or are being sent.
        self._unread_bytes = 0
        # Set whenever a message has been sent, or none can be sent any longer.
        self._progress = trio.Event()
        self._can_send = True
        self.environment: dict[int, dict[str, str]] = {}
        self._started: Message | None = None
        self._answered = trio.Event()
        self._running = False
        self._end = "the job's PMIx server has ended before the tasks"
        self._over = trio.Event()
        self._scope = trio.CancelScope()
        # Requests to the server, and what abandons those of its own that are outstanding.
        self._requests: Outstanding[Callable[[Message], None]] = Outstanding()
        self._numbers = count()
        self._open: dict[int, Callable[[], None]] = {}
        self._streams = 0
        # Whether a ping is outstanding, and whether its response would be read.
        self._pinged = False
        self._is_reading = True

    async def start(self, description: dict[str, Any]) -> None:
        """Starts libpmix in the server, unless an earlier instance has.

        Raises:
            PmixError: the server has rejected the request, or does not respond.
        """
        self._request(topic.pmix_server.START, description, self._take_start)
        with trio.move_on_after(START_TIMEOUT_S):
            await self._answered.wait()
        answer = self._started
        if answer is None:
            raise PmixError(f"the PMIx server has not started: {HINT}")
        if answer.errnum:
            raise PmixError(f"the PMIx server has not started: {answer.error_text}")
        try:
            self.environment = PmixServerStartResponse.read(answer).environment
        except WireError as error:
            raise PmixError(f"the PMIx server has not started: {error}") from error

    async def wait_end(self) -> str:
        """Waits until the connection ends; returns why, for the note of an exception."""
        await self._over.wait()
        return self._end

    def report_task_end(self, task_rank: int) -> None:
        """Tells the server that a task has ended: fences no longer wait for it."""
        self._request(topic.pmix_server.ENDED, {"rank": task_rank}, lambda _response: None)

    def _request(self, name: str, payload: dict[str, Any], take: Callable[[Message], None]) -> None:
        """Sends a request to the server; `take` is called with the response."""
        self._post(self._requests.request(take, raw_call(name, payload)))

    def _take_start(self, response: Message) -> None:
        self._started = response
        self._answered.set()

    def _take_ping(self, _response: Message) -> None:
        self._pinged = False

    async def run(self) -> None:
        """Forwards the server's requests until one side closes the socket."""
        self._running = True
        try:
            await self._run()
        finally:
            self._can_send = False
            for abandon in self._open.values():
                abandon()
            self._answered.set()
            self._over.set()

    async def _run(self) -> None:
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._send)
                    nursery.start_soon(self._watch)
                    await self._receive()
                    self._scope.cancel()
        except FAULTS:
            # A fault in here fails this job only.
            log.exception("job %s: PMIx", fluid_f58(self._job))

    async def close(self) -> None:
        """Closes the socket."""
        self._scope.cancel()
        await self._stream.aclose()
        # If the instance is ending, `run` may never start.
        if self._running:
            await self._over.wait()

    async def _send(self) -> None:
        async for frame in self._unsent:
            try:
                await self._stream.send_all(frame)
                self._count_unread(-len(frame))
                self._progress.set()
                self._progress = trio.Event()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self._can_send = False
                self._progress.set()
                return

    async def _watch(self) -> None:
        """Ends the connection if the server, or libpmix in it, hangs."""
        await self._answered.wait()
        missed = 0
        while missed < MAX_UNANSWERED_PINGS:
            await trio.sleep(PING_INTERVAL_S)
            # A response may be behind messages that wait for their turn.
            missed = missed + 1 if self._pinged and self._is_reading else 0
            if not self._pinged:
                self._pinged = True
                self._request(topic.pmix_server.PING, {}, self._take_ping)
        self._break("the job's PMIx server does not answer")

    def _break(self, reason: str) -> None:
        self._end = reason
        self._scope.cancel()

    def _post(self, message: Message) -> None:
        """Sends a message when the server has read those before it."""
        if not self._can_send:
            return None
        if self._unread_bytes > MAX_UNREAD_BYTES:
            return self._break("the job's PMIx server leaves too many messages unread")
        frame = message.encode()
        self._outgoing.send_nowait(frame)
        return self._count_unread(len(frame))

    def _count_unread(self, change: int) -> None:
        self._unread_bytes += change
        self._set_unread(self._unread_bytes)

    async def _wait_sendable(self) -> None:
        """Waits until the server has read most of what was sent, or reads no longer."""
        while self._can_send and self._unread_bytes > MAX_UNSENT_BYTES:
            await self._progress.wait()

    async def _receive(self) -> None:
        decoder = Decoder(MAX_PMIX_REQUEST_BYTES)
        while True:
            await self._wait_sendable()
            try:
                data = await self._stream.receive_some(READ_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
            if not data:
                return
            try:
                messages = decoder.feed(data)
            except Error as error:
                log.warning("job %s: PMIx server: %s", fluid_f58(self._job), error)
                return
            # Each is a turn: its response may be long, and is counted before the next is taken.
            for index in range(len(messages)):
                await self._wait_sendable()
                self._take(messages[index])
                size = messages[index : index + 1].payload_bytes
                await self._wait_turn(Read(1, size, decoder.pending))
            if not messages:
                await self._wait_turn(Read(0, 0, decoder.pending))

    async def _wait_turn(self, read: Read) -> None:
        self._is_reading = False
        problem = await self._pace(read)
        self._is_reading = True
        if problem is not None:
            self._break(f"the job's PMIx server sends too much: {problem}")

    def _take(self, message: Message) -> None:
        if message.kind == "response":
            take = self._requests.deliver(message)
            if take is not None:
                take(message)
        elif message.kind == "request" and message.topic == topic.pmix.ABORT:
            self._abort(message)
        elif message.kind == "request" and message.topic in TOPICS:
            if len(self._open) >= MAX_OUTSTANDING_REQUESTS:
                text = f"{MAX_OUTSTANDING_REQUESTS} requests of the job are outstanding"
                self._reject(message, errno.ENOSPC, text)
            elif message.streaming and self._streams >= MAX_STREAMS:
                self._reject(message, errno.ENOSPC, f"{MAX_STREAMS} streams of the job are open")
            else:
                self._forward(message)
        elif message.kind == "request":
            self._reject(message, errno.ENOSYS, f"unknown method `{message.topic}`")

    def _reject(self, request: Message, errnum: int, text: str) -> None:
        self._post(request.respond(errnum=errnum, errtext=printable(text)))

    def _abort(self, request: Message) -> None:
        """Serves `pmix.abort`: a task aborts the job."""
        try:
            abort = AbortRequest.read(request)
        except RequestError as error:
            return self._reject(request, error.errnum, error.text)
        text = f"rank {abort.rank} aborted with status {abort.status}: {abort.message}"
        self._fail("abort", text.rstrip(": "))
        return self._post(request.respond({}))

    def _forward(self, request: Message) -> None:
        """Forwards a request in the name of the job; requests keep their order."""
        try:
            payload = read_object(request)
        except RequestError as error:
            return self._reject(request, error.errnum, error.text)
        payload["job"] = self._job
        make = raw_stream if request.streaming else raw_call
        number = next(self._numbers)
        take = partial(self._forward_response, request, number)
        self._streams += request.streaming
        self._open[number] = self._send_request(make(request.topic or "", payload), take)
        return None

    def _forward_response(self, request: Message, number: int, response: Message) -> None:
        """Forwards a response of the instance. It counts as unread at once."""
        if response.errnum or not request.streaming:
            del self._open[number]
            self._streams -= request.streaming
        try:
            self._post(_relay(request, response))
        except FAULTS:
            log.exception("job %s: PMIx", fluid_f58(self._job))
            self._break("internal error")


def _relay(request: Message, response: Message) -> Message:
    """Makes the response to the server's request from the instance's response."""
    if response.errnum:
        return request.respond(errnum=response.errnum, errtext=response.error_text)
    return request.respond({} if response.payload is None else response.payload)
