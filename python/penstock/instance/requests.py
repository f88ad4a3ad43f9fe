"""Serves the requests to the daemon's Python services, and answers errors, in one place.

The structures of payloads are Rust's (`penstock._core`): `LogAppendRequest.read(request)` and the
like reject a malformed one in the words of the services in Rust.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from penstock._core import MAX_PING_BYTES, read_object, topic
from penstock.errors import RequestError
from penstock.instance.supervision import FAULTS

if TYPE_CHECKING:
    from penstock._core import Batch, Message

log = logging.getLogger("penstock")


class Deferred(Enum):
    """The result of a handler that has sent, or will send, the responses by itself."""

    DEFERRED = "deferred"


DEFERRED = Deferred.DEFERRED

# The part of the messages that a service was given when it failed which the log shows.
NAMED_MESSAGES = 3
SHOWN_PAYLOAD_BYTES = 200
# Services with environments of jobs, or input, in their payloads: the log shows their sizes.
SECRET_SERVICES = frozenset({"job-ingest", "job-exec", "kvs", "pmix"})

# Serves a request to a service: the payload of the response, as its keys or as its bytes; None for
# an empty one.
Handler = Callable[[Any, "Message"], Mapping[str, Any] | bytes | Deferred | None]


class Role(Enum):
    """The users who may call a method."""

    ALL = "all"
    OWNER = "owner"


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a service: who may call it, and what serves it."""

    role: Role
    handler: Handler


# By topic.
MethodTable = Mapping[str, Method]


def for_all(handler: Handler) -> Method:
    """A method that every user may call."""
    return Method(Role.ALL, handler)


def for_owner(handler: Handler) -> Method:
    """A method that the instance owner may call."""
    return Method(Role.OWNER, handler)


class RequestService(Protocol):
    """A service whose requests `serve` serves."""

    METHODS: ClassVar[MethodTable]

    def disconnect(self, notice: Message) -> None:
        """Forgets a client that has disconnected; `requester(notice)` is its route."""


def serve(service: RequestService, request: Message) -> Message | None:
    """Serves a request by the method of its topic; every service answers `ping` and `stats-get`.

    Nothing leaves this function but the response: `RequestError` is answered with its errno, and
    any other exception, a Rust panic included, with EIO after its traceback is logged. The broker
    has rejected text that is not Unicode.

    Args:
        service: the service that the request is for.
        request: the request.

    Returns:
        The response; None if the requester wants none or the method defers it.
    """
    name = request.topic or ""
    try:
        method = service.METHODS.get(name) or DEFAULT_METHODS.get(name.partition(".")[2])
        if method is None:
            raise RequestError(errno.ENOSYS, f"unknown method `{name}`")
        if method.role is Role.OWNER and not request.has_owner_role:
            raise RequestError(errno.EPERM, f"{name}: only the instance owner may do this")
        payload = method.handler(service, request)
        if payload is DEFERRED:
            return None
        response = request.respond(dict(payload) if isinstance(payload, Mapping) else payload)
    except RequestError as error:
        return error_response(request, error.errnum, error.text)
    except FAULTS:
        return internal_error(request)
    return None if request.noresponse else response


def serve_batch(service: RequestService, batch: Batch) -> list[Message]:
    """Serves the requests of a batch, and the notices of disconnection, in their order.

    Returns:
        The responses; a method that defers its response adds none.
    """
    responses = []
    for request in batch:
        if request.kind != "request":
            continue
        if is_disconnect(request):
            service.disconnect(request)
            continue
        response = serve(service, request)
        if response is not None:
            responses.append(response)
    return responses


def describe_messages(batch: Batch) -> str:
    """Names messages for the log: the first ones, with what `describe_message` tells."""
    named = [describe_message(batch[index]) for index in range(min(len(batch), NAMED_MESSAGES))]
    if len(batch) > NAMED_MESSAGES:
        named.append(f"{len(batch) - NAMED_MESSAGES} more")
    return ", ".join(named)


def describe_message(message: Message) -> str:
    """Names a message for the log, with its user and the beginning of its payload."""
    name = printable(message.topic or "")
    payload = (message.payload or b"").removesuffix(b"\0")
    if not payload:
        shown = "no payload"
    elif name.partition(".")[0] in SECRET_SERVICES:
        shown = f"{len(payload)} bytes"
    else:
        shown = ascii(payload[:SHOWN_PAYLOAD_BYTES].decode(errors="replace"))
    return f"{message.kind} {name} of user {message.userid} ({shown})"


def internal_error(request: Message) -> Message | None:
    """Logs the exception that is being handled and returns the EIO response for its request."""
    log.exception("%s: internal error", describe_message(request))
    return error_response(request, errno.EIO, "internal error: see the instance's log")


def error_response(request: Message, errnum: int, text: str = "") -> Message | None:
    """An error response with any text; None if the requester wants no response."""
    if request.noresponse:
        return None
    return request.respond(errnum=errnum, errtext=printable(text))


def rejections(batch: Batch, errnum: int, text: str) -> list[Message]:
    """Error responses to the requests of a batch that want one."""
    responses = [
        error_response(message, errnum, f"{message.topic}: {text}")
        for message in batch
        if message.kind == "request" and not is_disconnect(message)
    ]
    return [response for response in responses if response is not None]


def printable(text: str) -> str:
    """A text that can be encoded: lone surrogates, as JSON allows them, become escapes."""
    return text.encode(errors="backslashreplace").decode()


def requester(request: Message) -> bytes:
    """The route of the peer that sent a request, the same in all of its requests."""
    return (request.routes or [b""])[-1]


def is_disconnect(request: Message) -> bool:
    """Whether a request is the broker's notice that a client of the service has disconnected."""
    return (request.topic or "").partition(".")[2] == topic.DISCONNECT


def require_streaming(request: Message) -> None:
    """Checks that the sender of a request expects a stream of responses (RFC 6).

    Raises:
        RequestError: it expects one response, or none.
    """
    if not request.streaming or request.noresponse:
        raise RequestError(errno.EPROTO, f"{request.topic} is a streaming request")


def echo(request: Message) -> dict[str, Any]:
    """Serves `ping`: the response has the request's payload, its route and its credentials.

    Raises:
        RequestError: the payload is not an object, or is longer than `MAX_PING_BYTES`.
    """
    if len(request.payload or b"") > MAX_PING_BYTES:
        text = f"{request.topic}: expected at most {MAX_PING_BYTES} bytes"
        raise RequestError(errno.EMSGSIZE, text)
    routes = reversed(request.routes or [])
    return {
        **read_object(request),
        "route": "!".join(route[:8].decode(errors="replace") for route in routes),
        "userid": request.userid,
        "rolemask": request.rolemask,
        "rank": 0,
    }


DEFAULT_METHODS: MethodTable = {
    topic.PING: for_all(lambda _service, request: echo(request)),
    topic.STATS_GET: for_all(lambda _service, _request: {}),
}
