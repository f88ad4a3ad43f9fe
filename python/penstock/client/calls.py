"""Requests, each with the reader of its responses; nothing here sends or receives."""

from __future__ import annotations

import json
from itertools import chain, count, islice
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from penstock._core import MAX_JOBSPEC_BYTES
from penstock._core import topic as topics
from penstock.client.repeating import new_token
from penstock.client.responses import (
    error_of,
    expect,
    is_good_end,
    read_id,
    read_ids,
    read_part_results,
    read_response,
    read_results,
)
from penstock.errors import JobspecError, RpcError, WireError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock._core import IDset, Message
    from penstock.jobid import JobId
    from penstock.rows import Submission

    Payload = Mapping[str, Any] | bytes | None

T = TypeVar("T")
Key = TypeVar("Key")

MAX_SUBMISSION_BYTES = 2 << 20
"""The length above which the jobs of a submission are split into several requests.

A request with one job may be longer. An instance does not read much longer messages of a guest.
"""

MAX_SUBMISSION_JOBS = 10_000
"""The number of jobs of a `JobExecutor` in a request. An instance takes 50,000 of the owner, and by
default this many of a guest."""

PART_BYTES = 256 * 1024
"""The length of a part of a list of jobs, unless it has a single job: the instance does one in some
milliseconds."""

PARTS_IN_FLIGHT = 4
"""The parts that an instance may have and the client may encode next, before the first has a
response."""

JOBS_PER_CHUNK = 50
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


class Pipeline(NamedTuple, Generic[T]):
    """Requests to send in order, few before the first response, and how to read the results.

    `calls` makes each request when it is about to be sent, and begins with the first one whenever
    it is iterated: all of them are sent again if the connection is lost. `read` gets their results,
    or the first error.
    """

    calls: Iterable[Call[Any]]
    read: Callable[[list[Any] | RpcError], T]
    in_flight: int


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
    """The submission of several unrelated, encoded jobs in one request.

    By default it has a new token.

    The result has one item for each job, its ids or its error; it is an error if the whole request
    was rejected.
    """
    token = new_token() if token is None else token
    payload = _list_payload(jobs, token, b'"independent":true,')
    return Call(
        topics.job_ingest.SUBMIT, payload, read_results, lambda error: error, is_idempotent=True
    )


def submit_list(
    jobs: Iterable[bytes], token: str, count: int
) -> Call[list[list[JobId] | RpcError]]:
    """The submission of a list of `count` encoded jobs in one request."""

    def read(response: dict[str, Any]) -> list[list[JobId] | RpcError]:
        return _checked_count(read_results(response), count)

    return Call(topics.job_ingest.SUBMIT, _list_payload(jobs, token), read)


def abort_list(token: str, part: int) -> Call[list[list[JobId] | RpcError]]:
    """The request in place of a part that cancels the list; the response is an error."""
    start = f'"part":{part},"abort":true,'.encode()
    return Call(topics.job_ingest.SUBMIT_PART, _list_payload((), token, start), read_part_results)


def submit_part(
    jobs: Iterable[bytes], token: str, part: int, count: int, *, more: bool
) -> Call[list[list[JobId] | RpcError]]:
    """A part of the submission of a list, with `count` encoded jobs."""

    def read(response: dict[str, Any]) -> list[list[JobId] | RpcError]:
        return _checked_count(read_part_results(response), count)

    start = {"part": part, "more": True} if more else {"part": part}
    payload = _list_payload(jobs, token, _ENCODER.encode(start)[1:-1].encode() + b",")
    return Call(topics.job_ingest.SUBMIT_PART, payload, read)


def _list_payload(jobs: Iterable[bytes], token: str, start: bytes = b"") -> bytes:
    name = json.dumps(token).encode()
    return b"{" + start + b'"token":' + name + b',"jobs":[' + b",".join(jobs) + b"]}\0"


def _checked_count(
    results: list[list[JobId] | RpcError], count: int
) -> list[list[JobId] | RpcError]:
    if len(results) != count:
        raise WireError(f"`results`: expected {count} of them, found {len(results)}")
    return results


class SubmissionList:
    """The requests that submit a list of jobs: one, or the parts of one submission.

    Iterating encodes each part when it is due; a further iteration begins with the first one.

    Args:
        jobs: The jobs.
        limit: Length of a part in bytes, unless it has a single job.
        job_limit: Length of a job in bytes above which it is not sent.
        token: Names the submission, by default with a new one.

    Attributes:
        errors: By its position, the error of each job that cannot be sent. The list is cancelled at
            the first ones.
    """

    def __init__(
        self,
        jobs: Iterable[Submission],
        *,
        limit: int = PART_BYTES,
        job_limit: int = MAX_JOBSPEC_BYTES,
        token: str | None = None,
    ) -> None:
        self._jobs = enumerate(jobs)
        self._limit = limit
        self._job_limit = job_limit
        self._token = new_token() if token is None else token
        self.errors: dict[int, JobspecError] = {}
        # Of each part the number of its jobs.
        self._counts: list[int] = []
        self._calls: list[Call[list[list[JobId] | RpcError]]] = []
        self._new_calls = self._encode()

    def __iter__(self) -> Iterator[Call[list[list[JobId] | RpcError]]]:
        for number in count():
            if number == len(self._calls):
                call = next(self._new_calls, None)
                if call is None:
                    return
                self._calls.append(call)
            yield self._calls[number]

    def results(
        self, part_results: list[list[list[JobId] | RpcError]] | RpcError
    ) -> list[list[JobId]]:
        """The ids of each job, in the order of submission.

        Args:
            part_results: Of each part its results, or the error that rejects all of them.

        Raises:
            JobspecError: jobs of the list cannot be sent.
            RpcError: the list is rejected.
        """
        if self.errors:
            reasons = "; ".join(f"jobs[{at}]: {error}" for at, error in self.errors.items())
            raise JobspecError(f"no job is submitted: {reasons}")
        if isinstance(part_results, RpcError):
            raise part_results
        found: list[list[JobId]] = []
        for result in chain.from_iterable(part_results):
            if isinstance(result, RpcError):
                raise result
            found.append(result)
        return found

    def _encode(self) -> Iterator[Call[list[list[JobId] | RpcError]]]:
        """The requests. A part is sent when there is another one, or none."""
        waiting: list[bytes] = []
        part = 0
        for encoded in self._encoded_parts():
            if waiting:
                yield submit_part(waiting, self._token, part, self._counts[part], more=True)
                part += 1
            waiting = encoded
        if self.errors:
            if part:
                yield abort_list(self._token, part)
        elif part:
            yield submit_part(waiting, self._token, part, self._counts[part], more=False)
        elif waiting:
            yield submit_list(waiting, self._token, self._counts[0])

    def _encoded_parts(self) -> Iterator[list[bytes]]:
        """The encoded jobs of each part, until there are jobs that cannot be sent."""
        encoded: list[bytes] = []
        jobs = size = 0
        while not self.errors and (chunk := list(islice(self._jobs, JOBS_PER_CHUNK))):
            left = min(self._limit - size, self._job_limit)
            text = _encoded_chunk([job for _, job in chunk], left)
            if text is not None:
                encoded.append(text)
                jobs += len(chunk)
                size += len(text) + 1
                continue
            for position, job in chunk:
                try:
                    text = encoded_jobspec(job, limit=self._job_limit)
                except JobspecError as error:
                    self.errors[position] = error
                    continue
                if encoded and size + len(text) > self._limit:
                    self._counts.append(jobs)
                    yield encoded
                    encoded, jobs, size = [], 0, 0
                encoded.append(text)
                jobs += 1
                size += len(text) + 1
        if encoded:
            self._counts.append(jobs)
            yield encoded


def submission_list(
    jobs: Iterable[Submission], *, limit: int = PART_BYTES, token: str | None = None
) -> Pipeline[list[list[JobId]]]:
    """The submission of many jobs."""
    listed = SubmissionList(jobs, limit=limit, token=token)
    return Pipeline(listed, listed.results, PARTS_IN_FLIGHT)


def _encoded_chunk(jobs: list[Submission], limit: int) -> bytes | None:
    """Requests with a jobspec each as JSON, with a comma between them.

    None if they exceed `limit` bytes together, or if one has no JSON form.
    """
    try:
        text = _ENCODER.encode(jobs).encode()[1:-1]
    except (TypeError, ValueError, RecursionError):
        return None
    return text if len(text) <= limit else None
