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
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from inprocess import Instance, Peer
from recordings import payload_of

from penstock import IDset, ResourceSet
from penstock._core import STREAMING
from penstock.inventory import simulated

if TYPE_CHECKING:
    from penstock._core import Message

# The first six ranks are in the first inventory; growth adds the others.
RANKS, MAX_RANKS, CORES = 6, 8, 4
EXCLUDED = IDset("5")
EVERYTHING = simulated(MAX_RANKS, CORES)
KEYS = {"up", "down", "shrink", "grow", "property-add", "property-remove", "expiration"}
# Among those that are there, mostly; any, whether there or not, now and then.
places = st.sets(st.integers(0, MAX_RANKS - 1), min_size=1, max_size=3)
any_ranks = places.map(lambda ranks: str(IDset(ranks)))


def among(ranks: IDset, chosen: set[int]) -> IDset:
    """Draws some of these ranks."""
    return IDset({list(ranks)[place % len(ranks)] for place in chosen})


def jobspec(rank: int) -> dict[str, Any]:
    """One core of a certain rank."""
    return jobspec_of(ranks=str(rank))


class Listener:
    """A consumer's view from the responses, and a check of the provider against RFC 28."""

    def __init__(self) -> None:
        self.acquired = False
        self.ranks = IDset()
        self.up = IDset()
        self.properties: dict[str, IDset] = {}
        self.expiration = 0.0

    def hear(self, message: Message) -> None:
        if message.topic != "resource.acquire":
            return
        assert message.errnum == 0
        assert message.streaming
        payload = payload_of(message)
        if not self.acquired:
            self.acquired = True
            resources = ResourceSet(payload["resources"])
            self.ranks, self.up = resources.ranks, IDset(payload["up"])
            self.properties = resources.properties
            self.expiration = resources.expiration or 0.0
            assert self.up <= self.ranks
            assert not self.ranks & EXCLUDED
            return
        assert payload, "a response that says nothing"
        assert payload.keys() <= KEYS
        self.change(payload)

    def change(self, payload: dict[str, Any]) -> None:
        if "grow" in payload:
            more = ResourceSet(payload["grow"])
            assert not more.ranks & self.ranks, "new, which it was not"
            self.ranks |= more.ranks
            for name, of in more.properties.items():
                self.properties[name] = self.properties.get(name, IDset()) | of
        gone = IDset(payload.get("shrink", ""))
        up, down = IDset(payload.get("up", "")), IDset(payload.get("down", ""))
        assert gone <= self.ranks
        assert gone & self.up <= down, "gone for good, and not down"
        assert not up & down, "a response that contradicts itself"
        assert not up & self.up, "up, which it was"
        assert down <= self.up, "down, which it was"
        assert up | down <= self.ranks
        self.up = (self.up | up) - down
        for name, text in payload.get("property-add", {}).items():
            had = self.properties.get(name, IDset())
            assert not had & IDset(text), "a property that it had"
            self.properties[name] = had | IDset(text)
        for name, text in payload.get("property-remove", {}).items():
            assert IDset(text) <= self.properties[name], "no property that it had"
            self.properties[name] -= IDset(text)
        if "expiration" in payload:
            assert payload["expiration"] != self.expiration
            self.expiration = payload["expiration"]
        self.ranks -= gone
        self.properties = {
            name: left for name, of in self.properties.items() if (left := of & self.ranks)
        }


class Acquisition(RuleBasedStateMachine):
    """Drains, undrains, schedulers that attach and detach, clients that violate the protocol."""

    def __init__(self) -> None:
        super().__init__()
        self.instance = Instance(
            simulated(RANKS, CORES), exclude=str(EXCLUDED), manages=SlowManager
        )
        self.user = User(self.instance)
        self.execution = ExecutionService(self.instance)
        self.stranger = self.instance.connect()
        self.scheduler: SlowScheduler | None = None
        self.listener = Listener()
        self.delivered = Listener()
        self.there, self.gone = IDset(range(RANKS)), IDset()
        self.drained, self.offline = IDset(), IDset()
        self.monitor: tuple[Peer, IDset] | None = None
        self.properties = {"a": IDset(), "b": IDset()}
        # By job: the rank that it requests.
        self.jobs: dict[int, int] = {}
        # Ids of the cancelled jobs.
        self.probes: set[int] = set()

    @initialize(acquired=st.booleans(), chosen=places)
    def some_have_a_property(self, *, acquired: bool, chosen: set[int]) -> None:
        """Starts with a scheduler, often."""
        self.change_a_property(chosen, "a", add=True)
        if acquired:
            self.quiet()

    # --- the provider's side

    def ask(self, topic: str, payload: dict[str, Any]) -> int:
        return self.stranger.ask(topic, payload).errnum

    @rule(chosen=places)
    def drain_some(self, chosen: set[int]) -> None:
        if self.there - EXCLUDED:
            self.drain(str(among(self.there - EXCLUDED, chosen)))

    @rule(chosen=places)
    def undrain_some(self, chosen: set[int]) -> None:
        if self.drained:
            self.undrain(str(among(self.drained, chosen)))

    @rule(ranks=any_ranks)
    def drain(self, ranks: str) -> None:
        errnum = self.ask("resource.drain", {"targets": ranks, "reason": "r"})
        # All of them, or none.
        known = IDset(ranks) <= self.there - EXCLUDED
        drained = known and IDset(ranks) & self.drained
        assert errnum == (0 if known and not drained else errno.EEXIST if known else errno.EINVAL)
        if not errnum:
            self.drained |= IDset(ranks)

    @rule(ranks=any_ranks)
    def undrain(self, ranks: str) -> None:
        errnum = self.ask("resource.undrain", {"targets": ranks})
        assert errnum == (0 if IDset(ranks) <= self.drained else errno.EINVAL)
        if not errnum:
            self.drained -= IDset(ranks)

    @rule(ranks=st.sampled_from(["5", "4", "1", "2-3", "6", "6-7"]))
    def shrink(self, ranks: str) -> None:
        errnum = self.ask("resource.shrink", {"targets": ranks})
        assert errnum == (0 if IDset(ranks) <= self.there else errno.EINVAL)
        if not errnum:
            gone = IDset(ranks)
            self.gone |= gone
            self.there, self.drained = self.there - gone, self.drained - gone
            self.offline -= gone
            self.properties = {name: of - gone for name, of in self.properties.items()}

    @rule(ranks=st.sampled_from(["6", "7", "6-7", "5-6", "1"]))
    def grow(self, ranks: str) -> None:
        more = EVERYTHING.restrict(ranks=ranks)
        errnum = self.ask("resource.grow", {"R": more.to_dict()})
        # Ranks in the inventory, and ranks that have left it for good, are rejected.
        new = not IDset(ranks) & (self.there | self.gone)
        assert errnum == (0 if new else errno.EINVAL)
        if not errnum:
            self.there |= IDset(ranks)

    @rule(ranks=any_ranks, name=st.sampled_from(["a", "b"]), add=st.booleans())
    def change_property(self, ranks: str, name: str, *, add: bool) -> None:
        """Adds or removes a property of targets, of all or of none."""
        can = self.there if add else self.properties[name]
        topic = "resource.property-add" if add else "resource.property-remove"
        errnum = self.ask(topic, {"targets": ranks, "name": name})
        assert errnum == (0 if IDset(ranks) <= can else errno.EINVAL)
        if not errnum and add:
            self.properties[name] |= IDset(ranks)
        elif not errnum:
            self.properties[name] -= IDset(ranks)

    @rule(chosen=places, name=st.sampled_from(["a", "b"]), add=st.booleans())
    def change_a_property(self, chosen: set[int], name: str, *, add: bool) -> None:
        can = self.there if add else self.properties[name]
        if can:
            self.change_property(str(among(can, chosen)), name, add=add)

    @rule(expiration=st.sampled_from([0.0, 4e9, 5e9]))
    def expire(self, expiration: float) -> None:
        assert self.ask("resource.expiration", {"expiration": expiration}) == 0

    @rule(chosen=places)
    def monitor_comes(self, chosen: set[int]) -> None:
        """Attaches a monitor that reports targets as online."""
        if self.monitor is None and self.there:
            ranks = str(among(self.there, chosen))
            peer = self.instance.connect()
            assert peer.ask("resource.monitor", {"ranks": ranks}, STREAMING).errnum == 0
            self.monitor = (peer, IDset(ranks))
            self.offline -= IDset(ranks)

    @rule()
    def monitor_goes(self) -> None:
        if self.monitor is not None:
            peer, ranks = self.monitor
            self.monitor = None
            self.offline |= ranks & self.there
            self.instance.disconnect(peer)

    @rule(
        topic=st.sampled_from(["resource.drain", "resource.undrain"]),
        payload=st.sampled_from(
            [{}, {"targets": 3}, {"targets": ""}, {"targets": "4-99"}, {"targets": "nope[0-1]"}]
        ),
    )
    def drain_nonsense(self, topic: str, payload: dict[str, Any]) -> None:
        assert self.ask(topic, payload) in (errno.EINVAL, errno.EPROTO)

    # --- the scheduler's side

    @precondition(lambda self: self.scheduler is None)
    @rule()
    def scheduler_comes(self) -> None:
        self.listener, self.delivered = Listener(), Listener()
        self.scheduler = SlowScheduler(self.instance)
        self.scheduler.on_received = self.listener.hear
        self.scheduler.on_sent = self.check_allocation
        # The resource module counts a response in transit as received.
        keep = self.scheduler.deliver

        def deliver(batch: Any) -> None:
            for message in batch:
                self.delivered.hear(message)
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
        """Checks that a scheduler allocates only targets that it knows to be up."""
        if message.topic != "kvs.commit":
            return
        for op in message.object()["ops"]:
            r = ResourceSet(decoded(op["dirent"]["data"]))
            assert r.ranks <= self.listener.up, "allocated on a rank that is down"

    @precondition(lambda self: self.scheduler is not None)
    @rule()
    def another_scheduler_comes(self) -> None:
        if not self.delivered.acquired:
            return
        other = SlowScheduler(self.instance)
        for _ in range(3):
            self.instance.settle()
            other.work()
        assert other.scheduler.failure is not None
        self.instance.disconnect(other)
        again = self.stranger.ask("resource.acquire", None, STREAMING)
        assert again.errnum == errno.EBUSY, "the rejected scheduler has freed the resources"

    @rule(streaming=st.booleans())
    def stranger_acquires(self, *, streaming: bool) -> None:
        response = self.stranger.ask("resource.acquire", None, STREAMING if streaming else 0)
        if self.delivered.acquired and self.scheduler is not None:
            # Either error may be checked first.
            assert response.errnum in {errno.EBUSY} | (set() if streaming else {errno.EPROTO})
        elif not streaming:
            assert response.errnum == errno.EPROTO
        elif response.errnum == 0:
            # It holds the resources now; a disconnect makes them free for others.
            self.instance.disconnect(self.stranger)
            self.stranger = self.instance.connect()

    @rule()
    def stranger_goes(self) -> None:
        """The disconnect of another client frees nothing and ends no stream."""
        rejected = self.stranger.ask("resource.acquire", None, STREAMING).errnum
        self.instance.disconnect(self.stranger)
        self.stranger = self.instance.connect()
        if rejected:
            assert rejected == errno.EBUSY
            again = self.stranger.ask("resource.acquire", None, STREAMING)
            assert again.errnum == errno.EBUSY, "another client has freed the resources"

    # --- jobs, by which one sees what the scheduler takes for up

    @precondition(lambda self: len(self.jobs) < 12)
    @rule(rank=st.integers(0, MAX_RANKS - 1))
    def submit(self, rank: int) -> None:
        if rank in self.there - EXCLUDED:
            self.jobs[self.user.submit(jobspec(rank))] = rank

    @rule()
    def oldest_ends(self) -> None:
        if self.execution.jobs:
            self.execution.finish(next(iter(self.execution.jobs)))

    # --- what must be true

    @property
    def expected_up(self) -> IDset:
        return self.there - EXCLUDED - self.drained - self.offline

    @invariant()
    def the_provider_knows_what_is_up(self) -> None:
        status = self.user.ask("resource.sched-status")
        everything, down = ResourceSet(status["all"]), ResourceSet(status["down"])
        assert everything.ranks == self.there - EXCLUDED
        assert everything.ranks - down.ranks == self.expected_up
        if self.delivered.acquired and self.scheduler is not None:
            assert self.delivered.up == self.expected_up
            now = ResourceSet(self.user.ask("resource.status")["R"])
            assert self.delivered.ranks == self.there - EXCLUDED
            assert self.delivered.expiration == (now.expiration or 0.0)
            known = now.restrict(ranks=self.delivered.ranks).properties
            assert self.delivered.properties == {name: of for name, of in known.items() if of}
            mine = {name: of - EXCLUDED for name, of in self.properties.items() if of - EXCLUDED}
            assert self.delivered.properties == mine

    @invariant()
    def jobs_are_unharmed(self) -> None:
        """Checks that no exception is raised for a target that is down."""
        for account in audit(self.instance, self.user, set(self.jobs), EVERYTHING).values():
            # A job that needs a rank that has left the inventory is denied.
            denied = self.jobs[account.id] in self.gone and not account.allocated
            assert denied or account.id in self.probes or "exception" not in account.names
            assert not account.r.ranks & EXCLUDED

    def quiet(self) -> None:
        """Runs rounds until no peer has anything to send."""
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
        """Checks which targets the scheduler considers up, by where it allocates a job."""
        self.quiet()
        for rank in self.there - EXCLUDED:
            # At the head of the queue: no job may overtake a pending one.
            job = self.user.submit(jobspec(rank), urgency=31)
            self.jobs[job] = rank
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
        """Brings all targets up; all jobs end then."""
        self.monitor_goes()
        if self.offline:
            assert self.ask("resource.unmonitor", {"targets": str(self.offline)}) == 0
        if self.drained:
            assert self.ask("resource.undrain", {"targets": str(self.drained)}) == 0
        for _ in range(len(self.jobs) + 1):
            self.quiet()
            while self.execution.jobs:
                self.oldest_ends()
        found = audit(self.instance, self.user, set(self.jobs), EVERYTHING)
        assert {account.state for account in found.values()} <= {INACTIVE}


def decoded(data: str) -> str:
    """The text of a value in the store."""
    return base64.b64decode(data).decode()


TestAcquisition = Acquisition.TestCase
TestAcquisition.settings = settings(max_examples=60, stateful_step_count=30)


# Changes that every run must send, whichever steps the machine draws.


def test_every_change_is_sent() -> None:
    state = Acquisition()
    state.some_have_a_property(acquired=True, chosen={0, 1})
    changes = [
        lambda: state.change_property("1-2", "a", add=True),
        lambda: state.change_property("1", "a", add=False),
        lambda: state.drain("0,3"),
        lambda: state.undrain("0"),
        lambda: state.expire(4e9),
        lambda: state.grow("6-7"),
        lambda: state.shrink("6"),
        lambda: state.monitor_comes({0, 1}),
        state.monitor_goes,
        state.stranger_goes,
        state.another_scheduler_comes,
    ]
    for change in changes:
        change()
        state.the_provider_knows_what_is_up()
        state.jobs_are_unharmed()
    assert state.delivered.properties == {"a": IDset("0,2")}
    state.jobs_run_where_it_is_up()
    state.teardown()
