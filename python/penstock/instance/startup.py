"""The options with which an instance is started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.config import Config
    from penstock.config.tables import SchedulerMode
    from penstock.instance.parent_instance import Parent

# The longest path in a `sockaddr_un` (unix(7)), without the NUL.
MAX_SOCKET_PATH_BYTES = 107


@dataclass(frozen=True)
class StartOptions:
    """The options of `penstock start`, checked, with configuration and defaults filled in."""

    state: Path
    socket: Path
    config: Config
    R: Path | None = None
    nodes: int | None = None
    cores: int | None = None
    gpus: int | None = None
    exec: Literal["local", "sim", "none"] = "local"
    oversubscribe: bool = False
    sched: SchedulerMode = "inside"
    command: tuple[str, ...] = ()
    parent: Parent | None = None

    @property
    def inherits(self) -> bool:
        """Whether the instance uses the resources of the job in which it is started."""
        resource = self.config.resource
        named = self.R or resource.path or resource.config or self.nodes is not None
        return self.parent is not None and not named
