"""Updates of submitted jobs in real instances, and across restarts."""

from __future__ import annotations

import time

import pytest
from tests.support.jobs import events, jobspec, newest, row, submit

from penstock.client import Client
from penstock.errors import RpcError

DURATION = "attributes.system.duration"


def update(client, job, seconds):
    return client.rpc("job-manager.update", {"id": job, "updates": {DURATION: seconds}})


def test_a_running_job_ends_at_its_new_time(start):
    with start() as instance, Client(instance.uri) as client:
        (name,) = instance.lines("submit", "-t", "1h", "sleep", "1000")
        job = newest(client)
        follow = client.stream("job-info.eventlog-watch", {"id": job, "path": "eventlog"})
        for line in follow:
            if '"name":"start"' in line["event"]:
                break
        assert update(client, job, 0.2) == {}
        assert instance.penstock("wait", name).returncode == 143
        found = row(client, job)
        assert (found["exception_type"], found["duration"]) == ("timeout", 0.2)
        assert found["expiration"] > 0
        log = events(client, job)
        assert log.index("jobspec-update") < log.index("resource-update") < log.index("exception")


def test_a_simulated_job_ends_at_its_new_time(start):
    with start("--nodes", "1", "--cores", "1") as instance, Client(instance.uri) as client:
        job = submit(client, duration=3600)
        assert instance.lines("jobs", "-f", "run")
        update(client, job, 0.5)
        instance.penstock("wait", str(job))
        assert row(client, job)["duration"] == 0.5


def test_a_running_job_gets_no_more_time_than_the_resources_have(start):
    with start("--nodes", "1", "--cores", "1") as instance, Client(instance.uri) as client:
        end = int(time.time()) + 1000
        client.rpc("resource.expiration", {"expiration": end})
        job = submit(client, duration=600)
        assert instance.lines("jobs", "-f", "run")
        before = row(client, job), events(client, job)
        for seconds, limit in ((1_000_000, "1000000"), (0, "inf")):
            with pytest.raises(RpcError, match=f"the resources end at {end}: expected"):
                update(client, job, seconds)
            done = instance.penstock("update", str(job), f"duration={limit}")
            assert done.returncode == 1
            assert f"the resources end at {end}" in done.stderr
        assert (row(client, job), events(client, job)) == before
        update(client, job, 700)
        assert row(client, job)["duration"] == 700
        # If the resources have no end, a job need not have one.
        client.rpc("resource.expiration", {"expiration": 0})
        update(client, job, 0)
        assert row(client, job)["expiration"] == 0


def test_pending_jobs_keep_updates_memos_and_priorities_over_a_restart(start):
    options = ("--nodes", "1", "--cores", "1")
    with start(*options) as instance, Client(instance.uri) as client:
        client.rpc("job-manager.queue-start", {"start": False})
        job = submit(client, duration=3600)
        last = submit(client, duration=1)
        update(client, job, 0)
        client.rpc("job-manager.memo", {"id": job, "memo": {"note": "mine", "n": 1}})
        wanted = {"jobs": [[job, 4294967294], [last, 1], [5, 1]]}
        done = client.rpc("job-manager.prioritize", wanted)
        assert (done["count"], list(done["errors"])) == (2, ["5"])
    with start(*options) as instance, Client(instance.uri) as client:
        found = row(client, job)
        assert (found["duration"], found["priority"]) == (0, 4294967294)
        assert found["annotations"] == {"user": {"note": "mine", "n": 1}}
        assert row(client, last)["priority"] == 1
        many = {"ids": [job, last], "urgency": 31}
        assert client.rpc("job-manager.urgency", many) == {"count": 2, "errors": {}}
        assert row(client, last)["priority"] == 4294967295
        with pytest.raises(RpcError, match=r"`attributes\.system\.cwd` cannot be updated"):
            client.rpc("job-manager.update", {"id": job, "updates": {"attributes.system.cwd": "/"}})


def test_one_request_sets_priorities_of_a_hundred_thousand_jobs(start):
    with start("--nodes", "1", "--cores", "1") as instance, Client(instance.uri) as client:
        client.rpc("job-manager.queue-start", {"start": False})
        spec = jobspec(duration=1)
        ids = client.rpc("job-ingest.submit", {"jobspec": spec, "count": 100_000})["ids"]
        jobs = [[job, 4294967294 - place] for place, job in enumerate(ids)]
        done = client.rpc("job-manager.prioritize", {"jobs": jobs})
        assert done == {"count": 100_000, "errors": {}}
        assert row(client, ids[-1])["priority"] == 4294967294 - 99_999
