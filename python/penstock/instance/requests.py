"""How the daemon's Python services serve requests: payloads read, errors answered, in one place."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from penstock.errors import RequestError, WireError
from penstock.instance.supervision import FAULTS

if TYPE_CHECKING:
    from penstock._core import Message

log = logging.getLogger("penstock")

MAX_JOB_ID = 2**64 - 1


class Deferred(Enum):
    """The result of a handler that has sent, or will send, the responses by itself."""

    DEFERRED = "deferred"


DEFERRED = Deferred.DEFERRED

# The payload of the response; None for an empty one.
Handler = Callable[["Message"], Mapping[str, Any] | Deferred | None]
# Handlers by topic.
Methods = Mapping[str, Handler]


def serve(request: Message, methods: Methods) -> Message | None:
    """Serves a request by the handler of its topic; every service answers `ping` and `stats-get`.

    Nothing leaves this function but the response: `RequestError` is answered with its errno, text
    that is not Unicode with EPROTO, and any other exception, a Rust panic included, with EIO after
    its traceback is logged.

    Args:
        request: the request.
        methods: the service's handlers.

    Returns:
        The response; None if the requester wants none or the handler defers it.
    """
    topic = request.topic or ""
    try:
        handler = methods.get(topic) or DEFAULT_METHODS.get(topic.partition(".")[2])
        if handler is None:
            raise RequestError(errno.ENOSYS, f"unknown method `{topic}`")
        payload = handler(request)
        if payload is DEFERRED:
            return None
        response = _success(request, payload)
    except RequestError as error:
        return error_response(request, error.errnum, error.text)
    except UnicodeEncodeError as error:
        # Lone surrogates come with the request: no service has any of its own.
        return error_response(request, errno.EPROTO, f"{topic}: invalid Unicode: {error}")
    except FAULTS:
        return internal_error(request)
    return None if request.noresponse else response


def _success(request: Message, payload: Mapping[str, Any] | None) -> Message:
    try:
        return request.respond(None if payload is None else dict(payload))
    except WireError as error:
        # `ping` returns lone surrogates of its request.
        raise RequestError(errno.EPROTO, f"{request.topic}: {error}") from error


def internal_error(request: Message) -> Message | None:
    """Logs the exception that is being handled and returns the EIO response for its request."""
    log.exception("%s: internal error", printable(request.topic or ""))
    return error_response(request, errno.EIO, "internal error: see the instance's log")


def error_response(request: Message, errnum: int, text: str = "") -> Message | None:
    """An error response with any text; None if the requester wants no response."""
    if request.noresponse:
        return None
    return request.respond(errnum=errnum, errtext=printable(text))


def printable(text: str) -> str:
    """A text that can be encoded: lone surrogates, as JSON allows them, become escapes."""
    return text.encode(errors="backslashreplace").decode()


def requester(request: Message) -> bytes:
    """The route of the peer that sent a request, the same in all of its requests."""
    return (request.routes or [b""])[-1]


def payload_of(request: Message) -> dict[str, Any]:
    """A request's payload; an empty object if it has none.

    Raises:
        RequestError: the payload is not a JSON object.
    """
    if request.payload is None:
        return {}
    try:
        payload = request.object()
    except (WireError, UnicodeError) as error:
        raise RequestError(errno.EPROTO, f"{request.topic}: {error}") from error
    if not isinstance(payload, dict):
        raise RequestError(errno.EPROTO, f"{request.topic}: expected an object")
    return payload


def text_field(request: Message, key: str) -> str:
    """A text in a request's payload.

    Raises:
        RequestError: the payload is not an object, or the key is missing or of another type.
    """
    value = payload_of(request).get(key)
    if not isinstance(value, str):
        raise RequestError(errno.EPROTO, f"{request.topic}: expected `{key}` (str)")
    return value


def integer_field(request: Message, key: str, most: int) -> int:
    """An integer from 0 to `most` in a request's payload.

    Raises:
        RequestError: the payload is not an object, or the key is missing, of another type or out
            of range.
    """
    value = payload_of(request).get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise RequestError(errno.EPROTO, f"{request.topic}: expected `{key}` (int)")
    if not 0 <= value <= most:
        text = f"{request.topic}: invalid `{key}` {value}: expected 0 to {most}"
        raise RequestError(errno.EINVAL, text)
    return value


def require_owner(request: Message, owner: int) -> None:
    """Authorizes the instance owner only.

    Raises:
        RequestError: another user sent the request.
    """
    if request.userid != owner:
        text = f"{request.topic}: only the instance owner may do that"
        raise RequestError(errno.EPERM, text)


def echo(request: Message) -> dict[str, Any]:
    """Serves `ping`: the response has the request's payload."""
    return payload_of(request)


DEFAULT_METHODS: Methods = {"ping": echo, "stats-get": lambda _request: {}}
