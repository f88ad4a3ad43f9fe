"""Sends the requests of a recording to an instance, and compares the responses."""

from __future__ import annotations

import os
import re
import select
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock._core import (
    NORESPONSE,
    STREAMING,
    Decoder,
    Message,
    fluid_dothex,
    fluid_f58,
    fluid_parse,
)
from penstock.client.connection import connect
from penstock.errors import Error, NoInstanceError, WireError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable, Iterator

    from penstock.clock import Clock
    from penstock.recording.file import Entry

READ_BYTES = 256 * 1024
# The least id of a job that was submitted a millisecond or more after the start (RFC 19).
LEAST_JOB_ID = 1 << 24
ID_TEXT = re.compile(
    r"(?<!\w)(?:(?:[0-9a-f]{4}\.){3}[0-9a-f]{4}|[ƒf][1-9A-HJ-NP-Za-km-z]{1,11})(?!\w)"
)
# In the name of the service of a job, such as `job-shell.14260633600`.
ID_WORD = re.compile(r"(?<=\.)[0-9]{8,20}(?=\.)")


@dataclass(frozen=True)
class Difference:
    """A request that is answered in another way than in the recording.

    Attributes:
        line: The line of the request.
        topic: Its topic.
        recorded: The recorded end: `success`, or the error; the same word for `now`.
        now: The end now, or `no response`.
    """

    line: int
    topic: str
    recorded: str
    now: str


@dataclass
class _Exchange:
    """A request and its responses, in the recording and now."""

    line: int
    topic: str
    recorded: list[Message] = field(default_factory=list)
    now: list[Message] = field(default_factory=list)
    has_timed_out: bool = False

    def is_behind(self) -> bool:
        """Whether responses are outstanding that the recording has by here."""
        if self.has_timed_out or not self.recorded or self.is_complete():
            return False
        return not self.now or _is_last(self.recorded[-1])

    def is_complete(self) -> bool:
        return bool(self.now) and _is_last(self.now[-1])


class Player:
    """Plays a recording to an instance.

    Each recorded client has a connection of its own. A message of a client is sent when the
    responses that the recording has before it have arrived, at least the first of a stream. The ids
    of submitted jobs are replaced by those that the instance gives. A client that has served
    requests, such as a scheduler, answers the requests of the instance as it did.

    Args:
        uri: the instance's address.
        timeout: the longest time to wait for a response, in seconds.
        clock: the time.
        observe: called with the connection's number and each message that arrives.
    """

    def __init__(
        self,
        uri: str,
        *,
        timeout: float,
        clock: Clock,
        observe: Callable[[int, Message], None] = lambda _connection, _message: None,
    ) -> None:
        self._uri = uri
        self._timeout = timeout
        self._clock = clock
        self._observe = observe
        self._sockets: dict[int, socket.socket] = {}
        self._decoders: dict[int, Decoder] = {}
        self._exchanges: list[_Exchange] = []
        # By connection and matchtag: the last one.
        self._by_tag: dict[tuple[int, int], _Exchange] = {}
        # The exchanges that may be behind.
        self._open: list[_Exchange] = []
        self._ids: dict[int, int] = {}
        # Requests to services of clients, by connection: as recorded, and now by topic.
        self._served: dict[tuple[int, str], list[tuple[Any, ...]]] = {}
        self._arrived: dict[tuple[int, str], list[Message]] = {}

    @property
    def requests(self) -> int:
        """The number of requests that were sent and that have responses in the recording."""
        return sum(1 for exchange in self._exchanges if exchange.recorded)

    def play(self, entries: Iterable[Entry]) -> list[Difference]:
        """Plays the lines of a recording; returns the requests with another end than recorded.

        Raises:
            NoInstanceError: there is no instance, or it closes a connection.
        """
        try:
            for entry in entries:
                self._play(entry)
            self._settle()
        finally:
            for one in self._sockets.values():
                one.close()
        return list(self._differences())

    def _play(self, entry: Entry) -> None:
        if entry.event == "connect":
            self._socket(entry.connection)
        elif entry.event == "disconnect":
            self._settle()
            if one := self._sockets.pop(entry.connection, None):
                one.close()
        elif entry.to_broker:
            self._settle()
            self._send(entry)
        elif entry.message is not None:
            self._expect(entry.connection, entry.message)

    def _socket(self, connection: int) -> socket.socket:
        if connection not in self._sockets:
            self._sockets[connection] = connect(self._uri)
            self._decoders[connection] = Decoder()
        return self._sockets[connection]

    def _expect(self, connection: int, message: Message) -> None:
        """Notes a message that the instance has sent in the recording."""
        if message.kind == "response":
            exchange = self._by_tag.get((connection, message.matchtag))
            if exchange is not None:
                exchange.recorded.append(message)
                self._learn_ids(exchange)
        elif message.kind == "request":
            self._served.setdefault((connection, message.topic or ""), []).append(_key(message))

    def _send(self, entry: Entry) -> None:
        message, frame = entry.message, entry.frame
        if message is not None and message.kind == "response":
            request = self._request_of(entry.connection, message)
            if request is None:
                return
            frame = self._response(request, message).encode()
        elif message is not None:
            frame = self._translated(message, frame)
            if message.kind == "request" and message.matchtag and not message.noresponse:
                exchange = _Exchange(entry.line, message.topic or "")
                self._exchanges.append(exchange)
                self._open.append(exchange)
                self._by_tag[entry.connection, message.matchtag] = exchange
        try:
            self._socket(entry.connection).sendall(frame)
        except OSError as error:
            raise NoInstanceError(
                f"line {entry.line}: the instance at `{self._uri}` closed connection "
                f"{entry.connection}: {error.strerror}"
            ) from None

    def _request_of(self, connection: int, response: Message) -> Message | None:
        """The request now of a recorded response of a client: that of the same position."""
        place = connection, response.topic or ""
        keys = self._served.get(place, [])
        if _key(response) not in keys:
            return None
        # Matchtags are used again: the last request is meant.
        position = len(keys) - 1 - keys[::-1].index(_key(response))
        self._wait(lambda: len(self._arrived.get(place, ())) > position)
        arrived = self._arrived.get(place, [])
        return arrived[position] if len(arrived) > position else None

    def _response(self, request: Message, recorded: Message) -> Message:
        return request.respond(
            self._payload(recorded),
            errnum=recorded.errnum,
            errtext=recorded.error_text,
            streaming=recorded.streaming,
        )

    # --- the ids of jobs

    def _learn_ids(self, exchange: _Exchange) -> None:
        """Pairs the ids in the responses to a submission."""
        if not exchange.topic.startswith("job-ingest."):
            return
        for recorded, now in zip(exchange.recorded, exchange.now, strict=False):
            pairs = zip(_numbers(_object(recorded)), _numbers(_object(now)), strict=False)
            self._ids.update(pair for pair in pairs if min(pair) >= LEAST_JOB_ID)

    def _translated(self, message: Message, frame: bytes) -> bytes:
        """A recorded request with the ids of now; the frame as it is if it has none."""
        payload = self._payload(message)
        topic = ID_WORD.sub(
            lambda found: str(self._ids.get(int(found[0]), found[0])), message.topic or ""
        )
        if topic == message.topic and (payload is None or payload == _object(message)):
            return frame
        return Message.request(
            topic,
            payload,
            matchtag=message.matchtag,
            flags=message.flags & (STREAMING | NORESPONSE),
            nodeid=message.nodeid,
        ).encode()

    def _payload(self, message: Message) -> Any:
        payload = _object(message)
        return self._with_ids(payload) if self._ids else payload

    def _with_ids(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._with_ids(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._with_ids(item) for item in value]
        if isinstance(value, int) and not isinstance(value, bool):
            return self._ids.get(value, value)
        if isinstance(value, str):
            return ID_TEXT.sub(self._id_text, value)
        return value

    def _id_text(self, found: re.Match[str]) -> str:
        text = found[0]
        try:
            now = self._ids.get(fluid_parse(text))
        except Error:
            return text
        if now is None:
            return text
        return fluid_dothex(now) if "." in text else text[0] + fluid_f58(now)[1:]

    # --- what arrives

    def _settle(self) -> None:
        """Waits for the responses that the recording has by here."""
        self._open = [exchange for exchange in self._open if not exchange.is_complete()]
        if not self._wait(lambda: not any(exchange.is_behind() for exchange in self._open)):
            for exchange in self._open:
                exchange.has_timed_out |= exchange.is_behind()

    def _wait(self, is_done: Callable[[], bool]) -> bool:
        """Takes in messages until something is true; returns whether it is, or time is up."""
        end = self._clock.monotonic() + self._timeout
        while not is_done():
            left = end - self._clock.monotonic()
            connections = {one.fileno(): number for number, one in self._sockets.items()}
            poll = select.poll()
            for descriptor in connections:
                poll.register(descriptor, select.POLLIN)
            ready = poll.poll(left * 1000) if left > 0 else []
            if not ready:
                return False
            for descriptor, _ in ready:
                self._receive(connections[descriptor])
        return True

    def _receive(self, connection: int) -> None:
        data = os.read(self._sockets[connection].fileno(), READ_BYTES)
        if not data:
            raise NoInstanceError(f"the instance at `{self._uri}` closed connection {connection}")
        for message in self._decoders[connection].feed(data):
            self._observe(connection, message)
            if message.kind == "request":
                place = connection, message.topic or ""
                self._arrived.setdefault(place, []).append(message)
            elif message.kind == "response":
                exchange = self._by_tag.get((connection, message.matchtag))
                if exchange is not None:
                    exchange.now.append(message)
                    self._learn_ids(exchange)

    def _differences(self) -> Iterator[Difference]:
        for exchange in self._exchanges:
            recorded, now = _end(exchange.recorded), _end(exchange.now)
            if recorded is None:
                continue
            errnums = recorded.errnum, now.errnum if now else None
            if errnums[0] != errnums[1]:
                text = _end_text(now) if now else "no response"
                yield Difference(exchange.line, exchange.topic, _end_text(recorded), text)


def _is_last(response: Message) -> bool:
    return response.errnum != 0 or not response.streaming


def _end(responses: list[Message]) -> Message | None:
    return responses[-1] if responses and _is_last(responses[-1]) else None


def _end_text(response: Message) -> str:
    if not response.errnum:
        return "success"
    return f"error {response.errnum} ({response.error_text or os.strerror(response.errnum)})"


def _key(message: Message) -> tuple[Any, ...]:
    """The matchtag and routes that a response shares with its request alone."""
    return message.matchtag, *(message.routes or [])


def _object(message: Message) -> Any:
    """The payload as an object; None without one."""
    if message.payload is None or message.error_text is not None:
        return None
    try:
        return message.object()
    except WireError:
        return None


def _numbers(value: Any) -> Iterator[int]:
    """The integers in a payload, in order."""
    if isinstance(value, dict):
        for item in value.values():
            yield from _numbers(item)
    elif isinstance(value, list):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield value
