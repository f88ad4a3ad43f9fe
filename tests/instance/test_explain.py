"""The verbs `explain`, `estimate` and `whatif` against a real instance."""

from __future__ import annotations

import errno
import json
import re

import pytest

from penstock.client import Client
from penstock.errors import RpcError
from penstock.jobspec import from_command

HOUR = 3600.0


@pytest.fixture(params=["inside", "process"])
def mode(request):
    return request.param


def spec(nodes=1, duration=HOUR, **shape):
    return from_command(
        ["true"], environment={}, cwd="/", ntasks=nodes, nodes=nodes, duration=duration, **shape
    )


def started(client, **shape):
    """Submits a job and waits until it is allocated."""
    job = client.submit(spec(**shape))
    for event in client.eventlog(job, follow=True):
        if event["name"] == "start":
            return job
    raise AssertionError("the job has ended without a start")


def f58(instance, job):
    (row,) = (json.loads(line) for line in instance.lines("jobs", "-A", "--json", str(job)))
    return row["id"]


def one(instance, *args):
    """The only object that a verb prints."""
    (line,) = instance.lines(*args)
    return json.loads(line)


def test_a_pending_job_is_explained_with_an_estimate(start, mode):
    with (
        start("--nodes", "4", "--sched", mode) as instance,
        Client(instance.uri, timeout=60) as client,
    ):
        busy = started(client, nodes=3)
        wide = client.submit(spec(nodes=4))
        response = one(instance, "explain", "--json", str(wide))
        assert response["id_int"] == wide
        assert "4 nodes" in response["reason"]
        end = client.job_row(busy)["expiration"]
        assert response["start"] == pytest.approx(end, abs=2)
        text = instance.lines("explain", str(wide))
        # The time to the start is shorter in the second response.
        planned, _, needs = response["reason"].partition(", as planned: ")
        assert text[0].startswith(f"{f58(instance, wide)}: can start in ")
        assert planned.startswith("can start in ")
        assert text[0].endswith(f", as planned: {needs}")
        assert re.match(r"    starts in (60|59) min \(", text[1])
        # Everybody sees it in the list of jobs.
        annotations = client.job_row(wide)["annotations"]["sched"]
        assert "4 nodes" in annotations["reason_pending"]
        assert annotations["t_estimate"] == pytest.approx(end, abs=2)
        assert "4 nodes" in "\n".join(instance.lines("jobs", "-A"))


def test_estimates_of_pending_jobs_come_in_queue_order(start, mode):
    with (
        start("--nodes", "2", "--sched", mode) as instance,
        Client(instance.uri, timeout=60) as client,
    ):
        busy = started(client, nodes=2)
        first, second = client.submit(spec(nodes=2), count=2)
        third = client.submit(spec(nodes=2), urgency=20)
        rows = [json.loads(line) for line in instance.lines("estimate", "--json")]
        assert [row["id_int"] for row in rows] == [third, first, second]
        end = client.job_row(busy)["expiration"]
        starts = [row["start"] for row in rows]
        assert starts == pytest.approx([end, end + HOUR, end + 2 * HOUR], abs=2)
        lines = instance.lines("estimate", str(second))
        assert lines[0].split() == ["JOBID", "START", "IN", "EARLIEST", "LATEST", "INFO"]
        assert lines[1].split()[0] == f58(instance, second)
        assert "3 h" in lines[1]
        assert lines[2] == "no start has been compared with its estimate yet"
        assert len(instance.lines("estimate", "-n", "-c", "2")) == 2
        # A job that is not pending has no estimated start.
        (line,) = instance.lines("estimate", "--json", str(busy))
        row = json.loads(line)
        assert (row["start"], row["reason"]) == (None, "it runs on node[0-1]")


def test_jobs_in_other_states_are_explained_too(start):
    with start("--nodes", "2") as instance, Client(instance.uri, timeout=60) as client:
        running = started(client)
        held = client.submit(spec(), urgency=0)
        later = client.submit(spec(dependencies=[f"after:{held}"]))
        over = client.submit(spec())
        client.cancel([over], note="not needed")
        client.wait_row(over)
        done = instance.penstock("explain", *map(str, [running, held, later, over, 1]))
        assert done.returncode == 1
        reasons = [line.partition(": ")[2] for line in done.stdout.splitlines()]
        assert reasons[0].startswith("it runs on ")
        assert reasons[1].startswith("held")
        assert reasons[2].startswith("depends on after")
        assert reasons[3].startswith("it has ended: cancel: not needed")
        assert "penstock explain: " in done.stderr


def test_what_if_answers_and_changes_nothing(start, mode):
    with (
        start("--nodes", "4", "--sched", mode) as instance,
        Client(instance.uri, timeout=60) as client,
    ):
        busy = started(client, nodes=3)
        wide = client.submit(spec(nodes=4))
        instance.lines("explain", str(wide))
        before = client.stats("sched")
        # One node is free, and `wide` does not start before `busy` ends.
        response = one(instance, "what-if", "--json", "submit", "-t", "30", "true")
        assert response["start"] == pytest.approx(client.job_row(busy)["t_run"], abs=60)
        response = one(instance, "what-if", "--json", "submit", "-N", "1", "-t", "2h", "true")
        end = client.job_row(busy)["expiration"]
        assert response["start"] == pytest.approx(end + HOUR, abs=2)
        response = one(instance, "what-if", "--json", "cancel", str(busy))
        assert [moved["id"] for moved in response["moved"]] == [wide]
        assert response["moved"][0]["after"] < response["moved"][0]["before"]
        response = one(instance, "what-if", "--json", "change", "-N", "1", str(wide))
        assert response["start"] < end - HOUR / 2
        response = one(instance, "what-if", "--json", "down", "3")
        assert [(moved["id"], moved["after"]) for moved in response["moved"]] == [(wide, None)]
        assert instance.lines("what-if", "down", "3")[0]
        assert client.stats("sched") == before
        for args in (["cancel", "1"], ["down", "9"], ["submit", "-N", "5", "true"]):
            done = instance.penstock("what-if", *args)
            assert done.returncode == 1, args
            assert done.stderr.startswith("penstock what-if: ")


def test_an_impossible_request_is_denied_with_the_resource_and_its_maximum(start):
    with start("--nodes", "2", "--cores", "4", "--gpus", "1") as instance:
        for args, note in [
            (["-N", "3"], "3 nodes requested"),
            (["-c", "5"], "5 cores per slot requested, no node has more than 4"),
            (["-n", "9"], "9 cores requested, 8 exist"),
            (["-g", "2"], "2 gpus per slot requested"),
            (["--requires", "fast"], "constraint"),
        ]:
            done = instance.penstock("run", *args, "true")
            assert done.returncode == 1
            assert note in done.stderr, (args, done.stderr)


def test_an_invalid_question_names_the_field(start):
    with start("--nodes", "1") as instance, Client(instance.uri, timeout=60) as client:
        # From then on the scheduler is ready.
        started(client)
        integer = "expected a non-negative integer"
        for topic, payload, errnum, text in [
            ("sched.explain", {}, errno.EPROTO, "ids"),
            ("sched.explain", {"ids": ["x"]}, errno.EPROTO, f"`ids[0]`: {integer}"),
            ("sched.estimate", {"max_entries": -1}, errno.EPROTO, f"`max_entries`: {integer}"),
            ("sched.what-if", {}, errno.EPROTO, "submit"),
            ("sched.what-if", {"cancel": "x"}, errno.EPROTO, f"`cancel`: {integer}"),
            ("sched.what-if", {"down": "x"}, errno.EINVAL, "`down`: "),
            ("sched.what-if", {"submit": {}}, errno.EINVAL, "`submit`: "),
            ("sched.what-if", {"job": 1}, errno.EINVAL, "`job`: ƒ2 is not pending"),
            ("sched.config-reload", {"policy": "sjf"}, errno.EINVAL, "policy: "),
        ]:
            with pytest.raises(RpcError) as caught:
                client.rpc(topic, payload)
            assert caught.value.errno == errnum
            assert text in caught.value.strerror
        assert client.stats("sched")["policy"] == "easy"


def test_verbs_answer_without_the_scheduler(start, scheduler):
    with start("--nodes", "1", "--sched", "none") as instance:
        with Client(instance.uri, timeout=60) as client:
            job = client.submit(spec())
        for args in (["explain", str(job)], ["estimate"], ["what-if", "cancel", str(job)]):
            done = instance.penstock(*args)
            assert "the scheduler of the instance does not answer" in done.stderr
            # No scheduler has started the job, which would start now.
            assert "a scheduler of Penstock would start it" in done.stdout + done.stderr
        with scheduler("example", instance):
            done = instance.penstock("estimate")
            assert "the scheduler of the instance does not answer" in done.stderr
