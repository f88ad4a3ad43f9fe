"""A whole instance in a thread of this process, with a store in memory and simulated jobs."""

from __future__ import annotations

import dataclasses
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from penstock._core import JobManager
from penstock.client import Client
from penstock.clock import SYSTEM_CLOCK
from penstock.config import Config, parse
from penstock.errors import Error
from penstock.instance.daemon import Instance
from penstock.instance.host import host_system
from penstock.instance.startup import StartOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from penstock._core import ResourceSet
    from penstock.clock import Clock
    from penstock.config.tables import SchedulerMode

# The real time without a message after which all that is due is done, in seconds.
CUSHION_S = 0.001
# The umask and the limit of descriptors of children: there are none.
UMASK, DESCRIPTORS = 0o077, 1024


class MemoryInstance:
    """An instance with simulated nodes, which ends with its `with` block.

    Jobs are simulated: each succeeds after its `attributes.system.exec.test.run_duration`, else
    after its time limit, else at once. Time passes as everywhere, and `advance` skips some of it.

    Args:
        nodes: the number of nodes, `node0` and so on.
        cores: of each node.
        gpus: of each node.
        config: the configuration, as text in TOML (see `docs/configuration.md`).
        sched: `inside`, or `none` if the test brings its own scheduler.

    Attributes:
        uri: The address, for `Client(uri)`, `PENSTOCK_URI` and `FLUX_URI`.
        clock: The clock of the instance: `clock.now()` is in seconds since the epoch.

    Raises:
        ConfigError: the configuration is invalid.
    """

    def __init__(
        self,
        nodes: int = 1,
        cores: int = 1,
        gpus: int = 0,
        *,
        config: str = "",
        sched: SchedulerMode = "inside",
    ) -> None:
        configuration = parse(config) if config else Config()
        self._directory = tempfile.TemporaryDirectory(prefix="penstock-")
        directory = Path(self._directory.name)
        self._options = StartOptions(
            state=directory / "state",
            socket=directory / "socket",
            config=configuration,
            nodes=nodes,
            cores=cores,
            gpus=gpus,
            exec="sim",
            sched=sched,
            is_temporary=True,
            on_ready=self._take_resources,
        )
        self.uri = f"local://{self._options.socket}"
        self._time = MockClock(rate=1)
        self.clock: Clock = _MovedClock(SYSTEM_CLOCK, self._time)
        self._stop: trio.Event | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="MemoryInstance")

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self.close()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def client(self, **options: Any) -> Client:
        """A new client of the instance; the options are those of `penstock.client.Client`."""
        return Client(self.uri, **options)

    def advance(self, seconds: float) -> None:
        """Skips some time, after the instance has done all that is due.

        Each deadline in between is met at its time: nodes of an ended job go to the next one then.
        """
        trio.from_thread.run(self._advance, seconds, trio_token=self._token)

    async def _advance(self, seconds: float) -> None:
        end = self._time.current_time() + seconds
        await wait_all_tasks_blocked(CUSHION_S)
        while (left := end - self._time.current_time()) > 0:
            due = trio.lowlevel.current_statistics().seconds_to_next_deadline
            # Deadlines are a little after their time.
            self._time.jump(min(left, max(due, 0.0) + CUSHION_S))
            await wait_all_tasks_blocked(CUSHION_S)

    def close(self) -> None:
        """Ends the instance, and its jobs with it.

        Raises:
            Error: the instance has failed.
        """
        if self._thread.is_alive() and self._stop is not None:
            trio.from_thread.run_sync(self._stop.set, trio_token=self._token)
        self._thread.join()
        self._directory.cleanup()
        if self._failure is not None:
            raise Error(f"the instance has failed: {self._failure}") from self._failure

    def _take_resources(self, _resources: ResourceSet) -> None:
        self._ready.set()

    def _run(self) -> None:
        try:
            trio.run(self._main, clock=self._time)
        except BaseException as error:
            # Raised in the thread of the test.
            self._failure = error
        self._ready.set()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._stop = trio.Event()
        options = self._options
        system = host_system(options, UMASK, DESCRIPTORS)
        system = dataclasses.replace(
            system,
            clock=self.clock,
            open_manager=lambda settings, now: JobManager(None, settings, now),
            reserve=_NoReserve(),
            stop_signals=self._stop_signals,
        )
        with system.host.claim(
            options.state, options.socket, options.kind, any_state=options.any_state
        ):
            await Instance(options, system).run()

    @contextmanager
    def _stop_signals(self) -> Iterator[AsyncIterator[int]]:
        yield self._stops()

    async def _stops(self) -> AsyncIterator[int]:
        assert self._stop is not None
        await self._stop.wait()
        yield 0
        await trio.sleep_forever()


class _MovedClock:
    """The clock of the system at the start, and Trio's from there on."""

    def __init__(self, start: Clock, moved: MockClock) -> None:
        self._epoch = start.now() - moved.current_time()
        self._moved = moved

    def now(self) -> float:
        return self._epoch + self._moved.current_time()

    def monotonic(self) -> float:
        return self._moved.current_time()


class _NoReserve:
    """The disk space for a store that is not on disk."""

    def hold(self) -> bool:
        return False

    def release(self) -> bool:
        return False

    def space(self) -> None:
        """The space of the disk is unknown."""
