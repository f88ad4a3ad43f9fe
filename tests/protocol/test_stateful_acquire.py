"""RFC 28, both ends against each other: the resource service and our scheduler."""

from __future__ import annotations

import base64
import errno
from typing import TYPE_CHECKING, Any

from actors import ExecutionService, User, jobspec_of
from books import INACTIVE, audit
from ends import SlowManager, SlowScheduler
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from inprocess import STREAMING, Instance
from recordings import payload_of

from penstock import IDset, ResourceSet
from penstock.instance.inventory import made_up

if TYPE_CHECKING:
    from penstock._core import Message

RANKS, CORES = 6, 4
EXCLUDED = IDset("5")
KEYS = {"up", "down", "shrink", "property-add", "property-remove", "expiration"}
some_ranks = st.sets(st.integers(0, RANKS - 1), min_size=1).map(lambda it: str(IDset(it)))


def jobspec(rank: int) -> dict[str, Any]:
    """One core of a certain rank."""
    return jobspec_of(ranks=str(rank))


class Listener:
    """What a consumer knows from the responses, and whether the provider keeps to RFC 28."""

    def __init__(self) -> None:
        self.resources: ResourceSet | None = None
        self.up = IDset()

    def hear(self, message: Message) -> None:
        if message.topic != "resource.acquire":
            return
        assert message.errnum == 0
        assert message.streaming
        payload = payload_of(message)
        if self.resources is None:
            self.resources = ResourceSet(payload["resources"])
            self.up = IDset(payload["up"])
            assert self.up <= self.resources.ranks
            assert not self.resources.ranks & EXCLUDED
            return
        assert payload, "a response that says nothing"
        assert payload.keys() <= KEYS
        up, down = IDset(payload.get("up", "")), IDset(payload.get("down", ""))
        assert not up & down, "a response that contradicts itself"
        assert not up & self.up, "up, which it was"
        assert down <= self.up, "down, which it was"
        assert up | down <= self.resources.ranks
        self.up = (self.up | up) - down


class Acquisition(RuleBasedStateMachine):
    """Drains, undrains, schedulers that come and go, clients that do not know the rules."""

    def __init__(self) -> None:
        super().__init__()
        self.instance = Instance(made_up(RANKS, CORES), exclude=str(EXCLUDED), manages=SlowManager)
        self.user = User(self.instance)
        self.execution = ExecutionService(self.instance)
        self.stranger = self.instance.connect()
        self.scheduler: SlowScheduler | None = None
        self.listener = Listener()
        self.told = Listener()
        self.drained = IDset()
        self.jobs: set[int] = set()
        # Those that were cancelled.
        self.probes: set[int] = set()

    # --- the provider's side

    def ask(self, topic: str, payload: dict[str, Any]) -> int:
        return self.stranger.ask(topic, payload).errnum

    @rule(ranks=some_ranks)
    def drain(self, ranks: str) -> None:
        assert self.ask("resource.drain", {"targets": ranks, "reason": "r"}) == 0
        self.drained |= IDset(ranks)

    @rule(ranks=some_ranks)
    def undrain(self, ranks: str) -> None:
        wanted = IDset(ranks)
        errnum = self.ask("resource.undrain", {"targets": ranks})
        # All of them, or none.
        assert errnum == (0 if wanted <= self.drained else errno.EINVAL)
        if not errnum:
            self.drained -= wanted

    @rule(
        topic=st.sampled_from(["resource.drain", "resource.undrain"]),
        payload=st.sampled_from(
            [{}, {"targets": 3}, {"targets": ""}, {"targets": "4-9"}, {"targets": "nope[0-1]"}]
        ),
    )
    def drain_nonsense(self, topic: str, payload: dict[str, Any]) -> None:
        assert self.ask(topic, payload) in (errno.EINVAL, errno.EPROTO)

    # --- the scheduler's side

    @precondition(lambda self: self.scheduler is None)
    @rule()
    def scheduler_comes(self) -> None:
        self.listener, self.told = Listener(), Listener()
        self.scheduler = SlowScheduler(self.instance)
        self.scheduler.heard = self.listener.hear
        self.scheduler.said = self.check_allocation
        # What is on its way to it is known to the provider as told.
        keep = self.scheduler.deliver

        def deliver(batch: Any) -> None:
            for message in batch:
                self.told.hear(message)
            keep(batch)

        self.scheduler.deliver = deliver  # type: ignore[method-assign]
        self.instance.settle()

    @precondition(lambda self: self.scheduler is not None)
    @rule()
    def scheduler_goes(self) -> None:
        assert self.scheduler is not None
        self.instance.disconnect(self.scheduler)
        self.scheduler = None

    @precondition(lambda self: self.scheduler is not None)
    @rule(count=st.integers(1, 6))
    def scheduler_works(self, count: int) -> None:
        assert self.scheduler is not None
        self.scheduler.work(count)
        self.instance.settle()

    def check_allocation(self, message: Message) -> None:
        """A scheduler shall only allocate what is up, as far as it knows."""
        if message.topic != "kvs.commit":
            return
        for op in message.object()["ops"]:
            r = ResourceSet(decoded(op["dirent"]["data"]))
            assert r.ranks <= self.listener.up, "allocated on a rank that is down"

    @precondition(lambda self: self.scheduler is not None)
    @rule()
    def another_scheduler_comes(self) -> None:
        if self.told.resources is None:
            return
        other = SlowScheduler(self.instance)
        for _ in range(3):
            self.instance.settle()
            other.work()
        assert other.scheduler.failure is not None
        self.instance.disconnect(other)

    @rule(streaming=st.booleans())
    def stranger_acquires(self, streaming: bool) -> None:
        response = self.stranger.ask("resource.acquire", None, STREAMING if streaming else 0)
        if self.told.resources is not None and self.scheduler is not None:
            # Whichever is looked at first.
            assert response.errnum in {errno.EBUSY} | (set() if streaming else {errno.EPROTO})
        elif not streaming:
            assert response.errnum == errno.EPROTO
        elif response.errnum == 0:
            # It holds the resources now; a disconnect makes them free for others.
            self.instance.disconnect(self.stranger)
            self.stranger = self.instance.connect()

    @rule()
    def stranger_goes(self) -> None:
        """The disconnect of somebody else frees nothing."""
        self.instance.disconnect(self.stranger)
        self.stranger = self.instance.connect()

    # --- jobs, by which one sees what the scheduler takes for up

    @precondition(lambda self: len(self.jobs) < 12)
    @rule(rank=st.integers(0, RANKS - 2))
    def submit(self, rank: int) -> None:
        self.jobs.add(self.user.submit(jobspec(rank)))

    @rule()
    def oldest_ends(self) -> None:
        if self.execution.jobs:
            self.execution.finish(next(iter(self.execution.jobs)))

    # --- what must be true

    @property
    def expected_up(self) -> IDset:
        return IDset(range(RANKS)) - EXCLUDED - self.drained

    @invariant()
    def the_provider_knows_what_is_up(self) -> None:
        status = self.user.ask("resource.sched-status")
        everything, down = ResourceSet(status["all"]), ResourceSet(status["down"])
        assert everything.ranks == IDset(range(RANKS)) - EXCLUDED
        assert everything.ranks - down.ranks == self.expected_up
        if self.told.resources is not None and self.scheduler is not None:
            assert self.told.up == self.expected_up

    @invariant()
    def jobs_are_unharmed(self) -> None:
        """Nobody raises an exception for a target that is down."""
        for account in audit(self.instance, self.user, self.jobs).values():
            assert account.id in self.probes or "exception" not in account.names
            assert not account.r.ranks & EXCLUDED

    def quiet(self) -> None:
        """Lets everybody say what there is to say."""
        if self.scheduler is None:
            self.scheduler_comes()
        assert self.scheduler is not None
        self.instance.settle()
        while self.scheduler.inbox:
            self.scheduler.work()
            self.instance.settle()

    @precondition(lambda self: len(self.jobs) < 24)
    @rule()
    def jobs_run_where_it_is_up(self) -> None:
        """What the scheduler takes for up, seen from outside: where it puts a job."""
        self.quiet()
        for rank in range(RANKS - 1):
            # Ahead of all others, for none may pass one that waits.
            job = self.user.submit(jobspec(rank), urgency=31)
            self.jobs.add(job)
            held = ResourceSet(self.instance.manager.held())
            full = rank in held.ranks and len(held.node(rank).cores) == CORES
            self.quiet()
            runs = job in self.execution.jobs
            assert runs == (rank in self.expected_up and not full), rank
            if runs:
                self.execution.finish(job)
            else:
                self.user.cancel(job)
                self.probes.add(job)
        self.quiet()

    def teardown(self) -> None:
        """When all is up again, all jobs end."""
        if self.drained:
            assert self.ask("resource.undrain", {"targets": str(self.drained)}) == 0
        for _ in range(len(self.jobs) + 1):
            self.quiet()
            while self.execution.jobs:
                self.oldest_ends()
        states = audit(self.instance, self.user, self.jobs)
        assert {it.state for it in states.values()} <= {INACTIVE}


def decoded(data: str) -> str:
    """The text of a value in the store."""
    return base64.b64decode(data).decode()


TestAcquisition = Acquisition.TestCase
TestAcquisition.settings = settings(max_examples=40, stateful_step_count=30)
