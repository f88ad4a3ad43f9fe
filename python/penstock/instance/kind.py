"""The kind of an instance, which its state directory remembers.

Pending jobs of one kind are not for another: those of simulated nodes must not run for real.
"""

from __future__ import annotations

from typing import Literal

ExecMode = Literal["local", "sim", "none"]
InstanceKind = Literal["machine", "simulated", "oversubscribed", "external"]

# The use that an instance of each kind makes of its jobs.
USE_OF_JOBS: dict[InstanceKind, str] = {
    "machine": "runs its jobs on this machine",
    "simulated": "simulates its jobs",
    "oversubscribed": "runs the jobs of simulated nodes on this machine",
    "external": "leaves its jobs, on named nodes, to an external service",
}


def instance_kind(execution: ExecMode, *, named: bool, oversubscribe: bool) -> InstanceKind:
    """The kind of an instance.

    Args:
        execution: the execution of its jobs.
        named: whether its resources are named, and may not be this machine's.
        oversubscribe: whether all jobs share this machine's cores.
    """
    if execution == "sim":
        return "simulated"
    if named and execution == "none":
        return "external"
    return "oversubscribed" if named and oversubscribe else "machine"
