"""The environment of tasks, hooks and the instance's command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock._core import fluid_f58

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock._core import TaskPlacement


# The variables that identify a task and its job.
TASK_VARIABLES = frozenset(
    f"{prefix}_{word}"
    for prefix in ("PENSTOCK", "FLUX")
    for word in (
        *("JOB_ID", "JOB_SIZE", "JOB_NNODES", "NTASKS", "NNODES"),
        *("TASK_RANK", "TASK_LOCAL_RANK", "TASK_LOCAL_ID", "LOCAL_RANK"),
    )
)

# Prefix of the marks of the jobs that a process is in, outermost first: with 0, 1, …
MARK_PREFIX = "PENSTOCK_WITHIN_"


def own_mark(inherited: Mapping[str, str], uri: str, job: int) -> tuple[str, str]:
    """The mark of a job: a variable of all its processes, and of nested instances and their jobs.

    Ids are unique within an instance only, so the mark contains the instance's address.

    Args:
        inherited: the daemon's environment.
        uri: the instance's address.
        job: the job's id.

    Returns:
        The variable's name and value.
    """
    level = sum(name.startswith(MARK_PREFIX) for name in inherited)
    return f"{MARK_PREFIX}{level}", f"{uri} {fluid_f58(job)}"


def command_environment(inherited: Mapping[str, str], uri: str, *, nested: bool) -> dict[str, str]:
    """The environment of an instance's command: the daemon's own, with the instance's address.

    The variables of an outer instance's task are left out: the command is no task of this one.

    Args:
        inherited: the daemon's environment.
        uri: the instance's address.
        nested: whether the instance runs in a job. `FLUX_URI` then has the outer instance's
            address, and is replaced too.
    """
    environment = {name: value for name, value in inherited.items() if name not in TASK_VARIABLES}
    environment["PENSTOCK_URI"] = uri
    if nested:
        environment["FLUX_URI"] = uri
    return environment


def job_environment(
    inherited: Mapping[str, str],
    jobspec: Mapping[str, Any],
    job: int,
    *,
    uri: str,
    ntasks: int,
    nnodes: int,
) -> dict[str, str]:
    """The environment that all tasks of a job share.

    It is the jobspec's, by default the daemon's own, with the variables that identify the job. They
    have Penstock's names and also Flux's, so that existing scripts run.
    """
    given = jobspec["attributes"]["system"].get("environment")
    environment = dict(inherited) if given is None else dict(given)
    for name in [name for name in environment if name.startswith(MARK_PREFIX)]:
        del environment[name]
    environment |= {name: inherited[name] for name in inherited if name.startswith(MARK_PREFIX)}
    mark, value = own_mark(inherited, uri, job)
    environment[mark] = value
    f58 = fluid_f58(job)
    environment |= {
        "PENSTOCK_URI": uri,
        "PENSTOCK_JOB_ID": f58,
        "PENSTOCK_NTASKS": str(ntasks),
        "PENSTOCK_NNODES": str(nnodes),
        "FLUX_URI": uri,
        "FLUX_JOB_ID": f58,
        "FLUX_JOB_SIZE": str(ntasks),
        "FLUX_JOB_NNODES": str(nnodes),
        "FLUX_NTASKS": str(ntasks),
        "FLUX_NNODES": str(nnodes),
    }
    return environment


def task_environment(shared: Mapping[str, str], place: TaskPlacement) -> dict[str, str]:
    """The environment of one task; gpus that are not allocated to it are hidden."""
    rank, local = str(place.rank), str(place.local_rank)
    gpus = ",".join(str(gpu) for gpu in place.gpus) or "-1"
    return {
        **shared,
        "PENSTOCK_TASK_RANK": rank,
        "PENSTOCK_LOCAL_RANK": local,
        "PENSTOCK_TASK_LOCAL_RANK": local,
        "FLUX_TASK_RANK": rank,
        "FLUX_TASK_LOCAL_ID": local,
        "FLUX_LOCAL_RANK": local,
        "CUDA_VISIBLE_DEVICES": gpus,
    }
