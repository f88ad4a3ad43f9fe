"""RFC 27, allocation, up to the alloc request: the job manager and the scheduler."""

from __future__ import annotations

import base64
import json
import logging
import os
import shutil
from errno import EINVAL, ENODATA, ENOSYS, EPROTO

import pytest
from tests.conformance.harness import (
    ANNOTATE,
    CANCEL,
    DENY,
    OWNER,
    SUCCESS,
    Manager,
    Sched,
    Wire,
    allocs,
    commit_op,
    granted,
    inventory,
    jobspec,
    payloads,
    requests,
    responses,
    topics,
)
from tests.conformance.requirements import requirement

from penstock import ResourceSet
from penstock._core import Scheduler, fluid_dothex
from penstock.clock import SystemClock
from penstock.sched import _converse

HIGHEST = 4294967295
MANY_JOBS = 5000


# --- Design Criteria


@requirement("rfc27.criteria.pending-jobs")
def test_thousands_of_alloc_requests_are_outstanding():
    manager = Manager()
    manager.scheduler()
    sent = manager.request("job-ingest.submit", {"jobspec": jobspec(), "count": MANY_JOBS})
    while not responses(sent, "job-ingest.submit") or manager.manager.advance(manager.now):
        manager.manager.advance(manager.now)
        sent += manager.manager.flush()
    outstanding = requests(sent, "sched.alloc")
    ids = responses(sent, "job-ingest.submit")[0].object()["ids"]
    assert [request.object()["id"] for request in outstanding] == ids
    assert {request.matchtag for request in outstanding} == {0}

    sched = Sched.running(inventory(1, 1))
    pending = range(2, MANY_JOBS + 1)
    assert granted(sched.alloc(1, *pending)).keys() == {1}
    answers = [answer for job in pending for answer in allocs(sched.cancel(job))]
    cancelled = [answer["id"] for answer in answers if answer["type"] == CANCEL]
    assert cancelled == list(pending)


@requirement("rfc27.criteria.throughput")
@pytest.mark.parametrize("count", [1, 1000])
def test_jobs_need_no_round_trips_of_their_own(count):
    targets = inventory(count, 1)
    sched = Sched.running(targets)
    assert granted(sched.alloc(*range(count))).keys() == set(range(count))
    # The R of all jobs is in one commit.
    assert [len(request.object()["ops"]) for request in sched.commits] == [count]

    manager = Manager()
    manager.scheduler()
    jobs = [manager.submit() for _ in range(count)]
    documents = [targets.restrict(ranks=[rank]).to_json() for rank in range(count)]
    assert manager.commit(*map(commit_op, jobs, documents)).errnum == 0


@requirement("rfc27.criteria.order")
def test_alloc_requests_are_sent_by_priority_then_submission():
    manager = Manager()
    urgencies = [16, 8, 31, 16, 20, 8]
    jobs = [manager.submit(urgency=urgency) for urgency in urgencies]
    expected = [jobs[position] for position in (2, 4, 0, 3, 1, 5)]
    assert [alloc["id"] for alloc in payloads(manager.scheduler(), "sched.alloc")] == expected

    # With a limit, one request follows as another one ends: also in this order.
    sent = [alloc["id"] for alloc in payloads(manager.scheduler(limit=2), "sched.alloc")]
    for job in expected[:4]:
        sent += [alloc["id"] for alloc in payloads(manager.respond_alloc(job, DENY), "sched.alloc")]
    assert sent == expected


@requirement("rfc27.criteria.scheduler-fails", "rfc28.disconnect.hello")
def test_running_jobs_and_their_allocations_outlive_the_scheduler():
    manager = Manager()
    job = manager.running()
    events = manager.names(job)
    manager.disconnect(b"sched")
    assert manager.names(job) == events
    (received,) = [
        response.object()
        for response in responses(manager.hello(), "job-manager.sched-hello")
        if not response.errnum
    ]
    assert received["id"] == job


# --- Implementation


@requirement("rfc27.general.job-id", "rfc27.free.keys")
def test_the_job_id_is_in_requests_and_responses():
    manager = Manager()
    job = manager.running()
    (alloc,) = payloads(manager.sent, "sched.alloc")
    (free,) = payloads(manager.finish(job), "sched.free")
    assert (alloc["id"], free["id"]) == (job, job)

    sched = Sched.running()
    answers = (
        sched.alloc(7),
        sched.alloc(8, cores=99),
        sched.alloc(9, nodes=4, cores=2),
        sched.cancel(9),
    )
    assert [response["id"] for sent in answers for response in allocs(sent)] == [7, 8, 9, 9]
    (freed,) = responses(sched.free(7), "sched.free")
    assert freed.object() == {"id": 7}


@requirement("rfc27.general.one-in-flight")
def test_one_request_is_in_flight_for_a_job():
    manager = Manager()
    # A scheduler of the specified version, which responds to `sched.free`.
    manager.scheduler(hello=None)
    manager.exec_hello()
    job = manager.submit()
    sent = list(manager.sent)
    for urgency in (0, 20, 0, 16, 31):
        sent += manager.request("job-manager.urgency", {"id": job, "urgency": urgency})
    assert len(requests(sent, "sched.alloc")) == 1
    sent = manager.respond_alloc(job, CANCEL)
    assert len(requests(sent, "sched.alloc")) == 1
    sent = manager.allocate(job)
    sent += manager.respond_start(job, "start") + manager.respond_start(job, "finish", status=0)
    sent += manager.respond_start(job, "release", ranks="0", final=False)
    assert requests(sent, "sched.free") == []
    sent += manager.respond_start(job, "release", ranks="1", final=True)
    (free,) = payloads(sent, "sched.free")
    assert (str(ResourceSet(free["R"]).ranks), free["final"]) == ("0-1", True)


@requirement("rfc27.general.errnum-zero")
def test_an_error_of_a_job_has_errnum_0():
    sched = Sched.running(inventory(1, 1))
    sched.alloc(1)
    broken = {"id": 2, "priority": 16, "userid": OWNER, "jobspec": {"version": 99}}
    sent = sched.request("sched.alloc", broken)
    (answer,) = responses(sent)
    assert (answer.topic, answer.errnum) == ("sched.alloc", 0)
    assert answer.object()["type"] == DENY
    # A free of a job without resources still has the id in its response.
    (answer,) = responses(sched.free(77))
    assert (answer.topic, answer.errnum, answer.object()) == ("sched.free", 0, {"id": 77})
    # Both have the matchtag of the request, which is 0.
    assert answer.matchtag == 0


def suspended(manager):
    """Whether the manager sends the scheduler nothing for a new job."""
    manager.submit()
    return topics(manager.sent) == []


@pytest.mark.parametrize("topic", ["sched.alloc", "sched.free"])
@requirement(
    "rfc27.general.error-is-fatal",
    "rfc27.finalization.error",
    "rfc27.finalization.resume",
)
def test_a_conventional_error_stops_requests_until_ready(topic):
    manager = Manager()
    job = manager.running()
    sent_requests = requests(manager.sent + manager.finish(job), topic)
    assert not suspended(manager)
    assert manager.log == []
    manager.respond_unserved(sent_requests[0])
    assert any(topic in line and os.strerror(ENOSYS) in line for line in manager.log)
    assert suspended(manager)
    assert topics(manager.hello()) == []
    assert suspended(manager)
    assert "sched.alloc" in topics(manager.ready())


@requirement("rfc27.finalization.disconnect", "rfc27.finalization.resume")
def test_a_disconnect_of_the_scheduler_suspends_scheduling():
    manager = Manager()
    manager.scheduler()
    manager.submit()
    assert topics(manager.sent) == ["sched.alloc"]
    manager.disconnect(b"another")
    assert not suspended(manager)
    manager.disconnect(b"sched")
    assert suspended(manager)
    # Outstanding requests are sent again.
    assert len(requests(manager.scheduler(), "sched.alloc")) == 3


# --- Hello


@requirement("rfc27.hello.first")
def test_hello_is_the_first_request_to_the_job_manager():
    sched = Sched()
    said = [*sched.sent_first, *sched.register(), *sched.acquire(inventory())]
    to_manager = [message for message in said if (message.topic or "").startswith("job-manager.")]
    assert topics(to_manager) == ["job-manager.sched-hello"]
    assert to_manager[0].streaming
    # Older job managers ignore the key.
    assert to_manager[0].object() == {"partial-ok": True}
    assert "job-manager.sched-hello" not in topics(Sched().register())
    # The job manager accepts an empty request.
    assert [response.errnum for response in Manager().hello(None)] == [ENODATA]


@requirement("rfc27.hello.response-per-job", "rfc27.hello.keys")
def test_hello_announces_each_job_with_resources_once():
    manager = Manager()
    running = manager.running(urgency=31)
    done = manager.submit()
    manager.allocate(done)
    manager.respond_start(done, "start")
    manager.finish(done)
    manager.submit()
    manager.disconnect(b"sched")
    received = responses(manager.hello(origin=b"another"))
    assert [response.errnum for response in received] == [0, ENODATA]
    assert received[0].streaming
    row = manager.row(running)
    assert received[0].object() == {
        "id": running,
        "priority": HIGHEST,
        "userid": OWNER,
        "t_submit": row["t_submit"],
    }
    assert isinstance(row["t_submit"], float)


@requirement("rfc27.hello.mark-allocated")
def test_announced_resources_are_not_allocated_again():
    sched = Sched()
    sched.register()
    sched.acquire(inventory(2, 1))
    sched.announce(5, inventory(1, 1).to_json())
    sched.end_hello()
    sched.respond("job-manager.sched-ready", {"count": 0})
    assert granted(sched.alloc(6))[6].summary() == "rank1/core0"
    assert granted(sched.alloc(7)) == {}
    # Its free releases the rest.
    assert granted(sched.free(5))[7].summary() == "rank0/core0"


@requirement("rfc27.hello.lookup", "rfc27.hello.end", "rfc27.ready.after-hello")
def test_ready_comes_after_the_end_of_hello():
    sched = Sched()
    sched.register()
    sched.acquire(inventory())
    one, other = (inventory().restrict(ranks=ranks).to_json() for ranks in ("0-1", "2-3"))
    assert "job-manager.sched-ready" not in topics(sched.announce(5, one))
    sched.storing = False
    looking = requests(sched.announce(6, other), "kvs.lookup")
    # Every lookup of R must have its response, too.
    assert topics(sched.end_hello()) == []
    answers = [answer for lookup in looking if (answer := sched.stored(lookup)) is not None]
    assert topics(sched.deliver(*answers)) == ["job-manager.sched-ready"]


def script(**errnums):
    """A broker's responses to a scheduler, some of them errors."""
    resources = {"resources": inventory().to_dict(), "up": "0-3"}
    answers = {
        "service.add": [{}],
        "resource.acquire": [{"payload": resources}],
        "job-manager.sched-hello": [{"errnum": ENODATA}],
        "job-manager.sched-ready": [{"payload": {"count": 0}}],
    }
    wrong = {f"job-manager.sched-{name}": [{"errnum": errnum}] for name, errnum in errnums.items()}
    return Wire({**answers, **wrong})


def converse(wire):
    """The exit code of a scheduler that reads from a wire."""
    readable = lambda sources, _delay: sources[:1]  # noqa: E731
    return _converse(wire, Scheduler(), SystemClock(), None, readable)


@pytest.mark.parametrize("name", ["hello", "ready"])
@requirement("rfc27.hello.error", "rfc27.ready.error")
def test_the_scheduler_logs_an_error_and_exits(name, caplog):
    caplog.set_level(logging.INFO)
    # Without an error the scheduler runs until the connection ends.
    assert converse(script()) == 0
    wire = script(**{name: EPROTO})
    assert converse(wire) == 1
    assert wire.topics[-1] == f"job-manager.sched-{name}"
    assert f"sched-{name} failed: {os.strerror(EPROTO)}" in caplog.text


# --- Ready


@requirement(
    "rfc27.ready.mode",
    "rfc27.ready.modes",
    "rfc27.ready.limit",
    "rfc27.ready.limit-range",
)
def test_ready_names_a_mode_and_limited_a_limit():
    for limit, payload in [
        (None, {"mode": "unlimited"}),
        (42, {"mode": "limited", "limit": 42}),
        (2147483647, {"mode": "limited", "limit": 2147483647}),
    ]:
        sched = Sched(limit=limit)
        sched.register()
        sched.acquire(inventory())
        assert payloads(sched.end_hello(), "job-manager.sched-ready") == [payload]
    for payload, errnum in [
        ({"mode": "unlimited"}, 0),
        ({"mode": "limited", "limit": 1}, 0),
        ({"mode": "limited", "limit": 2147483647}, 0),
        ({"mode": "unlimited", "limit": 1}, 0),
        ({"mode": "limited", "limit": "1"}, EPROTO),
        ({"mode": "limited", "limit": 0}, EINVAL),
        ({"mode": "limited", "limit": -1}, EINVAL),
        ({"mode": "limited", "limit": 2147483648}, EINVAL),
        ({"mode": "limited"}, EPROTO),
        ({"mode": "single"}, EPROTO),
        ({"limit": 3}, EPROTO),
        ({}, EPROTO),
    ]:
        manager = Manager()
        manager.hello()
        (answer,) = responses(manager.request("job-manager.sched-ready", payload, origin=b"sched"))
        assert answer.errnum == errnum, payload
        manager.submit()
        assert bool(requests(manager.sent, "sched.alloc")) == (errnum == 0), payload


@requirement("rfc27.ready.unlimited")
def test_unlimited_mode_requests_every_job():
    manager = Manager()
    jobs = [manager.submit() for _ in range(50)]
    sent = manager.scheduler()
    for _ in range(50):
        jobs.append(manager.submit())
        sent += manager.sent
    assert [payload["id"] for payload in payloads(sent, "sched.alloc")] == jobs


@requirement("rfc27.ready.limited")
def test_limited_mode_keeps_to_its_limit():
    manager = Manager()
    manager.exec_hello()
    jobs = [manager.submit() for _ in range(6)]

    def requested_jobs(sent):
        return [payload["id"] for payload in payloads(sent, "sched.alloc")]

    assert requested_jobs(manager.scheduler(limit=2)) == jobs[:2]
    assert requested_jobs(manager.respond_alloc(jobs[0], ANNOTATE, annotations={})) == []
    assert requested_jobs(manager.allocate(jobs[1])) == [jobs[2]]
    assert requested_jobs(manager.respond_alloc(jobs[0], DENY)) == [jobs[3]]


@requirement("rfc27.ready.count")
def test_the_response_to_ready_has_the_queue_depth():
    manager = Manager()
    for _ in range(3):
        manager.submit()
    manager.submit(urgency=0)
    manager.hello()
    assert responses(manager.ready())[0].object() == {"count": 3}
    # Outstanding requests are in the queue again after another hello.
    manager.hello()
    assert responses(manager.ready(limit=1))[0].object() == {"count": 3}


# --- Alloc


@requirement("rfc27.ready.send-at-once", "rfc27.alloc.when")
def test_a_job_in_sched_is_requested_as_soon_as_the_scheduler_is_ready():
    manager = Manager()
    job = manager.submit()
    assert topics(manager.sent) == []
    assert topics(manager.hello()) == []
    assert [payload["id"] for payload in payloads(manager.ready(), "sched.alloc")] == [job]
    held = manager.submit(urgency=0)
    assert topics(manager.sent) == []
    sent = manager.request("job-manager.urgency", {"id": held, "urgency": 16})
    assert [payload["id"] for payload in payloads(sent, "sched.alloc")] == [held]
    dependency = {"scheme": "afterany", "value": str(job)}
    waiting = manager.submit(dependencies=[dependency])
    assert topics(manager.sent) == []
    manager.respond_alloc(job, DENY)
    assert [payload["id"] for payload in payloads(manager.advance(), "sched.alloc")] == [waiting]


@requirement("rfc27.alloc.keys")
def test_an_alloc_request_has_its_keys():
    manager = Manager()
    manager.scheduler()
    job = manager.submit(urgency=31, cores=2)
    (payload,) = payloads(manager.sent, "sched.alloc")
    assert (payload["id"], payload["priority"], payload["userid"]) == (job, HIGHEST, OWNER)
    assert payload["jobspec"]["resources"][0]["with"][0] == {"type": "core", "count": 2}
    (request,) = requests(manager.sent, "sched.alloc")
    assert request.matchtag == 0

    # The scheduler needs these keys only, and orders jobs by priority.
    keys = ("id", "priority", "userid", "jobspec")
    sched = Sched.running(inventory(1, 2))
    sched.alloc(1, cores=2)
    for number, priority in [(2, 1), (3, HIGHEST), (4, HIGHEST - 1), (5, 0)]:
        values = {**payload, "id": number, "priority": priority}
        sched.request("sched.alloc", {key: values[key] for key in keys})
    # Priority 0 is a job that is held.
    order = [sched.free(freed) for freed in (1, 3, 4, 2)]
    assert [list(granted(sent)) for sent in order] == [[3], [4], [2], []]
    assert list(granted(sched.request("sched.prioritize", {"jobs": [[5, 1]]}))) == [5]
    for priority in (-1, HIGHEST + 1, 1.5):
        (response,) = allocs(
            sched.request("sched.alloc", {**payload, "id": 9, "priority": priority})
        )
        assert (response["type"], "priority" in response["note"] or "u32" in response["note"]) == (
            DENY,
            True,
        )


@requirement("rfc27.alloc.redacted", "rfc27.alloc.jobspec-stored")
def test_the_full_jobspec_is_durable_before_the_alloc_request(tmp_path):
    manager = Manager(path=tmp_path / "jobs.sqlite")
    manager.scheduler()
    environment = {"PATH": "/bin", "LONG": "x" * 1000}
    job = manager.submit(environment=environment)
    (request,) = payloads(manager.sent, "sched.alloc")
    assert "environment" not in request["jobspec"]["attributes"]["system"]
    # If the instance were killed now, the next one would have it.
    for file in tmp_path.glob("jobs.sqlite*"):
        shutil.copy(file, tmp_path / f"copy-of-{file.name}")
    key = f"job.{fluid_dothex(job)}.jobspec"
    lookup = {"namespace": "primary", "key": key, "flags": 0}
    again = Manager(path=tmp_path / "copy-of-jobs.sqlite")
    (found,) = responses(again.request("kvs.lookup", lookup, origin=b"sched"))
    assert responses(manager.request("kvs.lookup", lookup, origin=b"sched"))[0].object() == (
        found.object()
    )
    full = stored_value(found)
    assert full["attributes"]["system"].pop("environment") == environment
    assert full == request["jobspec"]


def stored_value(response):
    """The JSON that a lookup found."""
    return json.loads(base64.b64decode(response.object()["val"]["data"]))


@requirement("rfc27.alloc.response-keys", "rfc27.alloc.types")
def test_an_alloc_response_has_an_id_and_a_type():
    sched = Sched.running()
    sent = [*sched.alloc(1), *sched.alloc(2, cores=9), *sched.alloc(3, nodes=4, cores=2)]
    sent += sched.cancel(3)
    assert [(response["id"], response["type"]) for response in allocs(sent)] == [
        (1, SUCCESS),
        (2, DENY),
        (3, ANNOTATE),
        (3, CANCEL),
    ]
    # A response with another type, or without a key, is ignored: the request stays outstanding.
    manager = Manager()
    manager.scheduler()
    job = manager.submit()
    (request,) = requests(manager.sent, "sched.alloc")
    for broken in ({"id": job, "type": 4}, {"id": job}, {"type": SUCCESS}):
        before = len(manager.log)
        manager.respond(request, broken)
        assert len(manager.log) == before + 1
        assert "alloc" not in manager.names(job)
    manager.allocate(job)
    assert "alloc" in manager.names(job)
