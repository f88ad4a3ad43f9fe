"""Today's differences: sentence by sentence, with our ends, which speak both versions."""

from __future__ import annotations

import json
from errno import EBUSY, EINVAL, ENODATA, ENOSYS, EPROTO

import pytest
from tests.conformance.ends import (
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
    asked = payloads(sched.acquire(inventory()), "job-manager.sched-hello")
    assert asked == [{"partial-ok": True}]
    manager = Manager()
    job = manager.running()
    for payload in (None, {}, {"partial-ok": True}, {"partial-ok": False}):
        told, end = responses(manager.hello(payload))
        assert (told.object()["id"], end.errnum) == (job, ENODATA)


@requirement("rfc27.hello.free")
def test_hello_tells_what_was_given_back():
    manager = Manager()
    job = manager.running()
    (told, _) = responses(manager.hello({"partial-ok": True}))
    assert "free" not in told.object()
    manager.respond_start(job, "finish", status=0)
    manager.respond_start(job, "release", ranks="1", final=False)
    (told, _) = responses(manager.hello({"partial-ok": True}))
    assert told.object()["free"] == "1"

    sched = Sched()
    sched.register()
    sched.acquire(inventory(2, 1))
    sched.held(5, inventory(2, 1).to_json(), free="1")
    sched.greeted()
    sched.answer("job-manager.sched-ready", {"count": 0})
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
    (told,) = allocs(sent)
    (stored,) = committed(sent).values()
    assert ResourceSet(told["R"]) == stored
    # The job manager goes by what was committed, with it or without.
    manager = Manager()
    manager.scheduler()
    for says in (False, True):
        job, r = manager.submit(), manager.next_r()
        manager.allocate(job, r, **({"R": json.loads(r)} if says else {}))
        assert "alloc" in manager.names(job)
    # With another than was committed nobody would know what is meant.
    job = manager.submit()
    manager.allocate(job, R=inventory().to_dict())
    assert "alloc" not in manager.names(job)


@requirement("rfc27.alloc.t-submit")
def test_alloc_carries_the_time_of_submission():
    manager = Manager()
    manager.scheduler()
    job = manager.submit()
    (asked,) = payloads(manager.sent, "sched.alloc")
    assert asked["t_submit"] == manager.row(job)["t_submit"]
    assert isinstance(asked["t_submit"], float)


@requirement("rfc27.alloc.displaced", "rfc27.cancel.not-the-job")
def test_in_limited_mode_a_displaced_job_is_cancelled_and_sent_again():
    manager = Manager()
    first, second = manager.submit(), manager.submit()
    sent = manager.scheduler(limit=1)
    assert [it["id"] for it in payloads(sent, "sched.alloc")] == [first]
    sent = manager.ask("job-manager.urgency", {"id": second, "urgency": 20})
    assert payloads(sent, "sched.cancel") == [{"id": first}]
    sent = manager.respond_alloc(first, CANCEL)
    assert [it["id"] for it in payloads(sent, "sched.alloc")] == [second]
    assert "exception" not in manager.names(first)
    sent = manager.allocate(second)
    assert [it["id"] for it in payloads(sent, "sched.alloc")] == [first]


@requirement("rfc27.cancel.denied")
def test_a_cancel_after_a_denial_is_ignored():
    sched = Sched.running()
    assert [it["type"] for it in allocs(sched.alloc(5, cores=99))] == [DENY]
    assert sched.cancel(5) == []
    assert sched.phase == "running"


@requirement("rfc27.cancel.flag")
def test_cancel_and_prioritize_want_no_response():
    manager = Manager()
    manager.scheduler()
    job = manager.submit()
    sent = manager.ask("job-manager.urgency", {"id": job, "urgency": 20})
    sent += manager.raise_exception(job)
    unanswered = requests(sent, "sched.prioritize") + requests(sent, "sched.cancel")
    assert [bool(it.flags & NORESPONSE) for it in unanswered] == [True, True]


@requirement("rfc27.annotate.no-queue")
def test_the_queue_is_no_annotation_of_ours():
    sched = Sched.running(inventory(1, 1))
    sent = sched.alloc(1) + sched.alloc(2) + sched.free(1)
    told = [it["annotations"]["sched"] for it in allocs(sent) if "annotations" in it]
    assert len(told) == 3
    assert not [it for it in told if "queue" in it]
    assert kept({"queue": "batch"}) == {"queue": "batch"}


@requirement("rfc27.success.annotations-dropped", "rfc27.annotate.selection-type")
def test_how_a_job_was_selected_is_kept():
    assert kept({"selection_type": "backfill"}) == {"selection_type": "backfill"}
    sched = Sched.running()
    (told,) = allocs(sched.alloc(1))
    assert told["annotations"]["sched"].keys() == {"resource_summary", "reason_pending"}


def kept(annotations):
    """What the job manager keeps of a scheduler's annotations, also when it has allocated."""
    manager = Manager()
    manager.scheduler()
    job = manager.submit()
    manager.respond_alloc(job, ANNOTATE, annotations={"sched": annotations})
    waiting = manager.row(job)["annotations"]["sched"]
    manager.allocate(job)
    assert manager.event(job, "alloc")["annotations"]["sched"] == waiting
    return waiting


@requirement("rfc27.kvs.commit")
def test_a_commit_is_of_all_or_none():
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
    told = [(ResourceSet(it["R"]).summary(), it["final"]) for it in frees]
    assert told == [("rank1/core[0-3]", False), ("rank0/core[0-3]", True)]

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
def test_todays_free_is_not_answered():
    sched = Sched.running(inventory(1, 1))
    r = granted(sched.alloc(1))[1].to_dict()
    assert responses(sched.free(1, R=r, final=True), "sched.free") == []
    # The job manager goes on without, and a late one is nothing to it.
    job = Manager.running(manager := Manager())
    (request,) = requests(manager.finish(job), "sched.free")
    assert manager.row(job)["state"] == 64
    assert manager.answer(request, {"id": job}) == []
    assert manager.log == []


# --- expiration and feasibility


@requirement("rfc27.expiration.change", "rfc27.expiration.number")
def test_the_scheduler_takes_another_expiration():
    sched = Sched.running()
    sched.alloc(1, duration=60)
    for expiration in (4102444800, 4102444800.5, 0):
        (answer,) = responses(sched.ask("sched.expiration", {"id": 1, "expiration": expiration}))
        assert (answer.topic, answer.errnum, answer.payload) == ("sched.expiration", 0, None)
    for wrong in ({"id": 99, "expiration": 1.0}, {"id": 1}, {"id": 1, "expiration": "x"}):
        (answer,) = responses(sched.ask("sched.expiration", wrong))
        assert answer.errnum != 0
    # An error leaves things as they are: the job has its resources, and gives them back.
    assert len(responses(sched.free(1))) == 1
    assert sched.phase == "running"


def updated(errnum):
    """A running job whose time limit was to be changed, which the scheduler answers so."""
    manager = Manager()
    job = manager.running(duration=60)
    update = {"id": job, "updates": {"attributes.system.duration": 600}}
    sent = manager.ask("job-manager.update", update)
    (request,) = requests(sent, "sched.expiration")
    told = request.object()
    assert told["id"] == job
    assert told["expiration"] > manager.row(job)["t_run"]
    assert responses(sent) == []
    # The broker says so where no scheduler is registered.
    unserved = errnum == ENOSYS
    sent = manager.unserved(request) if unserved else manager.answer(request, errnum=errnum)
    return manager, job, told["expiration"], sent


@pytest.mark.parametrize("errnum", [0, ENOSYS])
@requirement("rfc27.expiration.enosys", "rfc32.start.expiration")
def test_a_change_of_expiration_that_the_scheduler_does_not_refuse_is_made(errnum):
    manager, job, expiration, sent = updated(errnum)
    assert [it.errnum for it in responses(sent)] == [0]
    assert manager.event(job, "resource-update") == {"expiration": expiration}
    assert payloads(sent, "job-exec.expiration") == [{"id": job, "expiration": expiration}]
    assert manager.row(job)["expiration"] == expiration


@requirement("rfc27.expiration.enosys")
def test_a_change_of_expiration_that_the_scheduler_refuses_is_not_made():
    manager, job, _, sent = updated(EINVAL)
    assert [it.errnum for it in responses(sent)] == [EINVAL]
    assert "resource-update" not in manager.names(job)
    assert "job-exec.expiration" not in topics(sent)


@requirement("rfc32.start.expiration")
def test_the_execution_service_ends_a_job_at_its_new_expiration(start):
    options = ["--nodes=1", "--cores=1", "--exec=local", "--oversubscribe"]
    with start(*options) as instance, Client(instance.uri, timeout=60) as client:
        (name,) = instance.lines("submit", "--time-limit=1h", "sleep", "1000")
        (row,) = client.jobs(constraint={})
        assert any(it["name"] == "start" for it in client.eventlog(row["id"], follow=True))
        client.rpc("job-exec.expiration", {"id": row["id"], "expiration": 1.0})
        assert instance.penstock("wait", name).returncode != 0
        (row,) = client.jobs(constraint={})
        assert row["exception_type"] == "timeout"


@requirement("rfc27.feasibility.check")
def test_feasibility_is_checked_with_a_reason():
    sched = Sched.running(inventory(2, 2), up="")
    (answer,) = responses(sched.ask("feasibility.check", {"jobspec": jobspec(nodes=2)}))
    assert (answer.errnum, answer.payload) == (0, None)
    for spec in (jobspec(nodes=3), jobspec(cores=3), {"version": 99}):
        (answer,) = responses(sched.ask("feasibility.check", {"jobspec": spec}))
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
def test_what_is_gone_for_good_is_told(start):
    with start("--nodes=4", "--sched=none") as instance, Client(instance.uri, timeout=60) as client:
        changes = client.stream("resource.acquire")
        assert next(changes)["up"] == "0-3"
        client.rpc("resource.shrink", {"targets": "2-3"})
        told = next(changes)
        assert (told["shrink"], told["down"]) == ("2-3", "2-3")
        assert "up" not in told
        # What is down already does not go down once more.
        client.drain("1")
        assert next(changes) == {"down": "1"}
        client.rpc("resource.shrink", {"targets": "1"})
        assert next(changes) == {"shrink": "1"}


@requirement("rfc28.additional.shrink-inventory")
def test_the_scheduler_does_not_count_on_what_is_gone():
    sched = Sched.running(inventory(2, 1))
    sched.alloc(1, nodes=2)
    assert [it["type"] for it in allocs(sched.alloc(2, nodes=2))] == [ANNOTATE]
    sent = sched.change(down="1", shrink="1")
    assert [(it["id"], it["type"]) for it in allocs(sent)] == [(2, DENY)]
    assert [it["type"] for it in allocs(sched.alloc(3, nodes=2))] == [DENY]
    # Down alone is not gone.
    sched = Sched.running(inventory(2, 1))
    sched.change(down="1")
    assert DENY not in [it["type"] for it in allocs(sched.alloc(3, nodes=2))]


@requirement("rfc28.request.busy", "rfc28.request.streaming")
def test_acquire_is_for_one_and_streaming(start):
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
