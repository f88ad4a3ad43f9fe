"""The current version of RFC 20, 27 and 28, where it differs: ends that speak both versions."""

from __future__ import annotations

import json
from errno import EBUSY, EINVAL, ENODATA, ENOSYS, EPROTO

import pytest
from tests.conformance.harness import (
    ANNOTATE,
    CANCEL,
    DENY,
    SUCCESS,
    Manager,
    Sched,
    allocs,
    commit_op,
    committed,
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
from penstock._core import NORESPONSE
from penstock.client import Client
from penstock.errors import ResourceSetError, RpcError

# --- hello


@requirement("rfc27.hello.partial-ok")
def test_hello_with_and_without_partial_ok():
    sched = Sched()
    sched.register()
    sent_requests = payloads(sched.acquire(inventory()), "job-manager.sched-hello")
    assert sent_requests == [{"partial-ok": True}]
    manager = Manager()
    job = manager.running()
    for payload in (None, {}, {"partial-ok": True}, {"partial-ok": False}):
        response, end = responses(manager.hello(payload))
        assert (response.object()["id"], end.errnum) == (job, ENODATA)


@requirement("rfc27.hello.free")
def test_hello_announces_released_ranks():
    manager = Manager()
    job = manager.running()
    (response, _) = responses(manager.hello({"partial-ok": True}))
    assert "free" not in response.object()
    manager.respond_start(job, "finish", status=0)
    manager.respond_start(job, "release", ranks="1", final=False)
    (response, _) = responses(manager.hello({"partial-ok": True}))
    assert response.object()["free"] == "1"

    sched = Sched()
    sched.register()
    sched.acquire(inventory(2, 1))
    sched.announce(5, inventory(2, 1).to_json(), free="1")
    sched.end_hello()
    sched.respond("job-manager.sched-ready", {"count": 0})
    assert granted(sched.alloc(6))[6].summary() == "rank1/core0"
    assert granted(sched.alloc(7)) == {}


@requirement("rfc27.hello.streaming")
def test_hello_must_be_streaming():
    manager = Manager()
    (answer,) = responses(manager.hello(streaming=False))
    assert answer.errnum == EPROTO
    assert responses(manager.ready())[0].errnum == EPROTO


# --- alloc and cancel


@requirement("rfc27.success.r")
def test_success_carries_r():
    sent = Sched.running().alloc(5)
    (response,) = allocs(sent)
    (stored,) = committed(sent).values()
    assert ResourceSet(response["R"]) == stored
    # The job manager uses the committed R, with or without R in the response.
    manager = Manager()
    manager.scheduler()
    for says in (False, True):
        job, r = manager.submit(), manager.next_r()
        manager.allocate(job, r, **({"R": json.loads(r)} if says else {}))
        assert "alloc" in manager.names(job)
    # An R other than the committed one is ambiguous.
    job = manager.submit()
    manager.allocate(job, R=inventory().to_dict())
    assert "alloc" not in manager.names(job)


@requirement("rfc27.alloc.t-submit")
def test_alloc_carries_the_time_of_submission():
    manager = Manager()
    manager.scheduler()
    job = manager.submit()
    (request,) = payloads(manager.sent, "sched.alloc")
    assert request["t_submit"] == manager.row(job)["t_submit"]
    assert isinstance(request["t_submit"], float)


@requirement("rfc27.alloc.displaced", "rfc27.cancel.not-the-job")
def test_in_limited_mode_a_displaced_job_is_cancelled_and_sent_again():
    manager = Manager()
    first, second = manager.submit(), manager.submit()
    sent = manager.scheduler(limit=1)
    assert [payload["id"] for payload in payloads(sent, "sched.alloc")] == [first]
    sent = manager.request("job-manager.urgency", {"id": second, "urgency": 20})
    assert payloads(sent, "sched.cancel") == [{"id": first}]
    sent = manager.respond_alloc(first, CANCEL)
    assert [payload["id"] for payload in payloads(sent, "sched.alloc")] == [second]
    assert "exception" not in manager.names(first)
    sent = manager.allocate(second)
    assert [payload["id"] for payload in payloads(sent, "sched.alloc")] == [first]


@requirement("rfc27.cancel.denied")
def test_a_cancel_after_a_denial_is_ignored():
    sched = Sched.running()
    assert [response["type"] for response in allocs(sched.alloc(5, cores=99))] == [DENY]
    assert sched.cancel(5) == []
    assert sched.phase == "running"


@requirement("rfc27.cancel.flag")
def test_cancel_and_prioritize_have_the_no_response_flag():
    manager = Manager()
    manager.scheduler()
    job = manager.submit()
    sent = manager.request("job-manager.urgency", {"id": job, "urgency": 20})
    sent += manager.raise_exception(job)
    unanswered = requests(sent, "sched.prioritize") + requests(sent, "sched.cancel")
    assert [bool(message.flags & NORESPONSE) for message in unanswered] == [True, True]


@requirement("rfc27.annotate.no-queue")
def test_the_scheduler_does_not_annotate_the_queue():
    sched = Sched.running(inventory(1, 1))
    sent = sched.alloc(1) + sched.alloc(2) + sched.free(1)
    annotations = [
        response["annotations"]["sched"] for response in allocs(sent) if "annotations" in response
    ]
    assert len(annotations) == 3
    assert not [annotation for annotation in annotations if "queue" in annotation]
    assert kept({"queue": "batch"}) == {"queue": "batch"}


@requirement("rfc27.success.annotations-dropped", "rfc27.annotate.selection-type")
def test_the_selection_type_is_kept():
    assert kept({"selection_type": "backfill"}) == {"selection_type": "backfill"}
    sched = Sched.running()
    (response,) = allocs(sched.alloc(1))
    sent = response["annotations"]["sched"]
    assert sent.keys() == {"resource_summary", "reason_pending"}
    assert sent["reason_pending"] is None


def kept(annotations):
    """The annotations that the job manager keeps, before and after SUCCESS."""
    manager = Manager()
    manager.scheduler()
    job = manager.submit()
    manager.respond_alloc(job, ANNOTATE, annotations={"sched": annotations})
    waiting = manager.row(job)["annotations"]["sched"]
    manager.allocate(job)
    assert manager.event(job, "alloc")["annotations"]["sched"] == waiting
    return waiting


@requirement("rfc27.kvs.commit")
def test_a_commit_is_atomic():
    manager = Manager()
    manager.scheduler()
    jobs = [manager.submit() for _ in range(3)]
    ops = [commit_op(job, manager.next_r()) for job in jobs]
    assert manager.commit(*ops[:2], commit_op(99, manager.next_r())).errnum != 0
    manager.respond_alloc(jobs[0], SUCCESS)
    assert "alloc" not in manager.names(jobs[0])
    assert manager.commit(*ops[1:]).errnum == 0
    for job in jobs[1:]:
        manager.respond_alloc(job, SUCCESS)
        assert "alloc" in manager.names(job)


# --- free


@requirement("rfc20.use.release", "rfc27.free.parts")
def test_a_free_may_be_of_a_part():
    manager = Manager()
    job = manager.running()
    manager.respond_start(job, "finish", status=0)
    sent = manager.respond_start(job, "release", ranks="1", final=False)
    sent += manager.respond_start(job, "release", ranks="0", final=True)
    frees = payloads(sent, "sched.free")
    freed = [(ResourceSet(payload["R"]).summary(), payload["final"]) for payload in frees]
    assert freed == [("rank1/core[0-3]", False), ("rank0/core[0-3]", True)]

    sched = Sched.running(inventory(2, 1))
    r = granted(sched.alloc(1, nodes=2))[1]
    sched.alloc(2, nodes=2)
    part = r.restrict(ranks="1").to_dict()
    assert granted(sched.free(1, R=part, final=False)) == {}
    assert granted(sched.alloc(3, priority=17))[3].summary() == "rank1/core0"
    part = r.restrict(ranks="0").to_dict()
    assert granted(sched.free(1, R=part, final=True)) == {}
    assert granted(sched.alloc(4, priority=17))[4].summary() == "rank0/core0"


@requirement("rfc27.free.no-response")
def test_a_current_free_has_no_response():
    sched = Sched.running(inventory(1, 1))
    r = granted(sched.alloc(1))[1].to_dict()
    assert responses(sched.free(1, R=r, final=True), "sched.free") == []
    # The job manager continues without a response, and ignores a late one.
    job = Manager.running(manager := Manager())
    (request,) = requests(manager.finish(job), "sched.free")
    assert manager.row(job)["state"] == 64
    assert manager.respond(request, {"id": job}) == []
    assert manager.log == []


# --- expiration and feasibility


@requirement("rfc27.expiration.change", "rfc27.expiration.number")
def test_the_scheduler_accepts_another_expiration():
    sched = Sched.running()
    sched.alloc(1, duration=60)
    for expiration in (4102444800, 4102444800.5, 0):
        (answer,) = responses(
            sched.request("sched.expiration", {"id": 1, "expiration": expiration})
        )
        assert (answer.topic, answer.errnum, answer.payload) == ("sched.expiration", 0, None)
    for wrong in ({"id": 99, "expiration": 1.0}, {"id": 1}, {"id": 1, "expiration": "x"}):
        (answer,) = responses(sched.request("sched.expiration", wrong))
        assert answer.errnum != 0
    # An error changes nothing: the job keeps its resources, and frees them later.
    assert len(responses(sched.free(1))) == 1
    assert sched.phase == "running"


def updated(errnum):
    """A running job, after the scheduler's payload to a change of its time limit."""
    manager = Manager()
    job = manager.running(duration=60)
    update = {"id": job, "updates": {"attributes.system.duration": 600}}
    sent = manager.request("job-manager.update", update)
    (request,) = requests(sent, "sched.expiration")
    payload = request.object()
    assert payload["id"] == job
    assert payload["expiration"] > manager.row(job)["t_run"]
    assert responses(sent) == []
    # The broker responds ENOSYS if no scheduler is registered.
    unserved = errnum == ENOSYS
    sent = (
        manager.respond_unserved(request) if unserved else manager.respond(request, errnum=errnum)
    )
    return manager, job, payload["expiration"], sent


@pytest.mark.parametrize("errnum", [0, ENOSYS])
@requirement("rfc27.expiration.enosys", "rfc32.start.expiration")
def test_an_accepted_change_of_expiration_is_made(errnum):
    manager, job, expiration, sent = updated(errnum)
    assert [response.errnum for response in responses(sent)] == [0]
    assert manager.event(job, "resource-update") == {"expiration": expiration}
    assert payloads(sent, "job-exec.expiration") == [{"id": job, "expiration": expiration}]
    assert manager.row(job)["expiration"] == expiration


@requirement("rfc27.expiration.enosys")
def test_a_rejected_change_of_expiration_is_not_made():
    manager, job, _, sent = updated(EINVAL)
    assert [response.errnum for response in responses(sent)] == [EINVAL]
    assert "resource-update" not in manager.names(job)
    assert "job-exec.expiration" not in topics(sent)


@requirement("rfc32.start.expiration")
def test_the_execution_service_ends_a_job_at_its_new_expiration(start):
    options = ["--nodes=1", "--cores=1", "--exec=local", "--oversubscribe"]
    with start(*options) as instance, Client(instance.uri, timeout=60) as client:
        (name,) = instance.lines("submit", "--time-limit=1h", "sleep", "1000")
        (row,) = client.job_rows(constraint={})
        assert any(event["name"] == "start" for event in client.eventlog(row["id"], follow=True))
        client.rpc("job-exec.expiration", {"id": row["id"], "expiration": 1.0})
        assert instance.penstock("wait", name).returncode != 0
        (row,) = client.job_rows(constraint={})
        assert row["exception_type"] == "timeout"


@requirement("rfc27.feasibility.check")
def test_an_infeasible_job_is_rejected_with_a_reason():
    sched = Sched.running(inventory(2, 2), up="")
    (answer,) = responses(sched.request("feasibility.check", {"jobspec": jobspec(nodes=2)}))
    assert (answer.errnum, answer.payload) == (0, None)
    for spec in (jobspec(nodes=3), jobspec(cores=3), {"version": 99}):
        (answer,) = responses(sched.request("feasibility.check", {"jobspec": spec}))
        assert answer.errnum != 0
        assert answer.error_text


# --- R


@requirement("rfc20.execution.nslots")
def test_an_allocation_has_its_number_of_slots():
    sent = Sched.running().alloc(5, nodes=2)
    assert [r.nslots for r in (*granted(sent).values(), *committed(sent).values())] == [2, 2]


@requirement("rfc20.execution.local-properties")
def test_local_properties_stay_with_the_instance():
    resources = inventory(2, 1)
    for name in ("+here", "shared"):
        resources.add_property(name, "0-1")
    sched = Sched.running(resources)
    r = granted(sched.alloc(5, constraints={"properties": ["+here"]}))[5]
    assert set(r.properties) == {"shared"}


@requirement("rfc20.scheduling.writer")
def test_the_writer_of_scheduling_is_carried():
    scheduling = {"writer": "fluxion", "graph": {"nodes": [], "edges": []}}
    r = ResourceSet({**inventory().to_dict(), "scheduling": scheduling})
    assert json.loads(r.to_json())["scheduling"] == scheduling
    assert r.restrict(ranks="0-3").scheduling == scheduling


@requirement("rfc20.execution.zero-is-unset")
def test_a_time_of_0_is_unset():
    def made(starttime, expiration):
        document = inventory().to_dict()
        document["execution"].update(starttime=starttime, expiration=expiration)
        return ResourceSet(document)

    for times, read in [((0, 0), (None, None)), ((5, 0), (5, None)), ((0, 5), (None, 5))]:
        r = made(*times)
        assert (r.starttime, r.expiration) == read
    with pytest.raises(ResourceSetError, match="expiration"):
        made(6, 5)


@requirement("rfc20.execution.nodelist-commas")
def test_one_string_may_hold_several_hosts():
    document = inventory(4).to_dict()
    document["execution"]["nodelist"] = ["b[1-2],a", "c"]
    assert [node.host for node in ResourceSet(document).nodes()] == ["b1", "b2", "a", "c"]


# --- acquire


@requirement("rfc28.additional.shrink")
def test_shrink_names_targets_that_are_gone_for_good(start):
    with start("--nodes=4", "--sched=none") as instance, Client(instance.uri, timeout=60) as client:
        changes = client.stream("resource.acquire")
        assert next(changes)["up"] == "0-3"
        client.rpc("resource.shrink", {"targets": "2-3"})
        response = next(changes)
        assert (response["shrink"], response["down"]) == ("2-3", "2-3")
        assert "up" not in response
        # A target that is down already is in `shrink` alone.
        client.drain("1")
        assert next(changes) == {"down": "1"}
        client.rpc("resource.shrink", {"targets": "1"})
        assert next(changes) == {"shrink": "1"}


@requirement("rfc28.additional.shrink-inventory")
def test_the_scheduler_removes_shrunk_targets():
    sched = Sched.running(inventory(2, 1))
    sched.alloc(1, nodes=2)
    assert [response["type"] for response in allocs(sched.alloc(2, nodes=2))] == [ANNOTATE]
    sent = sched.change(down="1", shrink="1")
    assert [(response["id"], response["type"]) for response in allocs(sent)] == [(2, DENY)]
    assert [response["type"] for response in allocs(sched.alloc(3, nodes=2))] == [DENY]
    # Targets that are only down stay in the inventory.
    sched = Sched.running(inventory(2, 1))
    sched.change(down="1")
    assert DENY not in [response["type"] for response in allocs(sched.alloc(3, nodes=2))]


@requirement("rfc28.request.busy", "rfc28.request.streaming")
def test_acquire_is_exclusive_and_streaming(start):
    with start("--nodes=4", "--sched=none") as instance, Client(instance.uri, timeout=60) as client:
        with pytest.raises(RpcError) as error:
            client.rpc("resource.acquire", {})
        assert error.value.errno == EPROTO
        first = client.stream("resource.acquire")
        assert next(first)["up"] == "0-3"
        with Client(instance.uri, timeout=60) as other:
            with pytest.raises(RpcError) as error:
                next(other.stream("resource.acquire"))
            assert error.value.errno == EBUSY
        # Nothing has changed for the first.
        client.drain("0")
        assert next(first) == {"down": "0"}
