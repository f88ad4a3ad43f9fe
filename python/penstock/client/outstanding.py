"""Outstanding requests: matchtags, streams, and the meaning of responses; sans-I/O."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock._core import NORESPONSE, STREAMING, Message
from penstock._core import topic as topics
from penstock.client.calls import is_good_end, payload_of, payload_or_error

if TYPE_CHECKING:
    from penstock.client.calls import Call, StreamCall
    from penstock.errors import RpcError

Inbox = TypeVar("Inbox")
Key = TypeVar("Key")
T = TypeVar("T")

MAX_MATCHTAG = 2**32 - 1

CANCEL_TOPICS = {
    "job-exec.output": "job-exec.output-cancel",
    topics.job_info.EVENTLOG_WATCH: topics.job_info.EVENTLOG_WATCH_CANCEL,
    topics.job_list.LIST: topics.job_list.LIST_CANCEL,
    topics.job_list.WAIT: topics.job_list.WAIT_CANCEL,
    topics.job_manager.DRAIN: topics.job_manager.DRAIN_CANCEL,
    topics.job_manager.IDLE: topics.job_manager.IDLE_CANCEL,
    topics.log.DMESG: topics.log.DMESG_CANCEL,
    topics.pmix.ALLOC: topics.pmix.ALLOC_CANCEL,
    topics.pmix.EVENTS: topics.pmix.EVENTS_CANCEL,
    topics.resource.ACQUIRE: topics.resource.ACQUIRE_CANCEL,
    topics.resource.MONITOR: topics.resource.MONITOR_CANCEL,
}


class Outstanding(Generic[Inbox]):
    """The requests of a connection whose last response has not arrived, by matchtag.

    An abandoned stream stays outstanding until its end, so that its matchtag is not reused. An
    abandoned request with one response does not, because that response may never arrive; its
    matchtag is reused after 4294967295 requests.
    """

    def __init__(self) -> None:
        self._open: dict[int, tuple[Inbox | None, bool]] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, inbox: Inbox, *, streaming: bool) -> int:
        """Adds a request; returns its matchtag (1 to 4294967295)."""
        # Matchtag 0 means none (RFC 6).
        self._last = self._last % MAX_MATCHTAG + 1
        while self._last in self._open:
            self._last = self._last % MAX_MATCHTAG + 1
        self._open[self._last] = inbox, streaming
        return self._last

    def request(self, inbox: Inbox, call: Call[Any] | StreamCall[Any]) -> Message:
        """Adds a request and returns its message.

        Raises:
            WireError: the payload cannot be encoded; nothing was added.
        """
        tag = self.begin(inbox, streaming=call.streaming)
        flags = STREAMING if call.streaming else 0
        try:
            return Message.request(call.topic, call.payload, matchtag=tag, flags=flags)
        except BaseException:
            self.forget(tag)
            raise

    def __contains__(self, tag: int) -> bool:
        return tag in self._open

    def forget(self, tag: int) -> None:
        """Removes a request that could not be sent."""
        del self._open[tag]

    def leave(self, tag: int) -> Inbox | None:
        """Abandons a request: its responses are dropped.

        Returns:
            Its inbox; None if the request has ended or was abandoned before.
        """
        inbox, streaming = self._open.pop(tag, (None, False))
        if streaming:
            self._open[tag] = None, True
        return inbox

    def deliver(self, response: Message) -> Inbox | None:
        """The inbox of a response, or None if its request is not outstanding."""
        found = self._open.get(response.matchtag)
        if found is None:
            return None
        inbox, streaming = found
        # RFC 6: a stream ends in an error, good or bad; any other request has one response.
        if response.errnum or not streaming:
            del self._open[response.matchtag]
        return inbox

    def inboxes(self) -> list[Inbox]:
        """The inboxes of all requests that are not abandoned."""
        return [inbox for inbox, _ in self._open.values() if inbox is not None]


def cancellation(request: str | None, tag: int) -> Message | None:
    """The request that cancels an abandoned one; None if its topic has no cancellation."""
    cancel = CANCEL_TOPICS.get(request or "")
    return Message.request(cancel, {"matchtag": tag}, flags=NORESPONSE) if cancel else None


class OpenStream(ABC, Generic[T]):
    """The rows of a stream that have arrived, and whether there will be more.

    Args:
        call: the request that was sent.
    """

    def __init__(self, call: StreamCall[T]) -> None:
        self._call = call
        self._rows: deque[T] = deque()
        self._ended = False

    @abstractmethod
    def _leave(self) -> None:
        """Abandons the request."""

    def _take(self, message: Message) -> None:
        """Reads a response.

        Raises:
            RpcError: the stream has ended in an error.
        """
        self._ended = message.errnum != 0 or not self._call.streaming
        if not (self._call.streaming and is_good_end(message)):
            self._rows.extend(self._call.read(payload_of(message)))

    def close(self) -> None:
        """Closes the stream; there are no more rows."""
        self._rows.clear()
        if not self._ended:
            self._ended = True
            self._leave()


class OpenMerge(Generic[Key]):
    """The streams of a `merge` that have not ended, by matchtag: key and topic."""

    def __init__(self) -> None:
        self.streams: dict[int, tuple[Key, str]] = {}

    def take(self, message: Message) -> tuple[Key, dict[str, Any] | RpcError] | None:
        """The key of a response's stream and its payload or error; None at a good end."""
        key, _topic = self.streams[message.matchtag]
        if message.errnum:
            del self.streams[message.matchtag]
        return None if is_good_end(message) else (key, payload_or_error(message))
