"""RFC 27: the job manager, and a scheduler that violates the protocol."""

from __future__ import annotations

import base64
import errno
from typing import TYPE_CHECKING, Any

from ends import SlowScheduler
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from jobmachine import CORES, NODES, Jobs, places

from penstock import ResourceSet
from penstock._core import (
    ALLOC_ANNOTATE,
    ALLOC_CANCEL,
    ALLOC_DENY,
    ALLOC_SUCCESS,
    STREAMING,
    Message,
    fluid_dothex,
)
from penstock.inventory import simulated

if TYPE_CHECKING:
    from inprocess import Peer

R = ResourceSet(simulated(NODES + 1, CORES + 1))
# Often another job's resources or unknown ones, now and then right.
documents = st.one_of(
    st.builds(
        lambda ranks, core: (
            R.restrict(ranks=ranks)
            & ResourceSet.uniform(ranks, [f"node{rank}" for rank in ranks], [core])
        ),
        st.lists(st.integers(0, NODES), min_size=1, max_size=2, unique=True).map(sorted),
        st.integers(0, CORES),
    ).map(ResourceSet.to_json),
    st.sampled_from(["", "{}", "[1]", '{"version": 2}', simulated(NODES, CORES).to_json()]),
)
KINDS = st.sampled_from(
    [ALLOC_SUCCESS, ALLOC_SUCCESS, ALLOC_ANNOTATE, ALLOC_DENY, ALLOC_CANCEL, 4, -1, "0", None]
)
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
        {"R": simulated(1, 1).to_dict()},
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
    """The job manager and a scheduler that sends arbitrary messages."""

    def __init__(self) -> None:
        super().__init__()
        self.watch.lawful = False
        self.rogue: Peer | None = None
        self.requests: list[Message] = []

    @precondition(lambda self: self.rogue is None)
    @rule(proper=st.booleans())
    def rogue_comes(self, *, proper: bool) -> None:
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
            self.requests.append(message)

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

    @precondition(lambda self: self.rogue is not None and self.requests)
    @rule(place=places, kind=KINDS, extra=extras)
    def answer(self, place: int, kind: Any, extra: dict[str, Any]) -> None:
        request = self.requests[-1 - place % len(self.requests)]
        self.say(request.respond({"id": request.object()["id"], "type": kind} | extra))

    @precondition(lambda self: self.rogue is not None and self.requests)
    @rule(place=places, text=documents, twice=st.booleans())
    def commit_and_answer(self, place: int, text: str, *, twice: bool) -> None:
        request = self.requests[-1 - place % len(self.requests)]
        job = request.object()["id"]
        success = request.respond({"id": job, "type": ALLOC_SUCCESS})
        self.say(self.commit_of(job, text), *[success] * (1 + twice))

    @precondition(lambda self: self.rogue is not None and self.requests)
    @rule(place=places, payload=garbage)
    def answer_garbage(self, place: int, payload: bytes) -> None:
        request = self.requests[-1 - place % len(self.requests)]
        self.say(request.respond(payload))

    @precondition(lambda self: self.rogue is not None and self.requests)
    @rule(place=places, errnum=st.sampled_from([errno.ENOSYS, errno.EPROTO, 250]))
    def answer_with_an_error(self, place: int, errnum: int) -> None:
        request = self.requests[-1 - place % len(self.requests)]
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
TestRuleBreaking.settings = settings(max_examples=50, stateful_step_count=35)
