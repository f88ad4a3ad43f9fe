"""The requests that the clients offer by name, each defined once.

A method here builds the request and says how to read its response. The decorators of
`penstock.client.definition` make of it a method of the blocking client, which returns the result,
and of those for Trio and asyncio, where it is awaited. Nothing here sends or receives.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, TypeVar

from penstock._core import URGENCY_DEFAULT
from penstock._core import topic as topics
from penstock.client import calls
from penstock.client.calls import (
    Call,
    CallBatch,
    CallSequence,
    Pipeline,
    StreamCall,
    encoded_jobspec,
    keyed_stream,
    numbered_calls,
    raw_call,
    stream_call,
    submission_list,
    void_call,
)
from penstock.client.definition import (
    batch,
    collect_request,
    collected,
    do_request,
    first,
    merge_request,
    open_request,
    pipelined,
    request,
    sequence,
    streamed,
    submission,
)
from penstock.client.responses import (
    array_reader,
    document_reader,
    expect,
    ids_reader,
    read_bulk_response,
    read_estimates,
    read_events,
    read_explained,
    read_infeasible,
    read_job,
    read_jobs,
    read_no_document,
    read_output,
    read_purged,
    read_queue_status,
    read_resource_status,
    read_row,
    read_rows,
    read_sched_status,
    read_what_if,
)
from penstock.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock._core import IDset
    from penstock.client.calls import Merge, Payload
    from penstock.errors import RpcError
    from penstock.job import Job
    from penstock.jobid import JobId
    from penstock.rows import (
        BulkResponse,
        DrainMode,
        Estimates,
        Event,
        Explained,
        JobRow,
        Level,
        ListOrder,
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
Key = TypeVar("Key")


def _list_jobs(
    ids: Iterable[int] | None,
    constraint: Mapping[str, Any] | None,
    max_entries: int,
    since: float,
    attrs: Sequence[str],
    order: ListOrder,
    skip: int,
) -> StreamCall[JobRow]:
    payload: dict[str, Any] = {"max_entries": max_entries, "attrs": list(attrs), "since": since}
    if skip:
        payload["skip"] = skip
    if ids is not None:
        payload["ids"] = list(ids)
    if ids is None or order != "newest":
        payload["order"] = order
    if constraint is not None:
        payload["constraint"] = constraint
    return StreamCall(topics.job_list.LIST, payload, read_rows)


def _wait(ids: Iterable[int]) -> StreamCall[JobRow]:
    return StreamCall(topics.job_list.WAIT, {"ids": list(ids)}, read_rows)


def _read_jobs(call: StreamCall[JobRow]) -> StreamCall[Job]:
    """The same request, with jobs in place of rows."""
    return StreamCall(call.topic, call.payload, read_jobs)


def _raise(ids: Iterable[int] | None, payload: dict[str, Any]) -> Call[BulkResponse]:
    payload |= {"all": True} if ids is None else {"ids": list(ids)}
    return Call(topics.job_manager.RAISE, payload, read_bulk_response)


def _set_queue(
    topic: str,
    change: dict[str, bool],
    name: str | None,
    *,
    everything: bool,
    reason: str | None = None,
) -> Call[None]:
    payload: dict[str, Any] = {**change, "all": everything}
    if name is not None:
        payload["name"] = name
    if reason:
        payload["reason"] = reason
    return void_call(topic, payload)


class Methods:
    """The requests of a client.

    The class that inherits them has `_first`, `_collect`, `_do_all`, `_pipe` and `_stream`.
    """

    # --- any request

    @do_request
    def do(self, call: Call[T]) -> Call[T]:
        """Sends a request and returns its result.

        Raises:
            RpcError: the service answered with an error.
            WireError: the response is not that of the topic.
            NoInstanceError: the connection was lost.
        """
        return call

    @collect_request
    def collect(self, call: StreamCall[T]) -> StreamCall[T]:
        """Sends a streaming request and returns all its rows.

        Raises:
            RpcError: the stream ended in an error.
            NoInstanceError: the connection was lost.
        """
        return call

    @open_request
    def stream(self, topic: StreamCall[Any] | str, payload: Payload = None) -> StreamCall[Any]:
        """Sends a streaming request; the stream has its responses until the good end (ENODATA).

        Args:
            topic: Service and method, such as `job-list.list`; or a `StreamCall`, whose rows the
                stream has.
            payload: An object, or encoded JSON text.

        Raises:
            RpcError: from the iteration: the stream ended in another error.
            NoInstanceError: the connection was lost.
        """
        return stream_call(topic, payload)

    @batch
    def call_many(
        self, topic: str, payloads: Iterable[Payload]
    ) -> CallBatch[list[dict[str, Any] | RpcError]]:
        """Sends requests without waiting in between, then collects the responses.

        Returns:
            For each request its response, or its error.
        """
        return numbered_calls(topic, payloads)

    @merge_request
    def merge(
        self, requests: Mapping[Key, tuple[str, Payload]]
    ) -> Merge[tuple[Key, dict[str, Any] | RpcError]]:
        """Sends several streaming requests; the result iterates over the responses of all.

        Args:
            requests: Topic and payload of each, by a key of the caller's.

        Returns:
            Key and response in the order of arrival. A stream that fails yields its `RpcError`
            and does not end the others.

        Raises:
            NoInstanceError: the connection was lost.
        """
        return [keyed_stream(key, topic, payload) for key, (topic, payload) in requests.items()]

    @request
    def rpc(self, topic: str, payload: Payload = None) -> Call[dict[str, Any]]:
        """Sends a request and returns its response, `{}` if that is empty.

        Args:
            topic: Service and method, such as `job-list.list`.
            payload: An object, or encoded JSON text.

        Raises:
            RpcError: the service answered with an error.
            NoInstanceError: the connection was lost.
        """
        return raw_call(topic, payload)

    # --- submission

    @submission
    def submit(
        self,
        jobspec: Mapping[str, Any],
        *,
        urgency: int = URGENCY_DEFAULT,
        count: int | None = None,
        flags: int = 0,
        token: str | None = None,
        cc: IDset | str | None = None,
    ) -> Call[JobId | list[JobId]]:
        """Submits a job, or copies of it. They are durable when this returns.

        Args:
            jobspec: Jobspec V1 (RFC 25), for instance from `penstock.jobspec.from_command`.
            urgency: 0 (hold) to 31 (expedite), RFC 30.
            count: The number of copies.
            flags: The flags of the `submit` event (RFC 21).
            token: Names the submission: another one of the same user with this token, within a
                day, adds no jobs and returns the same ids. By default no other one has it.
            cc: In place of `count`: an idset, with a copy for each id. When a copy starts, the id
                takes the place of each `{cc}` in its jobspec.

        Returns:
            The job's id, or with `count` or `cc` the list of ids.

        Raises:
            JobspecError: the jobspec has no JSON form, or exceeds the size limit.
            RpcError: the jobspec is invalid, or the site's policy rejects it; EEXIST: the token
                names another submission.
        """
        return calls.submit(jobspec, urgency, count, flags, token, cc)

    @pipelined
    def submit_many(
        self, jobs: Iterable[Submission], *, token: str | None = None
    ) -> Pipeline[list[list[JobId]]]:
        """Submits many jobspecs as one submission: its jobs appear together, or none does.

        A long list is sent in parts, so that the instance stores jobs while others are encoded. It
        is submitted with the last part; if the client ends before, no job is.

        Args:
            jobs: Mappings with `jobspec` and, as needed, `urgency`, `count` and `flags`.
            token: Names the submission, as that of `submit` does.

        Returns:
            For each the list of its ids.

        Raises:
            JobspecError: jobspecs have no JSON form, or exceed the size limit.
            RpcError: jobspecs are invalid, or the site's policy rejects them; the text has the
                positions in the list, `jobs[3]`, and the reasons. EEXIST: the token names another
                submission.
        """
        return submission_list(jobs, token=token)

    @request
    def feasible(self, jobspec: Mapping[str, Any]) -> Call[str | None]:
        """Asks the scheduler whether a job could ever run here.

        Returns:
            None, or the reason why it could not.

        Raises:
            JobspecError: the jobspec has no JSON form, or exceeds the size limit.
            RpcError: no scheduler is registered (ENOSYS).
        """
        payload = encoded_jobspec({"jobspec": jobspec})
        return Call(topics.sched.FEASIBILITY_CHECK, payload, lambda _: None, read_infeasible)

    # --- jobs: reading

    @collected
    def jobs(
        self,
        *,
        ids: Iterable[int] | None = None,
        constraint: Mapping[str, Any] | None = None,
        max_entries: int = 0,
        since: float = 0.0,
        order: ListOrder = "newest",
        skip: int = 0,
    ) -> StreamCall[Job]:
        """Jobs, without R.

        Args:
            ids: Only these jobs.
            constraint: In the manner of RFC 43, such as `{"states": ["active"]}`.
            max_entries: The maximum number of jobs; 0 for all.
            since: Of the inactive jobs, only those that ended after this time (seconds since the
                epoch).
            order: `newest` first; or by `state`: running jobs, the last to start first, then
                pending ones by position, then inactive ones, the last to end first; or `pending`
                jobs before the running ones.
            skip: The number of jobs to leave out at the begin, for a page of the list.
        """
        return _read_jobs(_list_jobs(ids, constraint, max_entries, since, ("all",), order, skip))

    @streamed
    def iter_jobs(
        self,
        *,
        ids: Iterable[int] | None = None,
        constraint: Mapping[str, Any] | None = None,
        max_entries: int = 0,
        since: float = 0.0,
        order: ListOrder = "newest",
        skip: int = 0,
    ) -> StreamCall[Job]:
        """As `jobs`, job by job as they arrive, for more jobs than fit in memory."""
        return _read_jobs(_list_jobs(ids, constraint, max_entries, since, ("all",), order, skip))

    @sequence
    def job(self, job: int) -> CallSequence[Job]:
        """One job, with the R that it has got, if this user may read it."""
        row = {"id": job, "attrs": ["all"]}
        r = {"id": job, "keys": ["R"], "flags": 0}
        requests: list[Call[Any]] = [
            Call(topics.job_list.LIST_ID, row, read_row),
            Call(topics.job_info.LOOKUP, r, document_reader(["R"]), read_no_document),
        ]
        return CallSequence(requests, read_job)

    @collected
    def job_rows(
        self,
        *,
        ids: Iterable[int] | None = None,
        constraint: Mapping[str, Any] | None = None,
        max_entries: int = 0,
        since: float = 0.0,
        attrs: Sequence[str] = ("all",),
        order: ListOrder = "newest",
        skip: int = 0,
    ) -> StreamCall[JobRow]:
        """As `jobs`, with the rows as they come: dicts with the keys of the messages.

        Args:
            ids: Only these jobs.
            constraint: In the manner of RFC 43.
            max_entries: The maximum number of rows; 0 for all.
            since: Of the inactive jobs, only those that ended after this time.
            attrs: The keys of a row besides `id`.
            order: `newest` or `state`.
            skip: The number of rows to leave out at the begin.
        """
        return _list_jobs(ids, constraint, max_entries, since, attrs, order, skip)

    @streamed
    def iter_job_rows(
        self,
        *,
        ids: Iterable[int] | None = None,
        constraint: Mapping[str, Any] | None = None,
        max_entries: int = 0,
        since: float = 0.0,
        attrs: Sequence[str] = ("all",),
        order: ListOrder = "newest",
        skip: int = 0,
    ) -> StreamCall[JobRow]:
        """As `job_rows`, row by row as they arrive."""
        return _list_jobs(ids, constraint, max_entries, since, attrs, order, skip)

    @request
    def job_row(self, job: int) -> Call[JobRow]:
        """One job's row as it comes."""
        payload = {"id": job, "attrs": ["all"]}
        return Call(topics.job_list.LIST_ID, payload, read_row)

    @request
    def lookup(self, job: int, *keys: str) -> Call[dict[str, str]]:
        """A job's documents as text: `eventlog`, `jobspec`, `R`."""
        payload = {"id": job, "keys": list(keys), "flags": 0}
        return Call(topics.job_info.LOOKUP, payload, document_reader(keys))

    @streamed
    def eventlog(self, job: int, *, follow: bool = False) -> StreamCall[Event]:
        """The events of a job (RFC 18, RFC 21); with `follow`, until the job is inactive."""
        key = "event" if follow else "eventlog"

        def read(response: dict[str, Any]) -> list[Event]:
            return read_events(expect(response, key, str))

        if follow:
            payload = {"id": job, "path": "eventlog", "flags": 0}
            return StreamCall(topics.job_info.EVENTLOG_WATCH, payload, read)
        payload = {"id": job, "keys": ["eventlog"], "flags": 0}
        return StreamCall(topics.job_info.LOOKUP, payload, read, streaming=False)

    @streamed
    def output(
        self, job: int, *, follow: bool = False, streams: Sequence[str] = ("stdout", "stderr")
    ) -> StreamCall[tuple[str, bytes]]:
        """A job's stored output, as pairs of stream name and bytes; with `follow` to its end."""
        payload = {"id": job, "follow": follow, "streams": list(streams)}
        return StreamCall(topics.job_exec.OUTPUT, payload, read_output)

    @streamed
    def wait(self, ids: Iterable[int]) -> StreamCall[Job]:
        """Each job as it becomes inactive, without R."""
        return _read_jobs(_wait(ids))

    @first
    def wait_one(self, job: int) -> StreamCall[Job]:
        """A job once it is inactive, without R."""
        return _read_jobs(_wait([job]))

    @streamed
    def wait_rows(self, ids: Iterable[int]) -> StreamCall[JobRow]:
        """As `wait`, with the rows as they come."""
        return _wait(ids)

    @first
    def wait_row(self, job: int) -> StreamCall[JobRow]:
        """As `wait_one`, with the row as it comes."""
        return _wait([job])

    @request
    def history(self, count: int | None = None) -> Call[list[JobId]]:
        """The ids of this user's newest jobs, newest first.

        Args:
            count: The maximum number of ids; None for the 1,000 newest. More than 1,000 are
                rejected (EINVAL) if the user has more jobs. `jobs` has the others, page by page.
        """
        payload = {"slice": "[:]" if count is None else f"[:{count}]"}
        return Call(topics.job_manager.HISTORY_GET, payload, ids_reader("jobs"))

    # --- jobs: changing

    @request
    def cancel(
        self, ids: Iterable[int] | None = None, *, note: str = "", userid: int | None = None
    ) -> Call[BulkResponse]:
        """Cancels jobs: these, or all active ones (of a user)."""
        payload = {"type": "cancel", "severity": 0, "note": note}
        return _raise(ids, payload | ({} if userid is None else {"userid": userid}))

    @request
    def raise_exception(
        self,
        ids: Iterable[int],
        kind: str,
        *,
        severity: int = 0,
        note: str = "",
        wait_status: int | None = None,
    ) -> Call[BulkResponse]:
        """Raises an exception for jobs (RFC 21).

        Args:
            ids: The jobs.
            kind: The exception's type, a word.
            severity: 0, which ends the job, to 7.
            note: Human-readable text.
            wait_status: The wait status to report for the job, as of `wait`.
        """
        payload = {"type": kind, "severity": severity, "note": note}
        return _raise(ids, payload | ({} if wait_status is None else {"wait_status": wait_status}))

    @request
    def kill(self, ids: Iterable[int], signum: int = signal.SIGTERM) -> Call[BulkResponse]:
        """Sends a signal to the tasks of running jobs."""
        return Call(
            topics.job_manager.KILL, {"ids": list(ids), "signum": signum}, read_bulk_response
        )

    @request
    def urgency(self, ids: Iterable[int], urgency: int) -> Call[BulkResponse]:
        """Changes the urgency of pending jobs, 0 (hold) to 31 (expedite)."""
        return Call(
            topics.job_manager.URGENCY, {"ids": list(ids), "urgency": urgency}, read_bulk_response
        )

    @request
    def prioritize(self, pairs: Iterable[tuple[int, int]]) -> Call[BulkResponse]:
        """Changes the priorities of jobs in one request: pairs of id and 0 to 4294967295."""
        payload = {"jobs": [list(pair) for pair in pairs]}
        return Call(topics.job_manager.PRIORITIZE, payload, read_bulk_response)

    @request
    def memo(self, job: int, memo: Mapping[str, Any]) -> Call[None]:
        """Sets keys of the job's annotations, below `user`; the value None removes a key."""
        return void_call(topics.job_manager.MEMO, {"id": job, "memo": dict(memo)})

    @request
    def update(self, job: int, *, duration: float) -> Call[None]:
        """Changes the time limit of a pending or running job: seconds since its start, 0: none."""
        updates = {"attributes.system.duration": duration}
        return void_call(topics.job_manager.UPDATE, {"id": job, "updates": updates})

    @request
    def purge(
        self,
        ids: Iterable[int] | None = None,
        *,
        age_limit: float | None = None,
        num_limit: int | None = None,
        userid: int | None = None,
        force: bool = False,
    ) -> Call[Purged]:
        """Removes inactive jobs permanently; without `force` it only counts them.

        Args:
            ids: These jobs.
            age_limit: Jobs that ended more than this many seconds ago.
            num_limit: The oldest, until at most this many are left.
            userid: Jobs of this user only, which the limits are about then. None: for the instance
                owner those of all users, for a guest the guest's own.
            force: Whether to remove them.
        """
        payload: dict[str, Any] = {"force": force}
        if userid is not None:
            payload["userid"] = userid
        if ids is not None:
            payload["ids"] = list(ids)
        if age_limit is not None:
            payload["age_limit"] = age_limit
        if num_limit is not None:
            payload["num_limit"] = num_limit
        return Call(topics.job_manager.PURGE, payload, read_purged)

    # --- queues

    @request
    def queue_list(self) -> Call[list[str]]:
        """The names of the queues; empty if there is only the anonymous one."""
        return Call(topics.job_manager.QUEUE_LIST, {}, array_reader("queues", str))

    @request
    def queue_status(self, name: str | None = None) -> Call[QueueStatus]:
        """Whether a queue (None: the anonymous one) is enabled, and whether it is started."""
        payload = {} if name is None else {"name": name}
        return Call(topics.job_manager.QUEUE_STATUS, payload, read_queue_status)

    @request
    def queue_enable(self, name: str | None = None, *, everything: bool = False) -> Call[None]:
        """Enables one queue or all: submissions are accepted."""
        return _set_queue(
            topics.job_manager.QUEUE_ENABLE, {"enable": True}, name, everything=everything
        )

    @request
    def queue_disable(
        self, name: str | None = None, *, reason: str | None = None, everything: bool = False
    ) -> Call[None]:
        """Disables one queue or all; submissions are rejected with `reason`."""
        return _set_queue(
            topics.job_manager.QUEUE_ENABLE,
            {"enable": False},
            name,
            everything=everything,
            reason=reason,
        )

    @request
    def queue_start(self, name: str | None = None, *, everything: bool = False) -> Call[None]:
        """Starts one queue or all: their jobs are scheduled."""
        return _set_queue(
            topics.job_manager.QUEUE_START, {"start": True}, name, everything=everything
        )

    @request
    def queue_stop(
        self, name: str | None = None, *, reason: str | None = None, everything: bool = False
    ) -> Call[None]:
        """Stops one queue or all: their jobs stay pending."""
        return _set_queue(
            topics.job_manager.QUEUE_START,
            {"start": False},
            name,
            everything=everything,
            reason=reason,
        )

    @request
    def queue_drain(self, name: str | None = None) -> Call[None]:
        """Returns once no job is active, or none of a queue."""
        return void_call(topics.job_manager.DRAIN, {} if name is None else {"name": name})

    @request
    def queue_idle(self, name: str | None = None) -> Call[None]:
        """Returns once no job is running, or none of a queue."""
        return void_call(topics.job_manager.IDLE, {} if name is None else {"name": name})

    # --- resources

    @request
    def resource_status(self) -> Call[ResourceStatus]:
        """R, and the drained, offline and excluded targets."""
        return Call(topics.resource.STATUS, None, read_resource_status)

    @request
    def sched_status(self) -> Call[SchedStatus]:
        """The scheduler's resources, and which of them are down and allocated."""
        return Call(topics.resource.SCHED_STATUS, None, read_sched_status)

    @request
    def drain(self, targets: str, reason: str = "", *, mode: DrainMode | None = None) -> Call[None]:
        """Drains targets (an idset of ranks, or a hostlist): no job is allocated there.

        Args:
            targets: Ranks or hosts.
            reason: Human-readable text.
            mode: The treatment of targets that are drained with a reason: `update` skips them,
                `overwrite` replaces the reason, `force-overwrite` the time as well.

        Raises:
            OSError: With `EEXIST` and without `mode`, some are drained with a reason.
        """
        payload = {"targets": targets, "reason": reason}
        return void_call(topics.resource.DRAIN, payload | ({"mode": mode} if mode else {}))

    @request
    def undrain(
        self, targets: str, reason: str = "", *, mode: UndrainMode | None = None
    ) -> Call[None]:
        """Undrains targets: jobs may be allocated there again."""
        payload = {"targets": targets} | ({"reason": reason} if reason else {})
        return void_call(topics.resource.UNDRAIN, payload | ({"mode": mode} if mode else {}))

    @request
    def resource_history(self, targets: str | None = None) -> Call[list[Event]]:
        """The events of the resources, or of some targets: drains and the like."""
        payload = {} if targets is None else {"targets": targets}
        return Call(topics.resource.HISTORY, payload, array_reader("events", dict))

    # --- scheduler queries

    @request
    def explain(self, ids: Iterable[int]) -> Call[Explained]:
        """Asks the scheduler why jobs are pending: numbers, and a sentence.

        Args:
            ids: At most 1,000 jobs.

        Raises:
            RpcError: the scheduler does not answer this (ENOSYS), or there are too many jobs
                (EINVAL).
        """
        return Call(topics.sched.EXPLAIN, {"ids": list(ids)}, read_explained)

    @request
    def estimate(
        self, ids: Iterable[int] | None = None, *, max_entries: int = 100
    ) -> Call[Estimates]:
        """Asks the scheduler when jobs are expected to start.

        An estimate assumes that running jobs end at their time limits and that nothing else is
        submitted.

        Args:
            ids: These jobs, at most 1,000; by default the pending ones, in queue order.
            max_entries: The maximum number of pending jobs; 0 for all, which may take seconds, with
                other requests served meanwhile. A response has at most 32 MiB: about 700,000
                jobs, 250,000 with ranges of starts.

        Raises:
            RpcError: the scheduler does not answer this (ENOSYS), a job is another user's
                (EPERM), the response would be too long (EOVERFLOW, before the estimates are
                made as far as the number of jobs shows it), or too many such requests are
                outstanding (EAGAIN).
        """
        payload: dict[str, Any]
        payload = {"max_entries": max_entries} if ids is None else {"ids": list(ids)}
        return Call(topics.sched.ESTIMATE, payload, read_estimates)

    @request
    def what_if(self, change: Mapping[str, Any]) -> Call[WhatIf]:
        """Asks the scheduler for the effect of a change, without making it.

        Args:
            change: One of `{"submit": jobspec, "urgency": n}`, `{"cancel": job}`,
                `{"down": ranks}`, `{"up": ranks}` (idsets), `{"job": job, "nodes": n}`,
                `{"job": job, "duration": seconds}`, and `{"fit": job}`, which asks for the largest
                node count with which it would start now; jobs are ids of pending jobs.

        Raises:
            RpcError: the scheduler does not answer this (ENOSYS), the change is impossible
                (EINVAL), or too many requests for forecasts are outstanding (EAGAIN).
        """
        return Call(topics.sched.WHAT_IF, dict(change), read_what_if)

    # --- the instance

    @request
    def ping(self, service: str, payload: Mapping[str, Any] | None = None) -> Call[float]:
        """Pings a service; returns the round-trip time in seconds."""
        began = SYSTEM_CLOCK.monotonic()
        return Call(
            f"{service}.{topics.PING}", payload or {}, lambda _: SYSTEM_CLOCK.monotonic() - began
        )

    @request
    def stats(self, service: str = "job-manager") -> Call[dict[str, Any]]:
        """A service's statistics, as the service sends them; their keys are its own."""
        return raw_call(f"{service}.{topics.STATS_GET}")

    @request
    def services(self) -> Call[list[ServiceRow]]:
        """The registered services and the processes that serve them."""
        return Call(topics.service.LIST, None, array_reader("services", dict))

    @request
    def config(self) -> Call[dict[str, Any]]:
        """The instance's effective configuration, as the broker sends it."""
        return raw_call(topics.broker.CONFIG_GET)

    @request
    def config_reload(self, config: Mapping[str, Any]) -> Call[list[str]]:
        """Applies a changed configuration at run time.

        Returns:
            The settings that have changed, such as `resource.exclude`.

        Raises:
            RpcError: the configuration is invalid, or a changed setting needs a restart.
        """
        payload = {"config": dict(config)}
        return Call(topics.broker.CONFIG_RELOAD, payload, array_reader("changed", str))

    @streamed
    def dmesg(self, *, follow: bool = False, backlog: bool = True) -> StreamCall[LogRow]:
        """The lines of the instance's log: past ones (`backlog`), future ones (`follow`)."""
        payload = {"follow": follow, "nobacklog": not backlog, "rows": True}
        return StreamCall(topics.log.DMESG, payload, array_reader("lines", dict))

    @request
    def log_append(self, text: str, *, level: Level = "info") -> Call[None]:
        """Appends a line to the instance's log."""
        return void_call(topics.log.APPEND, {"level": level, "text": text})

    @request
    def log_clear(self, upto: int | None = None) -> Call[None]:
        """Clears the instance's log: all lines, or up to the one with this `sequence`."""
        return void_call(topics.log.CLEAR, {} if upto is None else {"upto": upto})

    @request
    def shutdown(self, *, keep_running: bool = False, restart: bool = False) -> Call[None]:
        """Stops the instance: running jobs are cancelled, pending ones stay for its next start.

        Args:
            keep_running: Running jobs continue; the next start reattaches them.
            restart: The instance starts again with the same options; running jobs continue.
        """
        flags = {"keep_running": keep_running, "restart": restart}
        payload = {name: True for name, is_set in flags.items() if is_set}
        return void_call(topics.broker.SHUTDOWN, payload or None)
