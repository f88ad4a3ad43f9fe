"""*R*, the resource set of Flux (RFC 20): which cores and gpus of which execution targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock._core import ResourceSet

if TYPE_CHECKING:
    from penstock._core import IDset

__all__ = ["Node", "ResourceSet"]


class Node(NamedTuple):
    """One execution target of a `ResourceSet`."""

    rank: int
    """The execution target."""
    host: str
    """The name of its host."""
    cores: IDset
    """Its logical cores, as a copy."""
    gpus: IDset
    """Its logical gpus, as a copy."""
