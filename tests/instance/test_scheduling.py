"""Scheduling as clients see it, with every scheduler.

Each test runs with our scheduler inside the daemon, with the same as a process at the socket, and
with `examples/scheduler.py`. Execution is simulated: a job of `HOLD` runs until it is cancelled.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from itertools import pairwise

import pytest

from penstock import ResourceSet
from penstock._core import fluid_f58
from penstock.client import Client
from penstock.errors import RpcError
from penstock.jobspec import from_command

COMPLETED, FAILED, CANCELED = 1, 2, 4
SCHED, RUN = 8, 16
HOLD = 3600.0
EXTERNAL = ["process", "example"]


def spec(command=("true",), **shape):
    return from_command(list(command), environment={"PATH": os.environ["PATH"]}, cwd="/", **shape)


@pytest.fixture(params=["inside", *EXTERNAL])
def scheduled(request, start, scheduler, tmp_path):
    """Makes an instance with the scheduler of this test run, and a client."""

    @contextmanager
    def start_scheduled(*options, limit=None):
        if request.param == "inside":
            config = tmp_path / "limit.toml"
            config.write_text(f"[penstock.scheduler]\nlimit = {limit or 0}\n")
            options = ("--config", str(config), "--sched", "inside", *options)
            with start(*options) as instance, Client(instance.uri, timeout=60) as client:
                yield instance, client
        else:
            with (
                start("--sched", "none", *options) as instance,
                scheduler(request.param, instance, limit),
                Client(instance.uri, timeout=60) as client,
            ):
                yield instance, client

    return start_scheduled


def event(client, job, name):
    """Waits for a job's first event of this name; returns its context."""
    seen = []
    for found in client.eventlog(job, follow=True):
        if found["name"] == name:
            return found.get("context", {})
        seen.append(found["name"])
    raise AssertionError(f"job {fluid_f58(job)} has ended without `{name}`: {seen}")


def names(client, job):
    return [found["name"] for found in client.eventlog(job)]


def row(client, job):
    (found,) = client.job_rows(ids=[job])
    return found


def r_of(client, job):
    return ResourceSet(client.lookup(job, "R")["R"])


def running(client, **shape):
    """A job that runs until it is cancelled."""
    job = client.submit(spec(duration=HOLD, **shape))
    event(client, job, "start")
    return job


def results(client, jobs):
    rows = {found["id"]: found for found in client.wait_rows(jobs)}
    return [rows[job]["result"] for job in jobs]


def end(client, *jobs):
    assert client.cancel(jobs) == (len(jobs), {})
    assert results(client, jobs) == [CANCELED] * len(jobs)


def test_many_small_jobs_run(scheduled):
    with scheduled("--nodes", "4", "--cores", "4") as (_, client):
        jobs = client.submit(spec(), count=200)
        assert results(client, jobs) == [COMPLETED] * 200


def test_concurrent_jobs_are_disjoint_and_within_the_inventory(scheduled):
    with scheduled("--nodes", "3", "--cores", "4", "--gpus", "2") as (_, client):
        shapes = [{"ntasks": 2}, {"cores_per_task": 3}, {"gpus_per_task": 1}, {"nodes": 1}]
        jobs = [running(client, **shape) for shape in shapes]
        status = client.rpc("resource.sched-status")
        taken, everything = ResourceSet(), ResourceSet(status["all"])
        for job in jobs:
            r = r_of(client, job)
            assert r.isdisjoint(taken)
            assert r.issubset(everything)
            taken = taken | r
        assert (taken.ncores, taken.ngpus) == (2 + 3 + 1 + 4, 1 + 2)
        assert ResourceSet(status["allocated"]) == ResourceSet(taken.to_dict())


@pytest.mark.parametrize("limit", [None, 2])
def test_jobs_start_by_urgency_then_by_age(scheduled, limit):
    with scheduled("--nodes", "1", limit=limit) as (_, client):
        blocker = running(client)
        urgencies = [10, 20, 16, 31, 16, 20]
        # Jobs without a duration may all start in the same round, at the same time.
        short = spec(setattr={"exec.test.run_duration": "0.01s"})
        jobs = [client.submit(short, urgency=urgency) for urgency in urgencies]
        end(client, blocker)
        assert results(client, jobs) == [COMPLETED] * 6
        ran = sorted(jobs, key=lambda job: row(client, job)["t_run"])
        assert ran == [jobs[3], jobs[1], jobs[5], jobs[2], jobs[4], jobs[0]]


def test_a_changed_urgency_changes_the_position(scheduled):
    with scheduled("--nodes", "1") as (_, client):
        blocker = running(client)
        short = spec(setattr={"exec.test.run_duration": "0.01s"})
        first, second, third = client.submit(short, count=3)
        client.rpc("job-manager.urgency", {"id": third, "urgency": 20})
        client.rpc("job-manager.urgency", {"id": first, "urgency": 3})
        end(client, blocker)
        assert results(client, [first, second, third]) == [COMPLETED] * 3
        ran = sorted([first, second, third], key=lambda job: row(client, job)["t_run"])
        assert ran == [third, second, first]


def test_a_held_job_does_not_block_others_until_it_is_released(scheduled):
    with scheduled("--nodes", "1") as (_, client):
        held = client.submit(spec(), urgency=0)
        other = client.submit(spec())
        assert results(client, [other]) == [COMPLETED]
        assert "alloc" not in names(client, held)
        client.rpc("job-manager.urgency", {"id": held, "urgency": 16})
        assert results(client, [held]) == [COMPLETED]


def test_holding_a_job_cancels_its_alloc_request(scheduled):
    with scheduled("--nodes", "1") as (_, client):
        blocker = running(client)
        job, other = client.submit(spec(), count=2)
        client.rpc("job-manager.urgency", {"id": job, "urgency": 0})
        end(client, blocker)
        assert results(client, [other]) == [COMPLETED]
        assert "alloc" not in names(client, job)
        client.rpc("job-manager.urgency", {"id": job, "urgency": 31})
        assert results(client, [job]) == [COMPLETED]


def test_dependencies_order_jobs(scheduled):
    with scheduled("--nodes", "4") as (_, client):
        jobs = [client.submit(spec())]
        for _ in range(9):
            after = [f"afterok:{fluid_f58(jobs[-1])}"]
            jobs.append(client.submit(spec(dependencies=after)))
        assert results(client, jobs) == [COMPLETED] * 10
        rows = [row(client, job) for job in jobs]
        assert all(a["t_cleanup"] <= b["t_run"] for a, b in pairwise(rows))


def test_a_pending_job_is_cancelled_and_the_next_one_runs(scheduled):
    with scheduled("--nodes", "2") as (_, client):
        blocker = running(client)
        wide = client.submit(spec(nodes=2))
        behind = client.submit(spec())
        assert row(client, wide)["state"] == SCHED
        end(client, wide)
        assert "alloc" not in names(client, wide)
        assert results(client, [behind]) == [COMPLETED]
        assert row(client, blocker)["state"] == RUN


@pytest.mark.parametrize(
    "shape",
    [
        {"nodes": 3},
        {"ntasks": 9},
        {"cores_per_task": 5},
        {"gpus_per_task": 2},
        {"requires": "no-such-property"},
        {"requires": "host:nowhere"},
    ],
    ids=str,
)
def test_an_unsatisfiable_job_is_denied_with_a_note(scheduled, shape):
    with scheduled("--nodes", "2", "--cores", "4", "--gpus", "1") as (_, client):
        job = client.submit(spec(**shape))
        assert results(client, [job]) == [FAILED]
        raised = event(client, job, "exception")
        assert (raised["type"], raised["severity"]) == ("alloc", 0)
        assert raised["note"]
        assert "alloc" not in names(client, job)
        with pytest.raises(RpcError) as rejected:
            client.rpc("feasibility.check", {"jobspec": spec(**shape)})
        assert rejected.value.strerror == raised["note"]
        # It has not kept anybody else.
        client.rpc("feasibility.check", {"jobspec": spec()})
        assert results(client, [client.submit(spec())]) == [COMPLETED]


def test_drained_nodes_get_no_jobs_until_they_are_undrained(scheduled):
    with scheduled("--nodes", "4") as (_, client):
        kept = running(client)
        (rank,) = r_of(client, kept).ranks
        client.drain("0-2", "a test")
        jobs = client.submit(spec(nodes=1), count=8)
        assert results(client, jobs) == [COMPLETED] * 8
        assert {str(r_of(client, job).ranks) for job in jobs} == {"3"}
        # Drained under a running job: the job continues, and no other job starts there.
        assert rank == 0
        assert row(client, kept)["state"] == RUN
        end(client, kept)
        client.undrain("0-1")
        other = running(client)
        assert list(r_of(client, other).ranks) == [0]
        wide = client.submit(spec(nodes=4))
        client.undrain("2")
        assert row(client, wide)["state"] == SCHED
        end(client, other)
        assert results(client, [wide]) == [COMPLETED]


def test_exclusive_nodes_are_allocated_to_one_job(scheduled):
    with scheduled("--nodes", "3", "--cores", "4", "--gpus", "1") as (_, client):
        small = running(client)
        (taken,) = r_of(client, small).ranks
        whole = running(client, nodes=2)
        r = r_of(client, whole)
        assert (r.nnodes, r.ncores, r.ngpus, r.nslots) == (2, 8, 2, 2)
        assert taken not in r.ranks
        # Only the node of the small job has room, however small one is.
        more = running(client, ntasks=3)
        assert list(r_of(client, more).ranks) == [taken]
        every = client.submit(spec(nodes=3))
        end(client, whole, more)
        assert row(client, every)["state"] == SCHED
        end(client, small)
        assert results(client, [every]) == [COMPLETED]
        assert r_of(client, every).ncores == 12


def test_gpus_are_counted(scheduled):
    with scheduled("--nodes", "2", "--cores", "8", "--gpus", "2") as (_, client):
        jobs = [running(client, gpus_per_task=1) for _ in range(4)]
        waiting = client.submit(spec(gpus_per_task=1))
        assert row(client, waiting)["state"] == SCHED
        freed = r_of(client, jobs[2])
        end(client, jobs[2])
        assert results(client, [waiting]) == [COMPLETED]
        gpus = [(node.rank, str(node.gpus)) for node in r_of(client, waiting)]
        assert gpus == [(node.rank, str(node.gpus)) for node in freed]


def test_constraints_choose_among_nodes(scheduled, tmp_path):
    inventory = ResourceSet.uniform("0-5", "n[0-5]", cores="0-1")
    inventory.add_property("big", "3-5")
    inventory.add_property("new", "0-1,5")
    (tmp_path / "R").write_text(inventory.to_json())
    with scheduled("--R", str(tmp_path / "R"), "--exec", "sim") as (_, client):
        for requires, ranks in {
            "big": "3-5",
            "-big": "0-2",
            "big and new": "5",
            "host:n[1-2]": "1-2",
            "rank:4": "4",
        }.items():
            count = len(ResourceSet(inventory).restrict(ranks=ranks))
            job = client.submit(spec(nodes=count, requires=requires))
            assert results(client, [job]) == [COMPLETED]
            assert str(r_of(client, job).ranks) == ranks


def test_r_has_the_times_and_the_slots_of_the_job(scheduled):
    with scheduled("--nodes", "2", "--cores", "4") as (_, client):
        job = running(client, ntasks=3, cores_per_task=2)
        r = r_of(client, job)
        assert r.nslots == 3
        assert r.ncores == 6
        assert r.expiration - r.starttime == HOLD
        assert row(client, job)["annotations"]["sched"]["resource_summary"] == r.summary()


def test_pending_jobs_are_annotated(scheduled):
    with scheduled("--nodes", "1") as (_, client):
        blocker = running(client)
        job = client.submit(spec())
        # By the time that the scheduler denies another job it has seen this one.
        assert results(client, [client.submit(spec(nodes=2), urgency=31)]) == [FAILED]
        # The text is the scheduler's own.
        assert row(client, job)["annotations"]["sched"]["reason_pending"]
        end(client, blocker)
        assert results(client, [job]) == [COMPLETED]
        assert "reason_pending" not in row(client, job)["annotations"]["sched"]


@pytest.mark.parametrize("limit", [1, 3])
def test_a_limited_scheduler_gets_through_a_queue(scheduled, limit):
    with scheduled("--nodes", "2", limit=limit) as (_, client):
        blockers = [running(client), running(client)]
        jobs = client.submit(spec(), count=20)
        assert client.rpc("job-manager.stats-get")["sched"]["requested"] == limit
        end(client, *blockers)
        assert results(client, jobs) == [COMPLETED] * 20


def test_ranks_that_are_released_early_are_reused(scheduled, exec_service, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    # The epilog of rank 1 waits for the gate, the other one ends at once.
    epilog = f'test "$FLUX_TASK_RANK" = 0 || cat {gate}'
    with scheduled("--nodes", "2") as (instance, client), exec_service(instance, epilog):
        wide = client.submit(spec(nodes=2))
        assert event(client, wide, "release") == {"ranks": "0", "final": False}
        held = ResourceSet(client.rpc("resource.sched-status")["allocated"])
        assert str(held.ranks) == "1"
        narrow = client.submit(spec())
        assert event(client, narrow, "finish") == {"status": 0}
        assert str(r_of(client, narrow).ranks) == "0"
        assert "clean" not in names(client, wide)
        gate.write_text("")
        assert results(client, [wide, narrow]) == [COMPLETED] * 2
        assert names(client, wide).count("release") == 2


def test_new_nodes_are_used_and_removed_ones_are_not(scheduled):
    with scheduled("--nodes", "2") as (_, client):
        assert results(client, [client.submit(spec(nodes=3))]) == [FAILED]
        more = ResourceSet.uniform("2-3", "late[2-3]", cores="0-1")
        client.rpc("resource.grow", {"R": more.to_dict()})
        wide = client.submit(spec(nodes=4))
        assert results(client, [wide]) == [COMPLETED]
        assert r_of(client, wide).ncores == 2 + 4
        client.rpc("resource.shrink", {"targets": "0,3"})
        jobs = client.submit(spec(nodes=1), count=4)
        assert results(client, jobs) == [COMPLETED] * 4
        assert {str(r_of(client, job).ranks) for job in jobs} <= {"1", "2"}
        assert results(client, [client.submit(spec(nodes=3))]) == [FAILED]


def test_properties_come_and_go(scheduled):
    with scheduled("--nodes", "3") as (_, client):
        assert results(client, [client.submit(spec(requires="late"))]) == [FAILED]
        client.rpc("resource.property-add", {"name": "late", "targets": "1-2"})
        job = client.submit(spec(nodes=2, requires="late"))
        assert results(client, [job]) == [COMPLETED]
        assert str(r_of(client, job).ranks) == "1-2"
        client.rpc("resource.property-remove", {"name": "late", "targets": "1"})
        job = client.submit(spec(requires="late"))
        assert results(client, [job]) == [COMPLETED]
        assert str(r_of(client, job).ranks) == "2"


def test_no_job_gets_more_time_than_the_resources_have(scheduled):
    with scheduled("--nodes", "3") as (_, client):
        end_of_all = 4e9
        client.rpc("resource.expiration", {"expiration": end_of_all})
        job = client.submit(spec())
        assert results(client, [job]) == [COMPLETED]
        assert r_of(client, job).expiration == end_of_all
        limited = running(client)
        assert r_of(client, limited).expiration < end_of_all
        client.rpc("resource.expiration", {"expiration": 0})
        job = client.submit(spec())
        assert results(client, [job]) == [COMPLETED]
        assert r_of(client, job).expiration is None


def test_nodes_that_a_monitor_no_longer_reports_get_no_jobs(scheduled):
    with (
        scheduled("--nodes", "2") as (instance, client),
        Client(instance.uri, timeout=60) as monitor,
    ):
        lives = monitor.stream("resource.monitor", {"ranks": "0"})
        assert next(lives) == {"ranks": "0"}
        assert results(client, [client.submit(spec(nodes=2))]) == [COMPLETED]
        lives.close()
        # On the same connection, so the end of the stream is processed before this request.
        assert monitor.resource_status()["offline"] == "0"
        jobs = client.submit(spec(nodes=1), count=4)
        assert results(client, jobs) == [COMPLETED] * 4
        assert {str(r_of(client, job).ranks) for job in jobs} == {"1"}
        waiting = client.submit(spec(nodes=2))
        lives = monitor.stream("resource.monitor", {"ranks": "0"})
        assert next(lives) == {"ranks": "0"}
        assert results(client, [waiting]) == [COMPLETED]
        lives.close()


def test_a_running_job_gets_more_time(scheduled):
    with scheduled("--nodes", "1") as (_, client):
        job = running(client)
        client.update(job, duration=2 * HOLD)
        until = event(client, job, "resource-update")["expiration"]
        assert until == pytest.approx(r_of(client, job).starttime + 2 * HOLD)
        assert row(client, job)["state"] == RUN
        end(client, job)


def test_the_time_limit_of_a_pending_job_changes(scheduled):
    with scheduled("--nodes", "1") as (_, client):
        blocker = running(client)
        job = client.submit(spec(duration=HOLD))
        client.update(job, duration=0.25)
        end(client, blocker)
        event(client, job, "finish")
        r = r_of(client, job)
        assert r.expiration - r.starttime == 0.25


def test_a_stopped_queue_cancels_its_alloc_requests(scheduled):
    with scheduled("--nodes", "1") as (_, client):
        blocker = running(client)
        jobs = client.submit(spec(), count=5)
        client.queue_stop()
        end(client, blocker)
        # The responses to the cancelled requests come before this one.
        with pytest.raises(RpcError):
            client.rpc("feasibility.check", {"jobspec": spec(nodes=2)})
        assert client.stats()["sched"]["requested"] == 0
        assert not any("alloc" in names(client, job) for job in jobs)
        client.queue_start()
        assert results(client, jobs) == [COMPLETED] * 5
