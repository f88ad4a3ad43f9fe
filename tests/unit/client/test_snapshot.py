"""Predictions from a snapshot: the answers are those of the instance's own scheduler."""

from __future__ import annotations

import errno
import json

import pytest
from virtualtime import SteppedClock

from penstock import snapshot
from penstock.cli import main
from penstock.errors import RpcError
from penstock.jobspec import from_command
from penstock.testing import MemoryInstance

HOUR = 3600.0
CONFIG = """
penstock.scheduler.policy = "conservative"
policy.jobspec.defaults.system.queue = "batch"
[queues.batch]
[queues.debug]
"""


def submit(client, count=1, *, urgency=16, **options):
    specs = [from_command(["x"], duration=HOUR, **options) for _ in range(count)]
    return [client.submit(spec, urgency=urgency) for spec in specs]


def settled(instance):
    """The time, once the instance has done all that is due."""
    instance.advance(1)
    return instance.clock.now()


def starts(answer):
    return [(row["id"], row["start"] and round(row["start"])) for row in answer.jobs]


@pytest.mark.parametrize("config", ["", CONFIG])
def test_answers_are_those_of_the_own_scheduler(config):
    with MemoryInstance(3, 4, config=config) as instance, instance.client() as client:
        submit(client, nodes=2, exclusive=True)
        submit(client, cores_per_task=4)
        jobs = submit(client, 2, nodes=3) + submit(client, 3, ntasks=3)
        # A reservation that was made before outlives the arrival of a job with greater priority.
        jobs += submit(client, nodes=2, urgency=16 if config else 20)
        now = settled(instance)
        taken = snapshot.take(client, now)
        scheduler = taken.scheduler()
        assert taken.policy == ("conservative" if config else "easy")
        assert scheduler.started == []
        assert starts(scheduler.estimate()) == starts(client.estimate())
        theirs, ours = client.explain(jobs), scheduler.explain(jobs)
        assert [row["kind"] for row in ours.reasons] == [row["kind"] for row in theirs.reasons]
        assert ours.errors == theirs.errors == {}
        for change in [{"cancel": jobs[0]}, {"down": "0"}, {"fit": jobs[0]}]:
            ours, theirs = scheduler.what_if(change), client.what_if(change)
            assert [row["id"] for row in ours["moved"]] == [row["id"] for row in theirs["moved"]]


def test_down_nodes_held_jobs_and_changed_time_limits():
    with MemoryInstance(3, 4) as instance, instance.client() as client:
        (running,) = submit(client, nodes=2, exclusive=True)
        client.drain("2")
        (next_job,) = submit(client, nodes=2, exclusive=True)
        submit(client, nodes=1, urgency=0)
        now = settled(instance)
        before = dict(snapshot.take(client, now).scheduler().estimate().jobs[0])
        client.update(running, duration=3 * HOUR)
        (after,) = snapshot.take(client, now).scheduler().estimate().jobs
        assert before["id"] == after["id"] == next_job
        assert after["start"] - before["start"] == pytest.approx(2 * HOUR)


@pytest.fixture
def unscheduled():
    """An instance without a scheduler, with jobs that would start, be pending and be denied."""
    with MemoryInstance(2, 4, sched="none") as instance, instance.client() as client:
        jobs = submit(client, 2, nodes=2, exclusive=True) + submit(client, nodes=3)
        yield instance, jobs


def test_jobs_that_would_start_now_or_be_denied(unscheduled):
    instance, (first, second, large) = unscheduled
    with instance.client() as client:
        scheduler = snapshot.take(client, 1e9).scheduler()
    assert (scheduler.started, list(scheduler.denied)) == ([first], [large])
    assert starts(scheduler.estimate()) == [(first, 1e9), (large, None), (second, 1e9 + HOUR)]
    assert starts(scheduler.estimate([second, first])) == [(first, 1e9), (second, 1e9 + HOUR)]
    assert [row["id"] for row in scheduler.estimate(max_entries=1).jobs] == [first]
    kinds = [row["kind"] for row in scheduler.explain([first, second, large]).reasons]
    assert kinds == ["start", "reserved", "denied"]
    for change in [{"cancel": first}, {"fit": large}]:
        with pytest.raises(RpcError) as caught:
            scheduler.what_if(change)
        assert caught.value.errno == errno.EINVAL


def test_an_unknown_job(unscheduled):
    instance, _ = unscheduled
    with instance.client() as client:
        scheduler = snapshot.take(client, 1e9).scheduler()
    assert scheduler.explain([77]).errors == {77: "job ƒ2L is not pending in the scheduler"}


def test_verbs_answer_without_a_scheduler(unscheduled, capsys):
    instance, jobs = unscheduled
    clock = SteppedClock()

    def run(*words):
        assert main([words[0], "--uri", instance.uri, *words[1:]], clock) == 0
        out, err = capsys.readouterr()
        expected = "the scheduler of the instance does not answer; this is what Penstock's would do"
        assert err == f"penstock {words[0]}: {expected}, with the policy easy\n"
        return out.splitlines()

    rows = [json.loads(line) for line in run("estimate", "--json")]
    assert [row["id_int"] for row in rows] == [jobs[0], jobs[2], jobs[1]]
    assert run("explain", str(jobs[2]))[0].endswith(
        "it would be denied: 3 nodes requested, 2 exist"
    )
    assert run("what-if", "cancel", str(jobs[1])) == ["nothing would start at another time"]


def test_another_policy_is_an_option(capsys):
    with MemoryInstance(2, 4) as instance, instance.client() as client:
        submit(client, cores_per_task=4)
        _, short = submit(client, 2, nodes=2, exclusive=True)[:1] + submit(client, ntasks=1)
        assert client.job_row(short)["state"]
        options = ["--uri", instance.uri, "--policy", "fcfs"]
        assert main(["what-if", *options, "submit", "-t", "1m"]) == 0
        under_fcfs = capsys.readouterr()
        assert main(["what-if", "--uri", instance.uri, "submit", "-t", "1m"]) == 0
        under_easy = capsys.readouterr()
    assert under_fcfs.err == under_easy.err == ""
    assert under_fcfs.out != under_easy.out
    assert main(["estimate", "--policy", "sjf"]) == 2


def test_a_simulation_begins_with_a_snapshot(capsys):
    with MemoryInstance(2, 4) as instance, instance.client() as client:
        submit(client, nodes=2, exclusive=True)
        submit(client, 2, nodes=2, exclusive=True)
        submit(client, nodes=1, urgency=0)
        instance.advance(HOUR / 2)
        now = settled(instance)
        args = ["sim", "--from-flux", instance.uri, "--policy", "fcfs,easy", "--json"]
        assert main(args, SteppedClock(now)) == 0
        rows = {row["id"]: row for row in snapshot.take(client, now).trace()}
    document = json.loads(capsys.readouterr().out)
    half = pytest.approx(HOUR / 2, abs=60)
    assert [row["limit"] for row in rows.values()] == [half, HOUR, HOUR]
    assert document["workload"]["jobs"] == 3
    waits = [run["wait_max"] for run in document["runs"]]
    # The rest of the running job, and the first of the two.
    assert waits == [pytest.approx(1.5 * HOUR, abs=60)] * 2
    assert main(["sim", "--from-flux", instance.uri, "--nodes", "2", "--cores", "4"]) == 2


def test_an_instance_that_lacks_a_request(fake, capsys):
    for topic in ("sched.estimate", "resource.sched-status"):
        fake.fail(topic, errno.ENOSYS)
    assert main(["estimate"]) == 1
    expected = "no snapshot of the instance: Function not implemented"
    assert capsys.readouterr().err == f"penstock estimate: {expected}\n"


def test_jobs_of_other_users_are_counted(fake, capsys):
    """A guest may not read them: the running job has its nodes, the pending one is unknown."""
    r = {
        "version": 1,
        "execution": {
            "R_lite": [{"rank": "0-1", "children": {"core": "0-3"}}],
            "starttime": 0,
            "expiration": 0,
            "nodelist": ["node[0-1]"],
        },
    }
    none = {**r, "execution": {**r["execution"], "R_lite": [], "nodelist": []}}
    fake.respond("resource.sched-status", {"all": r, "down": none, "allocated": none})
    fake.respond("config.get", {})
    row = {"userid": 7, "t_submit": 1.0, "priority": 16}
    jobs = [{"id": 5, "state": 8, **row}, {"id": 6, "state": 16, "ranks": "1", **row}]
    fake.respond("job-list.list", {"jobs": jobs})
    fake.fail("job-info.lookup", errno.EPERM)
    assert main(["what-if", "--policy", "easy", "submit", "-N2"], SteppedClock()) == 0
    out, err = capsys.readouterr()
    assert err == "penstock what-if: without 1 pending jobs of other users\n"
    assert out == "would not start as far as is known\n"
