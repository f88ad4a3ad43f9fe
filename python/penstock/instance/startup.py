"""The options with which an instance is started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.config import Config
    from penstock.config.tables import SchedulerMode
    from penstock.instance.parent_instance import Parent

ExecMode = Literal["local", "sim", "none"]

# The longest path in a `sockaddr_un` (unix(7)), without the NUL.
MAX_SOCKET_PATH_BYTES = 107


@dataclass(frozen=True)
class StartOptions:
    """The options of `penstock start`, checked, with configuration and defaults filled in.

    `exec_program` is the path of `penstock-exec`, which `--exec local` needs. `is_temporary` says
    that the state is removed when the instance ends.
    """

    state: Path
    socket: Path
    config: Config
    R: Path | None = None
    nodes: int | None = None
    cores: int | None = None
    gpus: int | None = None
    exec: ExecMode = "local"
    exec_program: Path | None = None
    oversubscribe: bool = False
    sched: SchedulerMode = "inside"
    command: tuple[str, ...] = ()
    parent: Parent | None = None
    is_temporary: bool = False

    @property
    def exec_directory(self) -> Path:
        """The directory of the execution service: its journal, reaper and retained output."""
        return self.state / "exec"

    @property
    def inherits(self) -> bool:
        """Whether the instance uses the resources of the job in which it is started."""
        resource = self.config.resource
        named = self.R or resource.path or resource.config or self.nodes is not None
        return self.parent is not None and not named
