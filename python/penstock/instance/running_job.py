"""A job that the execution service runs: its tasks, output, expiration and responses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from penstock.instance.system import OutputFiles, Task
    from penstock.protocol.execution import StartStream


class RankTask:
    """A task of a job and the rank that it runs on."""

    def __init__(self, process: Task, rank: int) -> None:
        self.process = process
        self.rank = rank
        # The job has released the rank: the task's status does not count.
        self.released = False


class RunningJob:
    """A job from its start request to its release."""

    def __init__(self, stream: StartStream) -> None:
        self.stream = stream
        self.tasks: list[RankTask] = []
        self.output: OutputFiles | None = None
        self.expiration = 0.0
        self.expiration_changed = trio.Event()
        # Set when the job's tasks are to be ended.
        self.ending = trio.Event()
        # Set when the job has been released.
        self.over = trio.Event()
        # Another service has taken the job over: no more responses are sent.
        self.replaced = False

    def signal(self, signum: int) -> None:
        """Sends a signal to every task."""
        for task in self.tasks:
            task.process.signal(signum)
