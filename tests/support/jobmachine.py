"""RFC 27's environment: actions of users, the administrator and the execution service."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, NamedTuple

from actors import ExecutionService, User, jobspec_of
from books import INACTIVE, RUN, SCHED, Account, audit
from ends import SlowManager, SlowScheduler
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from inprocess import Instance
from watch import ManagerWatch

from penstock.inventory import simulated

if TYPE_CHECKING:
    from penstock._core import Message

NODES, CORES = 3, 2
ALL_NODES_SPEC = jobspec_of(nodes=NODES)
MAX_JOBS = 10
# RFC 30: what urgency 31 stands for.
HIGHEST = 4294967295
limits = st.sampled_from([None, 1, 2, 5])
places = st.integers(0, 2 * MAX_JOBS - 1)
jobspecs = st.one_of(
    st.builds(jobspec_of, st.integers(1, 4), st.integers(1, CORES)),
    st.builds(lambda nodes: jobspec_of(nodes=nodes), st.integers(1, NODES + 1)),
    st.builds(lambda rank: jobspec_of(ranks=str(rank)), st.integers(0, NODES - 1)),
)


class Shape(NamedTuple):
    """A jobspec, and whether it fits into an idle instance."""

    jobspec: dict[str, Any]
    feasible: bool


shapes = st.one_of(
    st.builds(
        lambda slots, cores: Shape(jobspec_of(slots, cores), slots <= NODES * (CORES // cores)),
        st.integers(1, 8),
        st.integers(1, CORES + 1),
    ),
    st.builds(
        lambda nodes: Shape(jobspec_of(nodes=nodes), nodes <= NODES), st.integers(1, NODES + 1)
    ),
    st.builds(lambda rank: Shape(jobspec_of(ranks=str(rank)), rank < NODES), st.integers(0, NODES)),
)


class Jobs(RuleBasedStateMachine):
    """Actions of users, the administrator and the execution service."""

    def __init__(self) -> None:
        super().__init__()
        self.instance = Instance(simulated(NODES, CORES), manages=SlowManager)
        self.manager: SlowManager = self.instance.jobs
        self.user = User(self.instance)
        self.execution = ExecutionService(self.instance)
        self.jobs: list[int] = []
        self.drained: set[int] = set()
        self.queue_runs = True
        # Changes of durations, and questions, by the matchtag: with what must be answered.
        self.admin = self.instance.connect()
        self.updates: set[int] = set()
        self.questions: dict[int, bool] = {}
        self.admin.react = self.check_response
        self.watch = ManagerWatch()
        self.manager.on_received, self.manager.on_sent = self.watch.on_received, self.watch.on_sent

    def meet(self, number: int) -> None:
        """Connects a scheduler whose messages to the job manager are delayed."""
        self.manager.slow.add(number)

    def account(self, job: int) -> Account:
        """A job as it is now."""
        return audit(self.instance, self.user, set(self.jobs))[job]

    def some_job(self, place: int) -> int:
        """Draws a job; every second time one with an outstanding alloc request, if there is one."""
        among = sorted(self.watch.in_flight) if place % 2 and self.watch.in_flight else self.jobs
        return among[place // 2 % len(among)]

    # --- users

    @precondition(lambda self: len(self.jobs) < MAX_JOBS)
    @rule(jobspec=jobspecs, urgency=st.sampled_from([0, 1, 16, 16, 16, 31]))
    def submit(self, jobspec: dict[str, Any], urgency: int) -> None:
        self.jobs.append(self.user.submit(jobspec, urgency))

    @precondition(lambda self: self.jobs)
    @rule(place=places)
    def cancel(self, place: int) -> None:
        job = self.some_job(place)
        over = self.account(job).state == INACTIVE
        raised = {"id": job, "type": "cancel", "severity": 0}
        answer = self.user.peer.ask("job-manager.raise", raised)
        assert answer.errnum == (errno.ENOENT if over else 0)

    @precondition(lambda self: self.jobs)
    @rule(place=places, urgency=st.sampled_from([0, 1, 16, 20, 31]))
    def change_urgency(self, place: int, urgency: int) -> None:
        job = self.some_job(place)
        pending = self.account(job).state == SCHED
        change = {"id": job, "urgency": urgency}
        answer = self.user.peer.ask("job-manager.urgency", change)
        assert (answer.errnum == 0) == pending

    @precondition(lambda self: self.jobs)
    @rule(place=places, duration=st.sampled_from([0.0, 60.0, 3600.0]))
    def change_duration(self, place: int, duration: float) -> None:
        """Changes a duration; for a running job the scheduler must agree first."""
        self.change_duration_of(self.some_job(place), duration)

    def change_duration_of(self, job: int, duration: float) -> None:
        change = {"id": job, "updates": {"attributes.system.duration": duration}}
        request = self.admin.request("job-manager.update", change)
        self.updates.add(request.matchtag)
        self.admin.send(request)

    @rule(shape=shapes)
    def ask_whether_it_is_feasible(self, shape: Shape) -> None:
        request = self.admin.request("feasibility.check", {"jobspec": shape.jobspec})
        self.questions[request.matchtag] = shape.feasible
        self.admin.send(request)

    def check_response(self, message: Message) -> None:
        """Checks responses; only requests to the job manager must have one."""
        if message.topic == "job-manager.update":
            self.updates.remove(message.matchtag)
        elif message.errnum not in (errno.ENOSYS, errno.EAGAIN):
            feasible = self.questions.pop(message.matchtag)
            assert (message.errnum == 0) == feasible, message.error_text

    # --- execution

    @precondition(lambda self: self.execution.jobs)
    @rule(place=places)
    def job_ends(self, place: int) -> None:
        running = list(self.execution.jobs)
        self.execution.finish(running[place % len(running)])

    def wide(self) -> list[int]:
        """Running jobs that hold more than one rank."""
        found = audit(self.instance, self.user, set(self.jobs))
        return [job for job in self.execution.jobs if len(found[job].holds.ranks) > 1]

    @precondition(lambda self: self.wide())
    @rule(place=places)
    def job_releases_a_rank(self, place: int) -> None:
        wide = self.wide()
        job = wide[place % len(wide)]
        ranks = self.account(job).holds.ranks
        self.execution.release(job, str(list(ranks)[place % len(ranks)]))

    # --- the administrator

    @rule(rank=st.integers(0, NODES - 1))
    def drain(self, rank: int) -> None:
        self.user.ask("resource.drain", {"targets": str(rank), "mode": "update"})
        self.drained.add(rank)

    @precondition(lambda self: self.drained)
    @rule()
    def undrain(self) -> None:
        self.user.ask("resource.undrain", {"targets": str(self.drained.pop())})

    @rule(start=st.booleans())
    def queue_stops_or_starts(self, *, start: bool) -> None:
        self.user.ask("job-manager.queue-start", {"start": start, "all": True})
        self.queue_runs = start

    @rule(count=st.integers(1, 5))
    def manager_works(self, count: int) -> None:
        self.manager.work(count)
        self.instance.settle()

    @invariant()
    def every_job_has_what_it_has_for_itself(self) -> None:
        audit(self.instance, self.user, set(self.jobs))

    def wanted(self) -> dict[int, dict[str, Any]]:
        """The pending jobs that can be allocated, in queue order."""
        rows = [
            row
            for row in self.user.rows()
            if row["state"] == SCHED and row["urgency"] > 0 and self.queue_runs
        ]
        for row in rows:
            assert row["priority"] == (HIGHEST if row["urgency"] == 31 else row["urgency"])
        rows.sort(key=lambda row: (-row["priority"], row["id"]))
        return {row["id"]: row for row in rows}

    # --- the end

    def wind_up(self, scheduler: SlowScheduler) -> None:
        """With a correct scheduler and nothing drained or held, every job becomes inactive."""
        while self.drained:
            self.undrain()
        self.queue_stops_or_starts(start=True)
        for _ in range(4 * MAX_JOBS):
            self.instance.settle()
            for job, account in audit(self.instance, self.user, set(self.jobs)).items():
                if account.state == SCHED:
                    self.user.urgency(job, 16)
            while self.manager.inbox or scheduler.inbox:
                self.manager.work()
                self.instance.settle()
                scheduler.work()
                self.instance.settle()
            if not self.execution.jobs:
                break
            while self.execution.jobs:
                self.execution.finish(next(iter(self.execution.jobs)))
        assert scheduler.scheduler.failure is None
        found = audit(self.instance, self.user, set(self.jobs))
        stuck = {job: entry.names for job, entry in found.items() if entry.state != INACTIVE}
        assert not stuck, (stuck, self.user.ask("job-manager.stats-get"), self.manager.log)
        assert not self.updates, "a change of a duration that was never answered"

    def nothing_is_lost(self, scheduler: SlowScheduler) -> None:
        """A job for all resources is allocated."""
        self.jobs.append(self.user.submit(ALL_NODES_SPEC))
        for _ in range(10):
            self.manager.work()
            self.instance.settle()
            scheduler.work()
            self.instance.settle()
        assert self.account(self.jobs[-1]).state == RUN
        self.wind_up(scheduler)
