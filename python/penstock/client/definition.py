"""Decorators that make one definition of a request a method of each client.

A definition builds the request and says how to read its response. Its method sends it: the one of
the blocking client returns the result, those of the clients for Trio and asyncio are awaited.
"""

from __future__ import annotations

from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

from penstock.client.calls import Call, CallBatch, CallSequence, Pipeline, StreamCall

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from typing import Self

    from penstock._core import URGENCY_DEFAULT, IDset
    from penstock.client import async_connection, connection
    from penstock.client.calls import Merge, Payload
    from penstock.errors import RpcError
    from penstock.jobid import JobId

P = ParamSpec("P")
T = TypeVar("T")
Key = TypeVar("Key")
Id_co = TypeVar("Id_co", covariant=True)
Ids_co = TypeVar("Ids_co", covariant=True)

if TYPE_CHECKING:

    class Blocking(Protocol):
        """A client whose methods block until the result arrives."""

        def _first(self, call: Call[T], /) -> T: ...

    class Awaiting(Protocol):
        """A client whose methods are awaited."""

        def _first(self, call: Call[T], /) -> Coroutine[Any, Any, T]: ...

    class Request(Protocol[P, T]):
        """A method whose request has one response."""

        call: Callable[P, Call[T]]

        @overload
        def __get__(self, obj: None, kind: Any) -> Self: ...
        @overload
        def __get__(self, obj: Awaiting, kind: Any) -> Callable[P, Coroutine[Any, Any, T]]: ...
        @overload
        def __get__(self, obj: Blocking, kind: Any) -> Callable[P, T]: ...

    class StreamRequest(Protocol[P, T]):
        """A method that returns the stream of the responses' rows."""

        call: Callable[P, StreamCall[T]]

        @overload
        def __get__(self, obj: None, kind: Any) -> Self: ...
        @overload
        def __get__(self, obj: Awaiting, kind: Any) -> Callable[P, async_connection.Stream[T]]: ...
        @overload
        def __get__(self, obj: Blocking, kind: Any) -> Callable[P, connection.Stream[T]]: ...

    class Submit(Protocol[Id_co, Ids_co]):
        """`submit` of one client: its result depends on `count` and `cc`."""

        @overload
        def __call__(
            self,
            jobspec: Mapping[str, Any],
            *,
            urgency: int = URGENCY_DEFAULT,
            count: None = None,
            flags: int = 0,
            token: str | None = None,
        ) -> Id_co: ...
        @overload
        def __call__(
            self,
            jobspec: Mapping[str, Any],
            *,
            urgency: int = URGENCY_DEFAULT,
            count: int,
            flags: int = 0,
            token: str | None = None,
        ) -> Ids_co: ...
        @overload
        def __call__(
            self,
            jobspec: Mapping[str, Any],
            *,
            urgency: int = URGENCY_DEFAULT,
            flags: int = 0,
            token: str | None = None,
            cc: IDset | str,
        ) -> Ids_co: ...

    class SubmitRequest(Protocol):
        """The method `submit` of each client."""

        call: Callable[..., Call[JobId | list[JobId]]]

        @overload
        def __get__(self, obj: None, kind: Any) -> Self: ...
        @overload
        def __get__(self, obj: connection.Connection, kind: Any) -> Submit[JobId, list[JobId]]: ...
        @overload
        def __get__(
            self, obj: async_connection.Connection, kind: Any
        ) -> Submit[Coroutine[Any, Any, JobId], Coroutine[Any, Any, list[JobId]]]: ...

    class DoRequest(Protocol):
        """The method `do` of each client."""

        @overload
        def __get__(self, obj: None, kind: Any) -> Self: ...
        @overload
        def __get__(self, obj: connection.Connection, kind: Any) -> Callable[[Call[T]], T]: ...
        @overload
        def __get__(
            self, obj: async_connection.Connection, kind: Any
        ) -> Callable[[Call[T]], Coroutine[Any, Any, T]]: ...

    class CollectRequest(Protocol):
        """The method `collect` of each client."""

        @overload
        def __get__(self, obj: None, kind: Any) -> Self: ...
        @overload
        def __get__(
            self, obj: connection.Connection, kind: Any
        ) -> Callable[[StreamCall[T]], list[T]]: ...
        @overload
        def __get__(
            self, obj: async_connection.Connection, kind: Any
        ) -> Callable[[StreamCall[T]], Coroutine[Any, Any, list[T]]]: ...

    class OpenStream(Protocol):
        """`stream` of the blocking client."""

        @overload
        def __call__(self, call: StreamCall[T], /) -> connection.Stream[T]: ...
        @overload
        def __call__(
            self, topic: str, payload: Payload = None
        ) -> connection.Stream[dict[str, Any]]: ...

    class OpenAsyncStream(Protocol):
        """`stream` of the clients for Trio and asyncio."""

        @overload
        def __call__(self, call: StreamCall[T], /) -> async_connection.Stream[T]: ...
        @overload
        def __call__(
            self, topic: str, payload: Payload = None
        ) -> async_connection.Stream[dict[str, Any]]: ...

    class OpenRequest(Protocol):
        """The method `stream` of each client."""

        @overload
        def __get__(self, obj: None, kind: Any) -> Self: ...
        @overload
        def __get__(self, obj: connection.Connection, kind: Any) -> OpenStream: ...
        @overload
        def __get__(self, obj: async_connection.Connection, kind: Any) -> OpenAsyncStream: ...

    class MergeRequest(Protocol):
        """The method `merge` of each client."""

        @overload
        def __get__(self, obj: None, kind: Any) -> Self: ...
        @overload
        def __get__(
            self, obj: connection.Connection, kind: Any
        ) -> Callable[
            [Mapping[Key, tuple[str, Payload]]],
            connection.Stream[tuple[Key, dict[str, Any] | RpcError]],
        ]: ...
        @overload
        def __get__(
            self, obj: async_connection.Connection, kind: Any
        ) -> Callable[
            [Mapping[Key, tuple[str, Payload]]],
            async_connection.Stream[tuple[Key, dict[str, Any] | RpcError]],
        ]: ...


def make_method(
    transport: str,
    result: str,
    build: Callable[..., Any],
    as_sent: Callable[[Any], Any] = lambda built: built,
) -> Any:
    """Makes a method that passes what `build` returns to the client's method `transport`.

    Args:
        transport: `_first`, `_collect`, `_do_all`, `_pipe`, `_stream`, or a further one of the
            class.
        result: The annotation of the result, with the parameter of that of `build` for `{}`.
        build: Builds the request.
        as_sent: Converts the request to the argument of `transport`.
    """

    @wraps(build)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, transport)(as_sent(build(self, *args, **kwargs)))

    # `help` and `inspect.signature` show what the caller gets, not the request.
    row = build.__annotations__["return"].partition("[")[2].removesuffix("]")
    build.__annotations__["return"] = result.format(row)
    vars(method)["call"] = partial(build, None)
    return method


def request(build: Callable[Concatenate[Any, P], Call[T]]) -> Request[P, T]:
    """Makes a method that sends the request and returns its result."""
    return cast("Request[P, T]", make_method("_first", "{}", build))


def streamed(build: Callable[Concatenate[Any, P], StreamCall[T]]) -> StreamRequest[P, T]:
    """Makes a method that sends the request and returns the stream of its rows."""
    return cast(
        "StreamRequest[P, T]", make_method("_stream", "Stream[{}]", build, lambda call: [call])
    )


def collected(build: Callable[Concatenate[Any, P], StreamCall[T]]) -> Request[P, list[T]]:
    """Makes a method that sends the request and returns all rows as a list."""
    return cast(
        "Request[P, list[T]]",
        make_method("_collect", "list[{}]", build, lambda call: CallBatch([call], list)),
    )


def first(build: Callable[Concatenate[Any, P], StreamCall[T]]) -> Request[P, T]:
    """Makes a method that sends the request, returns the first row and closes the stream."""
    return cast("Request[P, T]", make_method("_first", "{}", build))


def sequence(build: Callable[Concatenate[Any, P], CallSequence[T]]) -> Request[P, T]:
    """Makes a method that sends several requests and returns one result."""
    return cast("Request[P, T]", make_method("_do_all", "{}", build))


def pipelined(build: Callable[Concatenate[Any, P], Pipeline[T]]) -> Request[P, T]:
    """Makes a method that sends several requests, few at a time, and returns one result."""
    return cast("Request[P, T]", make_method("_pipe", "{}", build))


def batch(build: Callable[Concatenate[Any, P], CallBatch[T]]) -> Request[P, T]:
    """Makes a method that sends several requests without waiting and returns one result."""
    return cast("Request[P, T]", make_method("_collect", "{}", build))


def submission(build: Callable[..., Call[JobId | list[JobId]]]) -> SubmitRequest:
    """Makes the method `submit`."""
    return cast("SubmitRequest", request(build))


# --- methods whose result depends on the type of their argument


def do_request(build: Callable[..., Call[Any]]) -> DoRequest:
    """Makes the method `do`."""
    return cast("DoRequest", request(build))


def collect_request(build: Callable[..., StreamCall[Any]]) -> CollectRequest:
    """Makes the method `collect`."""
    return cast("CollectRequest", collected(build))


def open_request(build: Callable[..., StreamCall[Any]]) -> OpenRequest:
    """Makes the method `stream`."""
    return cast("OpenRequest", streamed(build))


def merge_request(build: Callable[..., Merge[Any]]) -> MergeRequest:
    """Makes the method `merge`."""
    return cast("MergeRequest", make_method("_stream", "Stream[{}]", build))
