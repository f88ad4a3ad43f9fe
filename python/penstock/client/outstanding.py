"""Outstanding requests: matchtags, and the meaning of responses; sans-I/O."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock._core import NORESPONSE, Message
from penstock.errors import RpcError

if TYPE_CHECKING:
    from collections.abc import Mapping

    Payload = Mapping[str, Any] | bytes | None

Inbox = TypeVar("Inbox")

MAX_MATCHTAG = 2**32 - 1

CANCEL_TOPICS = {
    "job-exec.output": "job-exec.output-cancel",
    "job-info.eventlog-watch": "job-info.eventlog-watch-cancel",
    "job-list.list": "job-list.list-cancel",
    "job-list.wait": "job-list.wait-cancel",
    "job-manager.drain": "job-manager.drain-cancel",
    "job-manager.idle": "job-manager.idle-cancel",
    "log.dmesg": "log.dmesg-cancel",
    "pmix.alloc": "pmix.alloc-cancel",
    "pmix.events": "pmix.events-cancel",
    "resource.acquire": "resource.acquire-cancel",
    "resource.monitor": "resource.monitor-cancel",
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


def cancellation(topic: str | None, tag: int) -> Message | None:
    """The request that cancels an abandoned one; None if its topic has no cancellation."""
    cancel = CANCEL_TOPICS.get(topic or "")
    return Message.request(cancel, {"matchtag": tag}, flags=NORESPONSE) if cancel else None


def payload_of(message: Message) -> dict[str, Any]:
    """A response's object, `{}` if it is empty.

    Raises:
        RpcError: the response is an error.
    """
    if message.errnum:
        raise error_of(message)
    payload = message.object()
    return payload if isinstance(payload, dict) else {}


def error_of(message: Message) -> RpcError:
    """The error of an error response."""
    return RpcError(message.errnum, message.error_text or os.strerror(message.errnum))


def is_good_end(message: Message) -> bool:
    """Whether a response is the good end of a stream (ENODATA)."""
    return message.errnum == errno.ENODATA
