"""Requests and how to read their responses; nothing here sends or receives."""

from __future__ import annotations

import errno
import json
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from penstock.errors import JobspecError, RpcError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from penstock.client.outstanding import Payload
    from penstock.rows import Submission

T = TypeVar("T")

MAX_SUBMISSION_BYTES = 16 * 1024 * 1024
"""The length above which the jobs of a submission are split into several requests."""
# The largest frame is 64 MiB; the envelope, and what the instance adds to the jobspec, need the
# rest.
MAX_JOB_BYTES = 60 * 1024 * 1024
"""The maximum length of one job's jobspec as JSON."""


class Call(NamedTuple, Generic[T]):
    """A request with one response.

    `read_error` makes a result of an error response, or raises it; without one every error is
    raised.
    """

    topic: str
    payload: Payload
    read: Callable[[dict[str, Any]], T]
    read_error: Callable[[RpcError], T] | None = None


class StreamCall(NamedTuple, Generic[T]):
    """A request whose responses hold rows; without `streaming` it has one response."""

    topic: str
    payload: Payload
    read: Callable[[dict[str, Any]], Iterable[T]]
    streaming: bool = True


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


def encoded_jobspec(request: Mapping[str, Any], *, limit: int = MAX_JOB_BYTES) -> bytes:
    """A request with a jobspec as JSON.

    Raises:
        JobspecError: it has no JSON form, or exceeds `limit` bytes.
    """
    try:
        text = json.dumps(request, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        encoded = text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise JobspecError(f"the jobspec has no JSON form: {error}") from error
    if len(encoded) > limit:
        raise JobspecError(
            f"the jobspec is too large: expected at most {limit} bytes of JSON, "
            f"found {len(encoded)}"
        )
    return encoded


def submit(
    jobspec: Mapping[str, Any], urgency: int, count: int | None, flags: int
) -> Call[int | list[int]]:
    """The submission of a job, or of `count` copies.

    Raises:
        JobspecError: the jobspec has no JSON form, or exceeds the size limit.
    """
    request: dict[str, Any] = {"jobspec": jobspec, "urgency": urgency}
    if flags:
        request["flags"] = flags
    if count is None:
        return Call("job-ingest.submit", encoded_jobspec(request), lambda it: int(it["id"]))
    request["count"] = count
    return Call("job-ingest.submit", encoded_jobspec(request), lambda it: list(it["ids"]))


def submit_batch(jobs: Iterable[bytes]) -> Call[list[list[int] | RpcError]]:
    """The submission of several encoded jobs in one request; the result has one item for each."""

    def read(response: dict[str, Any]) -> list[list[int] | RpcError]:
        return [
            RpcError(errno.EINVAL, result["error"]) if "error" in result else list(result["ids"])
            for result in response["results"]
        ]

    return Call("job-ingest.submit", b'{"jobs":[' + b",".join(jobs) + b"]}\0", read)


class Submissions(NamedTuple):
    """Many submissions as requests.

    Attributes:
        batches: The requests, each with the positions of its jobs.
        errors: By its position, the error of each job that cannot be sent.
    """

    batches: list[tuple[list[int], Call[list[list[int] | RpcError]]]]
    errors: dict[int, JobspecError]

    def results(
        self, batch_results: Iterable[list[list[int] | RpcError] | RpcError]
    ) -> list[list[int] | RpcError | JobspecError]:
        """The ids or the error of each job, in the order of submission.

        Args:
            batch_results: Of each request its result, or the error that it failed with.
        """
        found: dict[int, list[int] | RpcError | JobspecError] = {**self.errors}
        for (positions, _), result in zip(self.batches, batch_results, strict=True):
            jobs = [result] * len(positions) if isinstance(result, RpcError) else result
            found |= zip(positions, jobs, strict=True)
        return [found[position] for position in range(len(found))]


def submissions(
    jobs: Iterable[Submission],
    *,
    limit: int = MAX_SUBMISSION_BYTES,
    job_limit: int = MAX_JOB_BYTES,
) -> Submissions:
    """Requests for `job-ingest.submit`, each at most `limit` bytes unless one job exceeds it."""
    errors: dict[int, JobspecError] = {}
    batches: list[tuple[list[int], Call[list[list[int] | RpcError]]]] = []
    positions: list[int] = []
    encoded: list[bytes] = []
    size = 0
    for position, job in enumerate(jobs):
        try:
            text = encoded_jobspec(job, limit=job_limit)
        except JobspecError as error:
            errors[position] = error
            continue
        if encoded and size + len(text) > limit:
            batches.append((positions, submit_batch(encoded)))
            positions, encoded, size = [], [], 0
        positions.append(position)
        encoded.append(text)
        size += len(text) + 1
    if encoded:
        batches.append((positions, submit_batch(encoded)))
    return Submissions(batches, errors)
