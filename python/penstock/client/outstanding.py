"""Outstanding requests: matchtags, streams, and the meaning of responses; sans-I/O."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock._core import MATCHTAG_MAX, NORESPONSE, STREAMING, Message
from penstock._core import topic as topics

if TYPE_CHECKING:
    from penstock.client.calls import AnyCall, Payload

Inbox = TypeVar("Inbox")
T = TypeVar("T")

CANCEL_TOPICS = {
    topics.job_exec.OUTPUT: topics.job_exec.OUTPUT_CANCEL,
    topics.job_info.EVENTLOG_WATCH: topics.job_info.EVENTLOG_WATCH_CANCEL,
    topics.job_list.LIST: topics.job_list.LIST_CANCEL,
    topics.job_list.WAIT: topics.job_list.WAIT_CANCEL,
    topics.job_manager.DRAIN: topics.job_manager.DRAIN_CANCEL,
    topics.job_manager.EVENTS_JOURNAL: topics.job_manager.EVENTS_JOURNAL_CANCEL,
    topics.job_manager.IDLE: topics.job_manager.IDLE_CANCEL,
    topics.log.DMESG: topics.log.DMESG_CANCEL,
    topics.pmix.ALLOC: topics.pmix.ALLOC_CANCEL,
    topics.pmix.EVENTS: topics.pmix.EVENTS_CANCEL,
    topics.resource.ACQUIRE: topics.resource.ACQUIRE_CANCEL,
    topics.resource.JOURNAL: topics.resource.JOURNAL_CANCEL,
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
        """Adds a request; returns its matchtag (1 to `MATCHTAG_MAX`)."""
        # Matchtag 0 means none (RFC 6).
        self._last = self._last % MATCHTAG_MAX + 1
        while self._last in self._open:
            self._last = self._last % MATCHTAG_MAX + 1
        self._open[self._last] = inbox, streaming
        return self._last

    def request(self, inbox: Inbox, call: AnyCall[Any]) -> Message:
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

    def clear(self) -> None:
        """Forgets all requests: their connection was lost. Matchtags are not reused soon."""
        self._open.clear()

    def inboxes(self) -> list[Inbox]:
        """The inboxes of all requests that are not abandoned."""
        return [inbox for inbox, _ in self._open.values() if inbox is not None]


def silent_request(topic: str, payload: Payload) -> Message:
    """A request that is never answered, not even with an error."""
    return Message.request(topic, payload, flags=NORESPONSE)


def cancellation(request: str, tag: int) -> Message | None:
    """The request that cancels an abandoned one; None if its topic has no cancellation."""
    cancel = CANCEL_TOPICS.get(request)
    return silent_request(cancel, {"matchtag": tag}) if cancel else None


class OpenStream(ABC, Generic[T]):
    """The rows that requests have received, and which requests may have more."""

    def __init__(self) -> None:
        self._rows: deque[T] = deque()
        # By matchtag.
        self._open: dict[int, AnyCall[T]] = {}

    def __del__(self) -> None:
        # A signal can interrupt the construction.
        if getattr(self, "_open", None):
            self.close()

    @abstractmethod
    def _leave(self, tag: int, topic: str) -> None:
        """Abandons a request."""

    @property
    def in_flight(self) -> int:
        """The number of requests that may have more rows."""
        return len(self._open)

    def _take(self, response: Message) -> None:
        """Reads a response to one of the requests.

        Raises:
            RpcError: its stream has ended in an error.
        """
        call = self._open[response.matchtag]
        if response.errnum or not call.streaming:
            del self._open[response.matchtag]
        self._rows.extend(call.rows(response))

    def close(self) -> None:
        """Closes the stream; there are no more rows."""
        self._rows.clear()
        while self._open:
            tag, call = self._open.popitem()
            self._leave(tag, call.topic)
