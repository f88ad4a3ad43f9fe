"""The metrics of an instance: the statistics of its services as OpenMetrics text.

`FAMILIES` is the list of metrics. Each is a value in the response of a service to `stats-get`, so
`penstock stats --openmetrics` and the daemon's listener for monitoring systems say the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from penstock._core import IDset

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

MetricType = Literal["counter", "gauge", "histogram", "info"]


@dataclass(frozen=True)
class Family:
    """A metric.

    Attributes:
        name: by the conventions of Prometheus: with the unit, without `_total`.
        kind: its type in OpenMetrics.
        doc: what it is.
        service: the service whose statistics have it.
        path: the keys of its value in these, with dots between.
        labels: the label of each level of keys below that.
    """

    name: str
    kind: MetricType
    doc: str
    service: str
    path: str
    labels: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        """The unit in the name; empty for a number of things."""
        return next((unit for unit in ("seconds", "bytes") if self.name.endswith(f"_{unit}")), "")

    @property
    def sample(self) -> str:
        """The name of the metric in queries; of a histogram, the one with `_bucket`."""
        suffix = {"counter": "_total", "histogram": "_bucket", "info": "_info"}
        return self.name + suffix.get(self.kind, "")


# Whether a service has answered.
SERVICE_UP = Family(
    "penstock_service_up",
    "gauge",
    "Whether the service has answered: 1 or 0.",
    "",
    "",
    ("service",),
)

FAMILIES = (
    Family("penstock_build", "info", "The version of the daemon.", "broker", "build"),
    SERVICE_UP,
    # The jobs.
    Family(
        "penstock_jobs",
        "gauge",
        "Jobs by state. Inactive jobs count until they are purged.",
        "job-manager",
        "states",
        ("state",),
    ),
    Family(
        "penstock_queue_jobs",
        "gauge",
        "Active jobs of each named queue, pending and running.",
        "job-manager",
        "queues",
        ("queue", "state"),
    ),
    Family("penstock_jobs_submitted", "counter", "Submitted jobs.", "job-manager", "submitted"),
    Family(
        "penstock_jobs_ended",
        "counter",
        "Jobs that became inactive, by result.",
        "job-manager",
        "ended",
        ("result",),
    ),
    Family("penstock_jobs_purged", "counter", "Purged jobs.", "job-manager", "purged"),
    Family(
        "penstock_job_stage_seconds",
        "histogram",
        "Duration of the stages of jobs: `pending` from submission to allocation, `start` from "
        "there to the start of the tasks, `run` from the allocation to the end of the tasks, "
        "`cleanup` from there to the end of the job; a job that ends before it is allocated is in "
        "none of them.",
        "job-manager",
        "stages",
        ("stage",),
    ),
    Family(
        "penstock_alloc_requests_outstanding",
        "gauge",
        "Pending jobs whose alloc request the scheduler has.",
        "job-manager",
        "sched.requested",
    ),
    Family(
        "penstock_alloc_requests_unsent",
        "gauge",
        "Pending jobs whose alloc request is not sent yet.",
        "job-manager",
        "sched.queued",
    ),
    Family(
        "penstock_start_requests_unsent",
        "gauge",
        "Jobs with resources whose start request is due and not sent.",
        "job-manager",
        "exec.queued",
    ),
    Family(
        "penstock_followers",
        "gauge",
        "Clients' requests that follow the eventlog of a job.",
        "job-manager",
        "outstanding.followers",
    ),
    Family(
        "penstock_waits",
        "gauge",
        "Clients' requests that await the end of jobs.",
        "job-manager",
        "outstanding.waits",
    ),
    Family(
        "penstock_submissions_rejected",
        "counter",
        "Requests to the job manager that a limit has rejected.",
        "job-manager",
        "rejected",
        ("limit",),
    ),
    Family(
        "penstock_submission_seconds",
        "histogram",
        "Duration of submissions, from the request or the first part of a list until all jobs are "
        "durable. Rejected submissions do not count.",
        "job-manager",
        "submissions",
    ),
    # The scheduler.
    Family(
        "penstock_sched_jobs_pending",
        "gauge",
        "Pending jobs in the scheduler's queues.",
        "sched",
        "queued",
    ),
    Family("penstock_sched_jobs_running", "gauge", "Jobs with resources.", "sched", "running"),
    Family(
        "penstock_sched_pass_seconds",
        "histogram",
        "Duration of the scheduler's passes, with the answers to queries.",
        "sched",
        "passes",
    ),
    # The resources.
    Family("penstock_nodes", "gauge", "Nodes of the inventory.", "resource", "ranks"),
    Family(
        "penstock_nodes_up",
        "gauge",
        "Nodes on which jobs can be started: online and not drained.",
        "resource",
        "up",
    ),
    Family("penstock_nodes_drained", "gauge", "Drained nodes.", "resource", "drained"),
    # The execution service.
    Family("penstock_exec_jobs", "gauge", "Jobs of the execution service.", "job-exec", "jobs"),
    Family("penstock_exec_tasks", "gauge", "Running tasks.", "job-exec", "tasks"),
    # The daemon.
    Family(
        "penstock_round_seconds",
        "histogram",
        "Duration of the daemon's rounds: messages are routed and served, and the store is "
        "committed.",
        "broker",
        "rounds",
    ),
    Family(
        "penstock_commit_seconds",
        "histogram",
        "Duration of the store's commits.",
        "broker",
        "commits",
    ),
    Family(
        "penstock_slice_seconds",
        "histogram",
        "Duration of the slices in which the job manager does large requests and sends long "
        "responses, and steps due at a time.",
        "broker",
        "slices",
    ),
    Family(
        "penstock_messages_received",
        "counter",
        "Messages from clients and services outside of the daemon.",
        "broker",
        "received",
    ),
    Family("penstock_connections", "gauge", "Connections.", "broker", "connections"),
    Family(
        "penstock_unsent_bytes",
        "gauge",
        "Bytes that clients have not read yet.",
        "broker",
        "unsent",
    ),
    Family(
        "penstock_services_failed",
        "gauge",
        "Services of the daemon that have failed and are not restarted yet.",
        "broker",
        "failed",
    ),
    Family(
        "penstock_service_failures",
        "counter",
        "Failures of services of the daemon.",
        "broker",
        "failures",
    ),
    Family(
        "penstock_guest_requests_rejected",
        "counter",
        "Connections and requests of guests that a limit has rejected.",
        "broker",
        "guests.rejected",
        ("limit",),
    ),
    Family(
        "penstock_owner_requests_rejected",
        "counter",
        "Requests of the owner that a limit has rejected.",
        "broker",
        "owner_rejected",
        ("limit",),
    ),
    Family(
        "penstock_connections_held_back",
        "gauge",
        "Connections of which no more is read until requests about many jobs have ended.",
        "broker",
        "held_back",
    ),
    Family(
        "penstock_store_bytes",
        "gauge",
        "Size of the database, without its log.",
        "job-manager",
        "store_bytes",
    ),
    Family(
        "penstock_store_free_bytes",
        "gauge",
        "The part of the database without data: later jobs use it, the excess is released.",
        "job-manager",
        "store_free_bytes",
    ),
    Family(
        "penstock_store_released_bytes",
        "counter",
        "Bytes that the database has returned to the file system.",
        "job-manager",
        "store_released_bytes",
    ),
    Family(
        "penstock_store_log_bytes",
        "gauge",
        "Length of the store's log after the last commit.",
        "job-manager",
        "store_log_bytes",
    ),
    Family(
        "penstock_checkpoint_seconds",
        "histogram",
        "Duration of the store's checkpoints: copies of the log into the database, with the sync.",
        "job-manager",
        "checkpoints",
    ),
    Family(
        "process_cpu_seconds",
        "counter",
        "CPU time of the daemon, user and system.",
        "broker",
        "process.cpu_seconds",
    ),
    Family(
        "process_resident_memory_bytes",
        "gauge",
        "Resident memory of the daemon.",
        "broker",
        "process.resident_bytes",
    ),
    Family(
        "process_open_fds", "gauge", "Open files of the daemon.", "broker", "process.open_files"
    ),
    Family(
        "process_start_time_seconds",
        "gauge",
        "Start of the daemon, in seconds since the epoch.",
        "broker",
        "process.start_time",
    ),
)

SERVICES = tuple(dict.fromkeys(family.service for family in FAMILIES if family.service))


def openmetrics(stats: Mapping[str, Mapping[str, Any] | None]) -> str:
    """The statistics of services as OpenMetrics text.

    Args:
        stats: the response of each service to `stats-get`; None if it has not answered.

    Values that a service does not have, or that are of another type than the metric's, are left
    out, because scheduler and execution service may be programs of other projects.
    """
    lines: list[str] = []
    for family in FAMILIES:
        if family is SERVICE_UP:
            values: Any = {name: int(answer is not None) for name, answer in stats.items()}
        else:
            values = _member(stats.get(family.service), family.path)
        samples = list(_samples(family, values, {}))
        if samples:
            lines += _head(family)
            lines += samples
    return "\n".join([*lines, "# EOF\n"])


def _member(values: Any, path: str) -> Any:
    for key in path.split("."):
        if not isinstance(values, dict):
            return None
        values = values.get(key)
    return values


def _head(family: Family) -> Iterator[str]:
    yield f"# TYPE {family.name} {family.kind}"
    if family.unit:
        yield f"# UNIT {family.name} {family.unit}"
    yield f"# HELP {family.name} {_escaped(family.doc)}"


def _samples(family: Family, value: Any, labels: dict[str, str]) -> Iterator[str]:
    if len(labels) < len(family.labels):
        label = family.labels[len(labels)]
        if isinstance(value, dict):
            for name, each in value.items():
                yield from _samples(family, each, {**labels, label: str(name)})
    elif family.kind == "histogram":
        yield from _histogram(family.name, value, labels)
    elif family.kind == "info":
        if isinstance(value, dict):
            texts = {key: each for key, each in value.items() if isinstance(each, str)}
            yield _sample(family.sample, texts, 1)
    else:
        number = _number(value)
        if number is not None:
            yield _sample(family.sample, labels, number)


def _histogram(name: str, value: Any, labels: dict[str, str]) -> Iterator[str]:
    if not is_histogram(value):
        return
    for bound, count in zip(value["le"], value["buckets"], strict=True):
        yield _sample(f"{name}_bucket", {**labels, "le": _bound(bound)}, count)
    yield _sample(f"{name}_bucket", {**labels, "le": "+Inf"}, value["count"])
    yield _sample(f"{name}_count", labels, value["count"])
    yield _sample(f"{name}_sum", labels, value["sum"])


def is_histogram(value: Any) -> bool:
    """Whether a member of a service's statistics is a histogram."""
    if not isinstance(value, dict) or value.keys() != {"count", "sum", "le", "buckets"}:
        return False
    bounds, buckets = value["le"], value["buckets"]
    if not isinstance(bounds, list) or not isinstance(buckets, list):
        return False
    counts = [*buckets, value["count"]]
    if any(not _is_number(each) for each in (*bounds, *counts, value["sum"])):
        return False
    ascends = bounds == sorted(set(bounds)) and counts == sorted(counts)
    return len(bounds) == len(buckets) and ascends


def quantile_bound(histogram: dict[str, Any], share: float) -> float:
    """The least bound of a histogram that a share of its durations does not exceed."""
    counts = zip(histogram["le"], histogram["buckets"], strict=True)
    enough = (float(bound) for bound, count in counts if count >= share * histogram["count"])
    return next(enough, math.inf)


def _number(value: Any) -> int | float | None:
    """A number, or the number of ranks in the text of an idset; None for anything else."""
    if isinstance(value, str):
        try:
            return len(IDset(value))
        except ValueError:
            return None
    return value if _is_number(value) else None


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value >= 0


def _bound(bound: float) -> str:
    # OpenMetrics requires a point or an exponent in the bounds.
    return repr(float(bound))


def _sample(name: str, labels: Mapping[str, str], number: float) -> str:
    pairs = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{pairs}}} {number}" if pairs else f"{name} {number}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
