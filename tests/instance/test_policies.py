"""Queue policies and selection, as `penstock start` and the configuration name them."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from penstock._core import ResourceSet
from penstock.cli import main
from penstock.client import Client
from penstock.errors import RpcError
from penstock.jobspec import from_command

HOUR = 3600.0


def spec(nodes=1, duration=HOUR, **shape):
    command = ["true"]
    return from_command(
        command, environment={}, cwd="/", ntasks=nodes, nodes=nodes, duration=duration, **shape
    )


@pytest.fixture(params=["inside", "process"])
def mode(request):
    return request.param


def until(client, queued, running):
    """Waits until the scheduler has this many pending and allocated jobs."""
    end, stats = time.monotonic() + 60, {}
    while time.monotonic() < end:
        # Before a scheduler process has attached there are no statistics.
        with suppress(RpcError):
            stats = client.stats("sched")
        if stats.get("ready") and (stats["queued"], stats["running"]) == (queued, running):
            return stats
    raise AssertionError(f"expected {queued} queued, {running} running: {stats}")


def expect_running(client, expected):
    """Waits until these jobs run: the job manager follows the scheduler with a delay."""
    end, found = time.monotonic() + 60, []
    while found != expected and time.monotonic() < end:
        rows = client.job_rows(constraint={"states": ["running"]}, attrs=["name"])
        found = sorted(row["name"] for row in rows)
    assert found == expected


def submit(client, name, **shape):
    return client.submit(spec(**shape, setattr={"system.job.name": name}))


def fill(client):
    """One of two nodes is busy for an hour; `wide` needs both; `short` and `long` need one."""
    submit(client, "busy")
    submit(client, "wide", nodes=2)
    submit(client, "short", duration=HOUR / 2)
    submit(client, "long", duration=2 * HOUR)


def test_easy_backfills_short_jobs_and_is_the_default(start, mode):
    with (
        start("--nodes", "2", "--sched", mode) as instance,
        Client(instance.uri, timeout=60) as client,
    ):
        fill(client)
        assert until(client, queued=2, running=2)["policy"] == "easy"
        expect_running(client, ["busy", "short"])


def test_fcfs_does_not_backfill_until_a_reload(start, mode, tmp_path):
    with (
        start("--nodes", "2", "--sched", mode, "--policy", "fcfs") as instance,
        Client(instance.uri, timeout=60) as client,
    ):
        fill(client)
        assert until(client, queued=3, running=1)["policy"] == "fcfs"
        file = tmp_path / "easy.toml"
        file.write_text('[penstock.scheduler]\npolicy = "easy"\nselection = "spread"\n')
        assert instance.lines("config", "reload", str(file)) == [
            "changed: penstock.scheduler.policy",
            "changed: penstock.scheduler.selection",
        ]
        stats = until(client, queued=2, running=2)
        assert (stats["policy"], stats["selection"]) == ("easy", "spread")
        expect_running(client, ["busy", "short"])


@pytest.mark.parametrize("policy", ["conservative", "hybrid:2"])
def test_with_more_reservations_later_jobs_have_reservations_too(start, policy):
    with (
        start("--nodes", "2", "--policy", policy) as instance,
        Client(instance.uri, timeout=60) as client,
    ):
        fill(client)
        # It would end after an hour, by when `wide` starts.
        submit(client, "fits", duration=HOUR / 4)
        until(client, queued=3, running=2)
        expect_running(client, ["busy", "short"])


def test_jobs_without_a_time_limit_are_not_backfilled(start):
    with start("--nodes", "2", "--exec", "none") as instance, Client(instance.uri) as client:
        submit(client, "busy", duration=0.0)
        submit(client, "wide", nodes=2)
        submit(client, "endless", duration=0.0)
        until(client, queued=2, running=1)
        submit(client, "short")
        until(client, queued=2, running=2)


@pytest.mark.parametrize(
    ("selection", "ranks"),
    [("first", "0"), ("pack", "1"), ("spread", "2"), ("contiguous", "0"), ("thrifty", "0")],
)
def test_a_job_gets_the_nodes_that_the_selection_prefers(start, selection, ranks, tmp_path):
    r = ResourceSet.uniform("0-2", "n[0-2]", cores="0-3")
    r.add_property("rare", "1-2")
    file = tmp_path / "R"
    file.write_text(r.to_json())
    with (
        start("--R", str(file), "--exec", "sim", "--selection", selection) as instance,
        Client(instance.uri, timeout=60) as client,
    ):
        for rank, cores in ((0, 1), (1, 2)):
            client.submit(
                from_command(
                    ["true"],
                    environment={},
                    cwd="/",
                    cores_per_task=cores,
                    duration=HOUR,
                    requires=f"rank:{rank}",
                )
            )
        until(client, queued=0, running=2)
        job = client.submit(from_command(["true"], environment={}, cwd="/", duration=HOUR))
        until(client, queued=0, running=3)
        assert str(ResourceSet(client.lookup(job, "R")["R"]).ranks) == ranks


@pytest.mark.parametrize("overlong", ["shorten", "deny"])
def test_a_job_that_would_exceed_the_expiration_of_the_resources(start, overlong, tmp_path):
    r = ResourceSet.uniform("0", "n0", cores="0-3")
    r.expiration = time.time() + HOUR
    file, config = tmp_path / "R", tmp_path / "config"
    file.write_text(r.to_json())
    config.write_text(f'[penstock.scheduler]\noverlong = "{overlong}"\n')
    options = ("--R", str(file), "--exec", "sim", "--config", str(config))
    with start(*options) as instance, Client(instance.uri, timeout=60) as client:
        job = client.submit(spec(duration=2 * HOUR))
        if overlong == "deny":
            row = client.wait_row(job)
            assert row["exception_type"] == "alloc"
            assert "end" in row["exception_note"]
        else:
            until(client, queued=0, running=1)
            assert ResourceSet(client.lookup(job, "R")["R"]).expiration == r.expiration


QUEUES = """
[queues.batch]
requires = ["^debug"]
[queues.debug]
requires = ["debug"]
[queues.all]
[policy.jobspec.defaults.system]
queue = "batch"
[resource.properties]
debug = "0"
[penstock.scheduler]
policy = "fcfs"
"""


def test_queues_without_a_node_in_common_do_not_wait_for_each_other(start, tmp_path):
    file = tmp_path / "queues.toml"
    file.write_text(QUEUES.replace("[queues.all]\n", ""))
    options = ("--nodes", "3", "--config", str(file))
    with start(*options) as instance, Client(instance.uri, timeout=60) as client:
        submit(client, "busy", queue="batch")
        submit(client, "wide", nodes=2, queue="batch")
        submit(client, "other", queue="debug")
        until(client, queued=1, running=2)
        # With a queue that has them all, all are one order.
        file.write_text(QUEUES)
        instance.lines("config", "reload", str(file))
        client.cancel([row["id"] for row in client.job_rows(constraint={"name": ["other"]})])
        until(client, queued=1, running=1)
        submit(client, "other", queue="debug")
        until(client, queued=2, running=1)
        file.write_text(QUEUES + '[penstock.scheduler.queues.debug]\ngroup = "own"\n')
        instance.lines("config", "reload", str(file))
        until(client, queued=1, running=2)


def test_a_queue_runs_at_most_its_limit_of_jobs(start, tmp_path):
    file = tmp_path / "queues.toml"
    file.write_text("[queues.batch]\n[penstock.scheduler.queues.batch]\nmax-jobs = 2\n")
    options = ("--nodes", "4", "--config", str(file))
    with start(*options) as instance, Client(instance.uri, timeout=60) as client:
        client.submit(spec(queue="batch"), count=3)
        until(client, queued=1, running=2)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["start", "--policy", "sjf"], "policy"),
        (["start", "--policy", "hybrid:0"], "policy"),
        (["start", "--selection", "best"], "selection"),
        (["sched", "--policy", "sjf"], "policy"),
    ],
    ids=" ".join,
)
def test_an_unknown_policy_is_bad_usage(args, text, capsys):
    assert main(args) == 2
    assert text in capsys.readouterr().err


def test_an_invalid_policy_in_the_configuration_lists_the_valid_ones(start, tmp_path, capsys):
    file = tmp_path / "wrong.toml"
    file.write_text('[penstock.scheduler]\npolicy = "sjf"\n[penstock.scheduler.queues.gone]\n')
    assert main(["config", "check", str(file)]) == 1
    error = capsys.readouterr().err
    assert "penstock.scheduler.policy: " in error
    assert "penstock.scheduler.queues.gone: unknown queue `gone`" in error
    assert "hybrid:N" in error
