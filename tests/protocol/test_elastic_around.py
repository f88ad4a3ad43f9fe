"""Elastic jobs with other schedulers than ours, and with nodes that go down or are removed."""

from __future__ import annotations

import importlib.util
from collections import deque
from errno import ENODATA
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from actors import without
from elasticworld import INACTIVE, RUN, World
from ends import SlowScheduler
from virtualtime import SteppedClock

from penstock import ResourceSet
from penstock._core import STREAMING, Batch, Message, fluid_parse
from penstock.pmix import Answer, answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inprocess import Instance, Peer

EXAMPLE = Path(__file__).parents[2] / "examples" / "scheduler.py"


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


class TakesNoParts(SlowScheduler):
    """Our scheduler, without `partial-ok`."""

    def worded(self, message: Message) -> Message:
        """Returns the message to send."""
        hello = message.topic == "job-manager.sched-hello"
        return without(message, "partial-ok") if hello else message


class Client:
    """`penstock.client.Client`, as far as the example needs it."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    def rpc(self, topic: str, payload: dict[str, Any]) -> Any:
        """Sends a request; returns the response."""
        response = self.peer.ask(topic, payload)
        if response.errnum:
            raise OSError(response.errnum, response.error_text)
        return response.object() if response.payload is not None else {}

    def stream(self, topic: str, payload: dict[str, Any]) -> Iterator[Any]:
        """Sends a request; returns the responses."""
        *answers, last = self.peer.send(self.peer.request(topic, payload, STREAMING))
        assert last.errnum == ENODATA
        return (response.object() for response in answers)


class Example:
    """The scheduler in `examples`, a program of its own."""

    def __init__(self, instance: Instance) -> None:
        spec = importlib.util.spec_from_file_location("example_scheduler", EXAMPLE)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.time = SimpleNamespace(time=instance.broker.clock.now)
        self.inbox: deque[Message] = deque()
        self._broker = instance.broker
        self.number = instance.broker.attach(self)
        self.scheduler = made = module.Scheduler.__new__(module.Scheduler)
        made.client, made.mode = Client(instance.connect()), {"mode": "unlimited"}
        made.queue, made.order, made.possible = {}, {}, {}
        made.held, made.busy = {}, ResourceSet()
        made.send = self._send
        made.send(Message.request("service.add", {"service": "sched"}, matchtag=1))
        acquire = {"matchtag": module.NEWS, "flags": STREAMING}
        made.send(Message.request("resource.acquire", module.GROW, **acquire))

    def _send(self, message: Message) -> None:
        self._broker.post(self.number, Batch([message]))

    def deliver(self, batch: Batch) -> None:
        """Delays messages."""
        self.inbox.extend(batch)

    def post_output(self, now: float) -> None:
        """Does nothing."""

    def work(self) -> None:
        """Handles the delayed messages and schedules."""
        for _ in range(len(self.inbox)):
            self.scheduler.handle(self.inbox.popleft())
        self.scheduler.schedule()


def last(peer: Peer) -> Answer:
    """The last response."""
    answers = [message.object() for message in peer.take() if not message.errnum]
    return answer(answers[-1])


def test_a_scheduler_without_partial_release(clock: SteppedClock) -> None:
    world = World(clock, scheduler=TakesNoParts)
    job = world.run_job(2)
    more = answer(world.ask(job, "extend", nodes=2, name="more", required=True))
    assert more.hosts == "node[2-3]"
    lent = world.ask(job, "release", hosts="node1", time=60)
    assert lent["status"] == -47
    assert world.row(job)["nnodes"] == 4
    given = world.ask(job, "release", hosts="node1")
    assert given["status"] == 0
    assert given["reason"].startswith("not free for others before the allocation ends")
    assert world.row(job)["nodelist"] == "node[0,2-3]"
    # No job gets it meanwhile; a scheduler that attaches later sees it as free.
    denied = world.ask(job, "extend", nodes=3, required=True)
    assert denied["status"] == -29
    world.attach = SlowScheduler
    world.instance.disconnect(world.scheduler)
    world.scheduler = SlowScheduler(world.instance)
    world.settle()
    again = answer(world.ask(job, "extend", hosts="node1", required=True))
    assert again.hosts == "node1"
    # A grant is an allocation of its own: it may be lent as a whole.
    gone = answer(world.ask(job, "release", alloc="more", time=60))
    assert gone.hosts == "node[2-3]"
    world.advance(61)
    assert world.row(job)["nodelist"] == "node[0-3]"
    world.check()
    world.execution.finish(job)
    world.settle()
    assert not ResourceSet(world.instance.manager.held())


def test_requests_end_with_the_job_under_every_scheduler(clock: SteppedClock) -> None:
    for scheduler in (TakesNoParts, Example):
        world = World(clock, scheduler=scheduler)
        job = world.run_job(2)
        world.ask(job, "extend", nodes=2)
        world.ask(job, "release", nodes=1)
        waits = world.ask(job, "new", nodes=6)
        world.execution.finish(job)
        world.settle()
        assert world.row(fluid_parse(waits["alloc"]))["state"] == INACTIVE
        assert not ResourceSet(world.instance.manager.held())
        # All of it may be had again.
        other = world.run_job(6)
        assert world.row(other)["nnodes"] == 6


def test_a_foreign_scheduler_grants_requests(clock: SteppedClock) -> None:
    world = World(clock, cores=4, scheduler=Example)
    job = world.run_job(2)
    more = answer(world.ask(job, "extend", nodes=1, required=True, name="more"))
    assert (more.hosts, more.cpus) == ("node2", (4,))
    wanted = {"hosts": "node[4-5]", "cpus_per_host": "1,3", "required": True}
    uneven = answer(world.ask(job, "extend", **wanted))
    assert (uneven.hosts, uneven.cpus) == ("node[4-5]", (1, 3))
    assert world.row(job)["nnodes"] == 5
    lent = answer(world.ask(job, "release", alloc="more", time=60))
    assert lent.hosts == "node2"
    world.advance(61)
    assert world.row(job)["nnodes"] == 5
    new = answer(world.ask(job, "new", cpus=2, required=True, time=60))
    assert new.cpus == (2,)
    world.check()
    world.advance(61)
    assert world.row(fluid_parse(new.alloc or ""))["state"] == INACTIVE


def test_a_scheduler_without_verdicts_has_two_seconds(
    clock: SteppedClock,
) -> None:
    world = World(clock, scheduler=Example)
    job = world.run_job(3)
    peer = world.instance.connect()
    world.send(peer, job, "extend", nodes=4, required=True)
    world.advance(1)
    assert last(peer).status == 1
    world.advance(2)
    assert last(peer).status == -29
    # A preference that it cannot meet is dropped then.
    other = world.run_job(1)
    world.send(peer, job, "extend", hosts=world.row(other)["nodelist"])
    world.advance(3)
    granted = last(peer)
    assert (granted.status, granted.dropped) == (0, ("pmix.alloc.nlist",))
    # A scheduler without count ranges grants no part, and the request is not unsatisfiable.
    world.send(peer, job, "extend", nodes=2, timeout=60)
    world.advance(61)
    world.advance(3)
    assert last(peer).status == -24
    world.check()


class Nodes:
    """A monitor that reports nodes as online."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.peers: dict[str, Peer] = {}

    def up(self, ranks: str) -> None:
        """Reports nodes as online."""
        peer = self.world.instance.connect()
        request = peer.request("resource.monitor", {"ranks": ranks}, STREAMING)
        (response,) = peer.send(request)
        assert response.errnum == 0
        self.peers[ranks] = peer
        self.world.settle()

    def down(self, ranks: str) -> None:
        """Stops reporting the nodes."""
        self.world.instance.disconnect(self.peers.pop(ranks))
        self.world.settle()


def test_a_node_that_is_lost_under_a_grant(clock: SteppedClock) -> None:
    world = World(clock)
    nodes = Nodes(world)
    for ranks in ("3", "4-5"):
        nodes.up(ranks)
    job = world.run_job(2)
    world.ask(job, "extend", hosts="node[3-4]", required=True, name="more")
    nodes.down("3")
    # The instance runs nothing there: the job still has the node, and may release it.
    assert world.row(job)["nodelist"] == "node[0-1,3-4]"
    world.check()
    assert answer(world.ask(job, "release", hosts="node3")).hosts == "node3"
    denied = world.ask(job, "extend", hosts="node3", required=True)
    assert denied["status"] == -29
    assert world.ask(job, "extend", nodes=3, required=True)["status"] == -29
    waits = world.ask(job, "extend", nodes=3)
    assert waits["queued"]
    nodes.up("3")
    (row,) = (request for request in world.query(job) if request["alloc"] == waits["alloc"])
    assert row["state"] == "granted"
    assert world.row(job)["nnodes"] == 6
    world.check()


def test_a_lost_node_on_loan_is_replaced(clock: SteppedClock) -> None:
    world = World(clock)
    nodes = Nodes(world)
    nodes.up("3")
    job = world.run_job(4)
    lent = answer(world.ask(job, "release", hosts="node3", time=60))
    assert lent.hosts == "node3"
    nodes.down("3")
    world.advance(61)
    assert world.row(job)["nodelist"] == "node[0-2,4]"
    world.check()


def test_a_granted_part_whose_node_is_lost_before_the_other_part(clock: SteppedClock) -> None:
    world = World(clock)
    nodes = Nodes(world)
    nodes.up("2")
    job, other = world.run_job(2), world.run_job(4)
    waits = world.ask(job, "new", cpus_per_host="2,1", time=600)
    world.execution.release(other, "2")
    world.settle()
    assert world.row(fluid_parse(waits["alloc"]))["nodelist"] == "node2"
    nodes.down("2")
    world.execution.finish(other)
    world.settle()
    (row,) = world.query(job)
    assert (row["state"], answer(row).hosts) == ("granted", "node[2-3]")
    world.check()


def test_a_node_that_is_gone_for_good_under_a_grant(clock: SteppedClock) -> None:
    world = World(clock)
    job = world.run_job(2)
    world.ask(job, "extend", hosts="node[3-4]", required=True, name="more")
    lent = answer(world.ask(job, "release", hosts="node4", time=60))
    assert lent.hosts == "node4"
    world.user.ask("resource.shrink", {"targets": "3-4"})
    world.settle()
    assert world.row(job)["nodelist"] == "node[0-1,3]"
    # The loan is reclaimed on another node.
    world.advance(61)
    assert world.row(job)["nodelist"] == "node[0-3]"
    never = world.ask(job, "new", nodes=5)
    assert never["status"] == -29
    assert answer(world.ask(job, "release", alloc="more")).hosts == "node3"
    assert world.row(job)["state"] == RUN
    world.execution.finish(job)
    world.settle()
    assert not ResourceSet(world.instance.manager.held())
