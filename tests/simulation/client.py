"""Clients of a simulation: what they have requested, and what the responses promise."""

from __future__ import annotations

import errno
import hashlib
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import trio

from penstock._core import STREAMING, Decoder, Message
from penstock.client.outstanding import cancellation

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.network import End, FaultyNetwork


@dataclass
class Submission:
    """A submission: one name for its jobs, whatever the number of tries."""

    name: str
    payload: dict[str, Any]
    client: Client
    ids: list[int] | None = None
    # Whether a try had no response, so that jobs may have been accepted.
    is_unknown: bool = False
    # The errors of the tries that were rejected.
    errors: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """The number of its jobs."""
        return int(self.payload.get("count", 1))


@dataclass
class Promises:
    """The promises of the instance to all clients."""

    violate: Callable[[str, str], None]
    submissions: list[Submission] = field(default_factory=list)
    # The events of each job that a client has seen.
    events: dict[int, list[str]] = field(default_factory=dict)
    # Texts in events of jobs, and of resources (0), that were acknowledged.
    texts: list[tuple[int, str]] = field(default_factory=list)

    def jobs(self) -> list[int]:
        """The acknowledged jobs, in the order of their submissions."""
        return [job for submission in self.submissions for job in submission.ids or ()]

    def acknowledge(self, submission: Submission, ids: list[int]) -> None:
        """Records the ids of a submission."""
        if len(ids) != submission.count:
            self.violate("ids", f"{submission.name} of {submission.count} jobs got {ids}")
        elif submission.ids not in (None, ids):
            self.violate("ids", f"{submission.name} got {submission.ids}, and then {ids}")
        submission.ids = ids

    def see(self, job: int, place: int, line: str) -> None:
        """Records the event at a place of a job's log."""
        seen = self.events.setdefault(job, [])
        if place == len(seen):
            seen.append(line)
        elif place > len(seen) or seen[place] != line:
            before = seen[place] if place < len(seen) else "nothing"
            self.violate("event-changed", f"job {job}: {place} was {before}, and is {line}")


@dataclass
class Request:
    """An outstanding request."""

    topic: str
    purpose: Any = None
    is_streaming: bool = False
    # The number of events of the followed job that have come.
    place: int = 0


class Client:
    """A client that connects when it has something to send.

    Args:
        number: its number, from which its process id follows.
        uid: its user.
        network: connects it.
        promises: those of the instance.
    """

    def __init__(
        self, number: int, uid: int, network: FaultyNetwork, uri: str, promises: Promises
    ) -> None:
        self.name = f"client {number}"
        self.uid = uid
        self._pid = 5000 + number
        self._network, self._uri = network, uri
        self._promises = promises
        self._end: End | None = None
        self._decoder = Decoder()
        self._greeted = False
        self._tag = 0
        self.outstanding: dict[int, Request] = {}
        self._answered: set[int] = set()
        # The rest of a frame that has been sent in part.
        self._rest = b""
        self._partial = 0
        self.is_slow = False
        # Whether it has sent something that ends its connection.
        self.is_malformed = False
        self._wake = trio.Event()
        # The names of its services.
        self.service = f"client{number}"
        # The last response of each request that was not a stream, and the last one of each stream.
        self.responses: dict[int, Message] = {}
        # A digest of the responses.
        self.received = hashlib.sha256()

    @property
    def is_connected(self) -> bool:
        """Whether it has a connection."""
        return self._end is not None

    @property
    def is_whole(self) -> bool:
        """Whether all that it has sent are well-formed, whole messages, and it reads."""
        return self.is_connected and not (self._rest or self.is_malformed or self.is_slow)

    # --- its connection

    async def run(self) -> None:
        """Reads until cancelled."""
        while True:
            if self._end is None or self.is_slow:
                await self._wake.wait()
                continue
            end = self._end
            data = await end.receive_some()
            if end is not self._end:
                continue
            if data:
                self._receive(data)
            else:
                self.disconnect()

    def _report(self) -> None:
        self._wake.set()
        self._wake = trio.Event()

    def _connect(self) -> bool:
        if self._end is None:
            self._end = self._network.connect_now(self._uri, self._pid, self.uid)
            self._decoder, self._greeted = Decoder(), False
            self._report()
        return self._end is not None

    def disconnect(self) -> None:
        """Ends the connection: nothing is known about its requests."""
        end, self._end = self._end, None
        if end is not None:
            end.close()
        for request in self.outstanding.values():
            if isinstance(request.purpose, Submission):
                request.purpose.is_unknown = True
        self.outstanding.clear()
        self._rest, self._partial = b"", 0
        self.is_malformed = False
        self._report()

    def set_slow(self, *, is_slow: bool) -> None:
        """Stops reading, or reads again."""
        self.is_slow = is_slow
        self._report()

    def send_partly(self, size: int) -> None:
        """Has only some bytes of the next frame sent, the others before the one after it."""
        self._partial = size

    def send_rest(self) -> None:
        """Sends the rest of a frame that has been sent in part."""
        rest, self._rest = self._rest, b""
        self._send(rest)

    def _send(self, data: bytes) -> None:
        if data and self._end is not None:
            try:
                self._end.outgoing.put(data)
            except trio.BrokenResourceError:
                self.disconnect()

    def send_garbage(self, size: int, seed: int) -> None:
        """Sends random bytes: the connection ends, or they are the begin of a frame."""
        if self._connect():
            self.is_malformed = True
            self._send(random.Random(seed).randbytes(1 + size))

    # --- requests

    def request(
        self, topic: str, payload: Any = None, *, purpose: Any = None, streaming: bool = False
    ) -> int | None:
        """Sends a request; returns its matchtag, None without an instance."""
        if self.is_malformed:
            self.disconnect()
        if not self._connect():
            return None
        self.send_rest()
        if self._end is None:
            return None
        self._tag += 1
        flags = STREAMING if streaming else 0
        message = Message.request(topic, payload, matchtag=self._tag, flags=flags)
        self.outstanding[self._tag] = Request(topic, purpose, streaming)
        data = message.encode()
        size = min(self._partial or len(data), len(data))
        self._partial = 0
        self._rest = data[size:]
        self._send(data[:size])
        return self._tag

    async def wait_for(self, tag: int) -> Message | None:
        """Returns the last response to a request, None if the connection has ended."""
        while tag in self.outstanding:
            await self._wake.wait()
        return self.responses.get(tag)

    def submit(self, submission: Submission) -> None:
        """Sends a submission."""
        tag = self.request("job-ingest.submit", submission.payload, purpose=submission)
        if tag is None:
            submission.errors.append("no instance")

    def end_stream(self, number: int) -> None:
        """Cancels one of the streams."""
        tags = [tag for tag, request in self.outstanding.items() if request.is_streaming]
        if not tags or self._end is None:
            return
        tag = tags[number % len(tags)]
        if cancel := cancellation(self.outstanding[tag].topic, tag):
            self.send_rest()
            self._send(cancel.encode())

    # --- responses

    def _receive(self, data: bytes) -> None:
        if not self._greeted:
            status, data = data[0], data[1:]
            self._greeted = True
            if status:
                self.disconnect()
                return
        for message in self._decoder.feed(data):
            match message.kind:
                case "response":
                    self._take_response(message)
                case "request":
                    self._take_request(message)

    def _take_request(self, request: Message) -> None:
        # Every third request has no response.
        name = request.topic or ""
        if not request.noresponse and not name.endswith("never"):
            self._send(request.respond({}).encode())

    def _take_response(self, response: Message) -> None:
        tag, number = response.matchtag, response.errnum
        self.received.update(f"{response.topic} {tag} {number}\n".encode())
        request = self.outstanding.get(tag)
        violate = self._promises.violate
        if request is None:
            again = "answered-twice" if tag in self._answered else "no-request"
            violate(again, f"{self.name}: {response.topic} {tag} {number}")
            return
        if response.topic != request.topic:
            violate("topic", f"{request.topic} is answered as {response.topic}")
        if number or not request.is_streaming:
            del self.outstanding[tag]
            self._answered.add(tag)
            self.responses[tag] = response
            self._report()
        if number in (errno.EPROTO, errno.ENOSYS) and self._is_expected(request):
            violate("rejected", f"{request.topic}: {response.error_text}")
        match request.purpose:
            case Submission() as submission if number:
                text = response.error_text or ""
                submission.errors.append(f"{number} {text}")
                # The job manager may fail after a commit for a service that is not in memory, and
                # before it posts its responses.
                submission.is_unknown |= text.endswith("the service has failed")
            case Submission() as submission:
                answer = response.object()
                ids = answer["ids"] if "ids" in answer else [answer["id"]]
                self._promises.acknowledge(submission, ids)
            case ("watch", job) if not number:
                for line in response.object()["event"].splitlines():
                    self._promises.see(job, request.place, line)
                    request.place += 1
            case ("text", job, text) if not number and not decoded(response).get("errors"):
                self._promises.texts.append((job, text))
            case ("rows", rows) if not number:
                rows |= {row["id"]: row for row in response.object()["jobs"]}

    def _is_expected(self, request: Request) -> bool:
        """Whether the request is valid and its service is always registered."""
        name = request.topic.partition(".")[0]
        return name not in ("job-exec", "sched") and not name.startswith("client")


def decoded(response: Message) -> dict[str, Any]:
    """The payload of a response, empty if there is none."""
    return response.object() if response.payload else {}
