"""Queues (RFC 33), administered over the socket of a real instance."""

from __future__ import annotations

import json
import tomllib

import pytest
from tests.support.jobs import jobspec, row, submit

from penstock.client import Client
from penstock.errors import RpcError

CONFIG = """
[queues.batch]
requires = []
constraint = {hostlist = ["node[0-1]"]}
[queues.batch.policy.limits]
job-size.max.nnodes = -1
duration = 0
[queues.debug.policy.limits]
duration = "1m"
[policy.limits]
job-size.max.nnodes = 1
duration = "1h"
[policy.jobspec.defaults.system]
queue = "batch"
duration = "30s"
"""


@pytest.fixture
def options(tmp_path):
    config = tmp_path / "penstock.toml"
    config.write_text(CONFIG)
    return ("--config", str(config), "--nodes", "4", "--cores", "1")


def test_a_queue_is_stopped_and_disabled_and_stays_so_after_a_restart(start, options):
    with start(*options) as instance, Client(instance.uri) as client:
        assert client.rpc("job-manager.queue-list") == {"queues": ["batch", "debug"]}
        stop = {"name": "batch", "start": False, "reason": "the fan"}
        assert client.rpc("job-manager.queue-start", stop) == {}
        off = {"name": "debug", "enable": False, "reason": "the moon"}
        client.rpc("job-manager.queue-enable", off)
        waiting = submit(client, exec={"test": {"run_duration": "0s"}})
    with start(*options) as instance, Client(instance.uri) as client:
        status = client.rpc("job-manager.queue-status", {"name": "batch"})
        assert status == {"enable": True, "start": False, "stop_reason": "the fan"}
        with pytest.raises(RpcError, match="`debug` is disabled: the moon"):
            submit(client, queue="debug")
        client.rpc("job-manager.queue-enable", {"all": True, "enable": True})
        free = submit(client, queue="debug", exec={"test": {"run_duration": "0s"}})
        assert instance.penstock("wait", str(free)).returncode == 0
        assert row(client, waiting)["state"] == 8
        (shown,) = instance.lines("jobs", "-n", "-o", "{reason}", str(waiting))
        assert shown == "queue `batch` is stopped: the fan"
        client.rpc("job-manager.queue-start", {"name": "batch", "start": True})
        assert instance.penstock("wait", str(waiting)).returncode == 0
        assert row(client, waiting)["nodelist"] in ("node0", "node1")


def test_limits_and_defaults_of_queues_override_the_general_ones(start, options):
    with start(*options) as instance, Client(instance.uri) as client:
        wide = submit(client, nodes=2, duration=7200, exec={"test": {"run_duration": "0s"}})
        assert row(client, wide)["queue"] == "batch"
        short = submit(client, queue="debug", exec={"test": {"run_duration": "0s"}})
        assert row(client, short)["duration"] == 30
        for system, text in [
            ({"queue": "debug", "nodes": 2}, "the policy allows 1"),
            ({"queue": "debug", "duration": 61}, "exceeds the policy's 60 s"),
            ({"queue": "nosuch"}, "unknown queue `nosuch`: expected batch, debug"),
        ]:
            with pytest.raises(RpcError, match=text):
                submit(client, **system)
        assert instance.penstock("wait", str(wide), str(short)).returncode == 0
        assert row(client, wide)["nodelist"] == "node[0-1]"


def test_a_missing_time_limit_is_rejected_with_the_maximum(start, tmp_path):
    config = tmp_path / "limits.toml"
    config.write_text('[policy.limits]\nduration = "1h"\n')
    with start("--config", str(config), "--nodes=1") as instance:
        for words, text in [
            ([], "a time limit is required: the policy's maximum is 3600 s"),
            (["-t2h"], "a time limit of 7200 s exceeds the policy's 3600 s"),
        ]:
            done = instance.penstock("submit", *words, "true")
            assert (done.returncode, done.stderr) == (1, f"penstock submit: {text}\n")


def test_misspelt_queues_get_a_suggestion(start, options):
    with start(*options) as instance:
        for words, text in [
            (["stop", "all"], "unknown queue `all`: `stop --all` names every queue"),
            (
                ["start", "bathc"],
                "unknown queue `bathc`: expected batch, debug; did you mean `batch`?",
            ),
            (
                ["list", "debgu"],
                "unknown queue `debgu`: expected batch, debug; did you mean `debug`?",
            ),
        ]:
            done = instance.penstock("queue", *words)
            assert done.returncode in (1, 2)
            (line,) = done.stderr.splitlines()
            assert line.endswith(text)
        assert all(
            line["start"] for line in map(json.loads, instance.lines("queue", "list", "--json"))
        )


def test_the_anonymous_queue_of_an_instance_without_queues(start):
    with start("--nodes", "1", "--cores", "1") as instance, Client(instance.uri) as client:
        assert client.rpc("job-manager.queue-list") == {"queues": []}
        assert client.rpc("job-manager.queue-status") == {"enable": True, "start": True}
        client.rpc("job-manager.queue-start", {"start": False, "all": False})
        job = submit(client)
        assert row(client, job)["state"] == 8
        client.rpc("job-manager.queue-start", {"start": True, "all": True})
        assert instance.penstock("wait", str(job)).returncode == 0


def test_a_reload_cannot_remove_a_queue_with_pending_jobs(start, options, tmp_path):
    with start(*options) as instance, Client(instance.uri) as client:
        for name in ("batch", "debug"):
            client.rpc("job-manager.queue-start", {"name": name, "start": False})
        held = [submit(client, queue="debug"), submit(client, queue="debug", urgency=0)]
        over = submit(client, queue="batch")
        client.cancel([over])
        fewer = tmp_path / "fewer.toml"
        fewer.write_text('[queues.batch]\n[policy.limits]\nduration = "2h"\n')
        rejected = instance.penstock("config", "reload", str(fewer))
        assert rejected.returncode == 1
        assert "queues.debug: 2 jobs are pending: cancel " in rejected.stderr
        assert client.rpc("job-manager.queue-list") == {"queues": ["batch", "debug"]}
        assert client.config()["policy"]["limits"]["duration"] == 3600
        # One queue the less is no matter where nothing of it is pending.
        fewer.write_text('[queues.debug]\n[policy.limits]\nduration = "2h"\n')
        assert "changed: policy.limits.duration" in instance.lines("config", "reload", str(fewer))
        client.cancel(held[:1])
        empty = tmp_path / "empty.toml"
        empty.write_text("")
        rejected = instance.penstock("config", "reload", str(empty))
        assert "queues.debug: 1 job is pending: " in rejected.stderr
        client.cancel(held[1:])
        instance.lines("config", "reload", str(empty))
        assert client.rpc("job-manager.queue-list") == {"queues": []}


def test_no_job_starts_by_the_former_constraint_after_a_reload(start, tmp_path):
    def batch(host):
        return f'[queues.batch]\nconstraint = {{hostlist = ["{host}"]}}\n'

    config = tmp_path / "first.toml"
    config.write_text(batch("node0"))
    options = ("--config", str(config), "--nodes", "2", "--cores", "1")
    with start(*options) as instance, Client(instance.uri) as client:
        long, short = ({"test": {"run_duration": duration}} for duration in ("1h", "0s"))
        busy = submit(client, queue="batch", exec=long)
        pending = client.submit(jobspec(queue="batch", exec=short), count=2000)
        # The response comes when all of them are queued with the new constraint.
        changed = client.config_reload(tomllib.loads(batch("node1")))
        assert changed == ["queues.batch.constraint.hostlist"]
        client.cancel([busy])
        rows = list(client.wait_rows(pending))
    assert len(rows) == len(pending)
    assert {row["nodelist"] for row in rows} == {"node1"}


def test_a_start_warns_of_pending_jobs_in_a_queue_that_is_not_configured(start, options):
    with start(*options) as instance, Client(instance.uri) as client:
        client.rpc("job-manager.queue-start", {"name": "debug", "start": False})
        submit(client, queue="debug")
    with start("--nodes", "4") as instance:
        said = instance.penstock("dmesg").stdout
        assert "queue `debug` is no longer configured, 1 job is pending" in said
