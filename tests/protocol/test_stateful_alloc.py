"""RFC 27, both ends against each other: the job manager, and our scheduler."""

from __future__ import annotations

import errno

import pytest
from actors import jobspec_of
from books import INACTIVE, RUN, audit
from ends import SlowScheduler
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from jobmachine import ALL_NODES_SPEC, Jobs, limits, places
from watch import SchedulerWatch


class Allocation(Jobs):
    """The job manager and our scheduler, which is killed and restarted at any step."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler: SlowScheduler | None = None

    @initialize(limit=limits, running=st.booleans(), waiting=st.integers(0, 3))
    def some_run_and_some_wait(self, limit: int | None, *, running: bool, waiting: int) -> None:
        self.scheduler_comes(limit)
        if running:
            self.submit(ALL_NODES_SPEC, 16)
        self.both_work()
        for _ in range(waiting):
            self.submit(jobspec_of(), 16)
        self.both_work()

    @precondition(lambda self: self.scheduler is None)
    @rule(limit=limits)
    def scheduler_comes(self, limit: int | None) -> None:
        self.scheduler = SlowScheduler(self.instance, limit)
        self.known = watch = SchedulerWatch()
        self.scheduler.on_received, self.scheduler.on_sent = watch.on_received, watch.on_sent
        self.meet(self.scheduler.number)
        self.instance.settle()

    @precondition(lambda self: self.scheduler is not None)
    @rule()
    def scheduler_goes(self) -> None:
        assert self.scheduler is not None
        self.instance.disconnect(self.scheduler)
        self.scheduler = None

    @precondition(lambda self: self.scheduler is not None)
    @rule(count=st.integers(1, 5))
    def scheduler_works(self, count: int) -> None:
        assert self.scheduler is not None
        self.scheduler.work(count)
        self.instance.settle()

    @precondition(lambda self: self.scheduler is not None)
    @rule()
    def both_work(self) -> None:
        """Handles all delayed messages on both ends."""
        assert self.scheduler is not None
        while self.manager.inbox or self.scheduler.inbox:
            self.manager.work()
            self.instance.settle()
            self.scheduler.work()
            self.instance.settle()
        self.nothing_was_missed()

    @precondition(lambda self: self.scheduler is not None)
    @rule()
    def both_work_on(self) -> None:
        """The same again, to make this rule more frequent."""
        self.both_work()

    def nothing_was_missed(self) -> None:
        """With no message in flight the scheduler has exactly the outstanding alloc requests."""
        assert self.scheduler is not None
        wanted = self.wanted()
        assert self.watch.ready
        assert not self.watch.cancelling, "a cancel that was not answered"
        outstanding = list(wanted)[: self.scheduler.limit]
        assert self.watch.in_flight == set(outstanding)
        expected = {
            job: (request["priority"], request["duration"]) for job, request in wanted.items()
        }
        assert self.known.pending == {job: expected[job] for job in outstanding}
        if outstanding:
            annotations = wanted[outstanding[0]].get("annotations", {})
            assert "reason_pending" in annotations.get("sched", {}), "pending without a reason"
        for account in audit(self.instance, self.user, set(self.jobs)).values():
            if account.allocated:
                (alloc,) = [event["context"] for event in account.log if event["name"] == "alloc"]
                assert alloc["annotations"]["sched"] == {"resource_summary": account.r.summary()}

    @precondition(lambda self: self.scheduler is not None and self.watch.in_flight)
    @rule(place=places, what=st.sampled_from(["cancel", 1, 20, 31, 60.0, 3600.0]))
    def a_pending_job_is_changed(self, place: int, what: str | float) -> None:
        """Changes urgency, duration or both of a pending job."""
        place = 2 * place + 1
        if isinstance(what, str):
            self.cancel(place)
        elif isinstance(what, int):
            self.change_urgency(place, what)
        else:
            self.change_duration(place, what)
        self.both_work()

    @precondition(lambda self: self.scheduler is not None and self.execution.jobs)
    @rule(place=places, duration=st.sampled_from([0.0, 60.0, 3600.0]))
    def a_change_of_a_running_job_is_agreed_to(self, place: int, duration: float) -> None:
        """Changes a running job once the scheduler has agreed."""
        running = list(self.execution.jobs)
        self.both_work()
        before = self.known.expirations
        job = running[place % len(running)]
        runs = self.account(job).state == RUN
        self.change_duration_of(job, duration)
        self.both_work()
        assert not self.updates, "a change that is never answered"
        assert not runs or self.known.expirations > before, "no request was sent"

    @precondition(lambda self: self.execution.jobs)
    @rule(limit=limits)
    def scheduler_is_replaced_after_a_release(self, limit: int | None) -> None:
        """Replaces the scheduler; hello must tell its successor of partial releases."""
        self.manager_works(len(self.manager.inbox))
        if self.wide():
            self.job_releases_a_rank(0)
            self.manager_works(len(self.manager.inbox))
            before = self.watch.partial
            self.scheduler_is_replaced(limit)
            self.both_work()
            assert self.watch.partial > before

    @invariant()
    def the_job_manager_asks_for_what_it_wants(self) -> None:
        """Unwanted alloc requests are cancelled at once, and priorities are updated."""
        wanted = self.wanted()
        for job in self.watch.in_flight - self.watch.cancelling:
            assert job in wanted, "neither wanted nor being cancelled"
            assert self.watch.priorities[job] == wanted[job]["priority"]

    @rule(limit=limits)
    def scheduler_is_replaced(self, limit: int | None) -> None:
        """Replaces the scheduler before the job manager has handled the disconnect."""
        if self.scheduler is not None:
            self.scheduler_goes()
        self.scheduler_comes(limit)

    @invariant()
    def the_scheduler_is_well(self) -> None:
        assert self.scheduler is None or self.scheduler.scheduler.failure is None

    def teardown(self) -> None:
        if self.scheduler is None:
            self.scheduler_comes(None)
        assert self.scheduler is not None
        self.wind_up(self.scheduler)
        self.nothing_is_lost(self.scheduler)


TestAllocation = Allocation.TestCase
TestAllocation.settings = settings(max_examples=80, stateful_step_count=35)


# Failures that the machines found, step by step.


def with_a_scheduler() -> Allocation:
    state = Allocation()
    state.scheduler_is_replaced(None)
    state.both_work()
    return state


def greeting(state: Allocation) -> SlowScheduler:
    """A second scheduler, whose hello has not been handled."""
    state.scheduler_is_replaced(None)
    assert state.scheduler is not None
    while state.scheduler.scheduler.phase != "greeting":
        state.scheduler_works(1)
    return state.scheduler


def test_a_request_to_its_predecessor_does_not_reach_the_new_scheduler() -> None:
    state = with_a_scheduler()
    scheduler = greeting(state)
    # The job manager has not noticed that the first one has gone.
    state.submit(jobspec_of(), 16)
    assert [message.topic for message in scheduler.inbox] == ["sched.alloc"]
    state.both_work()
    account = state.account(state.jobs[0])
    assert (account.state, account.names.count("exception")) == (RUN, 0)
    state.teardown()


def test_resources_freed_between_hello_and_ready_are_not_lost() -> None:
    state = with_a_scheduler()
    state.submit(jobspec_of(), 16)
    state.both_work()
    scheduler = greeting(state)
    state.manager_works(5)
    # Hello has announced the job with its resources.
    assert [message.errnum for message in scheduler.inbox] == [0, errno.ENODATA]
    state.job_ends(0)
    state.manager_works(5)
    assert state.account(state.jobs[0]).state == INACTIVE
    state.teardown()


# Messages that every run must receive, whichever steps the machine draws.


@pytest.mark.parametrize("what", ["cancel", 1, 20, 31, 60.0, 3600.0])
@pytest.mark.parametrize("limit", [None, 1, 2])
def test_a_change_of_a_pending_job_reaches_the_scheduler(
    limit: int | None, what: str | float
) -> None:
    state = Allocation()
    state.some_run_and_some_wait(limit, running=True, waiting=3)
    state.a_pending_job_is_changed(0, what)
    state.the_job_manager_asks_for_what_it_wants()
    state.a_pending_job_is_changed(1, what)
    state.teardown()


def test_a_change_and_a_partial_release_of_a_running_job_reach_the_scheduler() -> None:
    state = Allocation()
    state.some_run_and_some_wait(None, running=True, waiting=1)
    state.a_change_of_a_running_job_is_agreed_to(0, 60.0)
    state.scheduler_is_replaced_after_a_release(None)
    assert state.watch.partial == 1
    state.queue_stops_or_starts(start=False)
    state.both_work()
    state.queue_stops_or_starts(start=True)
    state.both_work()
    state.teardown()
