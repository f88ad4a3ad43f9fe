"""PMIx RFC 0005, flexible allocation: the resource manager's end, with our scheduler.

`tests/pmix` shows the end of the PMIx server, with real clients.
"""

from __future__ import annotations

import pytest
from actors import jobspec_of
from elasticworld import RUN, World
from tests.conformance.harness import GUEST, Manager, responses
from tests.conformance.requirements import requirement
from virtualtime import SteppedClock

from penstock import Hostlist, ResourceSet
from penstock._core import STREAMING, fluid_parse
from penstock.pmix import answer

NEW, EXTEND, RELEASE, REACQUIRE, CANCEL = range(1, 6)
# Statuses of PMIx.
QUEUED, SUCCESS, NO_PERMISSIONS, OUT_OF_RESOURCE, NOT_SUPPORTED, CANCELED = (
    1,
    0,
    -23,
    -29,
    -47,
    -180,
)


@pytest.fixture
def world():
    """An instance of six nodes with four cores each."""
    return World(SteppedClock(), cores=4)


def attribute(key, value, *, required=False):
    """An attribute of a request."""
    return {"key": f"pmix.alloc.{key}", "value": value, "required": required}


def payload_of(job, directive, *attributes, rank=0):
    """A request as the PMIx server hands it on."""
    return {"job": job, "rank": rank, "directive": directive, "attributes": list(attributes)}


def ask(world, job, directive, *attributes, rank=0):
    """The last response to a request of a task."""
    peer = world.instance.connect()
    payload = payload_of(job, directive, *attributes, rank=rank)
    peer.post(peer.request("pmix.alloc", payload, STREAMING))
    world.settle()
    received = [message.object() for message in peer.take() if not message.errnum]
    world.instance.disconnect(peer)
    return received[-1]


def granted(world, job, directive, *attributes):
    """The answer to a request that must be granted."""
    found = answer(ask(world, job, directive, *attributes))
    assert found.status == SUCCESS, found.reason
    return found


def states(world, job):
    """The state of each request of a job, by its id."""
    return {row["id"]: row["state"] for row in world.query(job)}


# --- directives


@requirement(
    "pmix5.directives.new",
    "pmix5.attributes.nodes",
    "pmix5.answer.results",
)
def test_a_new_allocation_is_a_job_of_its_own(world):
    job = world.run_job(2)
    new = granted(world, job, NEW, attribute("nnodes", 2), attribute("time", 600))
    assert len(Hostlist(new.hosts)) == 2
    allocation = fluid_parse(new.alloc)
    assert world.extent(job).isdisjoint(world.extent(allocation))
    assert world.row(job)["nnodes"] == 2
    world.execution.finish(job)
    world.settle()
    assert world.row(allocation)["state"] == RUN


@requirement("pmix5.directives.extend", "pmix5.answer.results", "pmix5.attributes.time")
def test_an_extension_adds_nodes_or_time(world):
    job = world.run_job(2, duration=600)
    more = granted(world, job, EXTEND, attribute("nnodes", 1))
    assert world.row(job)["nnodes"] == 3
    assert more.hosts == "node2"
    ends = world.row(job)["expiration"]
    assert granted(world, job, EXTEND, attribute("time", 300)).time == 300
    assert world.row(job)["expiration"] == ends + 300
    assert granted(world, job, EXTEND, attribute("time", "1:30")).time == 90
    assert world.row(job)["expiration"] == ends + 390


@requirement("pmix5.directives.release", "pmix5.answer.results")
@requirement("pmix5.release.any-nodes")
def test_a_release_takes_any_nodes_but_the_requesters(world):
    job = world.run_job(6)
    waiting = world.user.submit(jobspec_of(nodes=2))
    world.settle()
    assert world.row(waiting)["state"] != RUN
    gone = granted(world, job, RELEASE, attribute("nnodes", 2))
    assert len(Hostlist(gone.hosts)) == 2
    # Rank 0 of the job's tasks, which asks, is on its first node.
    assert "node0" not in Hostlist(gone.hosts)
    assert world.row(job)["nnodes"] == 4
    assert world.row(waiting)["state"] == RUN
    # The requester's own node stays, however many are released.
    rest = ask(world, job, RELEASE, attribute("nnodes", 4))
    assert "node0" not in Hostlist(answer(rest).hosts)
    assert str(world.extent(job).nodelist) == "node0"


@requirement("pmix5.directives.lend")
@requirement("pmix5.directives.reacquire")
def test_lent_nodes_are_reacquired_or_come_back_in_time(world):
    job = world.run_job(6)
    lent = granted(world, job, RELEASE, attribute("nnodes", 2), attribute("time", 600))
    assert (world.row(job)["nnodes"], lent.time) == (4, 600)
    back = granted(world, job, REACQUIRE)
    assert (world.row(job)["nnodes"], back.hosts) == (6, lent.hosts)
    # Nothing more was lent.
    assert ask(world, job, REACQUIRE)["status"] < 0
    granted(world, job, RELEASE, attribute("nnodes", 1), attribute("time", 600))
    world.advance(599)
    assert world.row(job)["nnodes"] == 5
    world.advance(2)
    assert world.row(job)["nnodes"] == 6


@requirement("pmix5.directives.cancel", "pmix5.cancel.all")
def test_a_queued_request_is_cancelled_by_its_id_and_all_of_a_task_without_one(world):
    job = world.run_job(2)
    for name in ("a", "b", "c"):
        response = ask(world, job, NEW, attribute("nnodes", 5), attribute("reqid", name))
        assert response["status"] == QUEUED
    ask(world, job, NEW, attribute("nnodes", 5), attribute("reqid", "another's"), rank=1)
    granted(world, job, CANCEL, attribute("reqid", "b"))
    assert states(world, job)["b"] == "cancelled"
    assert states(world, job)["a"] == "queued"
    granted(world, job, CANCEL)
    assert states(world, job) == {
        "a": "cancelled",
        "b": "cancelled",
        "c": "cancelled",
        "another's": "queued",
    }
    # A granted request is not cancelled.
    granted(world, job, EXTEND, attribute("nnodes", 1), attribute("reqid", "d"))
    assert ask(world, job, CANCEL, attribute("reqid", "d"))["status"] < 0
    assert world.row(job)["nnodes"] == 3


@requirement("pmix5.directives.other", "pmix5.answer.status")
def test_another_directive_is_not_supported(world):
    job = world.run_job(1)
    for directive in (0, 6, 128, 255):
        response = ask(world, job, directive, attribute("nnodes", 1))
        assert response["status"] == NOT_SUPPORTED
        assert response["reason"]


# --- attributes


@requirement("pmix5.attributes.id")
def test_a_request_is_named_by_the_id_of_the_requesters_choice(world):
    job = world.run_job(2)
    more = granted(world, job, EXTEND, attribute("nnodes", 1), attribute("reqid", "more"))
    assert more.id == "more"
    # The key of the text serves as well, while no allocation has the name.
    other = granted(world, job, EXTEND, attribute("nnodes", 1), attribute("id", "other"))
    assert other.id == "other"
    assert states(world, job) == {"more": "granted", "other": "granted"}


@requirement("pmix5.attributes.node-list")
def test_hosts_are_named_by_list_or_expression(world):
    job = world.run_job(1)
    for text, hosts in [("node3", "node3"), ("pmix[node[1:4-5]]", "node[4-5]")]:
        more = granted(world, job, EXTEND, attribute("nlist", text, required=True))
        assert more.hosts == hosts


@requirement("pmix5.attributes.cpus", "pmix5.attributes.cpus-per-node", "pmix5.attributes.array")
def test_cpus_are_counted_altogether_or_for_each_host(world):
    job = world.run_job(1)
    few = granted(world, job, EXTEND, attribute("ncpus", 2, required=True))
    assert few.cpus == (2,)
    hosts = attribute("nlist", "node4,node5", required=True)
    numbers = attribute("ncpulist", "3,2", required=True)
    both = granted(world, job, EXTEND, hosts, numbers)
    assert (both.hosts, both.cpus) == ("node[4-5]", (3, 2))
    granted(world, job, RELEASE, attribute("nlist", "node4,node5"))
    numbers = attribute("ncpulist", "pmix[3,2]", required=True)
    assert granted(world, job, EXTEND, hosts, numbers).cpus == (3, 2)
    # The same as an array under one key.
    granted(world, job, RELEASE, attribute("nlist", "node4,node5"))
    nested = granted(world, job, EXTEND, attribute("ncpus", [hosts, numbers], required=True))
    assert (nested.hosts, nested.cpus) == ("node[4-5]", (3, 2))


@requirement("pmix5.attributes.cpu-list")
def test_a_cpu_list_stands_for_a_number_of_cpus(world):
    job = world.run_job(1)
    more = granted(world, job, EXTEND, attribute("cpulist", "0-2"))
    assert more.cpus == (3,)
    expression = granted(world, job, EXTEND, attribute("cpulist", "pmix[0-1]"))
    assert expression.cpus == (2,)
    assert ask(world, job, EXTEND, attribute("cpulist", "0-2", required=True))["status"] < 0


@requirement("pmix5.attributes.memory", "pmix5.attributes.network")
def test_memory_and_networks_are_dropped_unless_required(world):
    job = world.run_job(1)
    network = [
        attribute("netid", "eth0"),
        attribute("bw", 1.5),
        attribute("netqos", "fast"),
    ]
    wishes = {"msize": 1024.0, "net": network}
    for key, value in wishes.items():
        more = granted(world, job, EXTEND, attribute("nnodes", 1), attribute(key, value))
        assert more.dropped == (f"pmix.alloc.{key}",)
        wish = attribute(key, value, required=True)
        response = ask(world, job, EXTEND, attribute("nnodes", 1), wish)
        assert response["status"] == NOT_SUPPORTED


@requirement("pmix5.attributes.required", "pmix5.answer.status")
@requirement("pmix5.attributes.preferred")
def test_required_attributes_are_met_now_or_denied_and_others_are_not(world):
    job = world.run_job(4)
    response = ask(world, job, EXTEND, attribute("nnodes", 3, required=True))
    assert response["status"] == OUT_OF_RESOURCE
    assert "3 whole nodes" in response["reason"]
    # As a wish an amount waits, and a preference is dropped.
    response = ask(world, job, NEW, attribute("nnodes", 3))
    assert response["status"] == QUEUED
    ask(world, job, CANCEL)
    more = granted(world, job, EXTEND, attribute("nlist", "node0"))
    assert (more.hosts, more.dropped) == ("node4", ("pmix.alloc.nlist",))


# --- queries and events


@requirement("pmix5.query.status", "pmix5.query.id")
def test_a_query_lists_one_request_or_all(world):
    job = world.run_job(4)
    granted(world, job, EXTEND, attribute("nnodes", 1), attribute("reqid", "a"))
    ask(world, job, NEW, attribute("nnodes", 5), attribute("reqid", "b"), rank=1)
    ask(world, job, EXTEND, attribute("nnodes", 5, required=True), attribute("reqid", "c"))
    assert states(world, job) == {"a": "granted", "b": "queued", "c": "denied"}
    (one,) = world.user.ask("pmix.query", {"job": job, "id": "b"})["requests"]
    assert (one["id"], one["state"]) == ("b", "queued")


def events(world, job, **only):
    """A peer that has registered for a job's completion events."""
    peer = world.instance.connect()
    peer.post(peer.request("pmix.events", {"job": job, **only}, STREAMING))
    world.settle()
    return peer


def received(peer):
    """The id and status of each event that came."""
    return [(message.object()["id"], message.object()["status"]) for message in peer.take()]


@requirement("pmix5.events.complete", "pmix5.events.id", "pmix5.answer.requester-only")
def test_registered_processes_get_completion_events(world):
    job = world.run_job(4)
    every, one = events(world, job), events(world, job, id="b")
    granted(world, job, EXTEND, attribute("nnodes", 1), attribute("reqid", "a"))
    assert received(every) == [("a", SUCCESS)]
    ask(world, job, EXTEND, attribute("nnodes", 5, required=True), attribute("reqid", "b"))
    assert received(every) == received(one) == [("b", OUT_OF_RESOURCE)]
    ask(world, job, NEW, attribute("nnodes", 5), attribute("reqid", "c"))
    # A queued request is not decided.
    assert received(every) == []
    ask(world, job, CANCEL, attribute("reqid", "c"))
    assert received(every) == [("c", CANCELED)]
    assert received(one) == []


@requirement("pmix5.answer.requester-only")
def test_an_answer_goes_to_the_requester_alone(world):
    job = world.run_job(4)
    requester, bystander = world.instance.connect(), world.instance.connect()
    payload = payload_of(job, EXTEND, attribute("nnodes", 1))
    requester.post(requester.request("pmix.alloc", payload, STREAMING))
    world.settle()
    received = [message.object() for message in requester.take() if not message.errnum]
    assert received[-1]["status"] == SUCCESS
    assert bystander.take() == []


# --- authorization


@requirement("pmix5.server.authorization")
def test_a_job_is_its_owners_alone():
    manager = Manager(guests=True)
    job = manager.running()
    for topic in ("pmix.alloc", "pmix.query", "pmix.cancel"):
        payload = payload_of(job, NEW, attribute("nnodes", 1))
        (response,) = responses(manager.request(topic, payload, userid=GUEST))
        assert response.object()["status"] == NO_PERMISSIONS, topic
    assert ResourceSet(manager.manager.held()).nnodes == 2
