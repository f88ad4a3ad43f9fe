"""Penstock: resource sets (idsets, hostlists, R) and a scheduler for clusters.

The exports of this module need no third-party package and no daemon:

- `IDset`: a set of ids, such as ranks or cores (RFC 22), see `penstock.idset`;
- `FrozenIDset`: the same, unchangeable and hashable;
- `Hostlist`: an ordered list of host names (RFC 29), see `penstock.hostlist`;
- `ResourceSet`: what R is made of (RFC 20), see `penstock.resource`;
- the exceptions, all derived from `Error`, see `penstock.errors`.

`Engine` (an inventory, a queue and decisions, see `penstock.engine`) and `JobExecutor` (jobs of an
instance as futures, see `penstock.executor`) are imported on first use.
"""

from penstock._core import ResourceSet, __version__
from penstock.errors import (
    EngineError,
    Error,
    HostlistError,
    IdsetError,
    JobspecError,
    MendedWarning,
    NotFoundError,
    ResourceSetError,
    RpcError,
    StoreError,
    WireError,
    WorkloadError,
)
from penstock.hostlist import Hostlist
from penstock.idset import FrozenIDset, IDset

# `typing` would be most of what `import penstock` costs.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from penstock.engine import Engine
    from penstock.executor import JobExecutor
else:

    def __getattr__(name):  # noqa: ANN001, ANN202 - for readers of the code, the import above
        """Imports a name on its first use."""
        if name == "Engine":
            from penstock.engine import Engine

            return Engine
        if name == "JobExecutor":
            from penstock.executor import JobExecutor

            return JobExecutor
        raise AttributeError(f"module `penstock` has no attribute `{name}`")


__all__ = [
    "Engine",
    "EngineError",
    "Error",
    "FrozenIDset",
    "Hostlist",
    "HostlistError",
    "IDset",
    "IdsetError",
    "JobExecutor",
    "JobspecError",
    "MendedWarning",
    "NotFoundError",
    "ResourceSet",
    "ResourceSetError",
    "RpcError",
    "StoreError",
    "WireError",
    "WorkloadError",
    "__version__",
]
