"""The blocking client; see `penstock.client`."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any, overload

from penstock.client import calls
from penstock.client.calls import submissions
from penstock.client.connection import Connection, NoInstanceError, Stream, connect
from penstock.errors import JobspecError, RpcError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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


class Client(Connection):
    """A connection to an instance, and what can be asked over it.

    Every method raises `RpcError` with what the instance says against the request, and
    `NoInstanceError` where the connection is lost.

    Args:
        uri: `local:///path`; by default `$PENSTOCK_URI`, else the default socket.
        timeout: seconds to wait for each message; None waits for as long as it takes.

    Raises:
        NoInstanceError: nobody listens there.
    """

    # --- submission

    @overload
    def submit(
        self,
        jobspec: Mapping[str, Any],
        *,
        urgency: int = 16,
        count: None = None,
        flags: int = 0,
    ) -> int: ...

    @overload
    def submit(
        self, jobspec: Mapping[str, Any], *, urgency: int = 16, count: int, flags: int = 0
    ) -> list[int]: ...

    def submit(
        self,
        jobspec: Mapping[str, Any],
        *,
        urgency: int = 16,
        count: int | None = None,
        flags: int = 0,
    ) -> int | list[int]:
        """Submits a job, or `count` copies of it. They are on disk when this returns.

        Args:
            jobspec: jobspec V1 (RFC 25), for instance from `penstock.jobspec.from_command`.
            urgency: 0 (hold) to 31 (expedite), RFC 30.
            count: how many copies.
            flags: for the `submit` event.

        Returns:
            The job's id, or with `count` the list of ids.

        Raises:
            JobspecError: the jobspec has no JSON form, or is too large to be sent.
            RpcError: the jobspec is invalid, or the site's policy does not allow it.
        """
        return self._do(calls.submit(jobspec, urgency, count, flags))

    def submit_many(self, jobs: Iterable[Submission]) -> list[list[int] | RpcError | JobspecError]:
        """Submits many jobspecs in as few requests as they fit in.

        Args:
            jobs: mappings with `jobspec` and, as needed, `urgency`, `count` and `flags`.

        Returns:
            For each the list of its ids, or its error: one bad jobspec does not harm the others.
            `RpcError` is the instance's, `JobspecError` that of one that cannot be sent.
        """
        many = submissions(jobs)
        answers: list[dict[str, Any] | RpcError] = []
        for request in many.requests:
            answers += self.call_many("job-ingest.submit", [request.payload])
        return many.results(answers)

    def feasible(self, jobspec: Mapping[str, Any]) -> str | None:
        """Asks the scheduler whether a job could ever run here.

        Returns:
            None, or the reason why it could not.

        Raises:
            JobspecError: the jobspec has no JSON form, or is too large to be sent.
            RpcError: there is no scheduler to ask (ENOSYS).
        """
        try:
            self._do(calls.feasible(jobspec))
        except RpcError as error:
            return calls.infeasible(error)
        return None

    # --- jobs: what is known

    def jobs(
        self,
        *,
        ids: Iterable[int] | None = None,
        constraint: Mapping[str, Any] | None = None,
        max_entries: int = 0,
        since: float = 0.0,
        attrs: Sequence[str] = ("all",),
    ) -> list[JobRow]:
        """Jobs as rows, newest first.

        Args:
            ids: only these jobs.
            constraint: in the manner of RFC 43, such as `{"states": ["active"]}`.
            max_entries: at most so many; 0 for all.
            since: of the inactive jobs those that ended after this time.
            attrs: the keys that are wanted besides the id.
        """
        return list(self._stream(calls.jobs(ids, constraint, max_entries, since, attrs)))

    def iter_jobs(
        self,
        *,
        ids: Iterable[int] | None = None,
        constraint: Mapping[str, Any] | None = None,
        max_entries: int = 0,
        since: float = 0.0,
        attrs: Sequence[str] = ("all",),
    ) -> Stream[JobRow]:
        """As `jobs`, row by row as they come: for more of them than one wants to hold."""
        return self._stream(calls.jobs(ids, constraint, max_entries, since, attrs))

    def info(self, job: int) -> JobRow:
        """One job's row."""
        return self._do(calls.info(job))

    def lookup(self, job: int, *keys: str) -> dict[str, str]:
        """A job's documents as text: `eventlog`, `jobspec`, `R`."""
        return self._do(calls.lookup(job, keys))

    def eventlog(self, job: int, *, follow: bool = False) -> Stream[Event]:
        """The events of a job (RFC 18, RFC 21); with `follow` until the job is over."""
        return self._stream(calls.eventlog(job, follow=follow))

    def output(
        self, job: int, *, follow: bool = False, streams: Sequence[str] = ("stdout", "stderr")
    ) -> Stream[tuple[str, bytes]]:
        """A job's kept output, as pairs of stream name and bytes; with `follow` to its end."""
        return self._stream(calls.output(job, streams, follow=follow))

    def wait(self, ids: Iterable[int]) -> Stream[JobRow]:
        """Each job's row as the job becomes inactive."""
        return self._stream(calls.wait(ids))

    def wait_one(self, job: int) -> JobRow:
        """A job's row once it is inactive."""
        with self._stream(calls.wait([job])) as rows:
            return next(rows)

    def history(self, count: int | None = None) -> list[int]:
        """The ids of this user's newest jobs, newest first: so many, or all."""
        return self._do(calls.history(count))

    # --- jobs: what is done to them

    def cancel(
        self, ids: Iterable[int] | None = None, *, note: str = "", userid: int | None = None
    ) -> Outcome:
        """Cancels jobs: these, or all active ones (of a user)."""
        return self._do(calls.raise_exception(ids, "cancel", 0, note, userid))

    def raise_exception(
        self,
        ids: Iterable[int],
        kind: str,
        *,
        severity: int = 0,
        note: str = "",
        wait_status: int | None = None,
    ) -> Outcome:
        """Raises an exception for jobs (RFC 21).

        Args:
            ids: the jobs.
            kind: the exception's type, a word.
            severity: 0, which ends the job, to 7.
            note: for people.
            wait_status: what the job is to have ended with, as of `wait`.
        """
        call = calls.raise_exception(ids, kind, severity, note, wait_status=wait_status)
        return self._do(call)

    def kill(self, ids: Iterable[int], signum: int = signal.SIGTERM) -> Outcome:
        """Sends a signal to the tasks of running jobs."""
        return self._do(calls.kill(ids, signum))

    def urgency(self, ids: Iterable[int], urgency: int) -> Outcome:
        """Gives pending jobs another urgency, 0 (hold) to 31 (expedite)."""
        return self._do(calls.urgency(ids, urgency))

    def prioritize(self, pairs: Iterable[tuple[int, int]]) -> Outcome:
        """Gives jobs other priorities, all in one request: pairs of id and 0 to 4294967295."""
        return self._do(calls.prioritize(pairs))

    def memo(self, job: int, memo: Mapping[str, Any]) -> None:
        """Notes keys and values in the job's annotations, below `user`; None takes a key out."""
        self._do(calls.order("job-manager.memo", {"id": job, "memo": dict(memo)}))

    def update(self, job: int, *, duration: float) -> None:
        """Gives a pending or running job another time limit: seconds since its start, 0: none."""
        self._do(calls.update(job, duration))

    def purge(
        self,
        ids: Iterable[int] | None = None,
        *,
        age_limit: float | None = None,
        num_limit: int | None = None,
        force: bool = False,
    ) -> Purged:
        """Removes inactive jobs for good; without `force` it only counts them.

        Args:
            ids: these jobs.
            age_limit: those that ended more than so many seconds ago.
            num_limit: the oldest, until at most so many are left.
            force: whether to do it.
        """
        return self._do(calls.purge(ids, age_limit, num_limit, force=force))

    # --- queues

    def queue_list(self) -> list[str]:
        """The names of the queues; none where there is only the anonymous one."""
        return self._do(calls.queue_list())

    def queue_status(self, name: str | None = None) -> QueueStatus:
        """Whether a queue (None: the anonymous one) takes jobs, and whether it starts them."""
        return self._do(calls.queue_status(name))

    def queue_enable(self, name: str | None = None, *, everything: bool = False) -> None:
        """Lets a queue, or every queue, take jobs."""
        self._do(calls.queue_set("enable", name, on=True, everything=everything))

    def queue_disable(
        self, name: str | None = None, *, reason: str | None = None, everything: bool = False
    ) -> None:
        """Lets a queue, or every queue, take no more jobs: they are refused with the reason."""
        self._do(calls.queue_set("enable", name, on=False, everything=everything, reason=reason))

    def queue_start(self, name: str | None = None, *, everything: bool = False) -> None:
        """Lets the jobs of a queue, or of every queue, start."""
        self._do(calls.queue_set("start", name, on=True, everything=everything))

    def queue_stop(
        self, name: str | None = None, *, reason: str | None = None, everything: bool = False
    ) -> None:
        """Lets no more jobs of a queue, or of any queue, start."""
        self._do(calls.queue_set("start", name, on=False, everything=everything, reason=reason))

    def queue_drain(self, name: str | None = None) -> None:
        """Returns when no job is active, or none of a queue."""
        self._do(calls.queue_wait("drain", name))

    def queue_idle(self, name: str | None = None) -> None:
        """Returns when no job is running, or none of a queue."""
        self._do(calls.queue_wait("idle", name))

    # --- resources

    def resource_status(self) -> ResourceStatus:
        """R, and the drained, offline and excluded targets."""
        return self._do(calls.resource_status())

    def sched_status(self) -> SchedStatus:
        """What the scheduler may use, and what of that is down and allocated."""
        return self._do(calls.sched_status())

    def drain(self, targets: str, reason: str = "", *, mode: DrainMode | None = None) -> None:
        """Keeps targets (an idset of ranks, or a hostlist) from getting jobs.

        Args:
            targets: ranks or hosts; those that are drained already are left as they are.
            reason: for people.
            mode: what to do with those that are drained already instead.
        """
        self._do(calls.drain(targets, reason, mode))

    def undrain(self, targets: str, reason: str = "", *, mode: UndrainMode | None = None) -> None:
        """Lets drained targets have jobs again."""
        self._do(calls.undrain(targets, reason, mode))

    def resource_history(self, targets: str | None = None) -> list[Event]:
        """What has happened to the resources, or to some of them: drains and the like."""
        return self._do(calls.resource_history(targets))

    # --- what the scheduler expects

    def explain(self, ids: Iterable[int]) -> Explained:
        """Asks the scheduler why jobs wait, with the numbers and as a sentence.

        Raises:
            RpcError: there is no scheduler that answers this (ENOSYS), or a job is another user's
                (EPERM).
        """
        return self._do(calls.explain(ids))

    def estimate(self, ids: Iterable[int] | None = None, *, max_entries: int = 100) -> Estimates:
        """Asks the scheduler when jobs are expected to start.

        An estimate takes running jobs to end at their time limits and nothing more to be submitted.

        Args:
            ids: these jobs; by default those that wait, from the first in the queue on.
            max_entries: of those at most so many; 0 for all, which may take seconds.

        Raises:
            RpcError: there is no scheduler that answers this (ENOSYS), or a job is another user's
                (EPERM).
        """
        return self._do(calls.estimate(ids, max_entries))

    def what_if(self, change: Mapping[str, Any]) -> WhatIf:
        """Asks the scheduler what would come of a change, which is not made.

        Args:
            change: one of `{"submit": jobspec, "urgency": n}`, `{"cancel": job}`,
                `{"down": ranks}`, `{"up": ranks}` (idsets), `{"job": job, "nodes": n}`,
                `{"job": job, "duration": seconds}`, and `{"fit": job}`, which asks with how many
                nodes it would start now; jobs are ids, of jobs that wait.

        Raises:
            RpcError: there is no scheduler that answers this (ENOSYS), or the change cannot be
                (EINVAL).
        """
        return self._do(calls.what_if(change))

    # --- the instance

    def ping(self, service: str, payload: Mapping[str, Any] | None = None) -> float:
        """Has a service answer; returns how many seconds that took."""
        began = time.perf_counter()
        self._do(calls.order(f"{service}.ping", payload or {}))
        return time.perf_counter() - began

    def stats(self, service: str = "job-manager") -> dict[str, Any]:
        """What a service tells of itself, in its own words."""
        return self._do(calls.plain(f"{service}.stats-get"))

    def services(self) -> list[ServiceRow]:
        """The services and who serves them."""
        return self._do(calls.services())

    def config(self) -> dict[str, Any]:
        """The instance's effective configuration."""
        return self._do(calls.plain("config.get"))

    def config_reload(self, config: Mapping[str, Any]) -> list[str]:
        """Gives the instance another configuration, as far as that is possible while it runs.

        Returns:
            The settings that have changed, such as `resource.exclude`.
        """
        return self._do(calls.config_reload(config))

    def dmesg(self, *, follow: bool = False, backlog: bool = True) -> Stream[LogRow]:
        """The lines of the instance's log: those kept (`backlog`), those to come (`follow`)."""
        return self._stream(calls.dmesg(follow=follow, backlog=backlog))

    def log_append(self, text: str, *, level: Level = "info") -> None:
        """Puts a line into the instance's log."""
        self._do(calls.log_append(text, level))

    def log_clear(self, upto: int | None = None) -> None:
        """Forgets the lines of the instance's log: all, or up to the one with this `sequence`."""
        self._do(calls.log_clear(upto))

    def shutdown(self) -> None:
        """Stops the instance: running jobs are cancelled, pending ones stay for its next start."""
        self._do(calls.order("broker.shutdown"))
