"""Penstock: resource sets (idsets, hostlists, R) and a scheduler for clusters.

What this module exports needs no third-party package and no daemon:

- `IDset`: a set of ids, such as ranks or cores (RFC 22), see `penstock.idset`;
- `FrozenIDset`: the same, unchangeable and hashable;
- `Hostlist`: an ordered list of host names (RFC 29), see `penstock.hostlist`;
- `ResourceSet`: what R is made of (RFC 20), see `penstock.resource`;
- the exceptions, all derived from `Error`, see `penstock.errors`.
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
)
from penstock.hostlist import Hostlist
from penstock.idset import FrozenIDset, IDset

__all__ = [
    "EngineError",
    "Error",
    "FrozenIDset",
    "Hostlist",
    "HostlistError",
    "IDset",
    "IdsetError",
    "JobspecError",
    "MendedWarning",
    "NotFoundError",
    "ResourceSet",
    "ResourceSetError",
    "RpcError",
    "StoreError",
    "WireError",
    "__version__",
]
