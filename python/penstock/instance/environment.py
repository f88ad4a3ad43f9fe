"""The environment of the instance's command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.instance.service_manager import VARIABLES

if TYPE_CHECKING:
    from collections.abc import Mapping


# The variables that identify a task and its job.
TASK_VARIABLES = frozenset(
    f"{prefix}_{word}"
    for prefix in ("PENSTOCK", "FLUX")
    for word in (
        *("JOB_ID", "JOB_SIZE", "JOB_NNODES", "NTASKS", "NNODES"),
        *("TASK_RANK", "TASK_LOCAL_RANK", "TASK_LOCAL_ID", "LOCAL_RANK"),
    )
)


def command_environment(inherited: Mapping[str, str], uri: str, *, nested: bool) -> dict[str, str]:
    """The environment of an instance's command: the daemon's own, with the instance's address.

    The variables of an outer instance's task are left out, because the command is no task of this
    one, and those by which systemd is notified.

    Args:
        inherited: the daemon's environment.
        uri: the instance's address.
        nested: whether the instance runs in a job. `FLUX_URI` then has the outer instance's
            address, and is replaced too.
    """
    omitted = TASK_VARIABLES | VARIABLES
    environment = {name: value for name, value in inherited.items() if name not in omitted}
    environment["PENSTOCK_URI"] = uri
    if nested:
        environment["FLUX_URI"] = uri
    return environment
