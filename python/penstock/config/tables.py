"""The configuration: every table and key, declared once."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock._core import MAX_JOBSPEC_BYTES
from penstock.config import checks
from penstock.config.declaration import Constraint, Count, Seconds, key, settings, spelled, table

SchedulerMode = typing.Literal["inside", "process", "none"]
Selection = typing.Literal["first", "pack", "spread", "thrifty", "contiguous"]


@dataclass(frozen=True)
class HostEntry:
    """`resource.config[]`: the resources of some hosts."""

    hosts: str = key(
        "",
        "the hosts of this entry; a later entry for the same host adds to it",
        kind="hosts",
        required=True,
        check=checks.hosts,
    )
    cores: str = key(
        "",
        "core ids of each host; every host needs some, from one entry or another",
        kind="ids",
        check=checks.ids,
    )
    gpus: str = key("", "gpu ids of each host", kind="ids", check=checks.ids)
    properties: tuple[str, ...] = key(
        (), "properties of each host", check_item=checks.property_name
    )


@dataclass(frozen=True)
class Resource:
    """`resource`: the instance's resources."""

    exclude: str | None = key(
        None, "targets that are never scheduled", kind="targets", reload=True, check=checks.targets
    )
    path: Path | None = key(
        None, "a file with [R](resource.md); takes precedence over `resource.config`"
    )
    config: tuple[HostEntry, ...] = key(
        (), "the resources of hosts; hosts get ranks in the order of their first mention"
    )
    properties: dict[str, str] = key(
        dict,
        "further targets with this property; properties set by commands take precedence",
        kind="targets",
        reload=True,
        check_name=checks.property_name,
        check_item=checks.targets,
    )


@dataclass(frozen=True)
class Amounts:
    """`job-size.min`, `job-size.max`: the amounts that a job requests."""

    nnodes: Count | None = key(None, "number of nodes", reload=True, manager="nnodes")
    ncores: Count | None = key(None, "number of cores", reload=True, manager="ncores")
    ngpus: Count | None = key(None, "number of gpus", reload=True, manager="ngpus")


@dataclass(frozen=True)
class JobSize:
    """`job-size`: the bounds of a job's request, both inclusive."""

    max: Amounts = table(Amounts(), prefix="max_")
    min: Amounts = table(Amounts(), prefix="min_")


@dataclass(frozen=True)
class Limits:
    """`limits`: bounds of one job's request."""

    duration: Seconds | None = key(
        None,
        "maximum time limit; a job without a time limit is rejected; 0 is no limit",
        reload=True,
        manager="duration",
    )
    job_size: JobSize = table(JobSize())


@dataclass(frozen=True)
class System:
    """`defaults.system`: attributes for jobspecs without them."""

    duration: Seconds | None = key(
        None,
        "time limit of a job without one; a job cannot tell “without” from “none” (`-t 0`, "
        "`-t inf`)",
        reload=True,
        manager="default_duration",
    )
    queue: str | None = key(
        None, "the queue of a job that names none", reload=True, manager="default_queue"
    )


@dataclass(frozen=True)
class Defaults:
    """`jobspec.defaults`."""

    system: System = table(System())


@dataclass(frozen=True)
class JobspecPolicy:
    """`policy.jobspec`."""

    defaults: Defaults = table(Defaults())


@dataclass(frozen=True)
class Policy:
    """`policy`, and `queues.NAME.policy`."""

    jobspec: JobspecPolicy = table(JobspecPolicy())
    limits: Limits = table(Limits(), manager="limits")


@dataclass(frozen=True)
class Queue:
    """`queues.NAME`: the properties and the constraint of its targets, and its policy."""

    requires: tuple[str, ...] = key(
        (),
        "properties that a node must have, or with a leading `^` must not have; all of them hold",
        reload=True,
        check=checks.required_properties,
        manager="requires",
    )
    constraint: Constraint | None = key(
        None, "a further constraint on the queue's nodes", reload=True, manager="constraint"
    )
    policy: Policy = key(Policy(), "the queue's own `policy`, see below", reload=True)


@dataclass(frozen=True)
class Access:
    """`access`: users that may connect, besides the owner."""

    allow_guest_user: bool = key(
        default=False,
        doc="whether other users may connect; their jobs are accepted if execution is simulated, "
        "or if root owns the instance and runs them [as those users](guests.md)",
    )
    allow_root_owner: bool = key(default=True, doc="whether root has the owner's rights")
    job_visibility: typing.Literal["own", "all"] = key(
        "own",
        "the jobs that another user can list and wait for: the user's own, or those of all users; "
        "the owner can list all",
        reload=True,
        manager="job_visibility",
    )


@dataclass(frozen=True)
class Hook:
    """`job-manager.prolog`, `job-manager.epilog`."""

    command: tuple[str, ...] = key(
        (), "a program and its arguments: see [hooks](jobs.md#hooks)", reload=True
    )
    timeout: Seconds = key(
        Seconds(1800.0),
        "the command is killed and fails after this time; 0 is no limit",
        reload=True,
    )


@dataclass(frozen=True)
class JobManagerSettings:
    """`job-manager`: the retention of inactive jobs, and the hooks of jobs."""

    inactive_age_limit: Seconds = key(
        Seconds(30 * 86400.0),
        "jobs that have been inactive for longer are purged; 0 is no limit",
        reload=True,
        manager="inactive_age_limit",
    )
    inactive_num_limit: Count = key(
        Count(1_000_000),
        "maximum number of inactive jobs; the oldest are purged",
        reload=True,
        manager="inactive_num_limit",
    )
    prolog: Hook = table(Hook())
    epilog: Hook = table(Hook())


@dataclass(frozen=True)
class Compat:
    """`compat`: behaviour that differs between versions of the protocols."""

    exec_hello: typing.Literal["replace", "reject"] = key(
        "replace",
        "a second [execution service](execution.md#hello) takes over the jobs of the first, or "
        "is rejected while that one has jobs",
        reload=True,
        manager="exec_hello",
    )


@dataclass(frozen=True)
class QueueSettings:
    """`penstock.scheduler.queues.NAME`: the scheduling of a queue."""

    group: str | None = key(
        None,
        "queues of one group share an [order](scheduling.md#queues); by default those with nodes "
        "in common do",
        reload=True,
        scheduler="group",
    )
    order: typing.Literal["priority", "fifo", "shortest", "smallest", "largest"] | None = key(
        None,
        "the order of its jobs ([orders](engine.md#order-policy-and-selection)); the same in all "
        "queues of a group; by default `priority`",
        reload=True,
        scheduler="order",
    )
    max_jobs: Count | None = key(
        None, "maximum number of running jobs of the queue", reload=True, scheduler="max-jobs"
    )
    max_nodes: Count | None = key(
        None,
        "maximum number of nodes allocated to them; a node shared by two jobs counts twice",
        reload=True,
        scheduler="max-nodes",
    )
    max_cores: Count | None = key(
        None, "maximum number of cores allocated to them", reload=True, scheduler="max-cores"
    )


@dataclass(frozen=True)
class SchedulerSettings:
    """`penstock.scheduler`: the scheduler's process, and its decisions."""

    mode: SchedulerMode = key(
        "inside",
        "the scheduler runs in the daemon, runs as a process supervised by the daemon, or is one "
        "of yours; `--sched` takes precedence",
    )
    limit: int = key(
        0,
        "maximum number of outstanding alloc requests ([ready](allocation.md#ready)); 0 is no "
        "limit",
        check=checks.at_most(2**31 - 1),
    )
    policy: str = key(
        "easy",
        "the scheduling policy: `fcfs`, `easy`, `conservative`, `hybrid:N` "
        "([policies](scheduling.md#policies)); `--policy` takes precedence until a reload",
        reload=True,
        scheduler="policy",
    )
    selection: Selection = key(
        "first",
        "the choice among suitable nodes ([selection](scheduling.md#selection)); `--selection` "
        "takes precedence until a reload",
        reload=True,
        scheduler="selection",
    )
    overlong: typing.Literal["shorten", "deny"] = key(
        "shorten",
        "a job that would outlive the resources gets a shorter time limit, or is denied",
        reload=True,
        scheduler="overlong",
    )
    annotate: int = key(
        100,
        "number of pending jobs, in queue order, for which `penstock jobs` shows the reason and "
        "the estimated start; 0 for no job",
        reload=True,
        scheduler="annotate",
    )
    queues: dict[str, QueueSettings] = table(dict, scheduler="queues")


@dataclass(frozen=True)
class ExecSettings:
    """`penstock.exec`: the execution of jobs."""

    kill_timeout: Seconds = key(Seconds(5.0), "the time between SIGTERM and SIGKILL", reload=True)
    oversubscribe: bool = key(
        default=False,
        doc="jobs run on this host, unbound, whatever nodes they were allocated; `--oversubscribe` "
        "sets it",
    )
    output_directory: Path | None = key(
        None,
        "the directory of jobs' output, on another file system than the database for example, and "
        "of one instance alone; it is made in its parent, and only the owner may have access to it",
        shown_default="`exec/output` in the state directory",
        check=checks.absolute_path,
    )
    output_limit: int = key(
        1 << 30,
        "bytes of output stored for a job; a job that exceeds them is killed; 0 is no limit",
        reload=True,
    )
    output_reserve: int = key(
        256 << 20,
        "bytes that stored output of guests leaves free on its file system: with no more, "
        "jobs of guests whose output is stored do not start, hold their cores while their time "
        "limit runs, or block while they write, and those that continue to write are killed; "
        "0 is no reserve",
        reload=True,
    )
    user_output_limit: int = key(
        10 << 30,
        "bytes of output stored for all jobs of a guest, up to their purge; a job that exceeds "
        "them is killed, and further ones fail; 0 is no limit",
        reload=True,
    )
    job_directory: Path | None = key(
        None,
        "the directory in which [directories of jobs](guests.md#directories-of-jobs) are made, in "
        "`INSTANCE/jobs`, on a file system of their own for example; it is made in its parent, and "
        "no user but the owner may be able to write to it",
        shown_default="`/run/penstock` for jobs of guests, `exec/jobs` in the state directory for "
        "those of the owner",
        check=checks.absolute_path,
    )
    cgroup: str = key(
        "auto",
        "where [cgroups of jobs](execution.md#cgroups) are made: the path of a cgroup, `none`, or "
        "`auto`, the service's own",
        check=checks.cgroup_place,
    )
    min_guest_uid: Count = key(
        Count(1000), "the least user id of guests whose jobs run on an instance of root"
    )
    allow_new_privileges: bool = key(
        default=False,
        doc="whether tasks of guests can get privileges, by set-user-ID programs for instance",
    )


_MAX_REQUESTS: dict[str, Any] = {
    "doc": "maximum number of queued requests ([elastic jobs](elastic.md))",
    "reload": True,
    "manager": "requests",
}


@dataclass(frozen=True)
class ElasticLimits:
    """`penstock.elastic.user`: limits of requests of running jobs (PMIx RFC 0005)."""

    requests: Count | None = key(None, **_MAX_REQUESTS)
    nnodes: Count | None = key(
        None, "maximum number of nodes, granted and queued", reload=True, manager="nnodes"
    )
    ncores: Count | None = key(
        None,
        "maximum number of cores, granted and queued; a queued whole node counts as the largest "
        "node that the request accepts",
        reload=True,
        manager="ncores",
    )


@dataclass(frozen=True)
class JobElasticLimits(ElasticLimits):
    """`penstock.elastic.job`: the same, of which one has a default."""

    requests: Count | None = key(Count(4096), **_MAX_REQUESTS)


@dataclass(frozen=True)
class ElasticSettings:
    """`penstock.elastic`: limits for each job, and for all jobs of each user."""

    job: JobElasticLimits = table(JobElasticLimits(), manager="job")
    user: ElasticLimits = table(ElasticLimits(), manager="user")


@dataclass(frozen=True)
class Quota:
    """`penstock.quota`: limits of what one user may send; those of guests do not count for root."""

    jobspec_bytes: int = key(
        MAX_JOBSPEC_BYTES,
        "maximum size of a jobspec of the owner",
        reload=True,
        check=checks.at_most(MAX_JOBSPEC_BYTES),
        manager="jobspec_bytes",
    )
    guest_jobspec_bytes: int = key(
        1 << 20,
        "the same for other users",
        reload=True,
        check=checks.at_most(MAX_JOBSPEC_BYTES),
        manager="guest_jobspec_bytes",
    )
    guest_jobspec_values: Count = key(
        Count(10_000),
        "maximum number of values in a jobspec of another user: arguments, variables and "
        "everything else in lists and objects",
        reload=True,
        manager="guest_jobspec_values",
    )
    active_jobs: Count = key(
        Count(100_000),
        "maximum number of active jobs of a guest",
        reload=True,
        manager="active_jobs",
    )
    all_active_jobs: Count = key(
        Count(1_000_000),
        "the same for all guests together",
        reload=True,
        manager="all_active_jobs",
    )
    submission_jobs: Count = key(
        Count(10_000),
        "maximum number of jobs that one submission of a guest has",
        reload=True,
        manager="submission_jobs",
    )
    connections: Count = key(
        Count(256),
        "maximum number of connections of a guest; all guests leave half of the daemon's file "
        "descriptors, and no more than 576, to the owner and to hooks",
        reload=True,
    )
    owner_requests: Count = key(
        Count(1_000_000),
        "maximum number of outstanding requests of the owner; those of services do not count",
        reload=True,
    )
    owner_request_bytes: Count = key(
        Count(256 << 20), "maximum size of the payloads of these requests", reload=True
    )
    requests: Count = key(
        Count(10_000), "maximum number of outstanding requests of a guest", reload=True
    )
    request_bytes: Count = key(
        Count(64 << 20), "maximum size of the payloads of these requests", reload=True
    )
    watches: Count = key(
        Count(5000),
        "maximum number of outstanding streaming requests of a guest: watches, waits, lists, "
        "output that is followed",
        reload=True,
    )
    all_requests: Count = key(
        Count(100_000),
        "maximum number of outstanding requests of all guests together",
        reload=True,
    )
    all_request_bytes: Count = key(
        Count(512 << 20), "maximum size of the payloads of these requests", reload=True
    )
    all_watches: Count = key(
        Count(50_000),
        "maximum number of outstanding streaming requests of all guests together",
        reload=True,
    )
    memo_bytes: Count = key(
        Count(16 << 20),
        "maximum size of the memos that a guest has set on active jobs",
        reload=True,
        manager="memo_bytes",
    )
    all_memo_bytes: Count = key(
        Count(256 << 20),
        "the same for all guests together",
        reload=True,
        manager="all_memo_bytes",
    )
    job_bytes: Count = key(
        Count(256 << 20),
        "maximum approximate memory for the constraints, dependencies and names of a guest's "
        "active jobs; jobs share what they have in common",
        reload=True,
        manager="job_bytes",
    )
    all_job_bytes: Count = key(
        Count(1 << 30),
        "the same for all guests together",
        reload=True,
        manager="all_job_bytes",
    )
    store_bytes: Count = key(
        Count(4 << 30),
        "maximum size of what a guest has in the store: 2 KiB for each job, jobspecs, memos, "
        "notes, standard input, tokens of submissions; `penstock purge` removes ended jobs",
        reload=True,
        manager="store_bytes",
    )
    reserved_bytes: int = key(
        256 << 20,
        "free space of the file system of the state directory below which requests of guests that "
        "store something are rejected, or a tenth of the file system if that is less; 0 is no "
        "limit",
        reload=True,
        check=checks.at_most(2**63 - 1),
        manager="reserved_bytes",
    )
    # Clients send lists of jobspecs in shorter parts; a jobspec has twice its bytes as a string.
    message_bytes: int = key(
        4 << 20,
        "maximum size of one message of a guest; the payload of a longer one is not read",
        reload=True,
        check=checks.at_most(64 << 20),
    )
    unfinished_bytes: Count = key(
        Count(64 << 20),
        "maximum size of the messages that a guest has sent in part; a connection that exceeds it "
        "is closed",
        reload=True,
    )
    all_unfinished_bytes: Count = key(
        Count(256 << 20), "the same for all guests together", reload=True
    )
    request_rate: int = key(
        2000,
        "requests of a guest in a second; more are read later; a long response counts as a request "
        "for each 32 KiB; 0 is no limit",
        reload=True,
        check=checks.at_most(2**31 - 1),
    )


@dataclass(frozen=True)
class StoreSettings:
    """`penstock.store`: the durability of the job store."""

    synchronous: typing.Literal["full", "normal"] = key(
        "full",
        "`full`: a submitted job survives a power failure; `normal`: it survives a crash of the "
        "daemon, which is faster",
    )
    reserve: int = key(
        16 << 20,
        "bytes of disk space that the instance holds in the state directory for a full disk "
        "([disk full](operations.md#disk-full)); 0 for none",
        check=checks.at_most(1 << 40),
    )


@dataclass(frozen=True)
class MetricsSettings:
    """`penstock.metrics`: metrics for a monitoring system."""

    listen: str | None = key(
        None,
        "a loopback address with a port (`127.0.0.1:9470`), or the absolute path of a Unix socket, "
        "where [metrics](monitoring.md) are served by HTTP",
        check=checks.listen_address,
        shown_default="nowhere",
    )


@dataclass(frozen=True)
class Penstock:
    """`penstock`: settings for which Flux has no table."""

    socket: Path | None = key(
        None,
        "the socket that the instance listens on; `--socket` takes precedence",
        shown_default="see below",
    )
    state: Path | None = key(
        None,
        "the directory of jobs, drains and output; `--state` takes precedence",
        shown_default="see below",
    )
    scheduler: SchedulerSettings = table(SchedulerSettings())
    exec: ExecSettings = table(ExecSettings())
    elastic: ElasticSettings = table(ElasticSettings(), manager="elastic")
    store: StoreSettings = table(StoreSettings())
    quota: Quota = table(Quota(), manager="quota")
    metrics: MetricsSettings = table(MetricsSettings())
    clock_step_limit: Seconds = key(
        Seconds(86400.0),
        "submissions are rejected when the clock has been set forward by more than this since the "
        "start of the daemon, because job ids are made of the time; 0 is no limit",
        reload=True,
    )


@dataclass(frozen=True)
class Config:
    """The whole configuration; `Config()` is the default."""

    resource: Resource = table(Resource())
    queues: dict[str, Queue] = table(dict, manager="queues")
    policy: Policy = table(Policy())
    access: Access = table(Access())
    job_manager: JobManagerSettings = table(JobManagerSettings())
    compat: Compat = table(Compat())
    penstock: Penstock = table(Penstock())

    def to_dict(self) -> dict[str, Any]:
        """The effective configuration under its TOML keys; unset keys are left out."""
        plain = _plain(self)
        assert isinstance(plain, dict)
        return plain


def scheduler_settings(config: Config) -> dict[str, Any]:
    """The scheduler's settings, in the form that `Scheduler` takes as JSON."""
    visibility = {"job-visibility": config.access.job_visibility}
    return settings(config.penstock.scheduler, "scheduler") | visibility


def manager_settings(config: Config) -> dict[str, Any]:
    """The job manager's settings in a configuration, in the form that `JobManager` takes."""
    return settings(config, "manager")


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        pairs = (
            (spelled(field), _plain(getattr(value, field.name)))
            for field in dataclasses.fields(value)
        )
        return {name: item for name, item in pairs if item not in (None, {}, [])}
    if isinstance(value, dict):
        # A named table is kept even if it is empty: the name means something.
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
