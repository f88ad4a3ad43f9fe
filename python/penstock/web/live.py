"""Changes as server-sent events: the browser requests its page again, or appends output."""

from __future__ import annotations

import codecs
import json
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import trio

from penstock._core import topic
from penstock.cli.text import safe_lines
from penstock.errors import NoInstanceError, RpcError, TooManyListenersError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import Receive, Scope, Send

    from penstock.rows import JobRow
    from penstock.web.link import Link
    from penstock.web.view import View

POLL_S = 2.0
HEARTBEAT_S = 15.0
OUTPUT_INTERVAL_S = 0.2
MAX_TEXT_CHARACTERS = 65536
MAX_LISTENERS = 200
SERVICES = (topic.job_list.JOB_STATS, topic.resource.STATUS)


def message(event: str, data: Any) -> str:
    """A server-sent event, whose data is JSON: a line, whatever a job has written."""
    return f"event: {event}\ndata: {json.dumps(data)}\n\n"


HEARTBEAT = ": \n\n"


class Changes:
    """Notifies listeners when jobs or resources have changed. Without listeners it does nothing.

    Args:
        link: of the instance.
        poll: seconds between two looks.
    """

    def __init__(self, link: Link, poll: float = POLL_S) -> None:
        self._link = link
        self._poll = poll
        self._listeners = 0
        self._has_listener = trio.Event()
        self._changed = trio.Event()
        self._last: Any = None

    async def run(self) -> None:
        """Looks for changes; returns never."""
        while True:
            await self._has_listener.wait()
            state = await self._read()
            if state != self._last:
                self._last = state
                self._changed.set()
                self._changed = trio.Event()
            await trio.sleep(self._poll)

    async def _read(self) -> Any:
        try:
            client = self._link.client
            return [await client.rpc(name) for name in SERVICES]
        except (RpcError, NoInstanceError) as error:
            return str(error)

    def check_listeners(self) -> None:
        """Checks that another listener may come.

        Raises:
            TooManyListenersError: there are too many.
        """
        if self._listeners >= MAX_LISTENERS:
            raise TooManyListenersError(f"expected at most {MAX_LISTENERS}")

    async def send(self, send: Callable[[str], Awaitable[None]]) -> None:
        """Sends `changed` for each change, and a comment now and then, until it is cancelled."""
        self._listeners += 1
        self._has_listener.set()
        try:
            await send(HEARTBEAT)
            while True:
                changed = self._changed
                with trio.move_on_after(HEARTBEAT_S):
                    await changed.wait()
                await send(message("changed", {}) if changed.is_set() else HEARTBEAT)
        finally:
            self._listeners -= 1
            if not self._listeners:
                self._has_listener = trio.Event()


class OutputText:
    """The text of output that arrives in parts, for a page: control characters are escaped."""

    def __init__(self) -> None:
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}

    def add(self, stream: str, data: bytes) -> str:
        """The text of the next part of a stream."""
        if stream not in self._decoders:
            self._decoders[stream] = codecs.getincrementaldecoder("utf-8")("replace")
        return output_text(self._decoders[stream].decode(data))


def output_text(text: str) -> str:
    """Output as it is shown: tabs and line ends as they are, other control characters escaped."""
    return "\t".join(safe_lines(part) for part in text.replace("\r\n", "\n").split("\t"))


class JobMessages:
    """The events of a job's page: `changed` for each event of the job, `output` for output.

    The first `output` replaces that of the page; its text is the end of the output until then.

    Args:
        view: the instance.
        row: the job.
    """

    def __init__(self, view: View, row: JobRow) -> None:
        self._view = view
        self._row = row

    async def send(self, send: Callable[[str], Awaitable[None]]) -> None:
        """Sends the events until the job is inactive and its output has ended."""
        lock = trio.Lock()

        async def send_whole(text: str) -> None:
            async with lock:
                await send(text)

        await send_whole(HEARTBEAT)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._beat, send_whole)
            async with trio.open_nursery() as reports:
                reports.start_soon(self._report_events, send_whole)
                reports.start_soon(self._report_output, send_whole)
            nursery.cancel_scope.cancel()
        await send_whole(message("end", {}))

    async def _beat(self, send: Callable[[str], Awaitable[None]]) -> None:
        while True:
            await trio.sleep(HEARTBEAT_S)
            await send(HEARTBEAT)

    async def _report_events(self, send: Callable[[str], Awaitable[None]]) -> None:
        with suppress(RpcError, NoInstanceError):
            async for _ in self._view.follow(self._row):
                await send(message("changed", {}))

    async def _report_output(self, send: Callable[[str], Awaitable[None]]) -> None:
        text = OutputText()
        pending = Tail()
        is_first = True

        async def read(done: trio.Event, came: list[trio.Event]) -> None:
            with suppress(RpcError, NoInstanceError):
                async for stream, data in self._view.follow_output(self._row):
                    pending.add(text.add(stream, data))
                    came[0].set()
            done.set()
            came[0].set()

        done, came = trio.Event(), [trio.Event()]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, done, came)
            while not (done.is_set() and pending.is_empty()):
                await came[0].wait()
                came[0] = trio.Event()
                # Output that arrives together is sent together: a backlog is as long as its tail.
                if not done.is_set():
                    await trio.sleep(OUTPUT_INTERVAL_S)
                if not pending.is_empty():
                    await send(message("output", {"text": pending.take(), "replace": is_first}))
                    is_first = False


class Tail:
    """The last `MAX_TEXT_CHARACTERS` characters of text that is added."""

    def __init__(self) -> None:
        self._parts: deque[str] = deque()
        self._length = 0

    def add(self, text: str) -> None:
        """Appends a text."""
        self._parts.append(text)
        self._length += len(text)
        while self._length - len(self._parts[0]) >= MAX_TEXT_CHARACTERS:
            self._length -= len(self._parts.popleft())

    def is_empty(self) -> bool:
        """Whether there is no text."""
        return self._length == 0

    def take(self) -> str:
        """Removes the text and returns it."""
        text = "".join(self._parts)[-MAX_TEXT_CHARACTERS:]
        self._parts.clear()
        self._length = 0
        return text


class EventStream:
    """A response of server-sent events, which ends when the browser leaves (ASGI).

    Args:
        produce: gets a function that sends a text, and returns after the last one.
    """

    def __init__(
        self, produce: Callable[[Callable[[str], Awaitable[None]]], Awaitable[None]]
    ) -> None:
        self._produce = produce

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the response."""
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

        async def send_text(text: str) -> None:
            body = text.encode()
            await send({"type": "http.response.body", "body": body, "more_body": True})

        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_at_disconnect, receive, nursery.cancel_scope)
            await self._produce(send_text)
            nursery.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b""})


async def _cancel_at_disconnect(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
