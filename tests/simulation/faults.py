"""Faults of the daemon's parts: calls that raise or end the daemon, commits that fail."""

from __future__ import annotations

import errno
import resource
from contextlib import contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import pytest
import trio

import penstock.instance.broker as broker_module
import penstock.instance.resource as resource_module
from penstock._core import PanicException
from penstock.errors import StoreError
from penstock.instance import services
from penstock.instance.broker import Broker
from penstock.instance.control import ControlService
from penstock.instance.hooks import HookService
from penstock.instance.log_service import LogService
from penstock.instance.pmix_service import PmixService

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock._core import Batch, Router

# The services that the broker calls.
SERVICES = (
    ControlService,
    HookService,
    LogService,
    PmixService,
    services.ManagerService,
    services.SchedulerService,
    services.MockExecService,
    resource_module.ResourceService,
)
# The calls that can fail.
POINTS = (
    "JobManager.handle",
    "JobManager.take_output",
    "JobManager.commit",
    "JobManager.advance",
    "JobManager.set_services",
    "JobManager.rebuild",
    "JobManager.open_for_reading",
    "ResourceModule.handle",
    "ResourceModule.take_output",
    "Scheduler.handle",
    "Scheduler.schedule",
    "Scheduler.take_out",
    "MockExec.handle",
    "MockExec.advance",
    "MockExec.start",
    "Router.exchange",
    *(
        f"{service.__name__}.{method}"
        for service in SERVICES
        for method in ("deliver", "post_output")
    ),
)
STORE_ERRNOS = (errno.ENOSPC, errno.EIO, errno.EBUSY)
# A daemon that runs more rounds while no time passes does nothing else.
MAX_ROUNDS = 20_000
# Commits for which the reserve of disk space lasts.
RESERVED_COMMITS = 20


class EndlessRoundsError(BaseException):
    """The daemon exchanges messages without end."""


class InjectedFault(Exception):  # noqa: N818
    """A fault of the simulation."""


def injected_panic() -> BaseException:
    """The exception of a Rust panic."""
    return PanicException("injected")


def is_injected(fault: BaseException | None) -> bool:
    """Whether the simulation has raised an exception, or all in its group, or its cause."""
    if fault is None:
        return False
    if isinstance(fault, BaseExceptionGroup):
        return all(map(is_injected, fault.exceptions))
    if isinstance(fault, InjectedFault) or "injected" in str(fault):
        return True
    return is_injected(fault.__cause__) or is_injected(fault.__context__)


class Faults:
    """The faults that are to come, and those that came.

    Args:
        kill: ends the daemon at once.
        uses_cores: whether services in Rust exchange messages without Python.
    """

    def __init__(self, kill: Callable[[], None], *, uses_cores: bool) -> None:
        self._kill = kill
        self.uses_cores = uses_cores
        # By point: the calls before the fault, and its kind.
        self._armed: dict[str, tuple[int, int]] = {}
        # The errno with which the store cannot be written, and the attempts for which that lasts.
        self._store_errno = 0
        self._store_attempts = 0.0
        # The commits before the one that fails, and its errno.
        self._commit_error: tuple[int, int] | None = None
        self._limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        self.is_limited = False
        # Whether the store has failed in this run.
        self.store_has_failed = False
        self.has_reserve = False
        self._reserved_commits = 0

    def arm(self, point: int, calls: int, kind: int) -> None:
        """Has a later call fail: it raises, or panics, before or after it has done its work."""
        self._armed[POINTS[point % len(POINTS)]] = (calls, kind % 4)

    def arm_kill(self, point: int, calls: int) -> None:
        """Has the daemon end before or after a later call."""
        self._armed[POINTS[point % len(POINTS)]] = (calls, 4 + calls % 2)

    def fail_store(self, number: int, attempts: int) -> None:
        """Has the store fail for some attempts to write; 0 for no end."""
        self._store_errno = STORE_ERRNOS[number % len(STORE_ERRNOS)]
        self._store_attempts = attempts or float("inf")
        self.store_has_failed = True

    def fail_commit(self, commits: int, number: int) -> None:
        """Has a later commit of changes fail, and the store be written again."""
        self._commit_error = (commits, STORE_ERRNOS[number % len(STORE_ERRNOS)])

    def limit_files(self, size: int) -> None:
        """Has writes to files fail beyond an offset."""
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, self._limit[1]))
        self.is_limited = self.store_has_failed = True

    @contextmanager
    def unlimited_files(self) -> Iterator[None]:
        """Has files grow in the block."""
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, self._limit)
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)

    def heal(self) -> None:
        """Has nothing fail from now on."""
        self._armed.clear()
        self._commit_error = None
        self._store_errno = 0
        resource.setrlimit(resource.RLIMIT_FSIZE, self._limit)
        self.is_limited = False

    @property
    def is_store_failing(self) -> bool:
        """Whether the store cannot be written."""
        return bool(self._store_errno) or self.is_limited

    # --- the reserve of disk space

    def hold(self) -> bool:
        """Takes the reserve, if there is space."""
        self.has_reserve = self._store_errno != errno.ENOSPC
        return self.has_reserve

    def release(self) -> bool:
        """Gives the reserve to the store."""
        if self.has_reserve:
            self._reserved_commits = RESERVED_COMMITS
        self.has_reserve, released = False, self.has_reserve
        return released

    def space(self) -> None:
        """The space of the disk is unknown."""

    # --- calls

    def due(self, point: str) -> int | None:
        """The kind of the fault in this call."""
        if point not in self._armed:
            return None
        calls, kind = self._armed[point]
        if calls:
            self._armed[point] = (calls - 1, kind)
            return None
        del self._armed[point]
        return kind

    def call(self, point: str, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Calls a function, in which a fault may be due."""
        # The last thing that these do is to post the responses, or to commit.
        is_before = point.endswith((".deliver", ".commit"))
        return self._call(self.due(point), is_before, function, *args, **options)

    def call_before(self, point: str, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a function, before which a fault may be due."""
        return self._call(self.due(point), True, function, *args)  # noqa: FBT003

    def _call(
        self,
        kind: int | None,
        is_before: bool,  # noqa: FBT001
        function: Callable[..., Any],
        *args: Any,
        **options: Any,
    ) -> Any:
        if kind is None:
            return function(*args, **options)
        if kind < 4 and is_before:
            kind = kind // 2 * 2
        if kind % 2:
            result = function(*args, **options)
        if kind // 2 == 0:
            raise InjectedFault
        if kind // 2 == 1:
            raise injected_panic()
        self._kill()
        return result if kind % 2 else function(*args, **options)

    def commit_store(self, function: Callable[..., Any]) -> Any:
        """Calls a function that commits changes."""
        if self._commit_error is not None:
            commits, number = self._commit_error
            self._commit_error = (commits - 1, number) if commits else None
            if not commits and not self._store_errno:
                self._store_errno, self._store_attempts = number, 1.0
                self.store_has_failed = True
        return self.write_store(function)

    def write_store(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a function that writes to the store."""
        if self._store_errno == errno.ENOSPC and self._reserved_commits:
            self._reserved_commits -= 1
        elif self._store_errno:
            error = StoreError(f"store: injected error {self._store_errno}")
            error.errno = self._store_errno
            self._store_attempts -= 1
            if self._store_attempts <= 0:
                self._store_errno = 0
            raise error
        return function(*args)


class Faulty:
    """An object in Rust whose calls can fail.

    Args:
        real: the object.
        faults: the faults.
    """

    def __init__(self, real: Any, faults: Faults) -> None:
        self.real = real
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.real, name)
        point = f"{type(self.real).__name__}.{name}"
        return partial(self._faults.call, point, found) if point in POINTS else found


class FaultyManager(Faulty):
    """A job manager whose store can fail."""

    def __getattr__(self, name: str) -> Any:
        point, found = f"JobManager.{name}", getattr(self.real, name)
        if point in POINTS and self.real.is_reading:
            return partial(self._call_reading, point, found)
        return super().__getattr__(name)

    def _call_reading(self, point: str, function: Callable[..., Any], *args: Any) -> Any:
        try:
            return self._faults.call_before(point, function, *args)
        except (InjectedFault, PanicException):
            # A panic would leave none of its output.
            self.real.take_output(lambda _: True)
            raise

    def commit(self) -> None:
        """Commits."""
        # The store is not written without changes.
        write = self.real.commit
        if self.real.has_uncommitted:
            write = partial(self._faults.commit_store, write)
        self._faults.call("JobManager.commit", write)

    def rebuild(self, *args: Any) -> None:
        """Is built again."""
        write = partial(self._faults.write_store, self.real.rebuild)
        self._faults.call("JobManager.rebuild", write, *args)

    def flush(self) -> Batch:
        """Commits at the end."""
        return self._faults.write_store(self.real.flush)


class FaultyRouter(Faulty):
    """A router in whose exchanges a service can fail."""

    def exchange(self, sender: int, batch: Batch, cores: Any, now: float, limit: int) -> Any:
        """Exchanges; a fault leaves the first service that gets messages with a fault."""
        kind = self._faults.due("Router.exchange")
        if kind is None or kind > 3:
            return self.real.exchange(sender, batch, cores, now, limit)
        failing = cores[kind % len(cores)][0]
        fault = InjectedFault("exchange") if kind < 2 else injected_panic()
        others = [each for each in cores if each[0] != failing]
        deliveries, *rest, failures = self.real.exchange(sender, batch, others, now, limit)
        failures = failures + [(peer, got, fault) for _, peer, got in deliveries if peer == failing]
        return ([each for each in deliveries if each[1] != failing], *rest, failures)


def unwrapped(found: Any) -> Any:
    """The object behind one whose calls can fail."""
    return found.real if isinstance(found, Faulty) else found


@contextmanager
def installed(faults: Faults) -> Iterator[None]:
    """Has the daemon's parts fail by these faults in the block."""
    with pytest.MonkeyPatch.context() as patch:

        def wrap(real: Any, wrapper: type[Faulty]) -> Callable[..., Any]:
            return lambda *args, **options: wrapper(real(*map(unwrapped, args), **options), faults)

        patch.setattr(services, "Scheduler", wrap(services.Scheduler, Faulty))
        patch.setattr(services, "MockExec", wrap(services.MockExec, Faulty))
        module = resource_module.ResourceModule
        patch.setattr(resource_module, "ResourceModule", wrap(module, Faulty))
        router: type[Router] = broker_module.Router
        patch.setattr(broker_module, "Router", wrap(router, FaultyRouter))
        set_core = Broker.set_core

        def set_real_core(broker: Broker, peer: int, core: Any, prepare: Any = None) -> None:
            if faults.uses_cores:
                set_core(broker, peer, unwrapped(core), prepare)

        patch.setattr(Broker, "set_core", set_real_core)
        for service in SERVICES:
            for method in ("deliver", "post_output"):
                patch.setattr(service, method, _failing(service, method, faults))
        patch.setattr(Broker, "run_round", _counted(Broker.run_round))
        yield


def _counted(run_round: Callable[[Broker], bool]) -> Callable[[Broker], bool]:
    time, rounds = 0.0, 0

    def counted(broker: Broker) -> bool:
        nonlocal time, rounds
        now = trio.current_time()
        time, rounds = now, rounds + 1 if now == time else 0
        if rounds > MAX_ROUNDS:
            raise EndlessRoundsError
        return run_round(broker)

    return counted


def _failing(service: type, method: str, faults: Faults) -> Callable[..., Any]:
    point, real = f"{service.__name__}.{method}", getattr(service, method)

    @wraps(real)
    def call(self: Any, argument: Any) -> Any:
        return faults.call(point, real, self, argument)

    return call
