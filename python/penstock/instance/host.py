"""The operating system of a real instance: its clock, sockets, files and processes."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import trio

from penstock._core import JobManager
from penstock.instance.clock import SystemClock
from penstock.instance.output_files import JobOutputs
from penstock.instance.pmix_server import PmixServers
from penstock.instance.processes import Children
from penstock.instance.sockets import UnixSockets
from penstock.instance.system import System
from penstock.instance.task_processes import TaskProcesses

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractContextManager

    from penstock.instance.startup import StartOptions


def host_system(options: StartOptions) -> System:
    """This machine, with the state directory of an instance.

    Args:
        options: the instance's options.
    """
    children = Children()
    synchronous = options.config.penstock.store.synchronous

    def open_manager(settings: str, now: float) -> JobManager:
        path = options.state / "jobs.sqlite"
        return JobManager(path, settings, now, synchronous=synchronous)

    return System(
        clock=SystemClock(),
        random_bytes=os.urandom,
        network=UnixSockets(),
        open_manager=open_manager,
        children=children,
        tasks=TaskProcesses(children),
        output=JobOutputs(options.state / "output"),
        pmix_servers=PmixServers(children, os.urandom),
        stop_signals=_stop_signals,
        in_thread=_in_thread,
    )


def _stop_signals() -> AbstractContextManager[AsyncIterator[int]]:
    numbers = [signal.SIGINT, signal.SIGTERM]
    # Under nohup the instance outlives its terminal.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return trio.open_signal_receiver(*numbers)


async def _in_thread(function: Callable[[], None]) -> None:
    await trio.to_thread.run_sync(function)
