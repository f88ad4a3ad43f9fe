"""The instance as one reader may see it: what the instance would answer to that user itself.

The server asks the instance as the user who runs it. A reader on a Unix socket can be another one,
a guest: every request of a page is made here, where the rules for guests are (docs/security.md).
"""

from __future__ import annotations

import errno
import json
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock._core import URGENCY_DEFAULT, URGENCY_EXPEDITE, topic
from penstock.cli.topdata import NodeRow, node_rows
from penstock.errors import ForbiddenError, NotFoundError, RpcError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from penstock.aclient import Client
    from penstock.clock import Clock
    from penstock.rows import Event, JobRow, Reason, ResourceStatus, SchedStatus
    from penstock.web.link import Link

OUTPUT_TAIL_BYTES = 65536
# Output is read from its begin: of more than this the end is not shown.
MAX_OUTPUT_BYTES = 8 << 20
MACHINE_AGE_S = 1.0


@dataclass(frozen=True)
class Reader:
    """The user for whom a page is made.

    Attributes:
        uid: the user.
        is_owner: whether the user may see and change everything that the server may.
        sees_all_jobs: whether rows of other users' jobs may be shown.
    """

    uid: int
    is_owner: bool
    sees_all_jobs: bool

    @property
    def max_urgency(self) -> int:
        """The highest urgency that the reader may give (RFC 30)."""
        return URGENCY_EXPEDITE if self.is_owner else URGENCY_DEFAULT

    def may_act_for(self, row: Mapping[str, Any]) -> bool:
        """Whether the reader may read the events and the output of a job, and change it."""
        return self.is_owner or row["userid"] == self.uid


@dataclass(frozen=True)
class Machine:
    """The nodes at one time, with the scheduler's and the resource module's answers."""

    nodes: Sequence[NodeRow]
    status: ResourceStatus
    sched: SchedStatus


class MachineCache:
    """The nodes, requested at most once in `MACHINE_AGE_S` for all readers."""

    def __init__(self, link: Link, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._machine: Machine | None = None
        self._time = 0.0

    async def read(self) -> Machine:
        """The nodes."""
        now = self._clock.monotonic()
        if self._machine is None or now - self._time > MACHINE_AGE_S:
            client = self._link.client
            status, sched = await client.resource_status(), await client.sched_status()
            self._machine, self._time = Machine(node_rows(status, sched), status, sched), now
        return self._machine


@dataclass(frozen=True)
class Output:
    """The end of a job's output, and whether there is more after it."""

    data: bytes
    is_cut: bool


class View:
    """The instance for one reader.

    Args:
        client: of the instance, as the user who runs the server.
        reader: the user for whom a page is made.
        machine: the nodes.
    """

    def __init__(self, client: Client, reader: Reader, machine: MachineCache) -> None:
        self._client = client
        self._machine = machine
        self.reader = reader

    # --- jobs

    async def jobs(
        self,
        *parts: Mapping[str, Any],
        max_entries: int,
        attrs: Sequence[str] = ("all",),
        since: float = 0.0,
        skip: int = 0,
    ) -> list[JobRow]:
        """Rows: running jobs, then pending ones by position, then inactive ones, newest first.

        Args:
            parts: constraints (RFC 43), all of which hold.
            max_entries: the greatest number of rows.
            attrs: the keys besides `id`.
            since: of the inactive jobs, only those that ended after this time.
            skip: the number of rows to leave out at the begin.
        """
        return await self._client.job_rows(
            constraint={"and": [*parts, *self._visible()]},
            max_entries=max_entries,
            attrs=attrs,
            since=since,
            order="state",
            skip=skip,
        )

    def _visible(self) -> list[dict[str, Any]]:
        return [] if self.reader.sees_all_jobs else [{"userid": [self.reader.uid]}]

    async def job(self, job: int) -> JobRow:
        """One job's row.

        Raises:
            NotFoundError: there is no such job, or the reader may not know of it.
        """
        row = await self._client.job_row(job)
        if not self.reader.sees_all_jobs and not self.reader.may_act_for(row):
            raise NotFoundError("no such job, or it is another user's")
        return row

    async def counts(self) -> dict[str, Any]:
        """The number of jobs by state, of all users, in total and by queue."""
        return await self._client.rpc(topic.job_list.JOB_STATS)

    async def events(self, row: JobRow) -> list[Event] | None:
        """The events of a job; None if the reader may not read them."""
        if not self.reader.may_act_for(row):
            return None
        return [event async for event in self._client.eventlog(row["id"])]

    async def follow(self, row: JobRow) -> AsyncIterator[Event]:
        """The events of a job as they are logged, until it is inactive."""
        if self.reader.may_act_for(row):
            async with self._client.eventlog(row["id"], follow=True) as events:
                async for event in events:
                    yield event

    async def output(self, row: JobRow) -> Output | None:
        """The end of a job's output; None if the reader may not read it, or none is retained."""
        if not self.reader.may_act_for(row):
            return None
        parts: deque[bytes] = deque()
        length = total = 0
        try:
            async with self._client.output(row["id"]) as output:
                async for _, data in output:
                    parts.append(data)
                    length, total = length + len(data), total + len(data)
                    while parts and length - len(parts[0]) >= OUTPUT_TAIL_BYTES:
                        length -= len(parts.popleft())
                    if total > MAX_OUTPUT_BYTES:
                        return Output(b"".join(parts)[-OUTPUT_TAIL_BYTES:], is_cut=True)
        except RpcError:
            # Simulated execution has none, and neither has a job without tasks.
            return None
        return Output(b"".join(parts)[-OUTPUT_TAIL_BYTES:], is_cut=False)

    async def follow_output(self, row: JobRow) -> AsyncIterator[tuple[str, bytes]]:
        """A job's output and what it writes, until the end of the job."""
        if self.reader.may_act_for(row):
            async with self._client.output(row["id"], follow=True) as output:
                async for part in output:
                    yield part

    async def resources(self, rows: Sequence[JobRow]) -> dict[int, dict[str, Any]]:
        """R (RFC 20) of each job that has one and whose documents the reader may read."""
        ids = [row["id"] for row in rows if self.reader.may_act_for(row) and "t_run" in row]
        payloads = [{"id": job, "keys": ["R"], "flags": 0} for job in ids]
        answers = await self._client.call_many(topic.job_info.LOOKUP, payloads)
        return {
            job: json.loads(answer["R"])
            for job, answer in zip(ids, answers, strict=True)
            if not isinstance(answer, RpcError)
        }

    async def explain(self, rows: Sequence[JobRow]) -> dict[int, Reason]:
        """The scheduler's reasons why jobs are pending; of other users' jobs only for the owner.

        Another scheduler than Penstock's may not have them.
        """
        ids = [row["id"] for row in rows if self.reader.may_act_for(row)]
        if not ids:
            return {}
        try:
            explained = await self._client.explain(ids)
        except RpcError as error:
            if error.errno not in (errno.ENOSYS, errno.EPERM, errno.EAGAIN):
                raise
            return {}
        return {reason["id"]: reason for reason in explained.reasons}

    # --- resources and queues

    async def machine(self) -> Machine:
        """The nodes."""
        return await self._machine.read()

    async def node_events(self, rank: int) -> list[Event]:
        """The events of a node: drains and the like."""
        return await self._client.resource_history(str(rank))

    async def queues(self) -> list[dict[str, Any]]:
        """Each queue: `name` (None for the anonymous one) and its status."""
        names: list[str | None] = [*await self._client.queue_list()]
        return [{"name": name, **await self._client.queue_status(name)} for name in names or [None]]

    # --- actions

    async def cancel(self, job: int) -> None:
        """Cancels a job."""
        await self._own(job)
        _raise_first(job, (await self._client.cancel([job])).errors)

    async def set_urgency(self, job: int, urgency: int) -> None:
        """Changes the urgency of a pending job, 0 to the reader's highest."""
        await self._own(job)
        if urgency > self.reader.max_urgency:
            raise ForbiddenError(f"an urgency above {URGENCY_DEFAULT} is the owner's to give")
        _raise_first(job, (await self._client.urgency([job], urgency)).errors)

    async def drain(self, rank: int, reason: str) -> None:
        """Drains a node."""
        self._require_owner()
        await self._client.drain(str(rank), reason)

    async def undrain(self, rank: int) -> None:
        """Ends the drain of a node."""
        self._require_owner()
        await self._client.undrain(str(rank))

    async def _own(self, job: int) -> None:
        if not self.reader.may_act_for(await self.job(job)):
            raise ForbiddenError("this job is another user's")

    def _require_owner(self) -> None:
        if not self.reader.is_owner:
            raise ForbiddenError("this is the owner's to do")


def _raise_first(job: int, errors: Mapping[int, str]) -> None:
    if job in errors:
        raise RpcError(errno.EINVAL, errors[job])


async def reader_of(client: Client, uid: int, owners: Iterable[int]) -> Reader:
    """The reader that a user is.

    Args:
        client: of the instance.
        uid: the user.
        owners: users that may see and change everything that the server may.
    """
    if uid in owners:
        return Reader(uid, is_owner=True, sees_all_jobs=True)
    access: dict[str, Any] = {}
    with suppress(RpcError):
        access = (await client.config()).get("access", {})
    if not access.get("allow-guest-user"):
        raise ForbiddenError("the instance has no guests (`access.allow-guest-user`)")
    return Reader(uid, is_owner=False, sees_all_jobs=access.get("job-visibility") == "all")
