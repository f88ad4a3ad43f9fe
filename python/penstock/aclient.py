"""A Trio client of an instance, for programs that ask and for programs that serve.

```python
import trio
from penstock.aclient import connect

async def main() -> None:
    async with connect() as client:
        print(await client.rpc("attr.get", {"name": "size"}))
        async with client.wait([job]) as rows:
            async for row in rows:
                print(row["name"])

trio.run(main)
```

It needs the extra `[daemon]`. Without Trio there is `penstock.client`, with the same methods.
"""

from __future__ import annotations

import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, overload

import trio

from penstock.client import calls
from penstock.client.calls import submissions
from penstock.client.connection import NoInstanceError
from penstock.client.trio_connection import Connection, Stream, open_socket
from penstock.errors import JobspecError, RpcError
from penstock.paths import default_uri

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from penstock.client.trio_connection import Encoding
    from penstock.rows import (
        DrainMode,
        Estimates,
        Event,
        Explained,
        JobRow,
        Level,
        LogRow,
        Outcome,
        Purged,
        QueueStatus,
        ResourceStatus,
        SchedStatus,
        ServiceRow,
        Submission,
        UndrainMode,
        WhatIf,
    )

__all__ = ["Client", "NoInstanceError", "Stream", "connect"]


@asynccontextmanager
async def connect(uri: str | None = None, *, encoding: Encoding = "json") -> AsyncIterator[Client]:
    """A connection to an instance, for as long as the block lasts.

    Where the block ends well, what was given to `send` in it is written before the connection is
    closed.

    Args:
        uri: `local:///path`; by default `$PENSTOCK_URI`, else the default socket.
        encoding: of the payloads that are sent; the instance answers in the same.

    Raises:
        NoInstanceError: nobody listens there, or the instance does not want this user.
        AddressError: the address is not a local one.
    """
    uri = uri or default_uri()
    stream = await open_socket(uri)
    client = Client(uri, stream, encoding=encoding)
    try:
        async with stream, trio.open_nursery() as nursery:
            nursery.start_soon(client._read)
            nursery.start_soon(client._write)
            try:
                yield client
                # What was given to `send` is written, unless the connection is lost.
                await client._written.wait()
            finally:
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        # The tasks in here raise only what a handler raises: mostly there is but one exception,
        # and it is the caller's own.
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise
    finally:
        client._lose(None)


class Client(Connection):
    """An open connection and what can be asked over it; see `connect`.

    Any number of tasks may use it at once. A call that is cancelled leaves the connection as it
    was: what is written is written whole, and a late answer is dropped. A method that gives a
    `Stream` has sent its request when it returns; the other ones are to be awaited.
    """

    # --- submission

    @overload
    async def submit(
        self,
        jobspec: Mapping[str, Any],
        *,
        urgency: int = 16,
        count: None = None,
        flags: int = 0,
    ) -> int: ...

    @overload
    async def submit(
        self, jobspec: Mapping[str, Any], *, urgency: int = 16, count: int, flags: int = 0
    ) -> list[int]: ...

    async def submit(
        self,
        jobspec: Mapping[str, Any],
        *,
        urgency: int = 16,
        count: int | None = None,
        flags: int = 0,
    ) -> int | list[int]:
        """As `penstock.client.Client.submit`."""
        return await self._do(calls.submit(jobspec, urgency, count, flags))

    async def submit_many(
        self, jobs: Iterable[Submission]
    ) -> list[list[int] | RpcError | JobspecError]:
        """As `penstock.client.Client.submit_many`."""
        many = submissions(jobs)
        answers: list[dict[str, Any] | RpcError] = []
        for request in many.requests:
            answers += await self.call_many("job-ingest.submit", [request.payload])
        return many.results(answers)

    async def feasible(self, jobspec: Mapping[str, Any]) -> str | None:
        """As `penstock.client.Client.feasible`."""
        try:
            await self._do(calls.feasible(jobspec))
        except RpcError as error:
            return calls.infeasible(error)
        return None

    # --- jobs: what is known

    async def jobs(
        self,
        *,
        ids: Iterable[int] | None = None,
        constraint: Mapping[str, Any] | None = None,
        max_entries: int = 0,
        since: float = 0.0,
        attrs: Sequence[str] = ("all",),
    ) -> list[JobRow]:
        """As `penstock.client.Client.jobs`."""
        rows = self._stream(calls.jobs(ids, constraint, max_entries, since, attrs))
        return [row async for row in rows]

    def iter_jobs(
        self,
        *,
        ids: Iterable[int] | None = None,
        constraint: Mapping[str, Any] | None = None,
        max_entries: int = 0,
        since: float = 0.0,
        attrs: Sequence[str] = ("all",),
    ) -> Stream[JobRow]:
        """As `penstock.client.Client.iter_jobs`."""
        return self._stream(calls.jobs(ids, constraint, max_entries, since, attrs))

    async def info(self, job: int) -> JobRow:
        """As `penstock.client.Client.info`."""
        return await self._do(calls.info(job))

    async def lookup(self, job: int, *keys: str) -> dict[str, str]:
        """As `penstock.client.Client.lookup`."""
        return await self._do(calls.lookup(job, keys))

    def eventlog(self, job: int, *, follow: bool = False) -> Stream[Event]:
        """As `penstock.client.Client.eventlog`."""
        return self._stream(calls.eventlog(job, follow=follow))

    def output(
        self, job: int, *, follow: bool = False, streams: Sequence[str] = ("stdout", "stderr")
    ) -> Stream[tuple[str, bytes]]:
        """As `penstock.client.Client.output`."""
        return self._stream(calls.output(job, streams, follow=follow))

    def wait(self, ids: Iterable[int]) -> Stream[JobRow]:
        """As `penstock.client.Client.wait`."""
        return self._stream(calls.wait(ids))

    async def wait_one(self, job: int) -> JobRow:
        """As `penstock.client.Client.wait_one`."""
        async with self._stream(calls.wait([job])) as rows:
            return await anext(rows)

    async def history(self, count: int | None = None) -> list[int]:
        """As `penstock.client.Client.history`."""
        return await self._do(calls.history(count))

    # --- jobs: what is done to them

    async def cancel(
        self, ids: Iterable[int] | None = None, *, note: str = "", userid: int | None = None
    ) -> Outcome:
        """As `penstock.client.Client.cancel`."""
        return await self._do(calls.raise_exception(ids, "cancel", 0, note, userid))

    async def raise_exception(
        self,
        ids: Iterable[int],
        kind: str,
        *,
        severity: int = 0,
        note: str = "",
        wait_status: int | None = None,
    ) -> Outcome:
        """As `penstock.client.Client.raise_exception`."""
        call = calls.raise_exception(ids, kind, severity, note, wait_status=wait_status)
        return await self._do(call)

    async def kill(self, ids: Iterable[int], signum: int = signal.SIGTERM) -> Outcome:
        """As `penstock.client.Client.kill`."""
        return await self._do(calls.kill(ids, signum))

    async def urgency(self, ids: Iterable[int], urgency: int) -> Outcome:
        """As `penstock.client.Client.urgency`."""
        return await self._do(calls.urgency(ids, urgency))

    async def prioritize(self, pairs: Iterable[tuple[int, int]]) -> Outcome:
        """As `penstock.client.Client.prioritize`."""
        return await self._do(calls.prioritize(pairs))

    async def memo(self, job: int, memo: Mapping[str, Any]) -> None:
        """As `penstock.client.Client.memo`."""
        await self._do(calls.order("job-manager.memo", {"id": job, "memo": dict(memo)}))

    async def update(self, job: int, *, duration: float) -> None:
        """As `penstock.client.Client.update`."""
        await self._do(calls.update(job, duration))

    async def purge(
        self,
        ids: Iterable[int] | None = None,
        *,
        age_limit: float | None = None,
        num_limit: int | None = None,
        force: bool = False,
    ) -> Purged:
        """As `penstock.client.Client.purge`."""
        return await self._do(calls.purge(ids, age_limit, num_limit, force=force))

    # --- queues

    async def queue_list(self) -> list[str]:
        """As `penstock.client.Client.queue_list`."""
        return await self._do(calls.queue_list())

    async def queue_status(self, name: str | None = None) -> QueueStatus:
        """As `penstock.client.Client.queue_status`."""
        return await self._do(calls.queue_status(name))

    async def queue_enable(self, name: str | None = None, *, everything: bool = False) -> None:
        """As `penstock.client.Client.queue_enable`."""
        await self._do(calls.queue_set("enable", name, on=True, everything=everything))

    async def queue_disable(
        self, name: str | None = None, *, reason: str | None = None, everything: bool = False
    ) -> None:
        """As `penstock.client.Client.queue_disable`."""
        await self._do(
            calls.queue_set("enable", name, on=False, everything=everything, reason=reason)
        )

    async def queue_start(self, name: str | None = None, *, everything: bool = False) -> None:
        """As `penstock.client.Client.queue_start`."""
        await self._do(calls.queue_set("start", name, on=True, everything=everything))

    async def queue_stop(
        self, name: str | None = None, *, reason: str | None = None, everything: bool = False
    ) -> None:
        """As `penstock.client.Client.queue_stop`."""
        await self._do(
            calls.queue_set("start", name, on=False, everything=everything, reason=reason)
        )

    async def queue_drain(self, name: str | None = None) -> None:
        """As `penstock.client.Client.queue_drain`."""
        await self._do(calls.queue_wait("drain", name))

    async def queue_idle(self, name: str | None = None) -> None:
        """As `penstock.client.Client.queue_idle`."""
        await self._do(calls.queue_wait("idle", name))

    # --- resources

    async def resource_status(self) -> ResourceStatus:
        """As `penstock.client.Client.resource_status`."""
        return await self._do(calls.resource_status())

    async def sched_status(self) -> SchedStatus:
        """As `penstock.client.Client.sched_status`."""
        return await self._do(calls.sched_status())

    async def drain(self, targets: str, reason: str = "", *, mode: DrainMode | None = None) -> None:
        """As `penstock.client.Client.drain`."""
        await self._do(calls.drain(targets, reason, mode))

    async def undrain(
        self, targets: str, reason: str = "", *, mode: UndrainMode | None = None
    ) -> None:
        """As `penstock.client.Client.undrain`."""
        await self._do(calls.undrain(targets, reason, mode))

    async def resource_history(self, targets: str | None = None) -> list[Event]:
        """As `penstock.client.Client.resource_history`."""
        return await self._do(calls.resource_history(targets))

    # --- what the scheduler expects

    async def explain(self, ids: Iterable[int]) -> Explained:
        """As `penstock.client.Client.explain`."""
        return await self._do(calls.explain(ids))

    async def estimate(
        self, ids: Iterable[int] | None = None, *, max_entries: int = 100
    ) -> Estimates:
        """As `penstock.client.Client.estimate`."""
        return await self._do(calls.estimate(ids, max_entries))

    async def what_if(self, change: Mapping[str, Any]) -> WhatIf:
        """As `penstock.client.Client.what_if`."""
        return await self._do(calls.what_if(change))

    # --- the instance

    async def ping(self, service: str, payload: Mapping[str, Any] | None = None) -> float:
        """As `penstock.client.Client.ping`."""
        began = trio.current_time()
        await self._do(calls.order(f"{service}.ping", payload or {}))
        return trio.current_time() - began

    async def stats(self, service: str = "job-manager") -> dict[str, Any]:
        """As `penstock.client.Client.stats`."""
        return await self._do(calls.plain(f"{service}.stats-get"))

    async def services(self) -> list[ServiceRow]:
        """As `penstock.client.Client.services`."""
        return await self._do(calls.services())

    async def config(self) -> dict[str, Any]:
        """As `penstock.client.Client.config`."""
        return await self._do(calls.plain("config.get"))

    async def config_reload(self, config: Mapping[str, Any]) -> list[str]:
        """As `penstock.client.Client.config_reload`."""
        return await self._do(calls.config_reload(config))

    def dmesg(self, *, follow: bool = False, backlog: bool = True) -> Stream[LogRow]:
        """As `penstock.client.Client.dmesg`."""
        return self._stream(calls.dmesg(follow=follow, backlog=backlog))

    async def log_append(self, text: str, *, level: Level = "info") -> None:
        """As `penstock.client.Client.log_append`."""
        await self._do(calls.log_append(text, level))

    async def log_clear(self, upto: int | None = None) -> None:
        """As `penstock.client.Client.log_clear`."""
        await self._do(calls.log_clear(upto))

    async def shutdown(self) -> None:
        """As `penstock.client.Client.shutdown`."""
        await self._do(calls.order("broker.shutdown"))
