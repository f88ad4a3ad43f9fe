"""Elastic jobs with the instance's own services on a stepped clock, with faults."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from actors import jobspec_of
from elasticworld import INACTIVE, RUN, World
from ends import SlowScheduler
from virtualtime import SteppedClock

from penstock import ResourceSet
from penstock._core import STREAMING, Batch, fluid_parse
from penstock.pmix import answer, attributes

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


def test_requests_are_granted_denied_queued_and_released(clock: SteppedClock) -> None:
    world = World(clock)
    job = world.run_job(2)
    more = answer(world.ask(job, "extend", nodes=1, required=True))
    assert (more.status, more.hosts, more.cpus) == (0, "node2", (2,))
    assert world.row(job)["nnodes"] == 3
    denied = world.ask(job, "extend", nodes=4, required=True)
    assert (denied["status"], denied["reason"]) == (-29, "not available now: 4 whole nodes")
    never = world.ask(job, "new", nodes=99)
    assert never["status"] == -29
    waits = world.ask(job, "new", nodes=4, name="waits", time=600)
    assert waits["queued"]
    (waiting,) = (row for row in world.query(job) if row["state"] == "queued")
    assert waiting["id"] == "waits"
    explained = world.scheduler_explains(fluid_parse(waits["alloc"]))
    assert "node" in explained["reason"]
    assert world.ask(job, "release", nodes=1)["status"] == 0
    world.settle()
    new = fluid_parse(waits["alloc"])
    assert world.row(new)["state"] == RUN
    world.execution.finish(job)
    world.settle()
    assert world.row(new)["state"] == RUN
    assert world.row(new)["nodelist"] == "node[2-5]"
    world.advance(601)
    assert (world.row(new)["state"], world.row(new)["result"]) == (INACTIVE, 1)
    assert not ResourceSet(world.instance.manager.held())


def test_preferences_are_met_if_free_and_dropped_otherwise(
    clock: SteppedClock,
) -> None:
    world = World(clock)
    job = world.run_job(2)
    first = answer(world.ask(job, "extend", hosts="node5"))
    assert (first.hosts, first.dropped) == ("node5", ())
    second = answer(world.ask(job, "extend", hosts="node[4-5]"))
    assert (second.hosts, second.dropped) == ("node[2-3]", ("pmix.alloc.nlist",))
    third = world.ask(job, "extend", hosts="node5", required=True)
    assert third["status"] == -29


def test_each_node_contributes_its_requested_cores(clock: SteppedClock) -> None:
    world = World(clock, cores=4)
    job = world.run_job(2)
    wanted = {"hosts": "node[3-4]", "cpus_per_host": "1,3", "required": True}
    more = answer(world.ask(job, "extend", name="more", **wanted))
    assert (more.status, more.hosts, more.cpus, more.dropped) == (0, "node[3-4]", (1, 3), ())
    seven = answer(world.ask(job, "extend", cpus=7, nodes=2, required=True))
    assert (seven.status, sorted(seven.cpus)) == (0, [3, 4])
    world.check()
    # One cpu of node4 is left, and that is too little.
    denied = world.ask(job, "new", hosts="node[4-5]", cpus_per_host="2,1", required=True)
    assert denied["status"] == -29
    assert denied["reason"].startswith("not available now: 1 node with 2 cpus of node4 and")
    world.check()
    gone = answer(world.ask(job, "release", alloc="more"))
    assert (gone.hosts, gone.cpus) == ("node[3-4]", (1, 3))
    world.check()
    new = answer(world.ask(job, "new", cpus_per_host="2,1", required=True, time=60))
    assert sorted(new.cpus) == [1, 2]
    world.check()


def test_a_request_of_parts_waits_for_all_of_them(clock: SteppedClock) -> None:
    world = World(clock, cores=4)
    job, other = world.run_job(2), world.run_job(3)
    waits = world.ask(job, "extend", cpus_per_host="4,2", name="waits")
    assert waits["queued"]
    # The available part is reserved, and belongs to no job yet.
    assert world.row(fluid_parse(waits["alloc"]))["state"] == RUN
    assert world.row(job)["nnodes"] == 2
    (row,) = world.query(job)
    assert (row["state"], row["reason"] != "") == ("queued", True)
    world.execution.finish(other)
    world.settle()
    (row,) = world.query(job)
    assert row["state"] == "granted"
    assert sorted(answer(row).cpus) == [2, 4]
    world.check()


def test_two_requests_that_block_each_other(clock: SteppedClock) -> None:
    world = World(clock, cores=4)
    job, filler = world.run_job(2), world.run_job(4)
    wanted = [("first", "node2", "node3"), ("second", "node3", "node2")]
    for name, most, least in wanted:
        hosts = f"{most},{least}"
        world.ask(job, "extend", hosts=hosts, cpus_per_host="4,3", name=name, timeout=5000)
    world.execution.finish(filler)
    world.settle()
    for _ in range(4):
        world.advance(301)
    assert [row["state"] for row in world.query(job)] == ["granted", "granted"]
    world.check()


def test_a_timeout_brings_a_partial_grant(clock: SteppedClock) -> None:
    world = World(clock)
    job = world.run_job(3)
    waits = world.ask(job, "extend", nodes=5, timeout=60, name="part")
    assert waits["status"] == 1
    world.advance(61)
    (row,) = world.query(job)
    assert (row["state"], row["results"][2]["value"]) == ("granted", "node[3-5]")


def test_a_loan_is_reclaimed_at_its_end(clock: SteppedClock) -> None:
    world = World(clock)
    job = world.run_job(6)
    lent = answer(world.ask(job, "release", nodes=2, time=600, name="loan"))
    assert (lent.hosts, lent.time) == ("node[4-5]", 600)
    other = world.run_job(1, duration=3600.0)
    world.advance(601)
    (row,) = (request for request in world.query(job) if request["directive"] == "reacquire")
    assert row["state"] == "queued"
    world.execution.finish(other)
    world.settle()
    assert world.row(job)["nnodes"] == 6
    assert world.ask(job, "reacquire")["status"] == -46


def test_an_extension_of_time_is_known_to_the_scheduler(clock: SteppedClock) -> None:
    world = World(clock)
    job = world.run_job(6, duration=600.0)
    ends = world.row(job)["expiration"]
    more = answer(world.ask(job, "extend", time=300))
    assert (more.status, more.time) == (0, 300)
    assert world.row(job)["expiration"] == ends + 300
    waiting = world.user.submit(jobspec_of(nodes=1, duration=60))
    world.settle()
    assert world.scheduler_explains(waiting)["start"] == ends + 300


def test_a_lost_probe_counts_as_rejected_after_thirty_seconds(clock: SteppedClock) -> None:
    world = World(clock)
    job = world.run_job(2)
    world.lose = 1
    peer = world.instance.connect()
    world.send(peer, job, "extend", nodes=5, required=True)
    (first,) = peer.take()
    assert first.object()["queued"]
    # A scheduler that is only slow would still grant the request.
    world.advance(29)
    assert peer.take() == []
    world.advance(2)
    denied, end = peer.take()
    assert (denied.object()["status"], end.errnum) == (-29, 61)


@pytest.mark.parametrize("seed", range(6))
def test_resources_are_conserved_under_faults(
    seed: int, clock: SteppedClock, tmp_path: Path
) -> None:
    """Requesters die, messages are lost, the scheduler and the daemon restart."""
    print("seed", seed)
    chance = random.Random(seed)
    world = World(clock, tmp_path / "jobs.sqlite")
    jobs = [world.run_job(2), world.run_job(1)]
    for _ in range(25):
        job = chance.choice(jobs)
        match chance.randrange(12):
            case 0:
                world.instance.disconnect(world.scheduler)
                world.scheduler = SlowScheduler(world.instance)
                world.settle()
            case 1:
                world.start()
            case 2:
                world.advance(chance.uniform(1, 400))
            case 3:
                world.lose = 2
            case 4:
                world.user.ask("pmix.cancel", {"job": job})
                world.settle()
            case 5 | 6:
                time = chance.choice([None, 200])
                world.ask(job, "release", nodes=chance.randint(1, 3), time=time)
            case 7:
                world.ask(job, "reacquire")
            case 8:
                world.ask(job, "extend", time=chance.randint(1, 500), timeout=30)
            case 9:
                counts = chance.choice(["2,1", "1,2,1"])
                hosts = chance.choice([None, "node[4-5]"]) if counts == "2,1" else None
                directive = chance.choice(["new", "extend"])
                time = 300 if directive == "new" else None
                required = chance.random() < 0.5
                wanted = {"cpus_per_host": counts, "hosts": hosts, "time": time}
                world.ask(job, directive, required=required, **wanted)
            case _:
                directive = chance.choice(["new", "extend", "extend"])
                limit = chance.choice([None, 50])
                # The requester disconnects before its response.
                peer = world.instance.connect()
                world.send(
                    peer,
                    job,
                    directive,
                    nodes=chance.randint(1, 4),
                    timeout=limit,
                    time=300 if directive == "new" else None,
                    required=chance.random() < 0.3,
                    hosts=chance.choice([None, "node[3-5]"]),
                )
                world.instance.disconnect(peer)
        world.settle()
        world.check()
    for job in jobs:
        world.execution.finish(job)
        world.settle()
    world.advance(1000)
    world.advance(1000)
    assert not ResourceSet(world.instance.manager.held())
    assert {row["state"] for row in world.user.rows()} == {INACTIVE}


def test_queued_requests_survive_a_restart(clock: SteppedClock, tmp_path: Path) -> None:
    world = World(clock, tmp_path / "jobs.sqlite")
    job, other = world.run_job(2), world.run_job(1)
    world.ask(job, "extend", nodes=1, name="got")
    waits = world.ask(job, "extend", nodes=4, name="waits")
    world.ask(job, "release", hosts="node1", time=500, name="loan")
    world.start()
    assert world.row(job)["ranks"] == "0,3"
    assert [row["state"] for row in world.query(job)] == ["granted", "queued", "granted"]
    peer = world.instance.connect()
    peer.post(peer.request("pmix.events", {"job": job}, STREAMING))
    world.settle()
    assert [message.object()["id"] for message in peer.take()] == ["got", "loan"]
    world.execution.finish(other)
    world.settle()
    (received,) = peer.take()
    assert received.object()["id"] == "waits"
    assert world.row(fluid_parse(waits["alloc"]))["state"] == RUN
    assert world.row(job)["ranks"] == "0-5"
    world.advance(501)
    assert [row["state"] for row in world.query(job)][-1] == "queued", "the loan is reclaimed"
    world.check()


def test_a_thousand_requests_of_one_job(clock: SteppedClock) -> None:
    world = World(clock)
    job = world.run_job(5)
    peer = world.instance.connect()
    requests = [
        peer.request(
            "pmix.alloc",
            {"job": job, "directive": "new", "attributes": attributes({"nodes": 1, "time": 60})},
        )
        for _ in range(1000)
    ]
    world.instance.broker.post(peer.number, Batch(requests))
    world.settle()
    (granted,) = peer.take()
    assert granted.object()["status"] == 0
    world.user.ask("pmix.cancel", {"job": job})
    world.settle()
    statuses = [message.object()["status"] for message in peer.take()]
    assert statuses == [-180] * 999
    world.check()
