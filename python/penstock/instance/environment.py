"""What a task finds in its environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from penstock._core import fluid_f58

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock._core import TaskPlacement


# What tells a task which one of which job it is.
OF_A_TASK = frozenset(
    f"{prefix}_{word}"
    for prefix in ("PENSTOCK", "FLUX")
    for word in (
        *("JOB_ID", "JOB_SIZE", "JOB_NNODES", "NTASKS", "NNODES"),
        *("TASK_RANK", "TASK_LOCAL_RANK", "TASK_LOCAL_ID", "LOCAL_RANK"),
    )
)

# Marks of the jobs that a process is in, outermost first: `PENSTOCK_WITHIN_0`, `_1`, …
WITHIN = "PENSTOCK_WITHIN_"


def own_mark(uri: str, job: int) -> tuple[str, str]:
    """The variable that all processes of a job carry, and those of the instances in it.

    Ids are unique in an instance only: its address belongs to the mark.
    """
    level = sum(name.startswith(WITHIN) for name in os.environ)
    return f"{WITHIN}{level}", f"{uri} {fluid_f58(job)}"


def command_environment(uri: str, *, nested: bool) -> dict[str, str]:
    """The environment of an instance's command: the daemon's own, with the instance's address.

    A command that runs in a job of an outer instance is not a task of this one.

    Args:
        uri: the instance's address.
        nested: whether the instance runs in a job: then Flux's name for the address is the outer
            instance's, and gets the new one as well.
    """
    environment = {name: value for name, value in os.environ.items() if name not in OF_A_TASK}
    environment["PENSTOCK_URI"] = uri
    if nested:
        environment["FLUX_URI"] = uri
    return environment


def job_environment(
    jobspec: Mapping[str, Any], job: int, *, uri: str, ntasks: int, nnodes: int
) -> dict[str, str]:
    """The environment that all tasks of a job share.

    It is the jobspec's, or where that has none the daemon's own, and says which job this is
    under Penstock's names and under Flux's, so that existing scripts run.
    """
    given = jobspec["attributes"]["system"].get("environment")
    environment = dict(os.environ) if given is None else dict(given)
    for name in [name for name in environment if name.startswith(WITHIN)]:
        del environment[name]
    environment |= {name: os.environ[name] for name in os.environ if name.startswith(WITHIN)}
    mark, value = own_mark(uri, job)
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
    """The environment of one task; gpus that are not the job's are hidden from it."""
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
