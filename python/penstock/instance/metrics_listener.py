"""The listener for monitoring systems: the metrics by HTTP, for this machine alone."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from penstock import metrics
from penstock._core import topic
from penstock.client.calls import raw_call
from penstock.config.listen_address import ListenAddress, address_text, parse_address
from penstock.errors import Error, StartError
from penstock.instance.broker import ACCEPT_PAUSE_S
from penstock.instance.internal_client import InternalClient
from penstock.instance.supervision import FAULTS, Backoff

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager

    from penstock._core import Message
    from penstock.instance.broker import Broker
    from penstock.instance.system import Host, Network

log = logging.getLogger("penstock.metrics")

PATH = "/metrics"
# A request has a line and a few headers.
MAX_REQUEST_BYTES = 8192
# For each connection beyond these the one is closed that has waited longest for its request.
MAX_CONNECTIONS = 16
# Seconds for a request and its response.
REQUEST_TIMEOUT_S = 10.0
# Seconds for the answers of the services.
COLLECT_TIMEOUT_S = 2.0
# The age in seconds up to which a text is sent again: the rate of requests has no limit.
MAX_TEXT_AGE_S = 0.5

PLAIN = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class _Response:
    """A response without its body's headers."""

    status: str
    body: str
    content_type: str = PLAIN
    headers: str = ""

    def encode(self, *, has_body: bool) -> bytes:
        body = self.body.encode()
        head = (
            f"HTTP/1.1 {self.status}\r\nContent-Type: {self.content_type}\r\n"
            f"Content-Length: {len(body)}\r\n{self.headers}Connection: close\r\n\r\n"
        )
        return head.encode() + (body if has_body else b"")


MALFORMED = _Response("400 Bad Request", "expected an HTTP request\n")
TOO_LONG = _Response("431 Request Header Fields Too Large", "the request is too long\n")
NOT_FOUND = _Response("404 Not Found", f"expected the path {PATH}\n")
WRONG_METHOD = _Response(
    "405 Method Not Allowed", "expected GET or HEAD\n", headers="Allow: GET, HEAD\r\n"
)
FAILED = _Response("500 Internal Server Error", "the metrics cannot be collected\n")


class MetricsListener:
    """Serves the metrics at `GET /metrics`, one request a connection.

    Args:
        broker: the broker.
        network: where it listens.
        host: checks the directory of a Unix socket.
        address: the setting `penstock.metrics.listen`.
    """

    def __init__(self, broker: Broker, network: Network, host: Host, address: str) -> None:
        self._broker = broker
        self._network = network
        self._host = host
        self._address = parse_address(address)
        self._client = InternalClient(broker)
        self._task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
        self._connections = 0
        # The connections without a whole request, the oldest first: what closes them.
        self._waiting: dict[trio.abc.Stream, trio.CancelScope] = {}
        self._collecting = trio.Lock()
        self._text = ""
        self._collected_at: float | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listens until cancelled. Reports itself as started after the first attempt.

        A failure to listen, and any fault, are logged; the instance continues, and the listener
        tries again with exponential backoff.
        """
        backoff = Backoff(self._broker.clock)
        problem: str | None = None
        self._task_status = task_status
        while True:
            backoff.begin()
            try:
                await self._listen()
            except* (OSError, StartError) as group:
                found = str(group.exceptions[0]).partition("\n")[0]
                if found != problem:
                    log.warning("no metrics at `%s`: %s", address_text(self._address), found)
                problem = found
            except* FAULTS:
                log.exception("the listener of metrics has failed and is restarted")
            self._report_start()
            await backoff.pause()

    def _report_start(self) -> None:
        self._task_status.started()
        self._task_status = trio.TASK_STATUS_IGNORED

    async def _listen(self) -> None:
        async with self._open() as listener, trio.open_nursery() as nursery:
            log.info("metrics at %s", listener_uri(self._address, listener))
            self._report_start()
            while True:
                try:
                    stream = await listener.accept()
                except OSError as error:
                    # There are too many descriptors, or the client has gone.
                    log.debug("cannot accept a connection: %s", error)
                    await trio.sleep(ACCEPT_PAUSE_S)
                else:
                    nursery.start_soon(self._serve, stream)

    def _open(self) -> AbstractAsyncContextManager[trio.abc.Listener[trio.abc.Stream]]:
        if isinstance(self._address, Path):
            self._host.prepare_socket(self._address, "penstock.metrics.listen")
            return self._network.listen(self._address, mode=0o600)
        return self._network.listen_tcp(*self._address)

    async def _serve(self, stream: trio.abc.Stream) -> None:
        self._connections += 1
        try:
            async with stream:
                with trio.move_on_after(REQUEST_TIMEOUT_S) as scope:
                    self._waiting[stream] = scope
                    if self._connections > MAX_CONNECTIONS:
                        self._waiting.pop(next(iter(self._waiting))).cancel()
                    await self._respond(stream)
        except* trio.BrokenResourceError:
            pass
        except* FAULTS:
            log.exception("a request for metrics has failed")
        finally:
            self._waiting.pop(stream, None)
            self._connections -= 1

    async def _respond(self, stream: trio.abc.Stream) -> None:
        received = b""
        while b"\r\n\r\n" not in received:
            if len(received) > MAX_REQUEST_BYTES:
                await stream.send_all(TOO_LONG.encode(has_body=True))
                return
            data = await stream.receive_some(MAX_REQUEST_BYTES)
            if not data:
                return
            received += data
        self._waiting.pop(stream, None)
        line = received.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        method = line[0]
        response = await self._response(line)
        await stream.send_all(response.encode(has_body=method != "HEAD"))

    async def _response(self, line: list[str]) -> _Response:
        if len(line) != 3 or not line[2].startswith("HTTP/1."):
            return MALFORMED
        method, target, _ = line
        if target.partition("?")[0] != PATH:
            return NOT_FOUND
        if method not in ("GET", "HEAD"):
            return WRONG_METHOD
        try:
            return _Response("200 OK", await self._collect(), metrics.CONTENT_TYPE)
        except FAULTS:
            log.exception("the metrics cannot be collected")
            return FAILED

    async def _collect(self) -> str:
        """The metrics, at most `MAX_TEXT_AGE_S` old."""
        async with self._collecting:
            clock, at = self._broker.clock, self._collected_at
            if at is None or clock.monotonic() - at > MAX_TEXT_AGE_S:
                self._text = metrics.openmetrics(await self._request_stats())
                self._collected_at = clock.monotonic()
            return self._text

    async def _request_stats(self) -> Mapping[str, Mapping[str, Any] | None]:
        answers: dict[str, Mapping[str, Any] | None] = dict.fromkeys(metrics.SERVICES)
        clock = self._broker.clock
        deadline = clock.monotonic() + COLLECT_TIMEOUT_S
        with ExitStack() as stack:
            calls = {name: raw_call(f"{name}.{topic.STATS_GET}") for name in metrics.SERVICES}
            channels = {
                name: stack.enter_context(self._client.responses(call))
                for name, call in calls.items()
            }
            for name, channel in channels.items():
                answers[name] = _stats(await _receive(channel, deadline - clock.monotonic()))
        return answers


async def _receive(channel: trio.MemoryReceiveChannel[Message], timeout_s: float) -> Message | None:
    """The response; None at the timeout. One that has arrived is returned even after it."""
    try:
        return channel.receive_nowait()
    except trio.WouldBlock:
        with trio.move_on_after(max(0.0, timeout_s)):
            return await channel.receive()
    return None


def _stats(response: Message | None) -> Mapping[str, Any] | None:
    if response is None or response.errnum:
        return None
    try:
        stats = response.object()
    except Error:
        return None
    return stats if isinstance(stats, dict) else None


def listener_uri(address: ListenAddress, listener: trio.abc.Listener[trio.abc.Stream]) -> str:
    """The address of the metrics, with the port that the system has chosen for port 0."""
    if isinstance(address, Path):
        return f"{address} ({PATH})"
    if isinstance(listener, trio.SocketListener):
        address = address[0], listener.socket.getsockname()[1]
    return f"http://{address_text(address)}{PATH}"
