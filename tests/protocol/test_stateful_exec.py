"""RFC 32, both ends against each other: the job manager and execution services, valid or not."""

from __future__ import annotations

import errno
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from actors import ExecutionService, User, jobspec_of
from books import INACTIVE, RUN, audit
from ends import SlowManager, SlowScheduler
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from inprocess import Instance, Peer
from services import Answers, Service, Simulated
from watch import ExecutionWatch, ManagerWatch

from penstock import IDset
from penstock.errors import ProtocolError
from penstock.inventory import simulated

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock._core import Message
    from penstock.protocol.execution import StartStream

NODES, CORES = 3, 2
MAX_JOBS = 8
NAMES = st.sampled_from(["exec-a", "exec-b"])
places = st.integers(0, 7)
durations = st.sampled_from([0.0, 60.0])
jobspecs = st.one_of(
    st.builds(jobspec_of, st.integers(1, 3), duration=durations),
    st.builds(
        lambda nodes, duration: jobspec_of(nodes=nodes, duration=duration),
        st.integers(1, NODES),
        durations,
    ),
)
severities = st.sampled_from([0, 0, 3])
# None, exit codes, a signal, a signal with a core dump.
wait_statuses = st.sampled_from([None, 0, 256, 15, 11 | 0x80])
ranks = st.sampled_from(["all", "0", "1", "0-1", "2", "1-2"])
unlawful = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(
                ["start", "reattached", "finish", "release", "exception", "nonsense", 7]
            ),
            "data": st.one_of(
                st.just({}),
                st.builds(
                    lambda freed, last: {"ranks": freed, "final": last}, ranks, st.booleans()
                ),
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


class Execution(RuleBasedStateMachine):
    """Services that attach, detach, replace each other, and violate the protocol."""

    policy = "replace"

    def __init__(self) -> None:
        super().__init__()
        self.instance = Instance(
            simulated(NODES, CORES), manages=SlowManager, settings={"exec_hello": self.policy}
        )
        self.manager: SlowManager = self.instance.jobs
        self.manager.quick = {"sched"}
        self.user = User(self.instance)
        self.scheduler = SlowScheduler(self.instance)
        self.services: dict[str, Service] = {}
        self.simulated: Simulated | None = None
        # A client that is subscribed from the beginning to the end.
        self.bystander = self.instance.connect()
        self.bystander.ask("event.subscribe", {"topic": "job-exception"})
        self.raised: list[dict[str, Any]] = []
        self.bystander.react = lambda message: self.raised.append(message.object())
        self.jobs: list[int] = []
        self.watch, self.frees = ExecutionWatch(), ManagerWatch(released=False)
        self.manager.on_received, self.manager.on_sent = self.on_received, self.on_sent
        self.settle()

    def on_received(self, message: Message) -> None:
        self.watch.on_received(message)
        self.frees.on_received(message)

    def on_sent(self, message: Message) -> None:
        outstanding = len(self.watch.started)
        if message.topic == "job-manager.exec-hello" and self.policy == "reject":
            # A failure response if there are outstanding requests, and only then.
            assert (message.errnum == 0) == (not self.watch.service or outstanding == 0)
        self.watch.on_sent(message)
        self.frees.on_sent(message)

    def settle(self) -> None:
        """The scheduler's messages are never delayed."""
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
    @rule(place=places, severity=severities, wait_status=wait_statuses)
    def raise_exception(self, place: int, severity: int, wait_status: int | None) -> None:
        job = self.jobs[place % len(self.jobs)]
        raised = {"id": job, "type": "cancel", "severity": severity}
        if wait_status is not None:
            raised["wait_status"] = wait_status
        assert self.user.peer.ask("job-manager.raise", raised).errnum in (0, errno.ENOENT)
        self.settle()

    def received_by_its_service(self, topic: str, payload: dict[str, Any]) -> None:
        """Checks that the current service has received this request."""
        service = self.services.get(self.watch.service)
        if service is not None and service.answers.keys() & {payload["id"]}:
            requests = service.other_requests
            assert requests.count((topic, payload)), f"{topic} {payload} was not received"

    @precondition(lambda self: self.watch.started)
    @rule(place=places, signum=st.integers(1, 64))
    def kill(self, place: int, signum: int) -> None:
        job = list(self.watch.started)[place % len(self.watch.started)]
        kill = {"id": job, "signum": signum}
        runs = audit(self.instance, self.user, set(self.jobs))[job].state == RUN
        assert self.user.peer.ask("job-manager.kill", kill).errnum == (0 if runs else errno.EINVAL)
        self.settle()
        if runs:
            self.received_by_its_service(".kill", kill)

    @precondition(lambda self: self.watch.started)
    @rule(place=places, duration=st.sampled_from([0.0, 1000.0, 2000.0]))
    def change_duration(self, place: int, duration: float) -> None:
        job = list(self.watch.started)[place % len(self.watch.started)]
        update = {"id": job, "updates": {"attributes.system.duration": duration}}
        peer = self.instance.connect()
        peer.post(peer.request("job-manager.update", update))
        self.settle()
        (answer,) = peer.take()
        account = audit(self.instance, self.user, set(self.jobs))[job]
        assert (answer.errnum == 0) == (account.state == RUN)
        if answer.errnum == 0:
            (*_, change) = [
                event["context"] for event in account.log if event["name"] == "resource-update"
            ]
            until = change["expiration"]
            assert (until == 0) == (duration == 0)
            self.received_by_its_service(".expiration", {"id": job, "expiration": until})

    @rule(count=st.integers(1, 4))
    def manager_works(self, count: int) -> None:
        self.manager.work(count)
        self.settle()

    @rule()
    def manager_works_it_all_off(self) -> None:
        self.manager.work()
        self.settle()

    # --- services

    @rule(name=NAMES)
    def service_comes(self, name: str) -> None:
        if name not in self.services:
            self.services[name] = service = Service(self.instance, name)
            service.since = len(self.raised)
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

    @rule(name=NAMES)
    def service_is_replaced(self, name: str) -> None:
        """Replaces the service: started jobs are started again."""
        self.service_goes(name)
        self.service_comes(name)
        self.manager_works_it_all_off()

    @precondition(lambda self: self.simulated is None)
    @rule(without_r=st.booleans())
    def simulation_comes(self, *, without_r: bool) -> None:
        self.simulated = Simulated(self.instance, "exec-sim", without_r=without_r)
        self.manager.slow.add(self.simulated.number)
        self.manager_works_it_all_off()
        # Its hello is rejected while another service has running jobs.
        assert self.simulated.mock.failure is None or self.policy == "reject"

    @precondition(lambda self: self.simulated is not None)
    @rule()
    def simulated_time_passes(self) -> None:
        assert self.simulated is not None
        self.simulated.wait()
        self.settle()

    @precondition(lambda self: self.simulated is not None)
    @rule()
    def simulation_goes(self) -> None:
        assert self.simulated is not None
        self.instance.disconnect(self.simulated)
        self.simulated = None
        self.settle()

    def answer(
        self, place: int, kind: str, answer: Callable[[StartStream], Message]
    ) -> Answers | None:
        """Sends a response to a start request, if RFC 32 allows it."""
        places = [(service, job) for service in self.services.values() for job in service.answers]
        if not places:
            return None
        service, job = places[place % len(places)]
        answers = service.answers[job]
        may = answers.may(kind)
        try:
            message = answer(answers.stream)
        except ProtocolError:
            assert not may, f"{kind} was rejected after {answers.types!r}"
            return None
        assert may, f"{kind} was allowed after {answers.types!r}"
        if kind == "f":
            status = answers.status(self.status)
            assert message.object()["data"] == {"status": status}
        service.peer.post(message)
        # A fatal exception comes back as an event.
        answers.types += kind if kind != "x" else ""
        self.settle()
        return answers

    @rule(place=places, proper=st.integers(0, 4))
    def start(self, place: int, proper: int) -> None:
        """Sends `start`, or `reattached` if that is requested; sometimes the wrong one."""

        def started(stream: StartStream) -> Message:
            return stream.reattached() if again else stream.start()

        services = self.services.values()
        streams = [answers for service in services for answers in service.answers.values()]
        again = bool(streams) and streams[place % len(streams)].may("r")
        if proper == 0:
            again = not again
        self.answer(place, "r" if again else "s", started)

    status = 0

    @rule(place=places, status=st.sampled_from([0, 256, 9]))
    def finish(self, place: int, status: int) -> None:
        self.status = status
        self.answer(place, "f", lambda stream: stream.finish(status))

    @rule(place=places, which=ranks)
    def release_part(self, place: int, which: str) -> None:
        self.answer(place, "p", lambda stream: stream.release(which, final=False))

    @rule(place=places)
    def release_all(self, place: int) -> None:
        self.answer(place, "l", lambda stream: stream.release())

    @rule(place=places, severity=severities, wait_status=wait_statuses)
    def fail(self, place: int, severity: int, wait_status: int | None) -> None:
        def failed(stream: StartStream) -> Message:
            return stream.exception("exec", "n", severity=severity, wait_status=wait_status)

        answers = self.answer(place, "m" if severity else "x", failed)
        if answers is not None and severity == 0:
            answers.fail(wait_status)

    def requests(self) -> list[tuple[Peer, Message]]:
        """Every start request, answered ones included."""
        return [
            (service.peer, request)
            for service in self.services.values()
            for request in service.starts
        ]

    @precondition(lambda self: self.requests())
    @rule(place=places, answer=unlawful, known=st.booleans(), times=st.integers(1, 2))
    def answer_against_the_rules(
        self, place: int, answer: dict[str, Any], *, known: bool, times: int
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
    def every_exception_is_published_to_all_subscribers(self) -> None:
        raised = Counter(map(described, self.raised))
        for job, account in audit(self.instance, self.user, set(self.jobs)).items():
            logged = [event["context"] for event in account.log if event["name"] == "exception"]
            # A service that registers later receives fatal ones again.
            assert Counter(described({"id": job, **context}) for context in logged) <= raised
        for service in self.services.values():
            assert service.exceptions == self.raised[len(self.raised) - len(service.exceptions) :]
            assert len(service.exceptions) == len(self.raised) - service.since

    @invariant()
    def jobs_end_after_their_final_release(self) -> None:
        found = audit(self.instance, self.user, set(self.jobs))
        for job, account in found.items():
            assert job not in self.watch.started or account.state != INACTIVE, account.names
            releases = [event["context"] for event in account.log if event["name"] == "release"]
            released = IDset()
            for release in releases:
                part = release["ranks"]
                gone = account.r.ranks - released if part == "all" else IDset(part)
                assert not gone & released, "released twice"
                assert gone <= account.r.ranks
                released |= gone
            assert [event["final"] for event in releases[:-1]] == [False] * (len(releases) - 1)
            if releases and releases[-1]["final"]:
                last = len(account.names) - 1 - account.names[::-1].index("release")
                assert set(account.names[last + 1 :]) <= {"free", "clean", "exception"}
            if account.state == INACTIVE and "start" in account.names:
                assert releases, "clean before the final release"
                assert releases[-1]["final"], "clean before the final release"

    def teardown(self) -> None:
        """With a correct service every job becomes inactive, and everything is free."""
        for name in list(self.services):
            self.service_goes(name)
        if self.simulated is not None:
            self.simulation_goes()
        self.manager.work()
        self.settle()
        last = self.last_service()
        self.jobs.append(self.user.submit(jobspec_of(nodes=NODES)))
        for _ in range(2 * MAX_JOBS):
            self.manager.work()
            self.settle()
            last()
        found = audit(self.instance, self.user, set(self.jobs))
        stuck = {job: account.names for job, account in found.items() if account.state != INACTIVE}
        assert not stuck, (stuck, self.user.ask("job-manager.stats-get"), self.manager.log)
        assert not found[self.jobs[-1]].names.count("exception")

    def last_service(self) -> Callable[[], None]:
        """Attaches a service that ends all jobs."""
        service = ExecutionService(self.instance, "exec-z")
        self.manager.slow.add(service.peer.number)

        def end() -> None:
            while service.jobs:
                service.finish(next(iter(service.jobs)))

        return end


def described(raised: dict[str, Any]) -> tuple[Any, ...]:
    """The parts of an exception that are compared."""
    return tuple(raised.get(key) for key in ("id", "type", "severity", "wait_status"))


class RejectingExecution(Execution):
    """RFC 32 as specified: a service with outstanding start requests is not replaced."""

    policy = "reject"

    def last_service(self) -> Callable[[], None]:
        service = Simulated(self.instance, "exec-m")
        self.manager.slow.add(service.number)

        def end() -> None:
            service.wait()
            self.settle()

        return end


TestExecution = Execution.TestCase
TestExecution.settings = settings(max_examples=50, stateful_step_count=35)
TestRejectingExecution = RejectingExecution.TestCase
TestRejectingExecution.settings = settings(max_examples=25, stateful_step_count=35)


# Messages that every run must receive, whichever steps the machine draws.


@pytest.mark.parametrize("without_r", [True, False])
def test_every_request_reaches_its_service(*, without_r: bool) -> None:
    state = Execution()
    state.service_comes("exec-a")
    state.manager_works_it_all_off()
    for duration in (0.0, 60.0):
        state.submit(jobspec_of(nodes=1, duration=duration))
    # First no start request has a response, then one of the two has.
    state.service_is_replaced("exec-a")
    state.start(0, proper=0)
    state.start(0, proper=1)
    state.manager_works_it_all_off()
    state.service_is_replaced("exec-b")
    assert {request.object()["reattach"] for request in state.services["exec-b"].starts} == {True}
    state.kill(0, 10)
    state.change_duration(0, 1000.0)
    state.raise_exception(0, 3, None)
    state.raise_exception(0, 0, 15)
    state.every_exception_is_published_to_all_subscribers()
    for place in (0, 1):
        state.start(place, proper=1)
        state.finish(place, 9)
        state.release_all(place)
        state.release_all(place)
        state.manager_works_it_all_off()
    state.submit(jobspec_of(duration=60.0))
    state.simulation_comes(without_r=without_r)
    state.simulated_time_passes()
    state.manager_works_it_all_off()
    state.jobs_end_after_their_final_release()
    state.every_exception_is_published_to_all_subscribers()
    state.teardown()
