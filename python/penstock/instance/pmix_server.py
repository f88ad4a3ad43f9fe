"""The PMIx server of a job: started before its tasks, ended after them, its requests handed on.

The server is a process of the job's user that holds one end of a socket pair. What it asks on it is
asked of the instance's `pmix` service in the name of that job, whatever else it says.
"""

from __future__ import annotations

import errno
import logging
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from penstock._core import STREAMING, Decoder, Message, fluid_f58
from penstock.errors import Error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from penstock._core import TaskPlacement
    from penstock.instance.processes import ChildProcesses

    # Asks the instance: topic, payload and flags; the responses come through the channel.
    Ask = Callable[
        [str, dict[str, Any], int], AbstractContextManager[trio.MemoryReceiveChannel[Message]]
    ]

log = logging.getLogger("penstock.exec")

PROGRAM = "penstock-pmix"
CHUNK = 64 * 1024
START_TAG, PING_TAG, ENDED_TAG = 1, 2, 3
# Seconds until a server that does not answer counts as one that cannot be started.
START_TIMEOUT = 60.0
# Seconds until a killed server counts as one that cannot be killed.
END_TIMEOUT = 5.0
# Seconds between two questions whether libpmix still answers, and how many may go unanswered.
PING_INTERVAL, PING_LIMIT = 5.0, 6
# Requests of one job that may wait at a time.
MAX_WAITING = 10_000
# Bytes of a message; what tasks ask is small.
MAX_FRAME = 1 << 20
# What the tasks may ask of the instance.
TOPICS = frozenset({"pmix.alloc", "pmix.query", "pmix.cancel", "pmix.events"})


class PmixError(Error):
    """The PMIx server of a job cannot be started."""


def find_server() -> Path | None:
    """The server's program: that of `PATH`, else that beside this Python; None if there is none."""
    found = shutil.which(PROGRAM) or shutil.which(Path(sys.executable).with_name(PROGRAM))
    return Path(found) if found is not None else None


def wanted(jobspec: Mapping[str, Any]) -> bool:
    """Whether a job asks for a server: by the shell option `pmix`."""
    options = jobspec["attributes"]["system"].get("shell", {}).get("options", {})
    return options.get("pmix") not in (None, False, 0, "off")


@asynccontextmanager
async def serving(
    job: int,
    places: Sequence[TaskPlacement],
    *,
    ask: Ask,
    fail: Callable[[str, str], None],
    start_soon: Callable[..., None],
    children: ChildProcesses,
) -> AsyncIterator[tuple[dict[int, dict[str, str]], Callable[[int], None]]]:
    """Runs a server for a job's tasks; gives the variables that each rank needs to find it.

    With them comes a function to be told the rank of each task that has ended.

    Args:
        job: the job's id.
        places: its tasks.
        ask: asks the instance.
        fail: ends the job, with an exception's type and note.
        start_soon: runs a function in the background.
        children: the instance's own processes.

    Raises:
        PmixError: the server is not there, or cannot be started.
    """
    program = find_server()
    if program is None:
        raise PmixError(
            f"the job asks for PMIx, and there is no `{PROGRAM}` in `PATH`\n"
            "hint: `make pmix` builds it where libpmix-dev is installed"
        )
    with tempfile.TemporaryDirectory(
        prefix="penstock-pmix-", ignore_cleanup_errors=True
    ) as directory:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        with theirs:
            async with (
                stream,
                children.open(
                    [str(program), "--fd", str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                    pass_fds=(theirs.fileno(),),
                ) as process,
            ):
                # The server's end is its own alone: when it ends, that is seen.
                theirs.close()
                link = Link(job, stream, ask, fail)
                try:
                    start_soon(link.run)
                    yield await link.start(describe(job, places, directory)), link.ended
                finally:
                    with trio.CancelScope(shield=True):
                        await link.close()
                        await _end(process, job)


async def _end(process: trio.Process, job: int) -> None:
    """Ends a server: its tasks have ended, or are to be killed."""
    process.kill()
    with trio.move_on_after(END_TIMEOUT):
        await process.wait()
    if process.returncode is None:
        log.warning("job %s: its PMIx server does not end", fluid_f58(job))


def describe(job: int, places: Sequence[TaskPlacement], directory: str) -> dict[str, Any]:
    """What a server is told of its job.

    All tasks run on this machine, whatever node each is on: nodes may be made up.
    """
    nodes: dict[str, list[int]] = {}
    for place in places:
        nodes.setdefault(place.host, []).append(place.rank)
    ranks = [place.rank for place in places]
    return {
        # Nobody else's, and not to be guessed: it is what a client shows.
        "namespace": f"penstock-{secrets.token_hex(16)}",
        "job": fluid_f58(job),
        "size": len(ranks),
        "universe": len(ranks),
        "local": ranks,
        "nodes": list(nodes),
        "ranks_per_node": list(nodes.values()),
        "directory": directory,
    }


class Link:
    """The instance's end of the socket to a server.

    Args:
        job: the job that the server belongs to.
        stream: the socket.
        ask: asks the instance.
        fail: ends the job, with an exception's type and note.
    """

    def __init__(
        self, job: int, stream: trio.SocketStream, ask: Ask, fail: Callable[[str, str], None]
    ) -> None:
        self._job = job
        self._stream = stream
        self._ask = ask
        self._fail = fail
        self._outgoing, self._unsent = trio.open_memory_channel[Message](float("inf"))
        self._started: Message | None = None
        self._answered = trio.Event()
        self._running = self._closing = False
        self._over = trio.Event()
        self._waiting = 0
        # Whether a ping is under way.
        self._pinged = False

    async def start(self, description: dict[str, Any]) -> dict[int, dict[str, str]]:
        """Has the server start; the tasks' variables, by rank.

        Raises:
            PmixError: it does not, for the reason it gives.
        """
        self._outgoing.send_nowait(Message.request("pmix.start", description, matchtag=START_TAG))
        with trio.move_on_after(START_TIMEOUT):
            await self._answered.wait()
        answer = self._started
        if answer is None:
            raise PmixError("the PMIx server has not started: the instance's log may say why")
        if answer.errnum:
            raise PmixError(f"the PMIx server has not started: {answer.error_text}")
        environment = answer.object()["environment"]
        return {int(rank): variables for rank, variables in environment.items()}

    def ended(self, rank: int) -> None:
        """A task has ended: a fence of the others does not wait for it."""
        message = Message.request("pmix.ended", {"rank": rank}, matchtag=ENDED_TAG)
        self._outgoing.send_nowait(message)

    async def run(self) -> None:
        """Hands on what the server asks, until one side closes the socket."""
        self._running = True
        try:
            await self._run()
            if not self._closing and self._started is not None:
                self._fail("pmix", "the job's PMIx server has ended before the tasks")
        finally:
            self._answered.set()
            self._over.set()

    async def _run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send)
                nursery.start_soon(self._watch)
                await self._receive(nursery)
                nursery.cancel_scope.cancel()
        except Exception:
            # Whatever it is, it costs this job.
            log.exception("job %s: PMIx", fluid_f58(self._job))

    async def close(self) -> None:
        """Closes the socket: the server ends."""
        self._closing = True
        await self._stream.aclose()
        # Where the instance ends, nothing begins any more.
        if self._running:
            await self._over.wait()

    async def _send(self) -> None:
        async for message in self._unsent:
            try:
                await self._stream.send_all(message.encode())
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return

    async def _watch(self) -> None:
        """Ends the job when its server, or libpmix in it, stands still."""
        await self._answered.wait()
        missed = 0
        while missed < PING_LIMIT:
            await trio.sleep(PING_INTERVAL)
            missed = missed + 1 if self._pinged else 0
            if not self._pinged:
                self._pinged = True
                self._outgoing.send_nowait(Message.request("pmix.ping", {}, matchtag=PING_TAG))
        self._fail("pmix", "the job's PMIx server does not answer")

    async def _receive(self, nursery: trio.Nursery) -> None:
        decoder = Decoder(MAX_FRAME)
        while True:
            try:
                data = await self._stream.receive_some(CHUNK)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
            if not data:
                return
            try:
                messages = decoder.feed(data)
            except Error as error:
                log.warning("job %s: PMIx server: %s", fluid_f58(self._job), error)
                return
            for message in messages:
                self._take(message, nursery)

    def _take(self, message: Message, nursery: trio.Nursery) -> None:
        if message.kind == "response":
            if message.matchtag == START_TAG and self._started is None:
                self._started = message
                self._answered.set()
            elif message.matchtag == PING_TAG:
                self._pinged = False
        elif message.kind == "request" and message.topic == "pmix.abort":
            self._abort(message)
        elif message.kind == "request" and message.topic in TOPICS:
            if self._waiting < MAX_WAITING:
                self._forward(message, nursery)
            else:
                text = f"{MAX_WAITING} requests of the job wait already"
                self._refuse(message, errno.ENOSPC, text)
        elif message.kind == "request":
            self._refuse(message, errno.ENOSYS, f"unknown method `{message.topic}`")

    def _refuse(self, request: Message, errnum: int, text: str) -> None:
        self._outgoing.send_nowait(request.respond(errnum=errnum, errtext=text))

    def _abort(self, request: Message) -> None:
        """A task gives the job up."""
        try:
            told = request.object()
            rank, status, text = int(told["rank"]), int(told["status"]), str(told["message"])
        except (Error, KeyError, TypeError, ValueError) as error:
            return self._refuse(request, errno.EPROTO, f"pmix.abort: {error!r}")
        self._fail("abort", f"rank {rank} aborted with status {status}: {text}".rstrip(": "))
        return self._outgoing.send_nowait(request.respond({}))

    def _forward(self, request: Message, nursery: trio.Nursery) -> None:
        """Asks the instance in the job's name: in the order in which requests come."""
        try:
            payload = request.object()
            if not isinstance(payload, dict):
                raise TypeError("expected an object")
        except (Error, TypeError) as error:
            return self._refuse(request, errno.EPROTO, f"{request.topic}: {error}")
        payload["job"] = self._job
        with ExitStack() as stack:
            asking = self._ask(request.topic or "", payload, STREAMING if request.streaming else 0)
            responses = stack.enter_context(asking)
            self._waiting += 1
            nursery.start_soon(self._hand_back, request, responses, stack.pop_all())
        return None

    async def _hand_back(
        self,
        request: Message,
        responses: trio.MemoryReceiveChannel[Message],
        stack: ExitStack,
    ) -> None:
        """Hands on the instance's answers, up to the last."""
        try:
            with stack:
                async for response in responses:
                    self._outgoing.send_nowait(_relay(request, response))
                    if response.errnum or not request.streaming:
                        return
        finally:
            self._waiting -= 1


def _relay(request: Message, response: Message) -> Message:
    """The instance's response, as one to the server's request."""
    if response.errnum:
        return request.respond(errnum=response.errnum, errtext=response.error_text)
    return request.respond(response.object() if response.payload is not None else {})
