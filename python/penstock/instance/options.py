"""What an instance is started with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.config import Config


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
    exec: Literal["local", "sim"] = "local"
    oversubscribe: bool = False
    sched: Literal["inside", "process", "none"] = "inside"
    command: tuple[str, ...] = ()
