"""Requests, each with the reader of its responses; nothing here sends or receives."""

from __future__ import annotations

import errno
import json
from itertools import count, islice
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from penstock._core import MAX_JOBSPEC_BYTES
from penstock._core import topic as topics
from penstock.client.repeating import new_token
from penstock.client.responses import (
    error_of,
    expect,
    expect_items,
    is_good_end,
    read_id,
    read_ids,
    read_response,
)
from penstock.errors import JobspecError, RpcError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from penstock._core import IDset, Message
    from penstock.jobid import JobId
    from penstock.rows import Submission

    Payload = Mapping[str, Any] | bytes | None

T = TypeVar("T")
Key = TypeVar("Key")

MAX_SUBMISSION_BYTES = MAX_JOBSPEC_BYTES
"""The length above which the jobs of a submission are split into several requests.

A request with one job may be as long: it is the most that an instance accepts of a job.
"""


JOBS_PER_CHUNK = 100
"""Jobs of a submission that are encoded by one call, unless they are large."""


class Call(NamedTuple, Generic[T]):
    """A request with one response.

    `read_error` makes a result of an error response, or raises it; without one every error is
    raised. One that `is_idempotent` is sent again if its connection is lost before the response.
    """

    topic: str
    payload: Payload
    read: Callable[[dict[str, Any]], T]
    read_error: Callable[[RpcError], T] | None = None
    is_idempotent: bool = False

    @property
    def streaming(self) -> bool:
        """Whether the request has several responses: no."""
        return False

    def result(self, response: Message) -> T:
        """The result that a response holds.

        Raises:
            RpcError: the response is an error, and `read_error` makes no result of it.
            WireError: its payload is not that of the topic.
        """
        if response.errnum:
            error = error_of(response)
            if self.read_error is None:
                raise error
            return self.read_error(error)
        return read_response(self.topic, response, self.read)

    def rows(self, response: Message) -> Iterable[T]:
        """The result as the only row of the only response; errors as of `result`."""
        return (self.result(response),)


class StreamCall(NamedTuple, Generic[T]):
    """A request whose responses hold rows; without `streaming` it has one response.

    `read_error` makes rows of an error that ends the stream, or raises it; without one every error
    is raised.
    """

    topic: str
    payload: Payload
    read: Callable[[dict[str, Any]], Iterable[T]]
    streaming: bool = True
    read_error: Callable[[RpcError], Iterable[T]] | None = None

    @property
    def is_idempotent(self) -> bool:
        """Whether it is sent again on another connection: no."""
        return False

    def rows(self, response: Message) -> Iterable[T]:
        """The rows that a response holds; none at the good end of the stream.

        Raises:
            RpcError: the response is another error, and `read_error` makes no rows of it.
            WireError: its payload is not that of the topic.
        """
        if self.streaming and is_good_end(response):
            return ()
        if response.errnum:
            error = error_of(response)
            if self.read_error is None:
                raise error
            return self.read_error(error)
        return read_response(self.topic, response, self.read)


AnyCall = Call[T] | StreamCall[T]
# Streams whose rows are read together, as they arrive.
Merge = list[StreamCall[T]]


class CallSequence(NamedTuple, Generic[T]):
    """Requests to send one after the other, and how to read the list of their results."""

    calls: Sequence[Call[Any]]
    read: Callable[[list[Any]], T]


class CallBatch(NamedTuple, Generic[T]):
    """Requests to send together, and how to read the list of their rows, as they arrive."""

    calls: Sequence[AnyCall[Any]]
    read: Callable[[list[Any]], T]


def numbered_calls(
    topic: str, payloads: Iterable[Payload]
) -> CallBatch[list[dict[str, Any] | RpcError]]:
    """Requests of one topic; the result has the response or the error of each, in their order."""

    def numbered(number: int, payload: Payload) -> Call[tuple[int, dict[str, Any] | RpcError]]:
        return Call(
            topic, payload, lambda response: (number, response), lambda error: (number, error)
        )

    def read(
        rows: list[tuple[int, dict[str, Any] | RpcError]],
    ) -> list[dict[str, Any] | RpcError]:
        responses = dict(rows)
        return [responses[number] for number in range(len(rows))]

    return CallBatch([numbered(number, payload) for number, payload in enumerate(payloads)], read)


def keyed_stream(
    key: Key, topic: str, payload: Payload
) -> StreamCall[tuple[Key, dict[str, Any] | RpcError]]:
    """A stream whose rows are pairs of a key and a payload, or the error that ends it."""
    return StreamCall(
        topic,
        payload,
        lambda response: [(key, response)],
        read_error=lambda error: [(key, error)],
    )


def stream_call(call: StreamCall[Any] | str, payload: Payload = None) -> StreamCall[Any]:
    """A call as it is given, or that of a topic and a payload, whose rows are the payloads."""
    return raw_stream(call, payload) if isinstance(call, str) else call


def raw_call(topic: str, payload: Payload = None) -> Call[Any]:
    """A request whose result is the response's payload."""
    return Call(topic, payload, lambda response: response)


def void_call(topic: str, payload: Payload = None) -> Call[None]:
    """A request whose response has no content."""
    return Call(topic, payload, lambda _: None)


def raw_stream(topic: str, payload: Payload = None) -> StreamCall[dict[str, Any]]:
    """A stream whose rows are the responses' payloads."""
    return StreamCall(topic, payload, lambda response: [response])


# --- submission


# Made once: a submission may have a million jobspecs. In a circular one the recursion is too deep.
_ENCODER = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False
)


def encoded_jobspec(request: Mapping[str, Any], *, limit: int = MAX_JOBSPEC_BYTES) -> bytes:
    """A request with a jobspec as JSON.

    Raises:
        JobspecError: it has no JSON form, or exceeds `limit` bytes.
    """
    try:
        encoded = _ENCODER.encode(request).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise JobspecError(f"the jobspec has no JSON form: {error}") from error
    if len(encoded) > limit:
        raise JobspecError(
            f"the jobspec is too large: expected at most {limit} bytes of JSON, "
            f"found {len(encoded)}"
        )
    return encoded


def submit(
    jobspec: Mapping[str, Any],
    urgency: int,
    count: int | None,
    flags: int,
    token: str | None = None,
    cc: IDset | str | None = None,
) -> Call[JobId | list[JobId]]:
    """The submission of a job, or of copies; by default with a new token.

    Raises:
        JobspecError: the jobspec has no JSON form, or exceeds the size limit.
    """
    request: dict[str, Any] = {"jobspec": jobspec, "urgency": urgency}
    request["token"] = new_token() if token is None else token
    if flags:
        request["flags"] = flags
    if count is not None:
        request["count"] = count
    if cc is not None:
        request["cc"] = str(cc)
    if count is None and cc is None:
        return Call(
            topics.job_ingest.SUBMIT,
            encoded_jobspec(request),
            lambda answer: read_id(expect(answer, "id", int)),
            is_idempotent=True,
        )
    return Call(
        topics.job_ingest.SUBMIT,
        encoded_jobspec(request),
        lambda answer: read_ids(answer, "ids"),
        is_idempotent=True,
    )


def submit_batch(
    jobs: Iterable[bytes], token: str | None = None
) -> Call[list[list[JobId] | RpcError] | RpcError]:
    """The submission of several encoded jobs in one request, by default with a new token.

    The result has one item for each job; it is an error if the whole request was rejected.
    """

    def read(response: dict[str, Any]) -> list[list[JobId] | RpcError]:
        return [
            RpcError(errno.EINVAL, expect(result, "error", str))
            if "error" in result
            else read_ids(result, "ids")
            for result in expect_items(response, "results", dict)
        ]

    name = json.dumps(new_token() if token is None else token).encode()
    text = b'{"token":' + name + b',"jobs":[' + b",".join(jobs) + b"]}\0"
    return Call(topics.job_ingest.SUBMIT, text, read, lambda error: error, is_idempotent=True)


class Submissions(NamedTuple):
    """Many submissions as requests.

    Attributes:
        batches: The requests, each with the positions of its jobs.
        errors: By its position, the error of each job that cannot be sent.
    """

    batches: list[tuple[list[int], Call[list[list[JobId] | RpcError] | RpcError]]]
    errors: dict[int, JobspecError]

    def results(
        self, batch_results: Iterable[list[list[JobId] | RpcError] | RpcError]
    ) -> list[list[JobId] | RpcError | JobspecError]:
        """The ids or the error of each job, in the order of submission.

        Args:
            batch_results: Of each request its result, or the error that it failed with.
        """
        found: dict[int, list[JobId] | RpcError | JobspecError] = {**self.errors}
        for (positions, _), result in zip(self.batches, batch_results, strict=True):
            jobs = [result] * len(positions) if isinstance(result, RpcError) else result
            found |= zip(positions, jobs, strict=True)
        return [found[position] for position in range(len(found))]


def submissions(
    jobs: Iterable[Submission],
    *,
    limit: int = MAX_SUBMISSION_BYTES,
    job_limit: int = MAX_JOBSPEC_BYTES,
    token: str | None = None,
) -> Submissions:
    """Requests for `job-ingest.submit`, each at most `limit` bytes unless one job exceeds it.

    The first has the token, the others have it with a number.
    """
    first_token = token = new_token() if token is None else token
    errors: dict[int, JobspecError] = {}
    batches: list[tuple[list[int], Call[list[list[JobId] | RpcError] | RpcError]]] = []
    positions: list[int] = []
    encoded: list[bytes] = []
    size = 0
    remaining = iter(jobs)
    for begin in count(0, JOBS_PER_CHUNK):
        chunk = list(islice(remaining, JOBS_PER_CHUNK))
        if not chunk:
            break
        text = _encoded_chunk(chunk, min(limit - size, job_limit))
        if text is not None:
            positions.extend(range(begin, begin + len(chunk)))
            encoded.append(text)
            size += len(text) + 1
            continue
        for position, job in enumerate(chunk, begin):
            try:
                text = encoded_jobspec(job, limit=job_limit)
            except JobspecError as error:
                errors[position] = error
                continue
            if encoded and size + len(text) > limit:
                batches.append((positions, submit_batch(encoded, token)))
                token = f"{first_token}.{len(batches)}"
                positions, encoded, size = [], [], 0
            positions.append(position)
            encoded.append(text)
            size += len(text) + 1
    if encoded:
        batches.append((positions, submit_batch(encoded, token)))
    return Submissions(batches, errors)


def _encoded_chunk(jobs: list[Submission], limit: int) -> bytes | None:
    """Requests with a jobspec each as JSON, with a comma between them.

    None if they exceed `limit` bytes together, or if one has no JSON form.
    """
    try:
        text = _ENCODER.encode(jobs).encode()[1:-1]
    except (TypeError, ValueError, RecursionError):
        return None
    return text if len(text) <= limit else None
