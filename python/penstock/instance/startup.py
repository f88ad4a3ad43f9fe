"""The options with which an instance is started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.instance.kind import ExecMode, InstanceKind, instance_kind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock._core import ResourceSet
    from penstock.config import Config
    from penstock.config.tables import SchedulerMode
    from penstock.instance.parent_instance import Parent

# The longest path in a `sockaddr_un` (unix(7)), without the NUL.
MAX_SOCKET_PATH_BYTES = 107


@dataclass(frozen=True)
class StartOptions:
    """The options of `penstock start`, checked, with configuration and defaults filled in.

    `exec_program` is the path of `penstock-exec`, which `--exec local` needs. `is_temporary` says
    that the state is removed when the instance ends, `any_state` that the state may be of an
    instance of another kind. `on_ready` is called with the resources when clients can connect.
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
    any_state: bool = False
    on_ready: Callable[[ResourceSet], None] | None = None

    @property
    def kind(self) -> InstanceKind:
        """The kind of the instance."""
        return instance_kind(
            self.exec, named=self.names_resources, oversubscribe=self.oversubscribe
        )

    @property
    def names_resources(self) -> bool:
        """Whether options or configuration name the resources."""
        resource = self.config.resource
        named = self.R or resource.path or resource.config or self.nodes is not None
        return bool(named)

    @property
    def exec_directory(self) -> Path:
        """The directory of the execution service: its journal and reaper."""
        return self.state / "exec"

    @property
    def output_directory(self) -> Path:
        """The directory of retained output."""
        named = self.config.penstock.exec.output_directory
        return self.exec_directory / "output" if named is None else named

    @property
    def inherits(self) -> bool:
        """Whether the instance uses the resources of the job in which it is started."""
        return self.parent is not None and not self.names_resources
