"""Inactive jobs are purged from a real instance's memory, store and retained output."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from tests.support.jobs import submit

from penstock.client import Client
from penstock.errors import RpcError
from penstock.jobspec import from_command


def ran(instance, client, count):
    names = [instance.lines("submit", "sh", "-c", f"echo {n}")[0] for n in range(count)]
    assert instance.penstock("wait", *names).returncode == 0
    return client.rpc("job-manager.history.get", {"slice": "[::-1]"})["jobs"]


def wait_for(client, inactive):
    """Polls until limits have purged jobs: each request gives the instance another round."""
    while client.rpc("job-manager.stats-get")["inactive_jobs"] > inactive:
        pass


def output(instance):
    files = (instance.state / "exec" / "output").glob("[0-9]*")
    return sorted({int(path.stem) for path in files})


def test_purged_jobs_and_their_output_stay_removed(start):
    with start() as instance, Client(instance.uri) as client:
        jobs = ran(instance, client, 3)
        assert output(instance) == jobs
        counted = client.rpc("job-manager.purge", {"num_limit": 1})
        assert counted == {"count": 2, "inactives": 3}
        purged = client.rpc("job-manager.purge", {"num_limit": 1, "force": True})
        assert purged == {"count": 2, "inactives": 1}
        with pytest.raises(RpcError, match="may have been purged"):
            client.rpc("job-info.lookup", {"id": jobs[0], "keys": ["R"]})
        assert instance.penstock("logs", str(jobs[2])).stdout == "2\n"
    # An instance that stops in order has finished its purges.
    assert output(instance) == jobs[2:]
    with closing(sqlite3.connect(instance.state / "jobs.sqlite")) as store:
        for table, column in (("jobs", "id"), ("events", "job")):
            left = store.execute(f"SELECT DISTINCT {column} FROM {table}").fetchall()
            assert left == [(jobs[2],)]
        assert store.execute("SELECT count(*) FROM jobspecs").fetchone() == (1,)
        # A crash may leave output of a purged job, which the store remembers until then.
        assert store.execute("SELECT * FROM purged_jobs").fetchall() == []
        store.execute("INSERT INTO purged_jobs VALUES (?)", [jobs[0]])
        store.commit()
    (instance.state / "exec" / "output" / f"{jobs[0]}.stdout").touch()
    with start() as instance, Client(instance.uri) as client:
        assert client.rpc("job-manager.history.get", {"slice": "[:]"})["jobs"] == jobs[2:]
        assert client.rpc("job-manager.stats-get")["max_jobid"] == jobs[2]
        assert instance.penstock("logs", str(jobs[2])).stdout == "2\n"
        client.rpc("job-manager.purge", {"force": True})
        assert client.rpc("job-manager.stats-get")["max_jobid"] == jobs[2]
    assert output(instance) == []


def test_the_database_of_purged_jobs_shrinks_while_the_instance_runs(start):
    with start() as instance, Client(instance.uri) as client:
        client.rpc("job-manager.queue-start", {"all": True, "start": False})
        environment = {"TEXT": "x" * 500_000}
        for number in range(40):
            text = {**environment, "NUMBER": str(number)}
            client.submit(from_command(["true"], environment=text, cwd="/"))
        full = client.rpc("job-manager.stats-get")["store_bytes"]
        assert full > 20_000_000
        client.rpc(
            "job-manager.raiseall",
            {"states": 127, "userid": -1, "severity": 0, "type": "cancel", "dry_run": False},
        )
        client.rpc("job-manager.purge", {"force": True})
        stats = client.rpc("job-manager.stats-get")
        while stats["store_free_bytes"] > 4 << 20:
            stats = client.rpc("job-manager.stats-get")
        assert stats["store_bytes"] < full // 2
        assert stats["store_released_bytes"] > full // 2
    path = instance.state / "jobs.sqlite"
    assert path.stat().st_size < full // 2
    done = instance.penstock("store", "vacuum", "--state", str(instance.state))
    assert (done.returncode, done.stdout) == (0, "")
    assert path.stat().st_size < 1 << 20
    assert f"has {path.stat().st_size} bytes" in done.stderr


def test_configured_limits_purge_jobs(start, tmp_path):
    config = tmp_path / "penstock.toml"
    config.write_text("[job-manager]\ninactive-num-limit = 1\n")
    options = ("--config", str(config), "--nodes", "1", "--cores", "1")
    with start(*options) as instance, Client(instance.uri) as client:
        jobs = [submit(client, exec={"test": {"run_duration": "0s"}}) for _ in range(3)]
        assert client.rpc("job-manager.drain") == {}
        wait_for(client, 1)
        assert client.rpc("job-manager.history.get", {"slice": "[:]"})["jobs"] == jobs[2:]
    config.write_text("[job-manager]\ninactive-age-limit = 0.001\n")
    with start(*options) as instance, Client(instance.uri) as client:
        wait_for(client, 0)
        stats = client.rpc("job-list.job-stats")
        assert stats["inactive_purged"] == 1


def test_every_service_answers_ping_and_stats(start):
    with start("--nodes", "1", "--cores", "1") as instance, Client(instance.uri) as client:
        submit(client)
        assert client.rpc("job-manager.idle") == {"pending": 0}
        for service in ("job-manager", "job-list", "job-info", "job-ingest", "kvs"):
            assert client.rpc(f"{service}.ping", {"seq": 3})["seq"] == 3
            assert "active_jobs" in client.rpc(f"{service}.stats-get")
