"""Control of jobs and queues, by verb and by client, against real instances."""

from __future__ import annotations

import json
import os
import time

import pytest
import trio

from penstock._core import fluid_f58, fluid_parse
from penstock.aclient import connect
from penstock.client import Client
from penstock.errors import RpcError
from penstock.jobspec import from_command
from penstock.rows import JobRow

SPEC = from_command(["true"], duration=3600.0, environment={}, cwd="/")


@pytest.fixture
def sim(start):
    with start("--nodes", "2", "--cores", "2") as instance:
        yield instance


def row(instance, job):
    return json.loads(instance.lines("info", "--json", job)[0])


def test_rows_have_typed_keys_only(sim):
    with Client(sim.uri) as client:
        ran = client.submit(from_command(["true"], nodes=1, queue=None, environment={}, cwd="/"))
        failed = client.submit(from_command(["true"], nodes=9, environment={}, cwd="/"))
        held = client.submit(SPEC, urgency=0)
        after = f"after:{fluid_f58(held)}"
        waits = client.submit(from_command(["true"], dependencies=[after], environment={}, cwd="/"))
        list(client.wait_rows([ran, failed]))
        rows = {row["id"]: row for row in client.job_rows()}
        assert set(rows) == {ran, failed, held, waits}
        keys = {key for row in rows.values() for key in row}
        assert keys <= set(JobRow.__annotations__)
        assert all(set(row) >= JobRow.__required_keys__ for row in rows.values())
        assert client.job_row(ran) == rows[ran] == client.wait_row(ran)
        assert client.job_rows(ids=[held], attrs=["name"]) == [{"id": held, "name": "true"}]


def test_urgency_holds_and_releases(sim):
    (first,) = sim.lines("submit", "-N2", "-t", "1h", "true")
    ids = sim.lines("submit", "--cc=1-3", "-N2", "-t", "1h", "true")
    sim.lines("urgency", *ids[:2], "hold")
    assert [row(sim, job)["urgency"] for job in ids] == [0, 0, 16]
    sim.lines("urgency", ids[1], "expedite")
    sim.lines("cancel", first)
    sim.penstock("wait", first)
    assert row(sim, ids[1])["state"] == "RUN"
    done = sim.penstock("urgency", ids[0], ids[1], "ƒ1", "5")
    assert done.returncode == 1
    assert [line.split(": ")[1] for line in done.stderr.splitlines()] == [ids[1], "ƒ1"]
    assert row(sim, ids[0])["urgency"] == 5


def test_priorities_come_in_bulk(sim):
    with Client(sim.uri) as client:
        client.submit(from_command(["true"], nodes=2, environment={}, cwd="/", duration=3600.0))
        ids = client.submit(SPEC, count=3)
        done, errors = client.prioritize([*((job, 100 + n) for n, job in enumerate(ids)), (1, 5)])
        assert (done, set(errors)) == (3, {1})
        assert [client.job_row(job)["priority"] for job in ids] == [100, 101, 102]


def test_memos_are_set_and_removed(sim):
    (job,) = sim.lines("submit", "--urgency=hold", "true")
    sim.lines("memo", job, "step=3", "who=me")
    sim.lines("memo", job, "step=null", "more=[1]")
    assert row(sim, job)["annotations"]["user"] == {"who": "me", "more": [1]}
    assert sim.penstock("memo", "ƒ1", "a=b").returncode == 1


def test_time_limits_of_pending_and_running_jobs_change(sim):
    (running,) = sim.lines("submit", "-N2", "-t", "1h", "true")
    (pending,) = sim.lines("submit", "-N1", "-t", "1h", "true")
    sim.lines("update", pending, "duration=+30m")
    assert row(sim, pending)["duration"] == 5400
    with Client(sim.uri) as client:
        before = client.job_row(fluid_parse(running))["expiration"]
        sim.lines("update", running, "duration=2h")
        assert client.job_row(fluid_parse(running))["expiration"] == before + 3600
    done = sim.penstock("update", running, "ƒ1", "duration=1h")
    assert done.returncode == 1
    assert done.stderr.startswith("penstock update: ƒ1: no such job")
    names = [line.split()[1] for line in sim.lines("eventlog", pending)]
    assert "jobspec-update" in names


def test_inactive_jobs_are_purged(sim):
    ids = sim.lines("submit", "--cc=1-5", "true")
    sim.penstock("wait", *ids)
    (active,) = sim.lines("submit", "--urgency=hold", "true")
    assert sim.lines("purge", "--num-limit=2") == [
        "3 inactive jobs would be purged of 5 (--force does it)"
    ]
    assert len(sim.lines("jobs", "-a", "-n")) == 6
    assert sim.lines("purge", "--force", "--num-limit=2") == ["3 inactive jobs purged, 2 left"]
    assert sim.lines("purge", "--force", "--age-limit=1d") == ["0 inactive jobs purged, 2 left"]
    rejected = sim.penstock("purge", "--force", active)
    assert rejected.returncode == 1
    left = sim.lines("jobs", "-a", "-n", "-o", "{id}")
    assert active in left
    assert len(left) == 3
    assert sim.lines("purge", "--force", *(set(left) - {active})) == [
        "2 inactive jobs purged, 0 left"
    ]


def test_the_anonymous_queue_stops_and_starts(sim):
    sim.lines("queue", "stop", "-m", "maintenance")
    (job,) = sim.lines("submit", "-t", "1h", "true")
    assert sim.lines("queue", "list")[1].split() == ["-", "enabled", "stopped", "maintenance"]
    assert row(sim, job)["state"] == "SCHED"
    sim.lines("queue", "disable", "-m", "closed")
    rejected = sim.penstock("submit", "true")
    assert rejected.returncode == 1
    assert "closed" in rejected.stderr
    sim.lines("queue", "enable")
    sim.lines("queue", "start")
    with Client(sim.uri) as client:
        with client.eventlog(fluid_parse(job), follow=True) as events:
            assert "alloc" in (event["name"] for event in events)
        assert client.queue_status() == {"enable": True, "start": True}
        client.cancel()
        client.queue_drain()
        client.queue_idle()
    assert sim.lines("queue", "drain") == []
    sim.lines("submit", "--urgency=hold", "true")
    assert sim.lines("queue", "idle") == []
    assert sim.penstock("queue", "drain", "-t", "10ms").returncode == 1


def test_named_queues_are_stopped_one_by_one(start, tmp_path):
    config = tmp_path / "penstock.toml"
    config.write_text(
        "[queues.batch]\n[queues.debug]\n[policy.jobspec.defaults.system]\nqueue = 'batch'\n"
    )
    with start("--nodes=2", "--config", str(config)) as instance:
        assert instance.penstock("queue", "stop").returncode == 1
        instance.lines("queue", "disable", "-m", "not today", "debug")
        rows = {
            row["name"]: row for row in map(json.loads, instance.lines("queue", "list", "--json"))
        }
        assert rows["batch"]["enable"]
        assert rows["debug"]["disable_reason"] == "not today"
        rejected = instance.penstock("submit", "-q", "debug", "true")
        assert (rejected.returncode, "not today" in rejected.stderr) == (1, True)
        instance.lines("queue", "stop", "--all")
        with Client(instance.uri) as client:
            assert sorted(client.queue_list()) == ["batch", "debug"]
            assert not any(client.queue_status(name)["start"] for name in client.queue_list())
        instance.lines("queue", "start", "batch")
        instance.lines("queue", "enable", "debug")
        instance.lines("submit", "-q", "debug", "true")
        assert instance.lines("queue", "drain", "batch") == []
        assert instance.penstock("queue", "drain", "-t", "10ms", "debug").returncode == 1
        both = instance.penstock("queue", "drain", "-t", "10ms", "batch", "-q", "debug")
        assert both.returncode == 1
        (line,) = instance.lines("queue", "list", "-q", "debug", "--json")
        assert json.loads(line)["name"] == "debug"
        (job,) = instance.lines("submit", "-q", "batch", "true")
        assert instance.penstock("wait", job).returncode == 0
        unknown = instance.penstock("queue", "start", "nosuch")
        assert (unknown.returncode, "nosuch" in unknown.stderr) == (1, True)


def test_signals_reach_running_jobs(start, tmp_path):
    fifo = tmp_path / "ready"
    os.mkfifo(fifo)
    script = f"trap 'exit 5' USR1; echo > {fifo}; while :; do sleep 0.05; done"
    with start() as instance:
        (job,) = instance.lines("submit", "sh", "-c", script)
        fifo.read_text()
        instance.lines("kill", "-s", "usr1", job)
        assert instance.penstock("wait", job).returncode == 5
        done = instance.penstock("kill", job)
        assert (done.returncode, job in done.stderr) == (1, True)


def test_users_raise_exceptions_of_their_own(sim):
    with Client(sim.uri) as client:
        job, other = client.submit(SPEC, count=2)
        assert client.raise_exception([job], "remark", severity=5, note="hm") == (1, {})
        done, errors = client.raise_exception([other, 1], "broken", note="alas")
        assert (done, set(errors)) == (1, {1})
        ended = client.wait_row(other)
        assert (ended["exception_type"], ended["exception_note"]) == ("broken", "alas")
        assert "t_cleanup" not in client.job_row(job)


def test_feasibility_tells_which_jobs_can_never_run(sim):
    with Client(sim.uri) as client:
        assert client.feasible(SPEC) is None
        huge = from_command(["true"], nodes=9, environment={}, cwd="/")
        assert "9" in (client.feasible(huge) or "")


def test_a_job_s_history_is_newest_first(sim):
    with Client(sim.uri) as client:
        ids = [client.submit(SPEC) for _ in range(3)]
        assert client.history() == ids[::-1]
        assert client.history(1) == [ids[-1]]


def test_jobs_are_selected_by_time_state_and_number(sim):
    with Client(sim.uri) as client:
        old = client.submit(from_command(["true"], environment={}, cwd="/"))
        ended = client.wait_row(old)["t_inactive"]
        new = client.submit(SPEC)
        assert {row["id"] for row in client.job_rows(since=ended - 1)} == {old, new}
        assert [row["id"] for row in client.job_rows(since=ended)] == [new]
    assert sim.lines("jobs", "-n", "-o", "{id.dec}", f"--since=@{ended!r}") == [f"{new:d}"]
    assert len(sim.lines("jobs", "-n", "--since", "1h")) == 2
    (line,) = sim.lines("jobs", "--stats")
    assert line == "0 pending, 1 running, 1 completed, 0 failed, 0 canceled, 0 timeout"
    sim.lines("submit", "--urgency=hold", "true")
    assert sim.lines("cancel", "--states=sched") == ["1 job cancelled"]
    assert sim.lines("cancel", "--states=sched,depend") == ["0 jobs cancelled"]
    (job,) = sim.lines("jobs", "-n", "-o", "{id.dec}")
    assert job == f"{new:d}"


def test_the_instance_ends_a_stream_that_its_client_has_left(sim):
    async def main():
        with trio.fail_after(60):
            async with connect(sim.uri) as client:
                job = await client.submit(SPEC, urgency=0)
                for stream in (
                    lambda: client.wait_rows([job]),
                    lambda: client.eventlog(job, follow=True),
                ):
                    for _ in range(3):
                        with trio.move_on_after(0.01):
                            async with stream() as rows:
                                async for _row in rows:
                                    pass
                # The streams have ended; late responses would arrive before these events.
                await client.urgency([job], 1)
                await client.cancel([job])
                assert (await client.wait_row(job))["id"] == job
                assert len(client._calls) == 0

    trio.run(main)


def test_both_clients_see_the_same(sim):
    async def over_trio(job):
        async with connect(sim.uri) as client:
            return [
                await client.job_rows(),
                await client.job_row(job),
                [event async for event in client.eventlog(job)],
                await client.lookup(job, "jobspec"),
                await client.resource_status(),
                await client.services(),
            ]

    with Client(sim.uri) as client:
        job = client.submit(from_command(["true"], environment={}, cwd="/"))
        client.wait_row(job)
        blocking = [
            client.job_rows(),
            client.job_row(job),
            list(client.eventlog(job)),
            client.lookup(job, "jobspec"),
            client.resource_status(),
            client.services(),
        ]
        assert trio.run(over_trio, job) == blocking
    assert blocking[2][0]["name"] == "submit"
    assert blocking[2][0]["timestamp"] <= time.time()


def test_dry_runs_submit_nothing(sim):
    (line,) = sim.lines("submit", "--dry-run", "-n2", "true")
    assert json.loads(line)["tasks"][0]["command"] == ["true"]
    assert sim.lines("jobs", "-a", "-n") == []
    with Client(sim.uri) as client:
        assert client.submit(json.loads(line)) > 0
        bad = json.loads(line) | {"version": 9}
        with pytest.raises(RpcError):
            client.submit(bad)
    (job,) = sim.lines("submit", "--flags=waitable", "true")
    event = json.loads(sim.lines("eventlog", "--json", job)[0])
    assert event["context"]["flags"] == 4


def test_begin_time_relative_to_now(sim):
    (job,) = sim.lines("submit", "--dependency=begin-time:+1h", "true")
    (spec,) = sim.lines("submit", "--dry-run", "--dependency=begin-time:2030-01-01", "true")
    (dependency,) = json.loads(spec)["attributes"]["system"]["dependencies"]
    assert dependency["value"].isdecimal()
    with Client(sim.uri) as client:
        shown = client.job_row(fluid_parse(job))
        assert shown["state"] == 2
        (text,) = shown["dependencies"]
        assert float(text.partition("=")[2]) > time.time() + 3000


def test_running_jobs_are_listed_before_pending_ones_by_position(sim):
    def submit(*options):
        return sim.lines("submit", "-t", "1h", *options, "true")

    long, short = submit("-N1")[0], submit("-N1")[0]
    first, second, held = submit("-N2")[0], submit("-N2")[0], submit("--urgency=hold")[0]
    urgent = submit("-N2", "--urgency=20")[0]
    sim.lines("cancel", short)
    sim.penstock("wait", short)
    expected = [long, urgent, first, second, held, short]
    assert sim.lines("jobs", "-an", "-o", "{id}") == expected
    cut = sim.penstock("jobs", "-n", "-c", "3", "-o", "{id}")
    assert cut.stdout.split() == expected[:3]
    text = "only the first 3 jobs are shown: `--skip 3` shows the next, `-c 0` all"
    assert cut.stderr == f"penstock jobs: {text}\n"
    page = sim.penstock("jobs", "-an", "-c", "2", "--skip", "3", "-o", "{id}")
    assert page.stdout.split() == expected[3:5]
    text = "only jobs 4 to 5 are shown: `--skip 5` shows the next, `-c 0` all"
    assert page.stderr == f"penstock jobs: {text}\n"
    last = sim.penstock("jobs", "-an", "-c", "2", "--skip", "5", "-o", "{id}")
    assert (last.stdout.split(), last.stderr) == (expected[5:], "")
    assert sim.lines("jobs", "-n", "--skip", "1", "-o", "{id}", long, short) == [short]


@pytest.mark.parametrize("verb", ["submit", "run", "alloc", "batch"])
def test_a_job_that_can_never_run_is_rejected_at_submission(sim, verb):
    words = ["--wrap", "true"] if verb == "batch" else ["true"]
    done = sim.penstock(verb, "-N3", *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"penstock {verb}: the job can never run (see --no-check): 3 nodes requested, 2 exist\n"
    )
    assert sim.lines("jobs", "-an") == []
    if verb == "submit":
        unmet = sim.penstock(verb, "--requires=fast", "true")
        reason = "no node meets the constraint fast; unknown property `fast`: expected none"
        assert f"{reason}, as no node has properties\n" in unmet.stderr
        sim.lines("resource", "property", "add", "faster", "0")
        unmet = sim.penstock(verb, "--requires=-slow", "--requires=fastr", "true")
        assert "unknown property `fastr`: expected faster; did you mean `faster`?" in unmet.stderr
        assert len(unmet.stderr.splitlines()) == 1


def test_a_job_is_not_checked_without_a_scheduler(start):
    with start("--sched", "none", "--nodes", "2") as instance:
        (job,) = instance.lines("submit", "-N3", "true")
        assert instance.lines("jobs", "-n", "-o", "{id}") == [job]


def test_logs_of_a_simulated_job_say_that_there_is_no_output(start):
    with start("--nodes=1") as instance:
        (job,) = instance.lines("submit", "-t1m", "true")
        done = instance.penstock("logs", job)
    assert done.returncode == 1
    expected = "the instance simulates its jobs, or has another execution service"
    assert done.stderr == f"penstock logs: {job}: no output is retained: {expected}\n"
