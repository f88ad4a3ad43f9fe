"""The Rust services as peers of the broker: job manager, scheduler, simulated execution."""

from __future__ import annotations

import errno
import logging
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

import trio

from penstock._core import Batch, MockExec, Scheduler, return_memory
from penstock.client.outstanding import Outstanding
from penstock.errors import RequestError
from penstock.instance.commits import Store
from penstock.instance.failure import FAILED_SERVICE_ERRNOS, Failure
from penstock.instance.restart import OUTAGE_PAUSE_S, Restarts
from penstock.instance.supervision import MAX_PAUSE_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from penstock._core import JobManager, Message
    from penstock.client.calls import Call
    from penstock.errors import StoreError
    from penstock.instance.broker import Broker
    from penstock.instance.system import SpaceReserve

T = TypeVar("T")

log = logging.getLogger("penstock")

# The longest time to the commit of changes that no message to a client has caused to be committed.
MAX_COMMIT_DELAY_S = 0.05
# The same while large requests are done in slices and others have sent requests in between: the
# commit of such a request writes the slices, too.
MAX_SLICES_COMMIT_DELAY_S = 0.005
# Of the time of slices, the commits between them take a third at most.
SLICES_PER_COMMIT_TIME = 2.0
# Slices in a row while no connection has input.
MAX_SLICES = 4
# The longest time for which the space of the disk is not read again.
SPACE_INTERVAL_S = 0.01
# The time from work of the job manager until memory that is free then is returned.
MEMORY_PAUSE_S = 1.0
# The longest pause after slices that delay other users.
MAX_PAUSE_BETWEEN_SLICES_S = 0.02


class ManagerService:
    """The job manager: serves `job-*`, `kvs` and `pmix`.

    Args:
        broker: the broker.
        manager: the job manager.
        settings: makes its settings, as JSON, when it is built again.
        on_purge: called with the ids of purged jobs.
        clock_step_limit: the seconds by which the clock may be set forward; 0 for any number.
        reserve: disk space that the store gets when the disk is full.

    Attributes:
        on_rebuild: functions that are called when the job manager has been built again: peers
            within the daemon must introduce themselves to it.
        on_failure: functions that are called with the fault when the job manager has failed.
    """

    peer: int

    NAMES = (
        "job-manager",
        "job-ingest",
        "job-list",
        "job-info",
        "job-shell",
        "kvs",
        "kvs-watch",
        "pmix",
    )

    def __init__(
        self,
        broker: Broker,
        manager: JobManager,
        settings: Callable[[], str] = lambda: "{}",
        on_purge: Callable[[list[int]], None] | None = None,
        clock_step_limit: Callable[[], float] = lambda: 0.0,
        reserve: SpaceReserve | None = None,
    ) -> None:
        self._broker = broker
        self._manager = manager
        self._reserve = reserve
        # Set while the store uses the reserve of disk space.
        self._is_short = trio.Event()
        self._clock_step_limit = clock_step_limit
        self._clock_offset = self._read_clock_offset()
        # Why submissions are rejected; None if they are not.
        self._rejection: str | None = None
        self._settings = settings
        self._on_purge = on_purge
        self.on_rebuild: list[Callable[[], None]] = []
        self.on_failure: list[Callable[[BaseException], None]] = []
        # The peers of the failed job manager outside of the daemon; None if it has not failed.
        self._lost_peers: list[int] | None = None
        self._alarm = broker.alarm()
        # Set when the job manager has worked.
        self._has_worked = trio.Event()
        # Since when there are changes that no message to a client has caused to be committed.
        self._uncommitted_since: float | None = None
        # Whether connections have had input between the slices of the open requests.
        self._has_requests_between = False
        # When the space of the disk is read again.
        self._space_due = 0.0
        # Whether the last commit is durable only at the end of a sync.
        self._is_syncing = False
        # The jobs whose purge is to be committed, and those whose purge is being synced.
        self._purged: list[int] = []
        self._purged_syncing: list[int] = []
        # The seconds that the last commit took.
        self._commit_time = 0.0
        # The seconds that slices have taken since then.
        self._slices_time = 0.0
        # When the next slices may begin.
        self._resume_at = 0.0
        # Whether the job manager has further parts of lists, waits or journals to send.
        self._has_parts = False
        self._outstanding: Outstanding[list[Message]] = Outstanding()
        self.restarts = Restarts(
            broker,
            self,
            self.NAMES,
            rebuild=self._rebuild,
            in_memory=True,
            answer_on_failure=True,
            on_failure=self._report_failure,
            open_for_reading=self._open_for_reading,
            is_reading=lambda: self._manager.is_reading,
            serve_reads=self._serve_reads,
        )
        self.restarts.start()
        broker.watch_services(self._set_services)

    def _rebuild(self) -> None:
        """Builds the job manager from its store, as at a start of the instance.

        Raises:
            StoreError: the store cannot be read or written.
        """
        if self._reserve is not None and self.restarts.is_disk_full and self._reserve.release():
            log.error(
                "the disk is full: the store uses its reserve, no jobs are accepted or started"
            )
            self._is_short.set()
        self._manager.rebuild(self._settings(), self._broker.clock.now())
        self._space_due = 0.0
        self._apply_rejection()
        self._uncommitted_since = None
        # Their purge may not be durable; the store remembers those of which it is.
        self._purged, self._purged_syncing = [], []
        self._outstanding = Outstanding()
        self._lost_peers = self._broker.serving_clients(self.peer)

    def _is_ahead(self, route: bytes) -> bool:
        if self.restarts.failed:
            return False
        with suppress(RequestError), self.guard():
            return self._manager.is_ahead(route)
        return False

    def _report_failure(self, fault: BaseException) -> None:
        for follow in self.on_failure:
            follow(fault)
        self._broker.intake.continue_reading()

    def _open_for_reading(self, fault: StoreError) -> None:
        """Has requests that change nothing served while the store cannot be written."""
        if not self._manager.is_reading:
            failure = Failure.of(fault)
            now = self._broker.clock.now()
            self._manager.open_for_reading(self._settings(), now, failure.errnum, failure.text)

    def _serve_reads(self, batch: Batch) -> bool:
        if not self._manager.is_reading:
            return False
        self._manager.handle(batch, self._broker.clock.now())
        self._broker.post(self.peer, self._take())
        return True

    def restart(self) -> None:
        """Has the store committed; the peers of a job manager that failed must connect again."""
        self._broker.commits.store = Store(
            self.peer, self._commit, lambda: self._is_syncing, self._finish_sync
        )
        self._broker.set_core(self.peer, self._manager, self._read_clock_and_space)
        self._broker.intake.hold_back(self._is_ahead)
        if self._lost_peers is None:
            return
        for peer in self._lost_peers:
            self._broker.disconnect(peer)
        self._lost_peers = None
        for follow in self.on_rebuild:
            follow()

    def _set_services(self, services: dict[str, bytes]) -> None:
        if not self.restarts.failed:
            with suppress(RequestError), self._broker.guard(self.peer):
                self._manager.set_services(services)

    def deliver(self, batch: Batch) -> None:
        """Takes messages in."""
        self._read_clock_and_space()
        self._manager.handle(batch, self._broker.clock.now())

    def _read_clock_offset(self) -> float:
        clock = self._broker.clock
        return clock.now() - clock.monotonic()

    def _read_clock_and_space(self) -> None:
        """Passes on the monotonic time and the space of the disk.

        Submissions are rejected while the clock is far ahead.

        Job ids are made of the time.

        A clock that is set back does no harm, because new ids follow the greatest one.
        """
        monotonic = self._broker.clock.monotonic()
        self._manager.set_monotonic(monotonic)
        if self._reserve is not None and monotonic >= self._space_due:
            self._space_due = monotonic + SPACE_INTERVAL_S
            self._manager.set_disk_space(self._reserve.space())
        limit = self._clock_step_limit()
        step = self._read_clock_offset() - self._clock_offset
        rejection = None
        if 0 < limit < step:
            rejection = (
                f"the clock was set forward by {step:.0f} s, "
                f"more than {limit:.0f} s: no jobs are accepted\n"
                "hint: correct the clock; if it is right, restart the instance"
            )
        # The words differ with the size of the step, which changes while a clock is slewed.
        if (rejection is None) != (self._rejection is None):
            log.warning("%s", rejection or "the clock is right again: jobs are accepted")
            self._rejection = rejection
            self._apply_rejection()

    def _apply_rejection(self) -> None:
        if self._is_short.is_set():
            self._manager.set_rejection((errno.ENOSPC, "the disk is full: no jobs are accepted"))
            self._manager.pause_starts()
        else:
            reason = self._rejection
            self._manager.set_rejection(None if reason is None else (errno.EAGAIN, reason))
            self._manager.resume_starts()

    async def watch_space(self) -> None:
        """Holds the reserve of disk space, again when there is space after the disk was full."""
        reserve = self._reserve
        if reserve is None:
            return
        if not reserve.hold():
            log.info("there is no space for the reserve of the store")
        while True:
            await self._is_short.wait()
            while True:
                await trio.sleep(OUTAGE_PAUSE_S)
                if reserve.hold():
                    break
            self._is_short = trio.Event()
            log.warning("there is disk space again: jobs are accepted and started")
            with suppress(RequestError), self.guard():
                self._apply_rejection()
                self._broker.nudge()

    def do(self, call: Call[T]) -> T:
        """Sends a request that the job manager answers at once; returns its result.

        Raises:
            RpcError: the job manager rejects the request.
            RequestError: the job manager has failed.
        """
        with self.guard():
            return self._do(call)

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Contains the faults of the job manager in calls of its methods.

        Raises:
            Error: the call is rejected.
            RequestError: the job manager has failed.
        """
        if self.restarts.failed:
            raise RequestError(errno.EIO, "the job manager has failed")
        with self._broker.guard(self.peer):
            yield

    def _do(self, call: Call[T]) -> T:
        inbox: list[Message] = []
        request = self._outstanding.request(inbox, call)
        self._manager.handle(Batch([request]), self._broker.clock.now())
        others = Batch()
        for message in self._take():
            # Responses to peers have routes.
            is_own = message.kind == "response" and not message.routes
            if is_own and self._outstanding.deliver(message) is inbox:
                inbox.append(message)
            else:
                others.append(message)
        self._broker.post(self.peer, others)
        return call.result(inbox[0])

    def post_output(self, now: float) -> None:
        """Posts messages; long responses in parts, as their readers keep up."""
        if self.restarts.failed and not self._manager.is_reading:
            return
        self._broker.post(self.peer, self._take())

    def _take(self) -> Batch:
        """Takes the output of the job manager, and returns its messages."""
        clock = self._broker.clock
        began = clock.monotonic()
        batch, busy, deadline, uncommitted, lines, purged = self._manager.take_output(
            self._is_writable
        )
        if busy or self._has_parts:
            self._broker.count_slice(clock.monotonic() - began)
        self._has_parts = busy
        if busy:
            self._broker.nudge()
        self._has_worked.set()
        self._broker.intake.continue_reading()
        for line in lines:
            log.warning("job-manager: %s", line)
        self._purged += purged
        if not uncommitted:
            self._uncommitted_since = None
            if not self._is_syncing:
                self._report_purge()
        elif self._uncommitted_since is None:
            self._uncommitted_since = clock.now()
        if deadline is not None:
            deadline = max(deadline, self._resume_at)
        deadlines = (deadline, self._commit_deadline())
        self._alarm.set(min((each for each in deadlines if each is not None), default=None))
        return batch

    def _is_writable(self, route: bytes) -> bool:
        writable = self._broker.is_writable(route)
        if not writable:
            self._broker.nudge_when_writable(route)
        return writable

    async def return_memory(self) -> None:
        """Returns memory to the system soon after work: many jobs may have ended, or be listed.

        The allocator does so by itself only when more is freed later.
        """
        while True:
            await self._has_worked.wait()
            await trio.sleep(MEMORY_PAUSE_S)
            self._has_worked = trio.Event()
            return_memory()

    async def run(self) -> None:
        """Advances the job manager at its deadlines, such as the begin times of jobs."""
        clock = self._broker.clock
        while True:
            await self._alarm.wait()
            began = clock.monotonic()
            commit_deadline = self._commit_deadline()
            if commit_deadline is not None and clock.now() >= commit_deadline:
                self._broker.commits.commit()
            with suppress(RequestError), self.guard():
                if clock.now() >= self._resume_at:
                    self._advance()
                    if self._manager.delays(self._broker.intake.present_users()):
                        self._pause(began)
                self._broker.nudge()

    def _commit(self) -> bool:
        clock = self._broker.clock
        began = clock.monotonic()
        has_changed, self._is_syncing = self._manager.begin_commit()
        if not has_changed:
            return False
        if self._is_syncing:
            self._purged_syncing, self._purged = self._purged, []
        else:
            self._report_purge()
            self._manager.record_commit(clock.monotonic())
        self._commit_time = clock.monotonic() - began
        self._slices_time = 0.0
        self._uncommitted_since = None
        return True

    def _finish_sync(self) -> None:
        self._is_syncing = False
        self._manager.finish_sync()
        later, self._purged = self._purged, self._purged_syncing
        self._report_purge()
        self._purged, self._purged_syncing = later, []
        # A job manager that a panic has left since has no statistics.
        with suppress(RuntimeError):
            self._manager.record_commit(self._broker.clock.monotonic())

    def _report_purge(self) -> None:
        purged, self._purged = self._purged, []
        if purged and self._on_purge is not None:
            self._on_purge(purged)

    async def watch_syncs(self, read_input: Callable[[int], Awaitable[None]]) -> None:
        """Has the broker send held messages at the end of a sync.

        Args:
            read_input: waits until a descriptor has input, and removes it.
        """
        descriptor = self._manager.sync_descriptor
        if descriptor is None:
            return
        while True:
            await read_input(descriptor)
            # Some ends have been waited for.
            if not self._manager.is_syncing:
                self._broker.commits.end_sync()

    def _commit_deadline(self) -> float | None:
        if self._uncommitted_since is None or self._broker.commits.is_syncing:
            return None
        if not self._has_requests_between:
            return self._uncommitted_since + MAX_COMMIT_DELAY_S
        delay = max(MAX_SLICES_COMMIT_DELAY_S, SLICES_PER_COMMIT_TIME * self._commit_time)
        return self._uncommitted_since + min(delay, MAX_COMMIT_DELAY_S)

    def _is_worth_a_commit(self) -> bool:
        return self._slices_time >= SLICES_PER_COMMIT_TIME * self._commit_time

    def _advance(self) -> None:
        """Does slices of large requests, until a connection has input.

        A commit of few of them would take longer than they do.
        """
        clock = self._broker.clock
        began = clock.monotonic()
        before = self._slices_time
        for _ in range(MAX_SLICES):
            is_more = self._manager.advance(clock.now())
            slices_time = before + clock.monotonic() - began
            self._broker.count_slice(slices_time - self._slices_time)
            self._slices_time = slices_time
            if not is_more:
                self._has_requests_between = False
                break
            # The response to a request in between waits for a commit of the slices.
            if self._is_worth_a_commit() and self._broker.has_input():
                self._has_requests_between = True
                break

    def _pause(self, began: float) -> None:
        """Leaves other users as much time as the slices since a time have taken.

        Their changes are committed before, so that those of other users are committed soon.
        """
        clock = self._broker.clock
        if self._is_worth_a_commit():
            self._broker.commits.commit()
        taken = clock.monotonic() - began
        self._resume_at = clock.now() + min(taken, MAX_PAUSE_BETWEEN_SLICES_S)


class SchedulerService:
    """The scheduler within the daemon, by the protocols of a scheduler outside.

    A scheduler that fails leaves the broker, as RFC 27 and RFC 28 demand, and is replaced by a new
    one after a pause.

    Args:
        broker: the broker.
        limit: the largest number of outstanding alloc requests; None for unlimited.
        settings: makes the settings, as JSON, of every scheduler that starts.
    """

    peer: int

    def __init__(
        self, broker: Broker, limit: int | None, settings: Callable[[], str] = lambda: "{}"
    ) -> None:
        self._broker = broker
        self._limit = limit
        self._settings = settings
        self._alarm = broker.alarm()
        self.restarts = Restarts(
            broker,
            self,
            title="sched",
            in_memory=True,
            # Its output may be lost with it.
            answer_on_failure=True,
            max_pause_s=MAX_PAUSE_S,
        )
        self.restarts.start()

    def restart(self) -> None:
        """Makes a new scheduler."""
        self._scheduler = Scheduler(limit=self._limit, settings=self._settings())
        self._scheduler.start()
        self._broker.set_core(self.peer, self._scheduler)
        self._broker.nudge()

    def deliver(self, batch: Batch) -> None:
        """Takes messages in."""
        self._scheduler.handle(batch)

    def post_output(self, now: float) -> None:
        """Schedules, then sends."""
        if self._scheduler.schedule(now):
            self._broker.nudge()
        if self._scheduler.deadline is not None and self._scheduler.deadline <= now:
            began = self._broker.clock.monotonic()
            self._scheduler.annotate(now)
            self._scheduler.defer_annotations(now, self._broker.clock.monotonic() - began)
        self._alarm.set(self._scheduler.deadline)
        self._broker.post(self.peer, self._scheduler.take_out())
        failure = self._scheduler.failure
        for line in self._scheduler.take_log():
            log.log(logging.ERROR if failure else logging.INFO, "sched: %s", line)
        if failure is not None:
            self.restarts.replace()

    async def run(self) -> None:
        """Replaces failed schedulers until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._wake)
            await self.restarts.run()

    async def _wake(self) -> None:
        """Runs a round at each deadline, for the annotations of pending jobs."""
        while True:
            await self._alarm.wait()
            self._broker.nudge()


class MockExecService:
    """Simulated execution within the daemon; one that fails is replaced after a pause.

    Args:
        broker: the broker.
        name: the service's name.
    """

    peer: int

    def __init__(self, broker: Broker, name: str) -> None:
        self._broker = broker
        self._name = name
        self._alarm = broker.alarm()
        self.restarts = Restarts(broker, self, title=name, in_memory=True)
        self.restarts.start()

    def restart(self) -> None:
        """Makes a new execution service and registers it."""
        self._exec = MockExec(self._name)
        self._broker.set_core(self.peer, self._exec)
        self._broker.post(self.peer, self._exec.start())

    def deliver(self, batch: Batch) -> None:
        """Takes messages in and responds."""
        self._broker.post(self.peer, self._exec.handle(batch, self._broker.clock.now()))

    def post_output(self, now: float) -> None:
        """Sets the alarm for the end of the next job.

        Raises:
            OSError: the registration was rejected, which is fatal to the service (RFC 32).
        """
        if self._exec.failure_errnum in FAILED_SERVICE_ERRNOS:
            # Of the job manager, not of this service, which registers again.
            self.restarts.replace()
            return
        if self._exec.failure is not None:
            raise OSError(errno.EPROTO, f"simulated execution: {self._exec.failure}")
        self._alarm.set(self._exec.deadline)

    async def run(self) -> None:
        """Ends jobs at their time, and replaces a failed service, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._end_jobs)
            await self.restarts.run()

    async def _end_jobs(self) -> None:
        while True:
            await self._alarm.wait()
            if not self.restarts.failed:
                with suppress(RequestError), self._broker.guard(self.peer):
                    batch = self._exec.advance(self._broker.clock.now())
                    self._alarm.set(self._exec.deadline)
                    self._broker.post(self.peer, batch)
