"""What may be asked of an instance: for each question its request, and how to read the answer.

Both clients send these; nothing here sends or receives.
"""

from __future__ import annotations

import base64
import errno
import json
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from penstock.errors import JobspecError, RpcError
from penstock.rows import Estimates, Explained, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from penstock.client.outstanding import Payload
    from penstock.rows import (
        DrainMode,
        Event,
        JobRow,
        Level,
        LogRow,
        Purged,
        QueueStatus,
        ResourceStatus,
        SchedStatus,
        ServiceRow,
        Submission,
        UndrainMode,
        WhatIf,
    )

T = TypeVar("T")

# A request with several jobs is no longer than this, if none of them is so by itself.
MAX_SUBMISSION = 16 * 1024 * 1024
# The largest frame is 64 MiB. What is around a job in it, and what the instance sends on with the
# jobspec, has the rest of it.
MAX_JOB = 60 * 1024 * 1024


class Call(NamedTuple, Generic[T]):
    """A request with one answer."""

    topic: str
    payload: Payload
    read: Callable[[dict[str, Any]], T]


class StreamCall(NamedTuple, Generic[T]):
    """A request whose answers hold rows; without `streaming` it has one answer."""

    topic: str
    payload: Payload
    read: Callable[[dict[str, Any]], Iterable[T]]
    streaming: bool = True


def _nothing(_answer: dict[str, Any]) -> None:
    return None


def _outcome(answer: dict[str, Any]) -> Outcome:
    return Outcome(answer["count"], _errors(answer))


def _errors(answer: dict[str, Any]) -> dict[int, str]:
    return {int(job): text for job, text in answer["errors"].items()}


def _whole(answer: dict[str, Any]) -> Any:
    return answer


def plain(topic: str, payload: Payload = None) -> Call[Any]:
    """A request whose answer is taken as it is."""
    return Call(topic, payload, _whole)


def order(topic: str, payload: Payload = None) -> Call[None]:
    """A request whose answer says nothing but that it was done."""
    return Call(topic, payload, _nothing)


def parts(topic: str, payload: Payload = None) -> StreamCall[dict[str, Any]]:
    """A stream whose answers are taken as they are."""
    return StreamCall(topic, payload, lambda answer: [answer])


# --- submission


def submit(
    jobspec: Mapping[str, Any], urgency: int, count: int | None, flags: int
) -> Call[int | list[int]]:
    """A job, or copies of it.

    Raises:
        JobspecError: it has no JSON form, or is too large to be sent.
    """
    request: dict[str, Any] = {"jobspec": jobspec, "urgency": urgency}
    if flags:
        request["flags"] = flags
    if count is None:
        return Call("job-ingest.submit", encoded(request), lambda answer: int(answer["id"]))
    request["count"] = count
    return Call("job-ingest.submit", encoded(request), lambda answer: list(answer["ids"]))


def feasible(jobspec: Mapping[str, Any]) -> Call[None]:
    """Whether a job could ever run.

    Raises:
        JobspecError: it has no JSON form, or is too large to be sent.
    """
    return order("feasibility.check", encoded({"jobspec": jobspec}))


def encoded(job: Mapping[str, Any], *, limit: int = MAX_JOB) -> bytes:
    """A request with a jobspec as JSON.

    Raises:
        JobspecError: it has no JSON form, or is too large to be sent.
    """
    try:
        text = json.dumps(job, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise JobspecError(f"the jobspec has no JSON form: {error}") from error
    if len(text) > limit:
        raise JobspecError(
            f"the jobspec is too large: expected at most {limit} bytes of JSON, found {len(text)}"
        )
    return text


class Bulk(NamedTuple):
    """A request with many jobs: their places among all, and its payload."""

    places: list[int]
    payload: bytes

    def read(self, answer: dict[str, Any] | RpcError) -> list[list[int] | RpcError]:
        """The ids or the error of each of the jobs."""
        if isinstance(answer, RpcError):
            return [answer] * len(self.places)
        return [
            RpcError(errno.EINVAL, result["error"]) if "error" in result else list(result["ids"])
            for result in answer["results"]
        ]


class Submissions(NamedTuple):
    """What to send for many jobs, and by its place each that cannot be sent."""

    requests: list[Bulk]
    errors: dict[int, JobspecError]

    def results(
        self, answers: Iterable[dict[str, Any] | RpcError]
    ) -> list[list[int] | RpcError | JobspecError]:
        """The ids or the error of each of the jobs, in their order."""
        found: dict[int, list[int] | RpcError | JobspecError] = {**self.errors}
        for request, answer in zip(self.requests, answers, strict=True):
            found |= zip(request.places, request.read(answer), strict=True)
        return [found[place] for place in range(len(found))]


def submissions(
    jobs: Iterable[Submission], *, limit: int = MAX_SUBMISSION, job_limit: int = MAX_JOB
) -> Submissions:
    """Requests for `job-ingest.submit`, longer than `limit` bytes only where one job is."""
    errors: dict[int, JobspecError] = {}
    requests: list[Bulk] = []
    places: list[int] = []
    parts: list[bytes] = []
    size = 0
    for place, job in enumerate(jobs):
        try:
            part = encoded(job, limit=job_limit)
        except JobspecError as error:
            errors[place] = error
            continue
        if parts and size + len(part) > limit:
            requests.append(Bulk(places, bulk(parts)))
            places, parts, size = [], [], 0
        places.append(place)
        parts.append(part)
        size += len(part) + 1
    if parts:
        requests.append(Bulk(places, bulk(parts)))
    return Submissions(requests, errors)


def bulk(jobs: Iterable[bytes]) -> bytes:
    """The payload of a request with several jobs."""
    return b'{"jobs":[' + b",".join(jobs) + b"]}\0"


# --- jobs


def jobs(
    ids: Iterable[int] | None,
    constraint: Mapping[str, Any] | None,
    max_entries: int,
    since: float,
    attrs: Sequence[str],
) -> StreamCall[JobRow]:
    """Rows of jobs."""
    request: dict[str, Any] = {"max_entries": max_entries, "attrs": list(attrs), "since": since}
    if ids is not None:
        request["ids"] = list(ids)
    if constraint is not None:
        request["constraint"] = constraint
    return StreamCall("job-list.list", request, _rows)


def _rows(answer: dict[str, Any]) -> list[JobRow]:
    return cast("list[JobRow]", answer["jobs"])


def info(job: int) -> Call[JobRow]:
    """One job's row."""
    request = {"id": job, "attrs": ["all"]}
    return Call("job-list.list-id", request, lambda answer: cast("JobRow", answer["job"]))


def wait(ids: Iterable[int]) -> StreamCall[JobRow]:
    """Rows of jobs as they become inactive."""
    return StreamCall("job-list.wait", {"ids": list(ids)}, _rows)


def raise_exception(
    ids: Iterable[int] | None,
    kind: str,
    severity: int,
    note: str,
    userid: int | None = None,
    wait_status: int | None = None,
) -> Call[Outcome]:
    """An exception for jobs, or for all active ones (of a user)."""
    request: dict[str, Any] = {"type": kind, "severity": severity, "note": note}
    request |= {"all": True} if ids is None else {"ids": list(ids)}
    if userid is not None:
        request["userid"] = userid
    if wait_status is not None:
        request["wait_status"] = wait_status
    return Call("job-manager.raise", request, _outcome)


def kill(ids: Iterable[int], signum: int) -> Call[Outcome]:
    """A signal for jobs."""
    return Call("job-manager.kill", {"ids": list(ids), "signum": signum}, _outcome)


def urgency(ids: Iterable[int], urgency: int) -> Call[Outcome]:
    """A new urgency for jobs."""
    return Call("job-manager.urgency", {"ids": list(ids), "urgency": urgency}, _outcome)


def prioritize(pairs: Iterable[tuple[int, int]]) -> Call[Outcome]:
    """New priorities for jobs."""
    payload = {"jobs": [list(pair) for pair in pairs]}
    return Call("job-manager.prioritize", payload, _outcome)


def update(job: int, duration: float) -> Call[None]:
    """A new duration for a job."""
    return order(
        "job-manager.update", {"id": job, "updates": {"attributes.system.duration": duration}}
    )


def purge(
    ids: Iterable[int] | None, age_limit: float | None, num_limit: int | None, *, force: bool
) -> Call[Purged]:
    """Away with inactive jobs."""
    request: dict[str, Any] = {"force": force}
    if ids is not None:
        request["ids"] = list(ids)
    if age_limit is not None:
        request["age_limit"] = age_limit
    if num_limit is not None:
        request["num_limit"] = num_limit
    return plain("job-manager.purge", request)


def history(count: int | None) -> Call[list[int]]:
    """The asker's jobs, newest first."""
    payload = {"slice": "[:]" if count is None else f"[:{count}]"}
    return Call("job-manager.history.get", payload, lambda answer: list(answer["jobs"]))


def lookup(job: int, keys: Iterable[str]) -> Call[dict[str, str]]:
    """Documents of a job."""
    return plain("job-info.lookup", {"id": job, "keys": list(keys), "flags": 0})


def eventlog(job: int, *, follow: bool) -> StreamCall[Event]:
    """What was logged of a job, and with `follow` what will be."""

    def read(answer: dict[str, Any]) -> list[Event]:
        text = answer["event" if follow else "eventlog"]
        return [json.loads(line) for line in text.splitlines()]

    if follow:
        request = {"id": job, "path": "eventlog", "flags": 0}
        return StreamCall("job-info.eventlog-watch", request, read)
    request = {"id": job, "keys": ["eventlog"], "flags": 0}
    return StreamCall("job-info.lookup", request, read, streaming=False)


def output(job: int, streams: Iterable[str], *, follow: bool) -> StreamCall[tuple[str, bytes]]:
    """What a job has written, and with `follow` what it will write."""
    request = {"id": job, "follow": follow, "streams": list(streams)}

    def read(answer: dict[str, Any]) -> list[tuple[str, bytes]]:
        return [(answer["stream"], base64.b64decode(answer["data"]))]

    return StreamCall("job-exec.output", request, read)


def infeasible(error: RpcError) -> str:
    """What `feasibility.check` says against a job.

    Raises:
        RpcError: it is not the job that is at fault.
    """
    if error.errno in {errno.ENOSYS, errno.EPERM, errno.EPROTO, errno.EIO}:
        raise error
    return error.strerror or str(error)


# --- queues, resources, the instance


def queue_status(name: str | None) -> Call[QueueStatus]:
    """Whether a queue takes and starts jobs."""
    return plain("job-manager.queue-status", {} if name is None else {"name": name})


def queue_list() -> Call[list[str]]:
    """The names of the queues."""
    return Call("job-manager.queue-list", {}, lambda answer: list(answer["queues"]))


def queue_set(
    what: str, name: str | None, *, on: bool, everything: bool, reason: str | None = None
) -> Call[None]:
    """Enables or disables (`enable`), starts or stops (`start`) a queue, or all of them."""
    request: dict[str, Any] = {what: on, "all": everything}
    if name is not None:
        request["name"] = name
    if reason:
        request["reason"] = reason
    return order(f"job-manager.queue-{what}", request)


def queue_wait(what: str, name: str | None) -> Call[None]:
    """The end of what is active (`drain`) or running (`idle`)."""
    return order(f"job-manager.{what}", {} if name is None else {"name": name})


def resource_status() -> Call[ResourceStatus]:
    """Every target and its state."""
    return plain("resource.status")


def sched_status() -> Call[SchedStatus]:
    """What the scheduler may use."""
    return plain("resource.sched-status")


def explain(ids: Iterable[int]) -> Call[Explained]:
    """Why jobs wait."""

    def read(answer: dict[str, Any]) -> Explained:
        return Explained(answer["jobs"], _errors(answer))

    return Call("sched.explain", {"ids": list(ids)}, read)


def estimate(ids: Iterable[int] | None, max_entries: int) -> Call[Estimates]:
    """When jobs are expected to start."""

    def read(answer: dict[str, Any]) -> Estimates:
        return Estimates(answer["jobs"], answer["accuracy"], _errors(answer))

    payload: dict[str, Any] = {"max_entries": max_entries} if ids is None else {"ids": list(ids)}
    return Call("sched.estimate", payload, read)


def what_if(change: Mapping[str, Any]) -> Call[WhatIf]:
    """What would come of a change."""
    return plain("sched.what-if", dict(change))


def drain(targets: str, reason: str, mode: DrainMode | None) -> Call[None]:
    """No more jobs for targets."""
    request = {"targets": targets, "reason": reason}
    return order("resource.drain", request | ({"mode": mode} if mode else {}))


def undrain(targets: str, reason: str, mode: UndrainMode | None) -> Call[None]:
    """Jobs for targets again."""
    request = {"targets": targets} | ({"reason": reason} if reason else {})
    return order("resource.undrain", request | ({"mode": mode} if mode else {}))


def resource_history(targets: str | None) -> Call[list[Event]]:
    """What has happened to targets."""
    payload = {} if targets is None else {"targets": targets}
    return Call("resource.history", payload, lambda answer: list(answer["events"]))


def services() -> Call[list[ServiceRow]]:
    """Who serves what."""
    return Call("service.list", None, lambda answer: list(answer["services"]))


def config_reload(config: Mapping[str, Any]) -> Call[list[str]]:
    """Another configuration."""
    payload = {"config": dict(config)}
    return Call("config.reload", payload, lambda answer: list(answer["changed"]))


def dmesg(*, follow: bool, backlog: bool) -> StreamCall[LogRow]:
    """The instance's log."""
    request = {"follow": follow, "nobacklog": not backlog}
    return StreamCall("log.dmesg", request, lambda answer: list(answer["lines"]))


def log_clear(upto: int | None) -> Call[None]:
    """Away with lines of the log."""
    return order("log.clear", {} if upto is None else {"upto": upto})


def log_append(text: str, level: Level) -> Call[None]:
    """A line for the instance's log."""
    return order("log.append", {"level": level, "text": text})
