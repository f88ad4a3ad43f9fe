"""The state of an instance that `penstock top` shows: utilisation, jobs, nodes and queues."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock._core import Hostlist, IDset, topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.client import Client
    from penstock.rows import JobRow, ResourceStatus, SchedStatus

MAX_JOBS = 1000


@dataclass(frozen=True)
class Amounts:
    """Nodes, cores and gpus."""

    nodes: int = 0
    cores: int = 0
    gpus: int = 0


@dataclass(frozen=True)
class NodeRow:
    """A node: its rank and host, its state, used and existing cores and gpus."""

    rank: int
    host: str
    state: str
    used: Amounts
    total: Amounts
    reason: str = ""


@dataclass(frozen=True)
class QueueRow:
    """A queue: whether it accepts and starts jobs, and its pending and running jobs."""

    name: str
    is_enabled: bool
    is_started: bool
    pending: int
    running: int
    reason: str = ""


@dataclass(frozen=True)
class Snapshot:
    """The responses of an instance at one time.

    Attributes:
        now: seconds since the epoch.
        total: all resources.
        used: the allocated ones, and the nodes with a job.
        down: offline, excluded and drained ones.
        pending: the number of jobs, of all users.
        running: the number of jobs, of all users.
        inactive: the number of jobs, of all users.
        jobs: the first `MAX_JOBS` of the requested ones.
        nodes: empty if they were not requested.
        queues: the anonymous one has the name `-`.
    """

    now: float
    total: Amounts = Amounts()
    used: Amounts = Amounts()
    down: Amounts = Amounts()
    pending: int = 0
    running: int = 0
    inactive: int = 0
    jobs: Sequence[JobRow] = ()
    nodes: Sequence[NodeRow] = ()
    queues: Sequence[QueueRow] = field(default=())


def snapshot(
    client: Client, now: float, constraint: dict[str, Any], *, with_nodes: bool
) -> Snapshot:
    """Requests the state of the instance.

    Args:
        client: of the instance.
        now: seconds since the epoch.
        constraint: the jobs (RFC 43).
        with_nodes: whether to have a row for each node.

    Raises:
        RpcError: a service answered with an error.
        NoInstanceError: the connection was lost.
    """
    counts = client.rpc(topic.job_list.JOB_STATS)
    sched = client.sched_status()
    parts = {name: _by_rank(sched[name]) for name in ("all", "down", "allocated")}
    return Snapshot(
        now=now,
        total=_sum(parts["all"]),
        used=_sum(parts["allocated"]),
        down=_sum(parts["down"]),
        **_numbers(counts["job_states"]),
        jobs=client.job_rows(constraint=constraint, max_entries=MAX_JOBS, order="state"),
        nodes=_nodes(client.resource_status(), parts, sched) if with_nodes else (),
        queues=_queues(client, counts),
    )


def _numbers(states: dict[str, int]) -> dict[str, int]:
    return {
        "pending": states["depend"] + states["priority"] + states["sched"],
        "running": states["run"] + states["cleanup"],
        "inactive": states["inactive"],
    }


def _by_rank(document: dict[str, Any]) -> dict[int, Amounts]:
    """Cores and gpus by rank, of an R (RFC 20)."""
    found: dict[int, Amounts] = {}
    for entry in document["execution"]["R_lite"]:
        children = entry["children"]
        cores = len(IDset(str(children.get("core", ""))))
        gpus = len(IDset(str(children.get("gpu", ""))))
        found |= dict.fromkeys(IDset(str(entry["rank"])), Amounts(1, cores, gpus))
    return found


def _sum(parts: dict[int, Amounts]) -> Amounts:
    values = parts.values()
    return Amounts(len(parts), sum(part.cores for part in values), sum(p.gpus for p in values))


def node_rows(status: ResourceStatus, sched: SchedStatus) -> list[NodeRow]:
    """A row for each node, by rank."""
    parts = {name: _by_rank(sched[name]) for name in ("all", "allocated")}
    return _nodes(status, parts, sched)


def _nodes(
    status: ResourceStatus, parts: dict[str, dict[int, Amounts]], sched: SchedStatus
) -> list[NodeRow]:
    document = status["R"]
    totals, allocated = parts["all"] | _by_rank(document), parts["allocated"]
    hosts = _hosts(document) | _hosts(sched["all"])
    offline, exclude = IDset(status["offline"]), IDset(status["exclude"])
    reasons = {
        rank: drain["reason"] for ranks, drain in status["drain"].items() for rank in IDset(ranks)
    }
    rows = []
    for rank, total in sorted(totals.items()):
        used = allocated.get(rank, Amounts())
        if rank in offline:
            state = "offline"
        elif rank in exclude:
            state = "excluded"
        elif rank in reasons:
            state = "draining" if used.nodes else "drained"
        elif used.nodes:
            state = "allocated" if used.cores >= total.cores else "mixed"
        else:
            state = "free"
        rows.append(
            NodeRow(rank, hosts.get(rank, ""), state, used, total, reasons.get(rank, "") or "")
        )
    return rows


def _hosts(document: dict[str, Any]) -> dict[int, str]:
    execution = document["execution"]
    ranks = [rank for entry in execution["R_lite"] for rank in IDset(str(entry["rank"]))]
    hosts = [host for text in execution.get("nodelist", []) if text for host in Hostlist(text)]
    # RFC 20: the hosts are in the order of the ranks.
    return dict(zip(sorted(ranks), hosts, strict=False))


def _queues(client: Client, counts: dict[str, Any]) -> list[QueueRow]:
    by_name = {queue.get("name"): queue["job_states"] for queue in counts["queues"]}
    rows = []
    names: list[str | None] = [*client.queue_list()]
    for name in names or [None]:
        status = client.queue_status(name)
        if name is None:
            numbers = _numbers(counts["job_states"])
        else:
            numbers = _numbers(by_name[name]) if name in by_name else {"pending": 0, "running": 0}
        reasons = [status.get("disable_reason"), status.get("stop_reason")]
        rows.append(
            QueueRow(
                name=name or "-",
                is_enabled=status["enable"],
                is_started=status["start"],
                pending=numbers["pending"],
                running=numbers["running"],
                reason="; ".join(reason for reason in reasons if reason),
            )
        )
    return rows
