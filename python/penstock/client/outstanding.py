"""Requests that wait for answers: matchtags, and what the answers mean. No input, no output."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock._core import Message
from penstock.errors import RpcError

if TYPE_CHECKING:
    from collections.abc import Mapping

    Payload = Mapping[str, Any] | bytes | None

Inbox = TypeVar("Inbox")

NORESPONSE, STREAMING = 0x04, 0x40
LAST_TAG = 2**32 - 1

# What goes on until something happens: how to tell the service that nobody waits for it.
CANCELS = {
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
    """The requests of a connection whose last answer has not come, by matchtag.

    A stream stays here when nobody waits for it any more, until its end: its matchtag is not given
    to another. A request with one answer does not, for that answer may never come; when its
    matchtag's turn comes again, 4294967295 requests later, it is not waited for either.
    """

    def __init__(self) -> None:
        self._open: dict[int, tuple[Inbox | None, bool]] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, inbox: Inbox, *, streaming: bool) -> int:
        """Takes a request in; returns the matchtag that it is to have (1 to 4294967295)."""
        # 0 stands for no matchtag.
        self._last = self._last % LAST_TAG + 1
        while self._last in self._open:
            self._last = self._last % LAST_TAG + 1
        self._open[self._last] = inbox, streaming
        return self._last

    def __contains__(self, tag: int) -> bool:
        return tag in self._open

    def forget(self, tag: int) -> None:
        """The request was not sent after all."""
        del self._open[tag]

    def leave(self, tag: int) -> Inbox | None:
        """Nobody waits for these answers any more.

        Returns:
            Where they would have gone; None where none can come, or where that was said before.
        """
        inbox, streaming = self._open.pop(tag, (None, False))
        if streaming:
            self._open[tag] = None, True
        return inbox

    def deliver(self, response: Message) -> Inbox | None:
        """Where a response belongs, or None where nobody waits for it."""
        found = self._open.get(response.matchtag)
        if found is None:
            return None
        inbox, streaming = found
        # RFC 6: a stream ends in an error, good or bad; anything else has one answer.
        if response.errnum or not streaming:
            del self._open[response.matchtag]
        return inbox

    def inboxes(self) -> list[Inbox]:
        """Where answers are waited for."""
        return [inbox for inbox, _ in self._open.values() if inbox is not None]


def cancellation(topic: str | None, tag: int) -> Message | None:
    """The request that ends one which is left early; None where that topic has none."""
    cancel = CANCELS.get(topic or "")
    return Message.request(cancel, {"matchtag": tag}, flags=NORESPONSE) if cancel else None


def payload_of(message: Message) -> dict[str, Any]:
    """A response's object, `{}` where it is empty.

    Raises:
        RpcError: the response is an error.
    """
    if message.errnum:
        raise error_of(message)
    payload = message.object()
    return payload if isinstance(payload, dict) else {}


def error_of(message: Message) -> RpcError:
    """What an error response says."""
    return RpcError(message.errnum, message.error_text or os.strerror(message.errnum))


def is_good_end(message: Message) -> bool:
    """Whether a response is the end of a stream with which all is well."""
    return message.errnum == errno.ENODATA
