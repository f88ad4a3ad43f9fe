"""Inactive jobs are in the store alone: every request finds them there, also after a restart.

A daemon with debug assertions has only the last two jobs that ended in memory.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from contextlib import closing

import pytest
from tests.support.jobs import events, jobspec, submit

from penstock.client import Client
from penstock.errors import RpcError
from penstock.jobid import dothex, f58

MANY = 6
# The flag of `kvs.lookup` (RFC 11).
READDIR = 1


def look_up_key(client, key, flags):
    """The value or directory of a key of the store."""
    request = {"namespace": "primary", "key": key, "flags": flags}
    return client.rpc("kvs.lookup", request)["val"]


def check_queries(instance, client, ended):
    """Asks for an old job in every way that names it."""
    ok, failed = ended
    row = client.job_row(ok)
    assert (row["state"], row["result"], row["name"]) == (64, 1, "sh")
    assert client.wait_row(ok)["id"] == ok
    assert client.wait_row(failed)["returncode"] == 3
    assert [row["id"] for row in client.wait_rows([failed, ok])] == [failed, ok]
    documents = client.lookup(ok, "R", "jobspec", "eventlog")
    assert '"R_lite"' in documents["R"]
    assert "echo" in documents["jobspec"]
    assert events(client, ok)[0] == "submit"
    assert events(client, ok)[-1] == "clean"
    names = [event["name"] for event in client.eventlog(ok, follow=True)]
    assert names == events(client, ok)
    assert instance.penstock("logs", f58(ok)).stdout == "out\n"
    assert instance.penstock("attach", f58(ok)).stdout == "out\n"
    assert instance.penstock("attach", f58(failed)).returncode == 3
    assert instance.penstock("info", f58(failed)).returncode == 0
    directory = f"job.{dothex(ok)}"
    assert look_up_key(client, f"{directory}.eventlog", 0)
    parent, _, last = directory.rpartition(".")
    assert last in look_up_key(client, parent, READDIR)["data"]


def check_rejections(client, ok):
    """A job that has ended cannot be changed."""
    with pytest.raises(RpcError, match="is inactive"):
        client.rpc("job-manager.raise", {"id": ok, "type": "cancel", "severity": 0, "note": ""})
    with pytest.raises(RpcError, match="is inactive"):
        client.memo(ok, {"key": 1})
    with pytest.raises(RpcError):
        client.update(ok, duration=60.0)
    for response in (client.cancel([ok]), client.urgency([ok], 0), client.kill([ok])):
        assert response.done == 0
        assert list(response.errors) == [ok]


def check_dependencies(client, ok, failed):
    """Dependencies on an old job are met or fail at once."""
    real = {"tasks": [{"command": ["true"], "slot": "task", "count": {"per_slot": 1}}]}
    for scheme, antecedent, result in (
        ("afterok", ok, 1),
        ("afterok", failed, 2),
        ("afternotok", failed, 1),
        ("afterany", failed, 1),
        ("after", ok, 1),
    ):
        dependencies = [{"scheme": scheme, "value": f58(antecedent)}]
        spec = {**jobspec(dependencies=dependencies), **real}
        job = client.rpc("job-ingest.submit", {"jobspec": spec})["id"]
        assert client.wait_row(job)["result"] == result, scheme


def check_listings(client, jobs):
    """Lists find them, newest first or by their end, at any depth."""
    newest_first = sorted(jobs, reverse=True)
    assert [
        row["id"] for row in client.job_rows(constraint={"states": ["inactive"]})
    ] == newest_first
    assert client.history() == newest_first
    assert client.history(2) == newest_first[:2]
    page = client.job_rows(order="state", skip=1, max_entries=3)
    by_end = sorted(client.job_rows(), key=lambda row: (-row["t_inactive"], -row["id"]))
    assert [row["id"] for row in page] == [row["id"] for row in by_end[1:4]]
    assert not client.job_rows(constraint={"states": ["active"]})
    assert len(client.job_rows(since=by_end[2]["t_inactive"])) <= 2
    assert [row["id"] for row in client.job_rows(ids=jobs)] == jobs


def test_every_request_finds_a_job_that_has_left_memory(start):
    with start() as instance, Client(instance.uri) as client:
        instance.lines("submit", "sh", "-c", "echo out")
        ok = client.history(1)[0]
        instance.lines("submit", "sh", "-c", "exit 3")
        failed = client.history(1)[0]
        others = [submit(client) for _ in range(MANY)]
        for _ in client.wait_rows([ok, failed, *others]):
            pass
        check_queries(instance, client, (ok, failed))
        check_rejections(client, ok)
        check_dependencies(client, ok, failed)
    with start() as instance, Client(instance.uri) as client:
        check_queries(instance, client, (ok, failed))
        check_rejections(client, ok)
        check_dependencies(client, ok, failed)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_lists_and_purges_find_jobs_that_have_left_memory(start, is_restarted):
    options = ("--nodes", "1", "--cores", "1")
    mock = {"test": {"run_duration": "0s"}}
    with start(*options) as instance, Client(instance.uri) as client:
        jobs = [submit(client, exec=mock) for _ in range(MANY)]
        # Of a jobspec of its own.
        jobs.append(submit(client, exec=mock, duration=60))
        for _ in client.wait_rows(jobs):
            pass
        if not is_restarted:
            check_purges(instance, client, jobs)
    if is_restarted:
        with start(*options) as instance, Client(instance.uri) as client:
            check_purges(instance, client, jobs)


def check_purges(instance, client, jobs):
    check_listings(client, jobs)
    assert client.rpc("job-list.job-stats")["job_states"]["inactive"] == len(jobs)
    with pytest.raises(RpcError, match="no job"):
        client.rpc("job-manager.purge", {"ids": [jobs[0], 1], "force": True})
    purged = client.rpc("job-manager.purge", {"ids": [jobs[1], jobs[-1]], "force": True})
    assert purged == {"count": 2, "inactives": len(jobs) - 2}
    purged = client.rpc("job-manager.purge", {"num_limit": 1, "force": True})
    assert purged == {"count": len(jobs) - 3, "inactives": 1}
    stats = client.rpc("job-list.job-stats")
    assert (stats["successful"], stats["inactive_purged"]) == (1, len(jobs) - 1)
    with pytest.raises(RpcError, match="may have been purged"):
        client.job_row(jobs[0])
    # The jobspec stays until the last of its jobs goes.
    with closing(sqlite3.connect(instance.state / "jobs.sqlite")) as store:
        assert len(client.history()) == 1
        assert store.execute("SELECT count(*) FROM jobspecs").fetchone() == (1,)
        client.rpc("job-manager.purge", {"force": True})
        assert store.execute("SELECT count(*) FROM jobspecs").fetchone() == (0,)
    assert client.rpc("job-list.job-stats")["job_states"]["inactive"] == 0


def test_a_jobspec_is_shared_by_pending_and_inactive_jobs(start):
    options = ("--nodes", "1", "--cores", "1")
    mock = {"test": {"run_duration": "0s"}}
    with start(*options) as instance, Client(instance.uri) as client:
        jobs = [submit(client, exec=mock) for _ in range(MANY)]
        for _ in client.wait_rows(jobs):
            pass
        client.rpc(
            "job-manager.queue-start",
            {"start": False, "all": True, "reason": "test", "nocheckpoint": False},
        )
        pending = submit(client, exec=mock)
    with start(*options) as instance, Client(instance.uri) as client:
        client.rpc("job-manager.purge", {"force": True})
        assert client.lookup(pending, "jobspec")
        client.rpc("job-manager.queue-start", {"start": True, "all": True, "nocheckpoint": False})
        assert client.wait_row(pending)["result"] == 1


def test_a_start_does_not_read_the_events_of_ended_jobs(start):
    options = ("--nodes", "1", "--cores", "1")
    mock = {"test": {"run_duration": "0s"}}
    with start(*options) as instance, Client(instance.uri) as client:
        jobs = [submit(client, exec=mock) for _ in range(MANY)]
        held = client.submit(jobspec(), urgency=0)
        for _ in client.wait_rows(jobs):
            pass
        cancelled = client.submit(jobspec(), urgency=0, count=MANY)
        client.cancel(cancelled)
        client.ping("job-manager")
        before = client.rpc("job-list.job-stats")
    database = instance.state / "jobs.sqlite"
    with closing(sqlite3.connect(database)) as store, store:
        rows = store.execute("SELECT first, last, result FROM ended_jobs").fetchall()
        oldest = jobs[0]
        assert any(first <= oldest <= last and result == 1 for first, last, result in rows)
        store.execute("UPDATE events SET lines = 'nonsense' WHERE job = ?", (oldest,))
    with start(*options) as instance, Client(instance.uri) as client:
        assert "left out" not in "\n".join(instance.lines("dmesg"))
        after = client.rpc("job-list.job-stats")
        assert {**after, "inactive_purged": 0} == {**before, "inactive_purged": 0}
        assert client.job_row(held)["state"] == 8
        assert client.wait_row(cancelled[0])["result"] == 4
        assert client.rpc("job-manager.purge", {"force": True})["count"] == 2 * MANY
    with closing(sqlite3.connect(database)) as store:
        assert store.execute("SELECT count(*) FROM ended_jobs").fetchone() == (0,)
    with start(*options) as instance, Client(instance.uri) as client:
        assert [row["id"] for row in client.job_rows()] == [held]


def test_usage_is_that_of_the_rows(start):
    options = ("--nodes", "4", "--cores", "2")
    mock = {"test": {"run_duration": "0s"}}
    # Many of them are in no row of the store yet.
    accounts = [{}, {"project": "a"}, {"project": "b", "bank": "c"}] * MANY
    with start(*options) as instance, Client(instance.uri) as client:
        jobs = [submit(client, exec=mock, **account) for account in accounts]
        client.submit(jobspec(), urgency=0)
        for _ in client.wait_rows(jobs):
            pass
    # The database is read again.
    with start(*options) as instance, Client(instance.uri) as client:
        client.purge(jobs[:MANY], force=True)
        printed = instance.lines("usage", "--json", "--by", "project,bank")
        rows = client.job_rows()
    hours = defaultdict(list)
    for row in rows:
        if "t_run" in row:
            core_s = (row["t_inactive"] - row["t_run"]) * row["ncores"]
            hours[row.get("project"), row.get("bank")].append(core_s / 3600)
    found = {(row["project"], row["bank"]): row for row in map(json.loads, printed)}
    assert found.keys() == hours.keys()
    for key, each in hours.items():
        assert found[key]["jobs"] == len(each)
        assert found[key]["core_hours"] == pytest.approx(sum(each))
