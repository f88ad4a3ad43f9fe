"""RFC 27, allocation, from the alloc responses on: the job manager and the scheduler."""

from __future__ import annotations

import json

import pytest
from tests.conformance.harness import (
    ANNOTATE,
    CANCEL,
    DENY,
    SUCCESS,
    Manager,
    R,
    Sched,
    allocs,
    commit_op,
    committed,
    granted,
    inventory,
    payloads,
    requests,
    responses,
    topics,
)
from tests.conformance.requirements import requirement
from tests.conformance.test_rfc27 import EINVAL, HIGHEST, suspended

from penstock._core import Message, fluid_dothex

# --- Alloc Success


@requirement("rfc27.success.commit-first")
def test_success_follows_the_commit_of_r():
    sched = Sched.running()
    sched.storing = False
    sent = sched.alloc(5)
    assert allocs(sent) == []
    key = f"job.{fluid_dothex(5)}.R"
    assert list(committed(sent)) == [key]
    sent_later = sched.respond("kvs.commit", {"rootseq": 1})
    assert granted(sent_later)[5] == committed(sent)[key]
    # A commit that fails is no allocation.
    sched.alloc(6)
    assert granted(sched.respond("kvs.commit", errnum=EINVAL)) == {}

    # And the job manager ignores a SUCCESS without it.
    manager = Manager()
    manager.scheduler()
    job = manager.submit()
    manager.respond_alloc(job, SUCCESS)
    assert "alloc" not in manager.names(job)
    assert any("R" in line for line in manager.log)


@requirement(
    "rfc27.success.annotations",
    "rfc27.success.ends-request",
    "rfc27.annotate.keys",
    "rfc27.success.annotations-merged",
    "rfc27.success.event",
    "rfc27.success.event-annotations",
)
def test_annotations_of_success_are_in_the_alloc_event():
    (response,) = allocs(Sched.running().alloc(5))
    assert response["annotations"]["sched"]["resource_summary"] == "rank0/core0"
    manager = Manager()
    manager.scheduler()
    with_some, without = manager.submit(), manager.submit()
    estimate = {"sched": {"t_estimate": 5.5, "reason_pending": "busy"}}
    manager.respond_alloc(with_some, ANNOTATE, annotations=estimate)
    final = {"sched": {"t_estimate": None, "resource_summary": "rank0"}}
    manager.allocate(with_some, annotations=final)
    merged = {"sched": {"reason_pending": "busy", "resource_summary": "rank0"}}
    assert manager.event(with_some, "alloc")["annotations"] == merged
    assert manager.row(with_some)["annotations"] == merged
    # Later responses belong to no request.
    manager.respond_alloc(with_some, ANNOTATE, annotations={"sched": None})
    assert manager.row(with_some)["annotations"] == merged
    manager.allocate(without)
    assert not manager.event(without, "alloc").get("annotations")


# --- Alloc Annotate


def annotated(*updates):
    """A job's annotations after ANNOTATE responses with these."""
    manager = Manager()
    manager.scheduler()
    job = manager.submit()
    for update in updates:
        manager.respond_alloc(job, ANNOTATE, annotations=update)
    return manager.row(job).get("annotations", {})


@requirement(
    "rfc27.alloc.several-responses",
    "rfc27.annotate.repeated",
    "rfc27.annotate.key",
    "rfc27.annotate.keys",
)
def test_annotate_carries_annotations():
    sched = Sched.running(inventory(1, 1))
    sched.alloc(1)
    (response,) = allocs(sched.alloc(2))
    assert response["type"] == ANNOTATE
    assert response["annotations"]["sched"]["reason_pending"]
    # A response without the key has no effect, and the request stays outstanding.
    manager = Manager()
    manager.scheduler()
    job = manager.submit()
    manager.respond_alloc(job, ANNOTATE)
    assert "annotations" not in manager.row(job)
    manager.allocate(job)
    assert "alloc" in manager.names(job)


@requirement("rfc27.annotate.per-job", "rfc27.annotate.more-keys")
def test_each_job_has_its_own_annotations():
    manager = Manager()
    manager.scheduler()
    jobs = [manager.submit() for _ in range(3)]
    for number, job in enumerate(jobs[:2]):
        manager.respond_alloc(job, ANNOTATE, annotations={"sched": {"n": number}})
    received = [manager.row(job).get("annotations") for job in jobs]
    assert received == [{"sched": {"n": 0}}, {"sched": {"n": 1}}, None]


@requirement("rfc27.annotate.merge", "rfc27.annotate.recursive")
def test_dictionaries_are_merged_recursively():
    deep = {"sched": {"a": {"b": {"c": 1, "d": 2}}}, "user": {"x": 1}}
    update = {"sched": {"a": {"b": {"c": 3, "e": None}}}}
    merged = {"sched": {"a": {"b": {"c": 3, "d": 2}}}, "user": {"x": 1}}
    assert annotated(deep, update) == merged


@requirement("rfc27.annotate.replace", "rfc27.annotate.values")
def test_a_value_is_replaced():
    assert annotated({"a": 1, "b": {"x": 1}}, {"a": [2], "b": "y"}) == {"a": [2], "b": "y"}
    assert annotated({"a": 1}, {"a": {"x": False}}) == {"a": {"x": False}}


@requirement("rfc27.annotate.null")
def test_null_removes_a_key():
    first = {"sched": {"a": 1, "b": 2}, "user": {"x": 1}}
    assert annotated(first, {"sched": {"a": None}, "user": None}) == {"sched": {"b": 2}}


@requirement("rfc27.annotate.add", "rfc27.annotate.values")
def test_a_new_key_is_added():
    assert annotated({"a": 1}, {"b": {"c": 2.5}}) == {"a": 1, "b": {"c": 2.5}}


@requirement("rfc27.annotate.volatile")
def test_annotations_are_not_in_the_record_before_success():
    manager = Manager()
    manager.scheduler()
    job = manager.submit()
    manager.respond_alloc(job, ANNOTATE, annotations={"sched": {"mark": "volatile"}})
    assert "volatile" not in json.dumps(manager.events(job))
    # They are discarded with the scheduler.
    manager.disconnect(b"sched")
    assert "annotations" not in manager.row(job)
    manager.scheduler()
    manager.respond_alloc(job, ANNOTATE, annotations={"sched": {"mark": "volatile"}})
    manager.allocate(job)
    assert "volatile" in json.dumps(manager.events(job))


@requirement("rfc27.annotate.volatile")
def test_a_restart_forgets_annotations_that_no_success_has_stored(tmp_path):
    path = tmp_path / "jobs"
    manager = Manager(path=path)
    manager.scheduler()
    pending, allocated = manager.submit(), manager.submit()
    for job in (pending, allocated):
        manager.respond_alloc(job, ANNOTATE, annotations={"sched": {"mark": "volatile"}})
        assert manager.row(job)["annotations"] == {"sched": {"mark": "volatile"}}
    manager.allocate(allocated)
    del manager
    manager = Manager(path=path)
    assert "annotations" not in manager.row(pending)
    assert manager.row(allocated)["annotations"] == {"sched": {"mark": "volatile"}}


@pytest.mark.parametrize("how", ["deny", "cancel", "exception"])
@requirement("rfc27.annotate.discard")
def test_annotations_are_discarded_when_the_allocation_fails(how):
    manager = Manager()
    manager.scheduler()
    job = manager.submit()
    manager.respond_alloc(job, ANNOTATE, annotations={"sched": {"a": 1}})
    assert "annotations" in manager.row(job)
    if how == "deny":
        manager.respond_alloc(job, DENY, note="no")
    elif how == "cancel":
        manager.request("job-manager.urgency", {"id": job, "urgency": 0})
        manager.respond_alloc(job, CANCEL)
    else:
        manager.raise_exception(job)
    assert "annotations" not in manager.row(job)


# --- Alloc Deny


@requirement("rfc27.deny.never", "rfc27.deny.ends-request", "rfc27.deny.note")
def test_an_impossible_job_is_denied():
    sched = Sched.running(inventory(2, 2))
    for spec in ({"cores": 3}, {"nodes": 3}, {"constraints": {"properties": ["nosuch"]}}):
        (received,) = allocs(sched.alloc(5, **spec))
        assert received["type"] == DENY
        assert isinstance(received["note"], str)
    # A job that can run later is not denied.
    sched.alloc(6, nodes=2, cores=2)
    assert [response["type"] for response in allocs(sched.alloc(7, cores=2))] == [ANNOTATE]
    manager = Manager()
    manager.scheduler()
    job = manager.submit()
    manager.respond_alloc(job, DENY)
    assert (manager.event(job, "exception")["severity"], manager.row(job)["state"]) == (0, 64)


@requirement("rfc27.deny.exception-note")
def test_the_note_of_deny_is_in_the_exception():
    manager = Manager()
    manager.scheduler()
    job = manager.submit()
    manager.respond_alloc(job, DENY, note="more nodes requested than configured")
    assert manager.event(job, "exception")["note"] == "more nodes requested than configured"


# --- Cancel


@requirement(
    "rfc27.alloc-cancel.respond",
    "rfc27.alloc-cancel.ends-request",
    "rfc27.alloc-cancel.keys",
    "rfc27.cancel.pending",
)
def test_a_pending_request_is_cancelled():
    sched = Sched.running(inventory(1, 1))
    sched.alloc(1)
    sched.alloc(2)
    assert allocs(sched.cancel(2)) == [{"id": 2, "type": CANCEL}]
    # The request has ended: the resources stay free.
    assert granted(sched.free(1)) == {}


@requirement("rfc27.cancel.no-response")
def test_cancel_has_no_response():
    sched = Sched.running(inventory(1, 1))
    sched.alloc(1)
    sched.alloc(2)
    sent = sched.cancel(2) + sched.cancel(2)
    sent += sched.request("sched.cancel", {"id": 3}) + sched.request("sched.cancel", {"id": "x"})
    assert [response.topic for response in responses(sent)] == ["sched.alloc"]


@requirement("rfc27.cancel.unknown")
def test_a_cancel_for_a_job_without_a_request_is_ignored():
    sched = Sched.running(inventory(1, 1))
    sched.alloc(1)
    for job in (1, 99):
        assert sched.cancel(job) == []
    # The job that holds resources keeps them.
    assert granted(sched.alloc(2)) == {}
    assert 2 in granted(sched.free(1))


@requirement("rfc27.cancel.request", "rfc27.exceptions.cleanup", "rfc27.exceptions.cancel")
def test_the_manager_cancels_outstanding_requests():
    manager = Manager()
    manager.scheduler()
    job = manager.submit()
    sent = manager.raise_exception(job)
    assert payloads(sent, "sched.cancel") == [{"id": job}]
    assert manager.row(job)["state"] == 32
    manager.respond_alloc(job, CANCEL)
    assert manager.row(job)["state"] == 64
    # A job without a request has no cancel.
    held = manager.submit(urgency=0)
    assert requests(manager.raise_exception(held), "sched.cancel") == []


# --- Prioritize


@requirement("rfc27.prioritize.request", "rfc27.prioritize.jobs", "rfc27.prioritize.pair")
def test_a_new_priority_is_sent_as_a_pair():
    manager = Manager()
    manager.scheduler()
    job = manager.submit()
    for urgency, priority in [(20, 20), (31, HIGHEST), (1, 1)]:
        sent = manager.request("job-manager.urgency", {"id": job, "urgency": urgency})
        assert payloads(sent, "sched.prioritize") == [{"jobs": [[job, priority]]}]

    sched = Sched.running(inventory(1, 1))
    for number in (1, 2, 3, 4):
        sched.alloc(number)
    sched.request("sched.prioritize", {"jobs": [[3, 17], [4, HIGHEST], [2, 0]]})
    assert [list(granted(sched.free(freed))) for freed in (1, 4, 3)] == [[4], [3], []]


@requirement("rfc27.prioritize.several")
def test_priorities_that_change_together_are_one_request():
    manager = Manager()
    manager.scheduler()
    jobs = [manager.submit() for _ in range(3)]
    sent = manager.request("job-manager.urgency", {"ids": jobs, "urgency": 31})
    assert payloads(sent, "sched.prioritize") == [{"jobs": [[job, HIGHEST] for job in jobs]}]


@requirement("rfc27.prioritize.unknown", "rfc27.prioritize.no-response")
def test_priorities_of_unknown_jobs_are_ignored_without_response():
    sched = Sched.running(inventory(1, 1))
    for number in (1, 2, 3):
        sched.alloc(number)
    sent = sched.request("sched.prioritize", {"jobs": [[99, 5], [3, 30], [1, 40]]})
    sent += sched.request("sched.prioritize", {"jobs": "x"})
    assert responses(sent, "sched.prioritize") == []
    assert sched.phase == "running"
    assert list(granted(sched.free(1))) == [3]


# --- Free


@requirement("rfc27.free.when", "rfc27.exceptions.free")
def test_resources_are_freed_when_the_job_is_cleaned_up():
    # Nothing was started: the resources are freed at once.
    manager = Manager()
    manager.scheduler()
    job = manager.submit()
    assert "sched.free" not in topics(manager.allocate(job))
    assert topics(manager.raise_exception(job)).count("sched.free") == 1
    # Tasks are running: the resources are freed when these have ended.
    job = Manager.running(manager := Manager())
    assert "sched.free" not in topics(manager.raise_exception(job))
    assert topics(manager.finish(job)).count("sched.free") == 1


@requirement("rfc27.free.reuse", "rfc27.free.response", "rfc27.free.ends-request")
def test_the_response_to_a_whole_free_has_the_id():
    sched = Sched.running(inventory(1, 1))
    sched.alloc(1)
    sched.alloc(2)
    sent = sched.free(1)
    (answer,) = responses(sent, "sched.free")
    assert (answer.errnum, answer.object()) == (0, {"id": 1})
    # The free has had its effect: the next job has the resources.
    assert list(granted(sent)) == [2]
    # The job manager needs no response, and tolerates one.
    job = Manager.running(manager := Manager())
    (request,) = requests(manager.finish(job), "sched.free")
    assert manager.row(job)["state"] == 64
    assert manager.respond(request, {"id": job}) == []
    assert manager.log == []
    assert not suspended(manager)


@requirement("rfc27.exceptions.no-conflict")
def test_the_scheduler_leaves_exceptions_to_the_job_manager():
    sched = Sched()
    sched.register()
    sent = [*sched.sent_first, *sched.acquire(inventory()), *sched.end_hello()]
    assert "event.subscribe" not in topics(sent)
    sched.respond("job-manager.sched-ready", {"count": 0})
    sched.alloc(1)
    # An event has no effect: the allocation is freed by the job manager's request.
    raised = Message.event("job-exception", {"id": 1, "type": "cancel", "severity": 0})
    assert sched.deliver(raised) == []
    assert sched.phase == "running"
    assert responses(sched.free(1), "sched.free")[0].errnum == 0


def test_the_manager_rejects_a_commit_of_an_invalid_r():
    manager = Manager()
    manager.scheduler()
    job = manager.submit()
    assert manager.commit(commit_op(job, "no R")).errnum == EINVAL
    assert manager.commit(commit_op(job, R)).errnum == 0
