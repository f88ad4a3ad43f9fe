"""RFC 32, both ends against each other: the job manager and execution services, good and bad."""

from __future__ import annotations

import errno
import time
from typing import TYPE_CHECKING, Any

from actors import ExecutionService, User, jobspec_of
from books import INACTIVE, audit
from ends import SlowManager, SlowScheduler
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from inprocess import Instance, Peer
from watch import ExecutionWatch, ManagerWatch

from penstock import IDset
from penstock._core import Batch, Message, MockExec
from penstock.instance.inventory import made_up
from penstock.protocol.execution import ProtocolError, StartStream

if TYPE_CHECKING:
    from collections.abc import Callable

NODES, CORES = 3, 2
MAX_JOBS = 8
NAMES = st.sampled_from(["exec-a", "exec-b"])
places = st.integers(0, 7)
jobspecs = st.one_of(
    st.builds(jobspec_of, st.integers(1, 3)),
    st.builds(lambda nodes: jobspec_of(nodes=nodes), st.integers(1, NODES)),
)
ranks = st.sampled_from(["all", "0", "1", "0-1", "2", "1-2"])
unlawful = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(
                ["start", "reattached", "finish", "release", "exception", "nonsense", 7]
            ),
            "data": st.one_of(
                st.just({}),
                st.builds(lambda it, last: {"ranks": it, "final": last}, ranks, st.booleans()),
                st.just({"ranks": "9", "final": False}),
                st.just({"ranks": "", "final": False}),
                st.just({"ranks": "x", "final": True}),
                st.just({"status": 0}),
                st.just({"status": "0"}),
                st.just({"severity": 0, "type": "exec", "note": "n"}),
                st.just({"severity": 9, "type": "exec"}),
                st.just({"severity": 3, "type": "exec"}),
                st.just([1]),
            ),
        }
    ),
    st.just({"type": "start"}),
    st.just({}),
)


class Service:
    """An execution service that keeps what it is asked, and answers when it is told to."""

    def __init__(self, instance: Instance, name: str) -> None:
        self.name = name
        self.peer: Peer = instance.connect()
        self.peer.react = self.hear
        self.number = self.peer.number
        self.streams: dict[int, StartStream] = {}
        # Every start request that ever came.
        self.asked: list[Message] = []
        self.hellos: dict[int, int] = {}
        self.peer.post(self.peer.request("service.add", {"service": name}))
        self.peer.post(self.peer.request("event.subscribe", {"topic": "job-exception"}))
        self.hello()

    def hello(self) -> None:
        self.peer.post(self.peer.request("job-manager.exec-hello", {"service": self.name}))

    def hear(self, message: Message) -> None:
        if message.kind == "request" and message.topic == f"{self.name}.start":
            job = message.object()["id"]
            self.asked.append(message)
            self.streams[job] = StartStream(message, job)
        elif message.kind == "event" and message.object()["severity"] == 0:
            if stream := self.streams.get(message.object()["id"]):
                stream.interrupt()
        elif message.kind == "response" and message.topic == "job-manager.exec-hello":
            self.hellos[message.errnum] = self.hellos.get(message.errnum, 0) + 1


class Simulated:
    """`MockExec` at the broker."""

    def __init__(self, instance: Instance, name: str) -> None:
        self.mock = MockExec(name)
        self.now = time.time()
        self.peer: Peer = instance.connect()
        self.peer.react = self.hear
        self.number = self.peer.number
        self.peer.post(*self.mock.start())

    def hear(self, message: Message) -> None:
        self.peer.post(*self.mock.handle(Batch([message]), self.now))

    def wait(self) -> None:
        """Time goes on, until there is an end that was waited for."""
        if self.mock.deadline is not None:
            self.now = max(self.now, self.mock.deadline)
            self.peer.post(*self.mock.advance(self.now))


class Execution(RuleBasedStateMachine):
    """Services that come, go, replace each other, and break the rules."""

    policy = "replace"

    def __init__(self) -> None:
        super().__init__()
        self.instance = Instance(
            made_up(NODES, CORES), manages=SlowManager, settings={"exec_hello": self.policy}
        )
        self.manager: SlowManager = self.instance.jobs
        self.manager.quick = {"sched"}
        self.user = User(self.instance)
        self.scheduler = SlowScheduler(self.instance)
        self.services: dict[str, Service] = {}
        self.jobs: list[int] = []
        self.watch, self.frees = ExecutionWatch(), ManagerWatch()
        self.manager.heard, self.manager.said = self.heard, self.said
        self.settle()

    def heard(self, message: Message) -> None:
        self.watch.heard(message)
        self.frees.heard(message)

    def said(self, message: Message) -> None:
        outstanding = len(self.watch.started)
        if message.topic == "job-manager.exec-hello" and self.policy == "refuse":
            # A failure response if there are outstanding requests, and only then.
            assert (message.errnum == 0) == (not self.watch.service or outstanding == 0)
        self.watch.said(message)
        self.frees.said(message)

    def settle(self) -> None:
        """The scheduler, unlike the rest, is never slow."""
        self.instance.settle()
        while self.scheduler.inbox:
            self.scheduler.work()
            self.instance.settle()

    # --- users

    @precondition(lambda self: len(self.jobs) < MAX_JOBS)
    @rule(jobspec=jobspecs)
    def submit(self, jobspec: dict[str, Any]) -> None:
        self.jobs.append(self.user.submit(jobspec))
        self.settle()

    @precondition(lambda self: self.jobs)
    @rule(place=places, severity=st.sampled_from([0, 0, 3]))
    def raise_exception(self, place: int, severity: int) -> None:
        job = self.jobs[place % len(self.jobs)]
        raised = {"id": job, "type": "cancel", "severity": severity}
        assert self.user.peer.ask("job-manager.raise", raised).errnum in (0, errno.ENOENT)
        self.settle()

    @rule(count=st.integers(1, 4))
    def manager_works(self, count: int) -> None:
        self.manager.work(count)
        self.settle()

    # --- services

    @rule(name=NAMES)
    def service_comes(self, name: str) -> None:
        if name not in self.services:
            self.services[name] = service = Service(self.instance, name)
            self.manager.slow.add(service.number)
            self.settle()

    @precondition(lambda self: self.services)
    @rule(name=NAMES)
    def service_says_hello_again(self, name: str) -> None:
        if service := self.services.get(name):
            service.hello()
            self.settle()

    @precondition(lambda self: self.services)
    @rule(name=NAMES)
    def service_goes(self, name: str) -> None:
        if service := self.services.pop(name, None):
            self.instance.disconnect(service)
            self.settle()

    def answer(self, place: int, answer: Callable[[StartStream], Message]) -> None:
        """What the service may say to one of its requests, if it may."""
        streams = [it for service in self.services.values() for it in service.streams.values()]
        services = [
            service for service in self.services.values() for _ in range(len(service.streams))
        ]
        if streams:
            place %= len(streams)
            try:
                services[place].peer.post(answer(streams[place]))
            except ProtocolError:
                return
            self.settle()

    @rule(place=places)
    def start(self, place: int) -> None:
        self.answer(place, lambda stream: stream.start())

    @rule(place=places, status=st.sampled_from([0, 256, 9]))
    def finish(self, place: int, status: int) -> None:
        self.answer(place, lambda stream: stream.finish(status))

    @rule(place=places, which=ranks)
    def release_part(self, place: int, which: str) -> None:
        self.answer(place, lambda stream: stream.release(which, final=False))

    @rule(place=places)
    def release_all(self, place: int) -> None:
        self.answer(place, lambda stream: stream.release())

    @rule(place=places, severity=st.sampled_from([0, 3]))
    def fail(self, place: int, severity: int) -> None:
        self.answer(place, lambda stream: stream.exception("exec", "n", severity=severity))

    def requests(self) -> list[tuple[Peer, Message]]:
        """Every start request, also those that are long over."""
        return [
            (service.peer, request)
            for service in self.services.values()
            for request in service.asked
        ]

    @precondition(lambda self: self.requests())
    @rule(place=places, answer=unlawful, known=st.booleans(), times=st.integers(1, 2))
    def answer_against_the_rules(
        self, place: int, answer: dict[str, Any], known: bool, times: int
    ) -> None:
        requests = self.requests()
        peer, request = requests[-1 - place % len(requests)]
        job = request.object()["id"] if known else 5
        peer.post(*[request.respond({"id": job, **answer}, streaming=True)] * times)
        self.settle()

    @precondition(lambda self: self.requests())
    @rule(place=places, errnum=st.sampled_from([errno.ENOSYS, errno.EPROTO]))
    def answer_with_an_error(self, place: int, errnum: int) -> None:
        requests = self.requests()
        peer, request = requests[-1 - place % len(requests)]
        peer.post(request.respond(errnum=errnum))
        self.settle()

    # --- what must be true

    @invariant()
    def jobs_end_after_their_final_release(self) -> None:
        found = audit(self.instance, self.user, set(self.jobs))
        for job, account in found.items():
            assert job not in self.watch.started or account.state != INACTIVE, account.names
            releases = [it["context"] for it in account.log if it["name"] == "release"]
            released = IDset()
            for release in releases:
                part = release["ranks"]
                gone = account.r.ranks - released if part == "all" else IDset(part)
                assert not gone & released, "released twice"
                assert gone <= account.r.ranks
                released |= gone
            assert [it["final"] for it in releases[:-1]] == [False] * (len(releases) - 1)
            if releases and releases[-1]["final"]:
                last = len(account.names) - 1 - account.names[::-1].index("release")
                assert set(account.names[last + 1 :]) <= {"free", "clean", "exception"}
            if account.state == INACTIVE and "start" in account.names:
                assert releases, "clean before the final release"
                assert releases[-1]["final"], "clean before the final release"

    def teardown(self) -> None:
        """With a good service every job comes to its end, and everything is free."""
        for name in list(self.services):
            self.service_goes(name)
        self.manager.work()
        self.settle()
        last = self.last_service()
        self.jobs.append(self.user.submit(jobspec_of(nodes=NODES)))
        for _ in range(2 * MAX_JOBS):
            self.manager.work()
            self.settle()
            last()
        found = audit(self.instance, self.user, set(self.jobs))
        stuck = {job: it.names for job, it in found.items() if it.state != INACTIVE}
        assert not stuck, (stuck, self.user.ask("job-manager.stats-get"), self.manager.log)
        assert not found[self.jobs[-1]].names.count("exception")

    def last_service(self) -> Callable[[], None]:
        """A service that ends all jobs, and how it does so."""
        service = ExecutionService(self.instance, "exec-z")
        self.manager.slow.add(service.peer.number)

        def end() -> None:
            while service.jobs:
                service.finish(next(iter(service.jobs)))

        return end


class RefusingExecution(Execution):
    """As in `specs/`: no service may replace another one that has jobs to answer for."""

    policy = "refuse"

    def last_service(self) -> Callable[[], None]:
        service = Simulated(self.instance, "exec-m")
        self.manager.slow.add(service.number)

        def end() -> None:
            service.wait()
            self.settle()

        return end


TestExecution = Execution.TestCase
TestExecution.settings = settings(max_examples=50, stateful_step_count=40)
TestRefusingExecution = RefusingExecution.TestCase
TestRefusingExecution.settings = settings(max_examples=25, stateful_step_count=40)
