"""The values of responses: each reader checks the keys that it uses."""

from __future__ import annotations

import base64
import binascii
import errno
import json
import os
from typing import TYPE_CHECKING, Any, TypeVar, cast

from penstock.errors import RpcError, WireError
from penstock.jobid import JobId
from penstock.rows import BulkResponse, Estimates, Explained

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock._core import Message
    from penstock.job import Job
    from penstock.rows import (
        Accuracy,
        Event,
        JobRow,
        Purged,
        QueueStatus,
        Reason,
        ResourceStatus,
        SchedStatus,
        StartEstimate,
        WhatIf,
    )

T = TypeVar("T")


def read_response(topic: str, response: Message, read: Callable[[dict[str, Any]], T]) -> T:
    """The value that `read` returns for the payload of a response; an empty payload is `{}`.

    Raises:
        WireError: the payload is not that of the topic; the text names topic and key.
    """
    try:
        payload = response.object()
        return read({} if payload is None else _checked(payload, dict, "the payload"))
    except WireError as error:
        raise WireError(f"{topic}: {error}") from error


# The types of JSON values, for errors.
_TYPES = {
    type(None): "null",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
}


def _checked(value: Any, kind: type[T], name: str) -> T:
    if type(value) is kind or (kind is float and type(value) is int):
        return cast("T", value)
    raise WireError(f"{name}: expected {_TYPES[kind]}, found {_TYPES[type(value)]}")


def expect(payload: Mapping[str, Any], key: str, kind: type[T]) -> T:
    """The value of a key that a response must have.

    Args:
        payload: The response, or an object in it.
        key: The key.
        kind: The type of the value in Python; `float` stands for any number.

    Raises:
        WireError: the key is missing, or its value has another type. `read_response` adds the
            topic.
    """
    if key not in payload:
        raise WireError(f"missing key `{key}`")
    return _checked(payload[key], kind, f"`{key}`")


def expect_optional(payload: Mapping[str, Any], key: str, kind: type[T]) -> T | None:
    """As `expect`; None if the key is missing or null."""
    return None if payload.get(key) is None else expect(payload, key, kind)


def expect_items(payload: Mapping[str, Any], key: str, kind: type[T]) -> list[T]:
    """As `expect`, for an array whose items all have the type `kind`."""
    items = expect(payload, key, list)
    for position, item in enumerate(items):
        if type(item) is not kind:
            _checked(item, kind, f"`{key}[{position}]`")
    return items


def error_of(message: Message) -> RpcError:
    """The error of an error response."""
    return RpcError(message.errnum, message.error_text or os.strerror(message.errnum))


def is_good_end(message: Message) -> bool:
    """Whether a response is the good end of a stream (ENODATA)."""
    return message.errnum == errno.ENODATA


# --- the responses of single topics


def array_reader(key: str, kind: type) -> Callable[[dict[str, Any]], list[Any]]:
    """A reader of responses that have an array at a key, with items of the type `kind`."""
    return lambda response: expect_items(response, key, kind)


def ids_reader(key: str) -> Callable[[dict[str, Any]], list[JobId]]:
    """A reader of responses that have job ids at a key."""
    return lambda response: read_ids(response, key)


def read_ids(response: dict[str, Any], key: str) -> list[JobId]:
    """Reads the job ids at a key."""
    numbers = expect_items(response, key, int)
    if numbers:
        # Of all, a submission may have a million, these are in range if the two are.
        read_id(min(numbers))
        read_id(max(numbers))
    return [int.__new__(JobId, number) for number in numbers]


def read_results(response: dict[str, Any]) -> list[list[JobId] | RpcError]:
    """Reads the ids or the error of each submission of a list."""
    return [
        RpcError(errno.EINVAL, expect(result, "error", str))
        if "error" in result
        else read_ids(result, "ids")
        for result in expect_items(response, "results", dict)
    ]


def read_part_results(response: dict[str, Any]) -> list[list[JobId] | RpcError]:
    """Reads the id, the ids or the error of each submission of a part."""
    results = expect(response, "results", list)
    if results and set(map(type, results)) == {int}:
        read_id(min(results))
        read_id(max(results))
        return [[int.__new__(JobId, number)] for number in results]
    return [_read_part_result(result, position) for position, result in enumerate(results)]


def _read_part_result(result: Any, position: int) -> list[JobId] | RpcError:
    if type(result) is int:
        return [read_id(result)]
    if type(result) is str:
        return RpcError(errno.EINVAL, result)
    return read_ids({f"results[{position}]": result}, f"results[{position}]")


def read_id(number: int) -> JobId:
    """Reads a job id."""
    try:
        return JobId(number)
    except OverflowError as error:
        raise WireError(f"{number}: expected a job id: {error}") from error


def read_bulk_response(response: dict[str, Any]) -> BulkResponse:
    """Reads the response to a request about several jobs."""
    unlisted = expect(response, "unlisted", int) if "unlisted" in response else 0
    return BulkResponse(expect(response, "count", int), _errors_by_job(response), unlisted)


def _errors_by_job(response: dict[str, Any]) -> dict[int, str]:
    errors = expect(response, "errors", dict)
    try:
        return {int(job): expect(errors, job, str) for job in errors}
    except ValueError as error:
        raise WireError(f"`errors`: {error}") from error


def read_rows(response: dict[str, Any]) -> list[JobRow]:
    """Reads the rows of jobs; of each, `id` is checked."""
    rows = expect_items(response, "jobs", dict)
    for row in rows:
        expect(row, "id", int)
    return cast("list[JobRow]", rows)


def read_row(response: dict[str, Any]) -> JobRow:
    """Reads the row of one job, whose `id` is checked."""
    row = expect(response, "job", dict)
    expect(row, "id", int)
    return cast("JobRow", row)


def read_job(parts: list[Any]) -> Job:
    """Reads a job's row, and the document with its R, if there is one, as an object."""
    from penstock.job import Job

    row, documents = parts
    return Job.from_row(row | documents)


def read_no_document(error: RpcError) -> dict[str, str]:
    """No documents, for a job that has none or whose documents this user may not read.

    Raises:
        RpcError: another error.
    """
    if error.errno not in (errno.ENOENT, errno.EPERM):
        raise error
    return {}


def read_jobs(response: dict[str, Any]) -> list[Job]:
    """Reads the rows of jobs as objects."""
    from penstock.job import Job

    return [Job.from_row(row) for row in read_rows(response)]


def document_reader(keys: Sequence[str]) -> Callable[[dict[str, Any]], dict[str, str]]:
    """A reader of a job's documents, which are text."""
    return lambda response: {key: expect(response, key, str) for key in keys}


def read_events(text: str) -> list[Event]:
    """Reads the lines of an eventlog; of each event, `timestamp` and `name` are checked."""
    try:
        events = [json.loads(line) for line in text.splitlines()]
    except ValueError as error:
        raise WireError(f"an event is not JSON: {error}") from error
    for event in events:
        _checked(event, dict, "an event")
        expect(event, "timestamp", float)
        expect(event, "name", str)
    return events


def read_output(response: dict[str, Any]) -> list[tuple[str, bytes]]:
    """Reads output as the name of its stream, and its bytes."""
    try:
        data = base64.b64decode(expect(response, "data", str), validate=True)
    except binascii.Error as error:
        raise WireError(f"`data`: {error}") from error
    return [(expect(response, "stream", str), data)]


def read_infeasible(error: RpcError) -> str:
    """The scheduler's reason; anything that is not about the job is raised."""
    others = {errno.ENOSYS, errno.EPERM, errno.EPROTO, errno.EIO, errno.EAGAIN, errno.EHOSTUNREACH}
    if error.errno in others:
        raise error
    return error.strerror or str(error)


def read_purged(response: dict[str, Any]) -> Purged:
    """Reads the numbers of removed and of remaining inactive jobs."""
    return {
        "count": expect(response, "count", int),
        "inactives": expect(response, "inactives", int),
    }


def read_queue_status(response: dict[str, Any]) -> QueueStatus:
    """Reads the status of a queue."""
    for key in ("enable", "start"):
        expect(response, key, bool)
    for key in ("disable_reason", "stop_reason"):
        expect_optional(response, key, str)
    return cast("QueueStatus", response)


def read_resource_status(response: dict[str, Any]) -> ResourceStatus:
    """Reads the status of the resources; R is not checked."""
    expect(response, "R", dict)
    drain = expect(response, "drain", dict)
    for ranks in drain:
        drained = expect(drain, ranks, dict)
        expect(drained, "timestamp", float)
        expect(drained, "reason", str)
    for key in ("online", "offline", "exclude"):
        expect(response, key, str)
    expect_optional(response, "torpid", str)
    return cast("ResourceStatus", response)


def read_sched_status(response: dict[str, Any]) -> SchedStatus:
    """Reads the scheduler's resources; the three R are not checked."""
    for key in ("all", "down", "allocated"):
        expect(response, key, dict)
    return cast("SchedStatus", response)


def read_explained(response: dict[str, Any]) -> Explained:
    """Reads why jobs are pending; of each, `id`, `kind` and `reason` are checked."""
    reasons = expect_items(response, "jobs", dict)
    for reason in reasons:
        expect(reason, "id", int)
        expect(reason, "kind", str)
        expect(reason, "reason", str)
    return Explained(cast("list[Reason]", reasons), _errors_by_job(response))


def read_estimates(response: dict[str, Any]) -> Estimates:
    """Reads when jobs are expected to start; of each, `id` and `start` are checked."""
    jobs = expect_items(response, "jobs", dict)
    for job in jobs:
        expect(job, "id", int)
        expect_optional(job, "start", float)
    return Estimates(
        cast("list[StartEstimate]", jobs),
        cast("Accuracy", expect(response, "accuracy", dict)),
        _errors_by_job(response),
    )


def read_what_if(response: dict[str, Any]) -> WhatIf:
    """Reads the effect of a change."""
    expect(response, "text", str)
    expect_optional(response, "start", float)
    expect_optional(response, "ranks", str)
    for key in ("requested", "largest"):
        expect_optional(response, key, int)
    for moved in expect_items(response, "moved", dict):
        expect(moved, "id", int)
        for key in ("before", "after"):
            expect_optional(moved, key, float)
    return cast("WhatIf", response)
