"""Servers, and programs that are their clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pmixdaemon import EXAMPLE, Daemon, compile_program, server_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock._core import Message

    Answer = Callable[[Daemon, Message], dict[str, Any] | None]
    Start = Callable[..., Daemon]


@pytest.fixture(scope="module")
def alloc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, compiled."""
    server_program()
    return compile_program(EXAMPLE, tmp_path_factory.mktemp("alloc"))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts servers."""
    daemons: list[Daemon] = []

    def start_one(size: int, answer: Answer) -> Daemon:
        daemons.append(Daemon(tmp_path / f"pmix{len(daemons)}", size, answer))
        return daemons[-1]

    yield start_one
    for daemon in daemons:
        daemon.abandon()
