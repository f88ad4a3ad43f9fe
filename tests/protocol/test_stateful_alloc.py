"""RFC 27, both ends against each other: the job manager, our scheduler, and one without manners."""

from __future__ import annotations

import base64
import errno
from typing import Any

from actors import ExecutionService, User, jobspec_of
from books import INACTIVE, RUN, SCHED, Account, audit
from ends import SlowManager, SlowScheduler
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from inprocess import STREAMING, Instance, Peer
from watch import ANNOTATE, CANCEL, DENY, SUCCESS, ManagerWatch, SchedulerWatch

from penstock import ResourceSet
from penstock._core import Message, fluid_dothex
from penstock.instance.inventory import made_up

NODES, CORES = 3, 2
WHOLE = jobspec_of(nodes=NODES)
MAX_JOBS = 10
limits = st.sampled_from([None, 1, 2, 5])
places = st.integers(0, MAX_JOBS - 1)
jobspecs = st.one_of(
    st.builds(jobspec_of, st.integers(1, 4), st.integers(1, CORES)),
    st.builds(lambda nodes: jobspec_of(nodes=nodes), st.integers(1, NODES + 1)),
    st.builds(lambda rank: jobspec_of(ranks=str(rank)), st.integers(0, NODES - 1)),
)


class Jobs(RuleBasedStateMachine):
    """What users, the administrator and the execution service do meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.instance = Instance(made_up(NODES, CORES), manages=SlowManager)
        self.manager: SlowManager = self.instance.jobs
        self.user = User(self.instance)
        self.execution = ExecutionService(self.instance)
        self.jobs: list[int] = []
        self.drained: set[int] = set()
        self.watch = ManagerWatch()
        self.manager.heard, self.manager.said = self.watch.heard, self.watch.said

    def meet(self, number: int) -> None:
        """A scheduler connects: the job manager hears it when it is told to."""
        self.manager.slow.add(number)

    def account(self, job: int) -> Account:
        """A job as it is now."""
        return audit(self.instance, self.user, set(self.jobs))[job]

    # --- users

    @precondition(lambda self: len(self.jobs) < MAX_JOBS)
    @rule(jobspec=jobspecs, urgency=st.sampled_from([0, 1, 16, 16, 16, 31]))
    def submit(self, jobspec: dict[str, Any], urgency: int) -> None:
        self.jobs.append(self.user.submit(jobspec, urgency))

    @precondition(lambda self: self.jobs)
    @rule(place=places)
    def cancel(self, place: int) -> None:
        job = self.jobs[place % len(self.jobs)]
        over = self.account(job).state == INACTIVE
        raised = {"id": job, "type": "cancel", "severity": 0}
        answer = self.user.peer.ask("job-manager.raise", raised)
        assert answer.errnum == (errno.ENOENT if over else 0)

    @precondition(lambda self: self.jobs)
    @rule(place=places, urgency=st.sampled_from([0, 1, 16, 20, 31]))
    def change_urgency(self, place: int, urgency: int) -> None:
        job = self.jobs[place % len(self.jobs)]
        pending = self.account(job).state == SCHED
        change = {"id": job, "urgency": urgency}
        answer = self.user.peer.ask("job-manager.urgency", change)
        assert (answer.errnum == 0) == pending

    # --- execution

    @precondition(lambda self: self.execution.jobs)
    @rule(place=places)
    def job_ends(self, place: int) -> None:
        running = list(self.execution.jobs)
        self.execution.finish(running[place % len(running)])

    @precondition(lambda self: self.execution.jobs)
    @rule(place=places, rank=st.integers(0, NODES - 1))
    def job_releases_a_rank(self, place: int, rank: int) -> None:
        running = list(self.execution.jobs)
        job = running[place % len(running)]
        if rank in self.account(job).r.ranks:
            self.execution.release(job, str(rank))

    # --- the administrator

    @rule(rank=st.integers(0, NODES - 1))
    def drain(self, rank: int) -> None:
        self.user.ask("resource.drain", {"targets": str(rank)})
        self.drained.add(rank)

    @precondition(lambda self: self.drained)
    @rule()
    def undrain(self) -> None:
        self.user.ask("resource.undrain", {"targets": str(self.drained.pop())})

    @rule(count=st.integers(1, 5))
    def manager_works(self, count: int) -> None:
        self.manager.work(count)
        self.instance.settle()

    @invariant()
    def every_job_has_what_it_has_for_itself(self) -> None:
        audit(self.instance, self.user, set(self.jobs))

    # --- the end

    def wind_up(self, scheduler: SlowScheduler) -> None:
        """With a good scheduler and nothing drained or held, every job comes to its end."""
        while self.drained:
            self.undrain()
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
        stuck = {job: it.names for job, it in found.items() if it.state != INACTIVE}
        assert not stuck, (stuck, self.user.ask("job-manager.stats-get"), self.manager.log)

    def nothing_is_lost(self, scheduler: SlowScheduler) -> None:
        """A job that wants everything gets it."""
        self.jobs.append(self.user.submit(WHOLE))
        for _ in range(10):
            self.manager.work()
            self.instance.settle()
            scheduler.work()
            self.instance.settle()
        assert self.account(self.jobs[-1]).state == RUN
        self.wind_up(scheduler)


class Allocation(Jobs):
    """The job manager and our scheduler, which is killed and started again at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler: SlowScheduler | None = None

    @precondition(lambda self: self.scheduler is None)
    @rule(limit=limits)
    def scheduler_comes(self, limit: int | None) -> None:
        self.scheduler = SlowScheduler(self.instance, limit)
        watch = SchedulerWatch()
        self.scheduler.heard, self.scheduler.said = watch.heard, watch.said
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
        """Jobs get as far as they can."""
        assert self.scheduler is not None
        while self.manager.inbox or self.scheduler.inbox:
            self.manager.work()
            self.instance.settle()
            self.scheduler.work()
            self.instance.settle()

    @rule(limit=limits)
    def scheduler_is_replaced(self, limit: int | None) -> None:
        """One goes and the next one comes before the job manager has noticed anything."""
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


R = ResourceSet(made_up(NODES + 1, CORES + 1))
# Often what another job has or what there is not, now and then right.
documents = st.one_of(
    st.builds(
        lambda ranks, core: (
            R.restrict(ranks=ranks)
            & ResourceSet.uniform(ranks, [f"node{rank}" for rank in ranks], [core])
        ),
        st.lists(st.integers(0, NODES), min_size=1, max_size=2, unique=True).map(sorted),
        st.integers(0, CORES),
    ).map(ResourceSet.to_json),
    st.sampled_from(["", "{}", "[1]", '{"version": 2}', made_up(NODES, CORES).to_json()]),
)
KINDS = st.sampled_from([SUCCESS, SUCCESS, ANNOTATE, DENY, CANCEL, 4, -1, "0", None])
extras = st.sampled_from(
    [
        {},
        {"annotations": {"sched": {"reason_pending": "x", "t_estimate": None}}},
        {"annotations": {"user": 3}},
        {"annotations": 7},
        {"annotations": None},
        {"note": "no"},
        {"note": 3},
        {"R": 7},
        {"R": made_up(1, 1).to_dict()},
        {"id": 0},
        {"id": "f1"},
        {"id": 1 << 63},
    ]
)
garbage = st.sampled_from([b"", b"\0", b"[]\0", b"{\0", b"null\0", b'{"id":1}\0', b"{}\0"])
READY = st.sampled_from(
    [
        {"mode": "unlimited"},
        {"mode": "limited", "limit": 1},
        {"mode": "limited", "limit": 0x7FFFFFFF},
        {"mode": "limited", "limit": 0},
        {"mode": "limited", "limit": 0x80000000},
        {"mode": "limited"},
        {"mode": "single"},
        {},
    ]
)


class RuleBreaking(Jobs):
    """The job manager and a scheduler that says whatever comes to its mind."""

    def __init__(self) -> None:
        super().__init__()
        self.watch.lawful = False
        self.rogue: Peer | None = None
        self.asked: list[Message] = []

    @precondition(lambda self: self.rogue is None)
    @rule(proper=st.booleans())
    def rogue_comes(self, proper: bool) -> None:
        self.rogue = self.instance.connect()
        self.rogue.react = self.hear
        self.meet(self.rogue.number)
        self.say(self.rogue.request("service.add", {"service": "sched"}))
        if proper:
            self.hello(flags=STREAMING)
            self.manager.work()
            self.ready({"mode": "unlimited"})

    @precondition(lambda self: self.rogue is not None)
    @rule()
    def rogue_goes(self) -> None:
        assert self.rogue is not None
        self.instance.disconnect(self.rogue)
        self.rogue = None

    def hear(self, message: Message) -> None:
        if message.kind == "request" and message.topic in ("sched.alloc", "sched.free"):
            self.asked.append(message)

    def say(self, *messages: Message) -> None:
        assert self.rogue is not None
        self.rogue.post(*messages)
        self.instance.settle()

    @precondition(lambda self: self.rogue is not None)
    @rule(flags=st.sampled_from([0, STREAMING]))
    def hello(self, flags: int) -> None:
        assert self.rogue is not None
        self.say(self.rogue.request("job-manager.sched-hello", {"partial-ok": True}, flags))

    @precondition(lambda self: self.rogue is not None)
    @rule(payload=READY)
    def ready(self, payload: dict[str, Any]) -> None:
        assert self.rogue is not None
        self.say(self.rogue.request("job-manager.sched-ready", payload))

    @precondition(lambda self: self.rogue is not None and self.jobs)
    @rule(place=places, text=documents)
    def commit(self, place: int, text: str) -> None:
        assert self.rogue is not None
        self.say(self.commit_of(self.jobs[place % len(self.jobs)], text))

    def commit_of(self, job: int, text: str) -> Message:
        assert self.rogue is not None
        data = base64.b64encode(text.encode()).decode()
        op = {
            "key": f"job.{fluid_dothex(job)}.R",
            "flags": 0,
            "dirent": {"ver": 1, "type": "val", "data": data},
        }
        return self.rogue.request("kvs.commit", {"namespace": "primary", "flags": 0, "ops": [op]})

    @precondition(lambda self: self.rogue is not None and self.asked)
    @rule(place=places, kind=KINDS, extra=extras)
    def answer(self, place: int, kind: Any, extra: dict[str, Any]) -> None:
        request = self.asked[-1 - place % len(self.asked)]
        self.say(request.respond({"id": request.object()["id"], "type": kind} | extra))

    @precondition(lambda self: self.rogue is not None and self.asked)
    @rule(place=places, text=documents, twice=st.booleans())
    def commit_and_answer(self, place: int, text: str, twice: bool) -> None:
        request = self.asked[-1 - place % len(self.asked)]
        job = request.object()["id"]
        success = request.respond({"id": job, "type": SUCCESS})
        self.say(self.commit_of(job, text), *[success] * (1 + twice))

    @precondition(lambda self: self.rogue is not None and self.asked)
    @rule(place=places, payload=garbage)
    def answer_garbage(self, place: int, payload: bytes) -> None:
        request = self.asked[-1 - place % len(self.asked)]
        self.say(request.respond(payload))

    @precondition(lambda self: self.rogue is not None and self.asked)
    @rule(place=places, errnum=st.sampled_from([errno.ENOSYS, errno.EPROTO, 250]))
    def answer_with_an_error(self, place: int, errnum: int) -> None:
        request = self.asked[-1 - place % len(self.asked)]
        self.say(request.respond(errnum=errnum, errtext="no"))

    def teardown(self) -> None:
        if self.rogue is not None:
            self.rogue_goes()
        self.manager.work()
        scheduler = SlowScheduler(self.instance)
        self.meet(scheduler.number)
        self.wind_up(scheduler)
        self.nothing_is_lost(scheduler)


TestRuleBreaking = RuleBreaking.TestCase
TestRuleBreaking.settings = settings(max_examples=60, stateful_step_count=40)

TestAllocation = Allocation.TestCase
TestAllocation.settings = settings(max_examples=60, stateful_step_count=40)


# What the machines found, step by step.


def with_a_scheduler() -> Allocation:
    state = Allocation()
    state.scheduler_is_replaced(None)
    state.both_work()
    return state


def greeting(state: Allocation) -> SlowScheduler:
    """A second scheduler, whose hello has not been heard yet."""
    state.scheduler_is_replaced(None)
    assert state.scheduler is not None
    while state.scheduler.scheduler.phase != "greeting":
        state.scheduler_works(1)
    return state.scheduler


def test_a_request_for_its_predecessor_is_not_the_new_schedulers() -> None:
    state = with_a_scheduler()
    scheduler = greeting(state)
    # The job manager has not noticed that the first one has gone.
    state.submit(jobspec_of(), 16)
    assert [it.topic for it in scheduler.inbox] == ["sched.alloc"]
    state.both_work()
    account = state.account(state.jobs[0])
    assert (account.state, account.names.count("exception")) == (RUN, 0)
    state.teardown()


def test_what_is_freed_between_hello_and_ready_is_not_lost() -> None:
    state = with_a_scheduler()
    state.submit(jobspec_of(), 16)
    state.both_work()
    scheduler = greeting(state)
    state.manager_works(5)
    # Hello has told that the job holds resources.
    assert [it.errnum for it in scheduler.inbox] == [0, errno.ENODATA]
    state.job_ends(0)
    state.manager_works(5)
    assert state.account(state.jobs[0]).state == INACTIVE
    state.teardown()
