"""Elastic jobs: extend, release, lend and reacquire resources (PMIx RFC 0005).

```python
from penstock.pmix import DeniedError, Job

with Job() as job:  # the job that this process belongs to
    try:
        more = job.extend(nodes=2, timeout=60)
    except DeniedError as error:
        print(error.reason)
    else:
        work_on(more.hosts)
        job.release(alloc=more.alloc)
```

`AsyncJob` has the same methods for Trio. A program in C, or in any other language, does the same by
`PMIx_Allocation_request`. Nothing here needs PMIx.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Literal,
    NamedTuple,
    ParamSpec,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
)

from penstock._core import pmix_attribute, pmix_status, topic
from penstock.client import Call, Client, StreamCall
from penstock.client.definition import make_method, request, streamed
from penstock.client.responses import expect, expect_items, expect_optional
from penstock.errors import DeniedError, Error, WireError
from penstock.jobid import parse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from typing import Self

    from penstock import aclient
    from penstock.client import Stream, async_connection
    from penstock.client.definition import Request

__all__ = ["Answer", "AsyncJob", "DeniedError", "Job", "Lent", "State", "Status"]

Directive = Literal["new", "extend", "release", "reacquire"]
State = Literal["queued", "granted", "denied", "cancelled"]

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    """The answer to a request.

    Attributes:
        status: 0 if granted; 1 while it is queued.
        reason: the preferences that were not met, as text.
        id: the request's own name, if it has one.
        alloc: the id of the allocation, a job id, by which later requests name it.
        hosts: The granted or released hosts, as a hostlist.
        cpus: cpus on each of them.
        time: the granted seconds, or the duration of the loan.
        dropped: the names of attributes that were not met.
    """

    status: int = pmix_status.SUCCESS
    reason: str = ""
    id: str | None = None
    alloc: str | None = None
    hosts: str = ""
    cpus: tuple[int, ...] = ()
    time: int | None = None
    dropped: tuple[str, ...] = ()

    @property
    def granted(self) -> bool:
        """Whether it was granted, if need be in part."""
        return self.status == pmix_status.SUCCESS


@dataclass(frozen=True)
class Status:
    """The state of a request: `pmix.query`.

    Attributes:
        id: the request's own name, if it has one.
        alloc: the request job in the queue; of a granted request, the allocation.
        directive: `new`, `extend`, `release` or `reacquire`.
        state: The state of the request.
        status: its PMIx status; 1 while it is queued.
        reason: why it is queued, or why it was denied or cancelled.
        estimate: the expected time of the grant, seconds since the epoch, if known.
        answer: the final answer.
    """

    id: str | None
    alloc: str | None
    directive: str
    state: State
    status: int
    reason: str
    estimate: float | None = None
    answer: Answer = field(default_factory=Answer)


@dataclass(frozen=True)
class Lent:
    """A loan of a job.

    Attributes:
        id: the name of the request by which it was lent.
        nodes: the number of nodes not yet reclaimed.
        hosts: their host names.
        returning: The number of these that are being reclaimed.
        until: The time of the automatic reclaim, seconds since the epoch.
        cpus: the number of lent cpus of each.
        reason: Why the last automatic reclaim failed.
    """

    id: str | None
    nodes: int
    hosts: str
    returning: int
    until: float | None
    cpus: int
    reason: str = ""


class Attributes(TypedDict, total=False):
    """The attributes and options of a request; see `Job.extend`."""

    name: str | None
    alloc: str | None
    nodes: int | None
    hosts: str | None
    cpus: int | None
    cpus_per_host: str | None
    time: float | None
    queue: str | None
    timeout: float | None
    required: bool
    wait: bool


class LoanAttributes(TypedDict, total=False):
    """The attributes of a loan; see `Job.release`."""

    name: str | None
    alloc: str | None
    nodes: int | None
    hosts: str | None
    required: bool


ATTRIBUTE_KEYS = {
    "name": pmix_attribute.REQUEST_ID,
    "alloc": pmix_attribute.ALLOC_ID,
    "nodes": pmix_attribute.NODES,
    "hosts": pmix_attribute.NODE_LIST,
    "cpus": pmix_attribute.CPUS,
    "cpus_per_host": pmix_attribute.CPU_COUNTS,
    "time": pmix_attribute.TIME,
    "queue": pmix_attribute.QUEUE,
    "timeout": pmix_attribute.TIMEOUT,
}


def attributes(options: Attributes) -> list[dict[str, Any]]:
    """The PMIx attributes of a request.

    The flag of `alloc` says that there has to be such an allocation, and is always set. That of any
    other says that the resources must be available now; without another attribute to carry it,
    `pmix.timeout` 0 does.

    >>> attributes({"nodes": 2, "required": True})
    [{'key': 'pmix.alloc.nnodes', 'required': True, 'value': 2}]
    >>> attributes({"required": True})
    [{'key': 'pmix.timeout', 'required': True, 'value': 0}]
    """
    required = options.get("required", False)
    values: Mapping[str, Any] = options
    found = {name: values[name] for name in ATTRIBUTE_KEYS if values.get(name) is not None}
    if required and not found.keys() - {"alloc"}:
        found["timeout"] = 0
    return [
        {
            "key": ATTRIBUTE_KEYS[name],
            "required": required or name == "alloc",
            "value": round(value) if name == "time" else value,
        }
        for name, value in found.items()
    ]


def answer(payload: Mapping[str, Any]) -> Answer:
    """Reads an answer from the payload of `pmix.alloc` or of an event.

    Raises:
        WireError: a key is missing, or has a value of another type.
    """
    rows = expect_items(payload, "results", dict) if "results" in payload else []
    found = {expect(row, "key", str): row.get("value") for row in rows}
    cpus = str(found.get(pmix_attribute.CPU_COUNTS, ""))
    dropped = expect_optional(found, pmix_attribute.DROPPED, str) or ""
    try:
        cpu_counts = tuple(int(number) for number in cpus.split(",") if number)
    except ValueError as error:
        raise WireError(f"`{pmix_attribute.CPU_COUNTS}`: {error}") from error
    return Answer(
        status=expect(payload, "status", int),
        reason=expect_optional(payload, "reason", str) or "",
        id=expect_optional(found, pmix_attribute.REQUEST_ID, str)
        or expect_optional(payload, "id", str),
        alloc=expect_optional(found, pmix_attribute.ALLOC_ID, str)
        or expect_optional(payload, "alloc", str),
        hosts=expect_optional(found, pmix_attribute.NODE_LIST, str) or "",
        cpus=cpu_counts,
        time=expect_optional(found, pmix_attribute.TIME, int),
        dropped=tuple(name for name in dropped.split(",") if name),
    )


def granted(found: Answer) -> Answer:
    """The answer to a queued or granted request.

    Raises:
        DeniedError: it was denied or cancelled.
    """
    if found.status < pmix_status.SUCCESS:
        raise DeniedError(found.status, found.reason)
    return found


def _read_status(row: Mapping[str, Any]) -> Status:
    return Status(
        id=expect_optional(row, "id", str),
        alloc=expect_optional(row, "alloc", str),
        directive=expect(row, "directive", str),
        state=cast("State", expect(row, "state", str)),
        status=expect(row, "status", int),
        reason=expect(row, "reason", str),
        estimate=expect_optional(row, "estimate", float),
        answer=answer(row),
    )


def _statuses(payload: Mapping[str, Any]) -> list[Status]:
    granted(answer(payload))
    return [_read_status(row) for row in expect_items(payload, "requests", dict)]


def _read_loan(row: Mapping[str, Any]) -> Lent:
    return Lent(
        id=expect_optional(row, "id", str),
        nodes=expect(row, "nodes", int),
        hosts=expect(row, "hosts", str),
        returning=expect(row, "returning", int),
        until=expect_optional(row, "until", float),
        cpus=expect(row, "cpus", int),
        reason=expect_optional(row, "reason", str) or "",
    )


def _lents(payload: Mapping[str, Any]) -> list[Lent]:
    granted(answer(payload))
    return [_read_loan(row) for row in expect_items(payload, "lent", dict)]


def _cancelled(payload: Mapping[str, Any]) -> list[str]:
    granted(answer(payload))
    return expect_items(payload, "cancelled", str)


def _last_response(answers: Sequence[Answer]) -> Answer:
    """Returns the last response of a stream.

    Raises:
        DeniedError: the instance ended before it responded.
    """
    if not answers:
        raise DeniedError(pmix_status.UNREACHABLE, "the instance ended before it answered")
    return answers[-1]


class _AllocRequest(NamedTuple):
    """A request whose last response has the result."""

    call: StreamCall[Answer]
    max_responses: int | None
    """1 to return once it is queued; None for no limit."""


def _alloc(build: Callable[Concatenate[Any, P], _AllocRequest]) -> Request[P, Answer]:
    """Makes a method that sends the request and returns its answer."""
    return cast("Request[P, Answer]", make_method("_allocate", "Answer", build))


class _Requests:
    """The requests of a job, or of one of its tasks, each defined once for `Job` and `AsyncJob`.

    The class that inherits them has `_first`, `_stream` and `_allocate`.

    Args:
        job: its id; by default the job that this process belongs to.
        rank: the requesting task; by default this process's, if `job` is not given.

    Raises:
        Error: this process belongs to no job, and none is given.
    """

    def __init__(self, job: int | str | None, rank: int | None) -> None:
        if job is None:
            job = os.environ.get("PENSTOCK_JOB_ID")
            if job is None:
                raise Error(
                    "this process belongs to no job: PENSTOCK_JOB_ID is not set\nhint: name the job"
                )
            task = os.environ.get("PENSTOCK_TASK_RANK")
            rank = int(task) if rank is None and task is not None else rank
        self.job = parse(job) if isinstance(job, str) else job
        self.rank = rank

    def _payload(self, payload: dict[str, Any]) -> dict[str, Any]:
        payload = {"job": self.job, "rank": self.rank} | payload
        return {key: value for key, value in payload.items() if value is not None}

    def _request(self, directive: Directive, options: Attributes) -> _AllocRequest:
        payload = self._payload({"directive": directive, "attributes": attributes(options)})
        call = StreamCall(topic.pmix.ALLOC, payload, lambda response: [answer(response)])
        return _AllocRequest(call, None if options.get("wait", True) else 1)

    @_alloc
    def new(self, **attributes: Unpack[Attributes]) -> _AllocRequest:
        """Requests a new allocation, disjoint from the job's, without tasks.

        It belongs to the job's owner, and outlives the job: it ends by `release`, when it is
        cancelled, or after its `time`, by default the job's own time limit.

        Args:
            **attributes: as for `extend`.
        """
        return self._request("new", attributes)

    @_alloc
    def extend(self, **attributes: Unpack[Attributes]) -> _AllocRequest:
        """Requests more resources for the job, or more time.

        Args:
            **attributes: the attributes and options of the request.

                - `nodes`: the number of whole nodes.
                - `hosts`: the hosts, as a hostlist.
                - `cpus`: the total number; with `nodes`, spread evenly over that many nodes.
                - `cpus_per_host`: cpus on each of `hosts`, or of as many nodes, such as `5,3`.
                - `time`: seconds.
                - `queue`: another queue than the job's.
                - `required`: the request is denied unless all of it is available now. Otherwise an
                  amount is queued, and hosts and queue are dropped if they are unavailable now.
                - `timeout`: seconds to wait for all of it; then a part may be granted.
                - `name`: a name, by which to query and cancel it.
                - `alloc`: the allocation; by default the job's own.
                - `wait`: False to return as soon as the request is queued.
        """
        return self._request("extend", attributes)

    @_alloc
    def release(self, **attributes: Unpack[Attributes]) -> _AllocRequest:
        """Releases nodes permanently.

        Args:
            **attributes: `nodes` or `hosts`; `alloc`, an allocation or a grant: all of it, or with
                `nodes` or `hosts` a part; `name`, `required`.
        """
        return self._request("release", attributes)

    @_alloc
    def lend(self, time: float, **attributes: Unpack[LoanAttributes]) -> _AllocRequest:
        """Lends nodes for a time; then as many are reclaimed.

        Args:
            time: seconds.
            **attributes: as for `release`.
        """
        return self._request("release", cast("Attributes", {**attributes, "time": time}))

    @_alloc
    def reacquire(self, **attributes: Unpack[Attributes]) -> _AllocRequest:
        """Reacquires lent nodes: on the same hosts if they are free, else on others.

        Args:
            **attributes: `alloc`: the name of the request by which it was lent, by default all;
                `nodes`, `required`, `timeout`, `name`, `wait`.
        """
        return self._request("reacquire", attributes)

    @request
    def cancel(self, name: str | None = None) -> Call[list[str]]:
        """Cancels a queued request, or all of this task's.

        Returns:
            The names of the requests, or the request jobs of those without a name.
        """
        return Call(topic.pmix.CANCEL, self._payload({"id": name}), _cancelled)

    @request
    def status(self, name: str | None = None) -> Call[list[Status]]:
        """The states of the job's requests, the oldest first, or of one of them."""
        return Call(topic.pmix.QUERY, self._payload({"id": name}), _statuses)

    @request
    def lent(self) -> Call[list[Lent]]:
        """The job's loans."""
        return Call(topic.pmix.QUERY, self._payload({}), _lents)

    @streamed
    def events(self, name: str | None = None) -> StreamCall[Answer]:
        """The ended requests, granted or not: past ones, then each as it ends."""
        payload = self._payload({"id": name})
        return StreamCall(topic.pmix.EVENTS, payload, lambda response: [answer(response)])


class Job(_Requests):
    """A running job and its requests; a context manager that closes its connection.

    Args:
        job: its id; by default the job that this process belongs to.
        rank: The requesting task; by default this process's. Its node is never released.
        uri: the instance; by default `$PENSTOCK_URI`.

    Raises:
        Error: this process belongs to no job, and none is given.
        NoInstanceError: no instance listens there.

    Every method raises `DeniedError` if the request is not granted, and `RpcError` if the
    instance rejects it as malformed.
    """

    def __init__(
        self, job: int | str | None = None, *, rank: int | None = None, uri: str | None = None
    ) -> None:
        super().__init__(job, rank)
        self._client = Client(uri)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection. Queued requests stay queued."""
        self._client.close()

    def _first(self, call: Call[T]) -> T:
        return self._client.do(call)

    def _stream(self, calls: Iterable[StreamCall[T]]) -> Stream[T]:
        (call,) = calls
        return self._client.stream(call)

    def _allocate(self, request: _AllocRequest) -> Answer:
        with self._client.stream(request.call) as responses:
            return granted(_last_response(list(islice(responses, request.max_responses))))


class AsyncJob(_Requests):
    """The same for Trio; see `AsyncJob.connect` and `Job`."""

    def __init__(self, client: aclient.Client, job: int | str | None, rank: int | None) -> None:
        super().__init__(job, rank)
        self._client = client

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, job: int | str | None = None, *, rank: int | None = None, uri: str | None = None
    ) -> AsyncIterator[AsyncJob]:
        """A job, and a connection for as long as the block lasts; arguments as of `Job`."""
        from penstock import aclient

        async with aclient.connect(uri) as client:
            yield cls(client, job, rank)

    async def _first(self, call: Call[T]) -> T:
        return await self._client.do(call)

    def _stream(self, calls: Iterable[StreamCall[T]]) -> async_connection.Stream[T]:
        (call,) = calls
        return self._client.stream(call)

    async def _allocate(self, request: _AllocRequest) -> Answer:
        received: list[Answer] = []
        async with self._client.stream(request.call) as responses:
            async for response in responses:
                received.append(response)
                if len(received) == request.max_responses:
                    break
        return granted(_last_response(received))
