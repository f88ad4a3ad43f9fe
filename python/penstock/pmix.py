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
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, cast

from penstock._core import topic
from penstock.client import Call, Client, StreamCall
from penstock.errors import DeniedError, Error
from penstock.jobid import parse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
    from typing import Self

    from penstock import aclient

__all__ = ["Answer", "AsyncJob", "DeniedError", "Job", "Lent", "State", "Status"]

Directive = Literal["new", "extend", "release", "reacquire"]
State = Literal["queued", "granted", "denied", "cancelled"]

SUCCESS = 0


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

    status: int = SUCCESS
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
        return self.status == SUCCESS


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


class Wanted(TypedDict, total=False):
    """The options of a request; see `Job.extend`."""

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


class Lending(TypedDict, total=False):
    """The options of a loan; see `Job.release`."""

    name: str | None
    alloc: str | None
    nodes: int | None
    hosts: str | None
    required: bool


KEYS = {
    "name": "pmix.alloc.reqid",
    "alloc": "pmix.alloc.id",
    "nodes": "pmix.alloc.nnodes",
    "hosts": "pmix.alloc.nlist",
    "cpus": "pmix.alloc.ncpus",
    "cpus_per_host": "pmix.alloc.ncpulist",
    "time": "pmix.alloc.time",
    "queue": "pmix.alloc.queue",
    "timeout": "pmix.timeout",
}


def _for(time: float, lending: Lending) -> Wanted:
    return cast("Wanted", {**lending, "time": time})


def attributes(wanted: Wanted) -> list[dict[str, Any]]:
    """The PMIx attributes of a request.

    The flag of `alloc` says that there has to be such an allocation, and is always set. That of any
    other says that the resources must be available now; without another attribute to carry it,
    `pmix.timeout` 0 does.

    >>> attributes({"nodes": 2, "required": True})
    [{'key': 'pmix.alloc.nnodes', 'required': True, 'value': 2}]
    >>> attributes({"required": True})
    [{'key': 'pmix.timeout', 'required': True, 'value': 0}]
    """
    required = wanted.get("required", False)
    values: Mapping[str, Any] = wanted
    found = {name: values[name] for name in KEYS if values.get(name) is not None}
    if required and not found.keys() - {"alloc"}:
        found["timeout"] = 0
    return [
        {
            "key": KEYS[name],
            "required": required or name == "alloc",
            "value": round(value) if name == "time" else value,
        }
        for name, value in found.items()
    ]


def answer(payload: Mapping[str, Any]) -> Answer:
    """Reads an answer from the payload of `pmix.alloc` or of an event."""
    found = {result["key"]: result["value"] for result in payload.get("results", [])}
    cpus = str(found.get("pmix.alloc.ncpulist", ""))
    dropped = str(found.get("penstock.alloc.dropped", ""))
    return Answer(
        status=payload["status"],
        reason=payload.get("reason", ""),
        id=found.get("pmix.alloc.reqid", payload.get("id")),
        alloc=found.get("pmix.alloc.id", payload.get("alloc")),
        hosts=str(found.get("pmix.alloc.nlist", "")),
        cpus=tuple(int(number) for number in cpus.split(",") if number),
        time=found.get("pmix.alloc.time"),
        dropped=tuple(name for name in dropped.split(",") if name),
    )


def granted(payload: Mapping[str, Any]) -> Answer:
    """Reads the answer to a queued or granted request.

    Raises:
        DeniedError: it was denied or cancelled.
    """
    if payload["status"] < SUCCESS:
        raise DeniedError(payload["status"], payload.get("reason", ""))
    return answer(payload)


def _statuses(payload: Mapping[str, Any]) -> list[Status]:
    granted(payload)
    return [
        Status(
            id=row["id"],
            alloc=row["alloc"],
            directive=row["directive"],
            state=row["state"],
            status=row["status"],
            reason=row["reason"],
            estimate=row.get("estimate"),
            answer=answer(row),
        )
        for row in payload["requests"]
    ]


def _lents(payload: Mapping[str, Any]) -> list[Lent]:
    granted(payload)
    return [Lent(**row) for row in payload["lent"]]


def _cancelled(payload: Mapping[str, Any]) -> list[str]:
    granted(payload)
    return list(payload["cancelled"])


def _last_response(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the last response of a stream.

    Raises:
        DeniedError: the instance ended before it responded.
    """
    if not answers:
        raise DeniedError(-25, "the instance ended before it answered")
    return answers[-1]


class _Asker:
    """The requester: a job, and one of its tasks.

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

    def _alloc(self, directive: Directive, wanted: Wanted) -> StreamCall[dict[str, Any]]:
        payload = self._of({"directive": directive, "attributes": attributes(wanted)})
        return StreamCall(topic.pmix.ALLOC, payload, lambda response: [response])

    def _cancel(self, name: str | None) -> Call[list[str]]:
        return Call(topic.pmix.CANCEL, self._of({"id": name}), _cancelled)

    def _status(self, name: str | None) -> Call[list[Status]]:
        return Call(topic.pmix.QUERY, self._of({"id": name}), _statuses)

    def _lent(self) -> Call[list[Lent]]:
        return Call(topic.pmix.QUERY, self._of({}), _lents)

    def _events(self, name: str | None) -> StreamCall[Answer]:
        return StreamCall(
            topic.pmix.EVENTS, self._of({"id": name}), lambda response: [answer(response)]
        )

    def _of(self, payload: dict[str, Any]) -> dict[str, Any]:
        payload = {"job": self.job, "rank": self.rank} | payload
        return {key: value for key, value in payload.items() if value is not None}


class Job(_Asker):
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

    def _ask(self, directive: Directive, wanted: Wanted) -> Answer:
        with self._client.stream(self._alloc(directive, wanted)) as answers:
            return granted(
                _last_response(list(islice(answers, None if wanted.get("wait", True) else 1)))
            )

    def new(self, **wanted: Unpack[Wanted]) -> Answer:
        """Requests a new allocation, disjoint from the job's, without tasks.

        It belongs to the job's owner, and outlives the job: it ends by `release`, when it is
        cancelled, or after its `time`, by default the job's own time limit.

        Args:
            **wanted: as for `extend`.
        """
        return self._ask("new", wanted)

    def extend(self, **wanted: Unpack[Wanted]) -> Answer:
        """Requests more resources for the job, or more time.

        Args:
            **wanted: the options of the request.

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
        return self._ask("extend", wanted)

    def release(self, **wanted: Unpack[Wanted]) -> Answer:
        """Releases nodes permanently.

        Args:
            **wanted: `nodes` or `hosts`; `alloc`, an allocation or a grant: all of it, or with
                `nodes` or `hosts` a part; `name`, `required`.
        """
        return self._ask("release", wanted)

    def lend(self, time: float, **wanted: Unpack[Lending]) -> Answer:
        """Lends nodes for a time; then as many are reclaimed.

        Args:
            time: seconds.
            **wanted: as for `release`.
        """
        return self._ask("release", _for(time, wanted))

    def reacquire(self, **wanted: Unpack[Wanted]) -> Answer:
        """Reacquires lent nodes: on the same hosts if they are free, else on others.

        Args:
            **wanted: `alloc`: the name of the request by which it was lent, by default all;
                `nodes`, `required`, `timeout`, `name`, `wait`.
        """
        return self._ask("reacquire", wanted)

    def cancel(self, name: str | None = None) -> list[str]:
        """Cancels a queued request, or all of this task's.

        Returns:
            The names of the requests, or the request jobs of those without a name.
        """
        return self._client.do(self._cancel(name))

    def status(self, name: str | None = None) -> list[Status]:
        """The states of the job's requests, the oldest first, or of one of them."""
        return self._client.do(self._status(name))

    def lent(self) -> list[Lent]:
        """The job's loans."""
        return self._client.do(self._lent())

    def events(self, name: str | None = None) -> Iterator[Answer]:
        """The ended requests, granted or not: past ones, then each as it ends."""
        with self._client.stream(self._events(name)) as answers:
            yield from answers


class AsyncJob(_Asker):
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

    async def _ask(self, directive: Directive, wanted: Wanted) -> Answer:
        received = []
        async with self._client.stream(self._alloc(directive, wanted)) as answers:
            async for response in answers:
                received.append(response)
                if not wanted.get("wait", True):
                    break
        return granted(_last_response(received))

    async def new(self, **wanted: Unpack[Wanted]) -> Answer:
        """As `Job.new`."""
        return await self._ask("new", wanted)

    async def extend(self, **wanted: Unpack[Wanted]) -> Answer:
        """As `Job.extend`."""
        return await self._ask("extend", wanted)

    async def release(self, **wanted: Unpack[Wanted]) -> Answer:
        """As `Job.release`."""
        return await self._ask("release", wanted)

    async def lend(self, time: float, **wanted: Unpack[Lending]) -> Answer:
        """As `Job.lend`."""
        return await self._ask("release", _for(time, wanted))

    async def reacquire(self, **wanted: Unpack[Wanted]) -> Answer:
        """As `Job.reacquire`."""
        return await self._ask("reacquire", wanted)

    async def cancel(self, name: str | None = None) -> list[str]:
        """As `Job.cancel`."""
        return await self._client.do(self._cancel(name))

    async def status(self, name: str | None = None) -> list[Status]:
        """As `Job.status`."""
        return await self._client.do(self._status(name))

    async def lent(self) -> list[Lent]:
        """As `Job.lent`."""
        return await self._client.do(self._lent())

    async def events(self, name: str | None = None) -> AsyncIterator[Answer]:
        """As `Job.events`."""
        async with self._client.stream(self._events(name)) as answers:
            async for response in answers:
                yield response
