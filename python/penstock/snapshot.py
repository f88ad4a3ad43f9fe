"""Predictions of a scheduler of Penstock for an instance that has another one.

`take` reads resources, running and pending jobs by the public requests of an instance, of Penstock
or of Flux. A scheduler in this process gets them as an instance would send them (RFC 27, RFC 28).
It answers as `sched.explain`, `sched.estimate` and `sched.what-if` do. The instance is not changed.
"""

from __future__ import annotations

import base64
import errno
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from penstock._core import (
    ALLOC_DENY,
    ALLOC_SUCCESS,
    ROLE_OWNER,
    STREAMING,
    URGENCY_DEFAULT,
    Batch,
    Message,
    ResourceSet,
    Scheduler,
    fluid_dothex,
    job_state,
)
from penstock._core import topic as topics
from penstock.client.methods import Methods
from penstock.config import Config
from penstock.config.toml import from_dict
from penstock.errors import ConfigError, Error, RpcError
from penstock.instance.settings import scheduler_settings
from penstock.rows import Estimates, Explained

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from penstock.client import Client
    from penstock.client.calls import Call
    from penstock.rows import JobRow, Reason, StartEstimate, WhatIf

T = TypeVar("T")

OWNER = 0
# The job that stands for resources that are allocated and not those of a running job.
OTHERS_ID = 1
UNLIMITED_RUN_S = 86400.0
MAX_PRIORITY = (1 << 32) - 1
HELD_STATES = ("run", "cleanup")
ATTRS = ("state", "priority", "userid", "t_submit", "expiration", "ranks", "t_run")


@dataclass(frozen=True)
class Snapshot:
    """The resources and jobs of an instance at one time.

    Attributes:
        time: when, in seconds since the epoch.
        resources: all that the scheduler of the instance may use.
        up: the ranks of nodes that are up.
        running: R of the jobs that hold resources, with their expirations, by job.
        pending: the alloc requests (RFC 27) of the jobs that could be started.
        unreadable: the number of pending jobs whose jobspecs this user may not read.
        settings: the scheduler's settings, from the configuration of the instance.
    """

    time: float
    resources: ResourceSet
    up: str
    running: Mapping[int, Mapping[str, Any]]
    pending: Sequence[Mapping[str, Any]]
    unreadable: int
    settings: Mapping[str, Any]

    def trace(self) -> Iterator[dict[str, Any]]:
        """The jobs as a trace for `penstock sim`, which begins at the time of the snapshot.

        Running jobs come first, on their nodes, and run until their expiration. Pending jobs run
        for as long as their time limits permit. Without a limit a job runs for a day.
        """
        for job, r in self.running.items():
            held = ResourceSet(json.dumps(r))
            expiration = r["execution"]["expiration"]
            left = max(expiration - self.time, 0.0) if expiration else None
            yield {
                **_job_times(job, left, MAX_PRIORITY),
                "cores": held.ncores,
                "constraint": {"ranks": [str(held.ranks)]},
            }
        for request in self.pending:
            jobspec = request["jobspec"]
            system = jobspec.get("attributes", {}).get("system", {})
            row = _job_times(request["id"], system.get("duration") or None, request["priority"])
            row["user"] = request["userid"]
            if "queue" in system:
                row["queue"] = system["queue"]
            if "constraints" in system:
                row["constraint"] = system["constraints"]
            yield row | _job_size(jobspec["resources"][0])

    @property
    def policy(self) -> str:
        """The queue policy of the instance's configuration, else `easy`."""
        return str(self.settings["policy"])

    def scheduler(self, policy: str | None = None) -> SnapshotScheduler:
        """A scheduler that has got these resources and jobs, and has run a pass.

        Args:
            policy: the queue policy; by default that of the instance's configuration, else `easy`.
        """
        return SnapshotScheduler(self, policy or self.policy)


def take(client: Client, now: float) -> Snapshot:
    """Reads the resources and jobs of an instance.

    Args:
        client: of the instance.
        now: the time, in seconds since the epoch.

    Raises:
        RpcError: the instance lacks one of the requests, or rejects it.
        Error: a response is not what the request has.
    """
    status = client.sched_status()
    resources, down = ResourceSet(status["all"]), ResourceSet(status["down"])
    rows = client.job_rows(constraint={"states": ["sched", *HELD_STATES]}, attrs=ATTRS)
    running = _running(client, [row for row in rows if row["state"] != job_state.SCHED], resources)
    others = ResourceSet(status["allocated"])
    for r in running.values():
        others -= ResourceSet(json.dumps(r))
    if others.ranks:
        # Such as those of a housekeeping script. They are expected back at any time.
        running[OTHERS_ID] = _with_expiration(json.loads(others.encode()), now)
    # A job of priority 0 is held: the job manager sends no alloc request for it.
    queued = [row for row in rows if row["state"] == job_state.SCHED and row.get("priority")]
    pending = _pending(client, queued)
    return Snapshot(
        time=now,
        resources=resources,
        up=str(resources.ranks - down.ranks),
        running=running,
        pending=pending,
        unreadable=len(queued) - len(pending),
        settings=_settings(client, resources),
    )


def _running(
    client: Client, rows: Sequence[JobRow], resources: ResourceSet
) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for row, r in zip(rows, _documents(client, rows, "R"), strict=True):
        if r is None and row.get("ranks"):
            # Another user's job: all of its nodes.
            r = resources.restrict(ranks=row["ranks"]).encode()
        if r is not None:
            found[row["id"]] = _with_expiration(json.loads(r), row.get("expiration") or 0.0)
    return found


def _with_expiration(r: dict[str, Any], expiration: float) -> dict[str, Any]:
    """R with the expiration that holds now: that of the document is of the job's start."""
    return {**r, "execution": {**r["execution"], "expiration": expiration}}


def _pending(client: Client, rows: Sequence[JobRow]) -> list[dict[str, Any]]:
    return [
        {
            "id": row["id"],
            "priority": row["priority"],
            "userid": row["userid"],
            "t_submit": row["t_submit"],
            "jobspec": json.loads(jobspec),
        }
        for row, jobspec in zip(rows, _documents(client, rows, "jobspec"), strict=True)
        if jobspec is not None
    ]


def _documents(client: Client, rows: Sequence[JobRow], key: str) -> list[str | None]:
    """A document of each job; None if this user may not read it, or the job has gone."""
    payloads = [{"id": row["id"], "keys": [key], "flags": 0} for row in rows]
    responses = client.call_many(topics.job_info.LOOKUP, payloads)
    return [None if isinstance(each, RpcError) else each[key] for each in responses]


def _job_times(job: int, limit: float | None, priority: int) -> dict[str, Any]:
    run = UNLIMITED_RUN_S if limit is None else limit
    return {"id": job, "submit": 0, "run": run, "limit": limit, "priority": priority}


def _job_size(resource: Mapping[str, Any]) -> dict[str, Any]:
    """The size of a job of a trace, from the only resource of a jobspec V1 (RFC 25)."""
    size: dict[str, Any] = {}
    if resource["type"] == "node":
        size = {"nodes": resource["count"], "exclusive": bool(resource.get("exclusive"))}
        resource = resource["with"][0]
    counts = {each["type"]: each["count"] for each in resource["with"]}
    return size | {
        "slots": resource["count"],
        "cores_per_slot": counts.get("core", 1),
        "gpus_per_slot": counts.get("gpu", 0),
    }


def _settings(client: Client, resources: ResourceSet) -> dict[str, Any]:
    document = client.config()
    keys = ("queues", "policy", "penstock")
    known: dict[str, Any] = {key: value for key, value in document.items() if key in keys}
    try:
        config = from_dict(known, "the configuration of the instance")
    except ConfigError:
        # Flux has keys that Penstock has not: without queues all jobs share one order.
        config = Config()
    return scheduler_settings(config, resources)


class SnapshotScheduler:
    """A scheduler of Penstock on a snapshot, with the queries of a client.

    Args:
        snapshot: resources, jobs, settings.
        policy: the queue policy.

    Attributes:
        started: The jobs that the pass has started, in that order.
        denied: Why jobs would be denied.
    """

    def __init__(self, snapshot: Snapshot, policy: str) -> None:
        self._snapshot = snapshot
        settings = {**snapshot.settings, "policy": policy}
        self._scheduler = Scheduler(grow=False, settings=json.dumps(settings))
        self.started: list[int] = []
        self.denied: dict[int, str] = {}
        self._scheduler.start()
        self._converse()
        requests = [
            Message.request(
                topics.sched.ALLOC,
                request,
                matchtag=tag,
                userid=OWNER,
                rolemask=ROLE_OWNER,
                flags=STREAMING,
            )
            for tag, request in enumerate(snapshot.pending, 1)
        ]
        self._scheduler.handle(Batch(requests))
        while self._scheduler.schedule(snapshot.time):
            self._converse()
        self._converse()

    # --- the queries

    def explain(self, ids: Iterable[int]) -> Explained:
        """As `Client.explain`."""
        ids = list(ids)
        explained = self._ask(Methods.explain.call(self._undecided(ids)))
        reasons = {reason["id"]: reason for reason in explained.reasons}
        for job in ids:
            if (reason := self._decided(job)) is not None:
                reasons[job] = reason
        return Explained([reasons[job] for job in ids if job in reasons], explained.errors)

    def estimate(self, ids: Iterable[int] | None = None, *, max_entries: int = 100) -> Estimates:
        """As `Client.estimate`. Jobs that would be started now are the first without `ids`."""
        wanted = None if ids is None else list(ids)
        call = Methods.estimate.call(
            None if wanted is None else self._undecided(wanted), max_entries=max_entries
        )
        estimates = self._ask(call)
        decided = [*self.started, *self.denied] if wanted is None else wanted
        first: list[StartEstimate] = [
            {"id": job, "start": reason.get("start"), "reason": reason["reason"]}
            for job in decided
            if (reason := self._decided(job)) is not None
        ]
        return estimates._replace(jobs=[*first, *estimates.jobs][: max_entries or None])

    def what_if(self, change: Mapping[str, Any]) -> WhatIf:
        """As `Client.what_if`.

        Raises:
            RpcError: the change is impossible, or is one of a job that would not be pending.
        """
        for key in ("cancel", "fit", "job"):
            if (reason := self._decided(change.get(key, 0))) is not None:
                raise RpcError(errno.EINVAL, reason["reason"])
        return self._ask(Methods.what_if.call(change))

    def _undecided(self, ids: Iterable[int]) -> list[int]:
        return [job for job in ids if self._decided(job) is None]

    def _decided(self, job: int) -> Reason | None:
        """The answer about a job that the pass has started or denied."""
        now = self._snapshot.time
        if job in self.denied:
            reason = f"it would be denied: {self.denied[job]}"
            return {"id": job, "kind": "denied", "reason": reason, "details": {}, "start": None}
        if job in self.started:
            reason = "it fits now: a scheduler of Penstock would start it"
            return {"id": job, "kind": "start", "reason": reason, "details": {}, "start": now}
        return None

    def _ask(self, call: Call[T]) -> T:
        request = Message.request(
            call.topic, call.payload, matchtag=1, userid=OWNER, rolemask=ROLE_OWNER
        )
        self._scheduler.handle(Batch([request]))
        while self._scheduler.schedule(self._snapshot.time):
            pass
        for message in self._scheduler.take_out():
            if message.kind == "response" and message.topic == call.topic:
                return call.result(message)
        raise Error(f"no response to {call.topic}")

    # --- the instance's end of the conversation

    def _converse(self) -> None:
        """Answers what the scheduler sends until it sends nothing more."""
        while out := self._scheduler.take_out():
            responses = Batch()
            for message in out:
                if message.kind == "request":
                    responses.extend(Batch(self._responses(message)))
                elif message.topic == topics.sched.ALLOC:
                    self._take_decision(message.object())
            self._scheduler.handle(responses)
        if self._scheduler.failure is not None:
            raise Error(f"the snapshot cannot be scheduled: {self._scheduler.failure}")

    def _take_decision(self, response: dict[str, Any]) -> None:
        if response["type"] == ALLOC_SUCCESS:
            self.started.append(response["id"])
        elif response["type"] == ALLOC_DENY:
            self.denied[response["id"]] = response.get("note") or ""

    def _responses(self, request: Message) -> list[Message]:
        snapshot = self._snapshot
        match request.topic:
            case topics.resource.ACQUIRE:
                resources = json.loads(snapshot.resources.encode())
                return [request.respond({"resources": resources, "up": snapshot.up})]
            case topics.job_manager.SCHED_HELLO:
                jobs = [
                    {"id": job, "priority": URGENCY_DEFAULT, "userid": OWNER, "t_submit": 0.0}
                    for job in snapshot.running
                ]
                return [*map(request.respond, jobs), request.respond(errnum=errno.ENODATA)]
            case topics.kvs.LOOKUP:
                return [request.respond({"val": _value(self._r(request.object()["key"]))})]
            case topics.job_manager.SCHED_READY:
                return [request.respond({"count": len(snapshot.pending)})]
            case _:
                return [request.respond()]

    def _r(self, key: str) -> Mapping[str, Any]:
        return next(
            r for job, r in self._snapshot.running.items() if key == f"job.{fluid_dothex(job)}.R"
        )


def _value(r: Mapping[str, Any]) -> dict[str, Any]:
    """A value of the KVS (RFC 11)."""
    data = base64.b64encode(json.dumps(r).encode()).decode()
    return {"ver": 1, "type": "val", "data": data}
