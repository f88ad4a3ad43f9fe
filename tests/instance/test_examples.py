"""The examples of `docs/allocation.md` and `docs/execution.md` at work.

That `examples/scheduler.py` schedules like ours is in `test_scheduling.py`.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.client import Client
from penstock.errors import RpcError
from penstock.jobspec import from_command

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
COMPLETED, FAILED, CANCELED, TIMEOUT = 1, 2, 4, 8
SCHED, RUN = 8, 16


def spec(*command, **shape):
    environment = {"PATH": os.environ["PATH"], "GREETING": "hello"}
    return from_command(command, environment=environment, cwd="/", **shape)


def sh(script, **shape):
    return spec("sh", "-c", script, **shape)


def names(client, job):
    return [event["name"] for event in client.eventlog(job)]


def follow(client, job, name):
    """The context of a job's first event of this name, once that has come."""
    for event in client.eventlog(job, follow=True):
        if event["name"] == name:
            return event.get("context", {})
    raise AssertionError(f"the job is over without `{name}`")


def end_of(client, job):
    (row,) = client.wait([job])
    return row


@pytest.fixture
def executed(start, exec_service):
    """An instance that simulates, until the example takes execution over; and a client."""
    with (
        start("--exec", "sim", "--nodes", "2", "--cores", "2") as instance,
        exec_service(instance) as service,
        Client(instance.uri, timeout=60) as client,
    ):
        yield instance, client, service


@pytest.mark.parametrize("name", ["scheduler.py", "exec_service.py"])
def test_an_example_is_150_lines_at_the_most(name):
    assert len((EXAMPLES / name).read_text().splitlines()) <= 150


def test_a_second_scheduler_ends_with_a_line_that_says_why(start):
    with start("--nodes", "1") as instance:
        command = [sys.executable, str(EXAMPLES / "scheduler.py"), instance.uri]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 1
        assert done.stderr.startswith("scheduler: ")
        assert "service.add" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_without_an_instance_the_examples_end_with_a_line(tmp_path):
    uri = f"local://{tmp_path}/nobody"
    for arguments in (["scheduler.py", uri], ["exec_service.py", "x", str(tmp_path), uri]):
        command = [sys.executable, str(EXAMPLES / arguments[0]), *arguments[1:]]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 1
        assert "no instance at" in done.stderr
        assert "Traceback" not in done.stderr


def test_another_execution_service_takes_over_from_the_simulation(executed, tmp_path):
    _, client, _ = executed
    assert client.rpc("job-manager.stats-get")["exec"]["service"] == "example-exec"
    job = client.submit(sh("echo $GREETING $FLUX_TASK_RANK", ntasks=3))
    assert end_of(client, job)["result"] == COMPLETED
    assert names(client, job)[-6:] == ["start", "finish", "release", "release", "free", "clean"]
    outputs = sorted((tmp_path / "example-exec").glob(f"{job}.task.*.out"))
    assert [path.read_text() for path in outputs] == ["hello 0\n", "hello 1\n", "hello 2\n"]


def test_a_job_fails_with_the_greatest_status_of_its_tasks(executed):
    _, client, _ = executed
    job = client.submit(sh("exit $FLUX_TASK_RANK", ntasks=4))
    row = end_of(client, job)
    assert (row["result"], row["waitstatus"]) == (FAILED, 3 << 8)


def test_what_cannot_be_started_is_an_exception_and_is_released_all_the_same(executed):
    _, client, _ = executed
    job = client.submit(from_command(["true"], environment={}, cwd="/no/such/place"))
    row = end_of(client, job)
    assert row["result"] == FAILED
    raised = follow(client, job, "exception")
    assert raised["type"] == "exec"
    assert "/no/such/place" in raised["note"]
    assert "start" not in names(client, job)
    assert names(client, job)[-2:] == ["free", "clean"]


def test_time_ends_a_job(executed):
    _, client, _ = executed
    row = end_of(client, client.submit(spec("sleep", "1000", duration=0.2)))
    assert (row["result"], row["exception_type"]) == (TIMEOUT, "timeout")


def test_a_job_is_cancelled_and_is_signalled(executed, tmp_path):
    _, client, _ = executed
    cancelled = client.submit(spec("sleep", "1000"))
    follow(client, cancelled, "start")
    assert client.cancel([cancelled]) == (1, {})
    assert end_of(client, cancelled)["result"] == CANCELED
    # The fifo tells that the trap is set.
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    script = f"trap 'exit 7' USR1; echo ready > {ready}; while :; do sleep 0.01; done"
    trapped = client.submit(sh(script))
    assert ready.read_text() == "ready\n"
    client.rpc("job-manager.kill", {"id": trapped, "signum": int(signal.SIGUSR1)})
    assert end_of(client, trapped)["waitstatus"] == 7 << 8


def test_a_job_outlives_the_service_that_started_it(start, exec_service, tmp_path):
    gate, started = tmp_path / "gate", tmp_path / "started"
    os.mkfifo(gate)
    os.mkfifo(started)
    with (
        start("--exec", "sim", "--nodes", "2") as instance,
        Client(instance.uri, timeout=60) as client,
    ):
        with exec_service(instance) as first:
            job = client.submit(sh(f"echo running > {started}; cat {gate}; exit 5"))
            assert started.read_text() == "running\n"
            follow(client, job, "start")
            os.kill(first.pid, signal.SIGKILL)
            assert first.wait() == -signal.SIGKILL
        with exec_service(instance):
            follow(client, job, "reattached")
            (row,) = client.jobs(ids=[job])
            assert row["state"] == RUN
            gate.write_text("go on\n")
            assert end_of(client, job)["waitstatus"] == 5 << 8
            assert names(client, job).count("start") == 1


def test_a_service_of_another_name_takes_over_what_runs(start, exec_service, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with (
        start("--exec", "sim", "--nodes", "2") as instance,
        Client(instance.uri, timeout=60) as client,
        exec_service(instance, name="old") as old,
    ):
        job = client.submit(sh(f"cat {gate}; exit 5"))
        follow(client, job, "start")
        (tmp_path / "new").symlink_to(tmp_path / "old")
        with exec_service(instance, name="new"):
            # Not to its end: what it has started keeps the pipe open.
            assert "`new` has the jobs now" in old.stderr.readline()
            assert old.wait(timeout=60) == 1
            follow(client, job, "reattached")
            gate.write_text("go on\n")
            assert end_of(client, job)["waitstatus"] == 5 << 8


def test_while_nobody_executes_jobs_wait(start, exec_service):
    with (
        start("--exec", "sim", "--nodes", "2") as instance,
        Client(instance.uri, timeout=60) as client,
    ):
        with exec_service(instance):
            assert end_of(client, client.submit(spec("true")))["result"] == COMPLETED
        assert any("it disconnected" in line["text"] for line in client.dmesg(follow=True))
        assert client.stats()["exec"]["service"] is None
        # Nobody tells that the nodes live, either.
        assert client.resource_status()["offline"] == "0-1"
        job = client.submit(spec("true"))
        assert client.info(job)["state"] == SCHED
        with exec_service(instance):
            assert end_of(client, job)["result"] == COMPLETED


def described():
    """The requests that `docs/services.md` has in its tables of what the instance serves."""
    text = (ROOT / "docs" / "services.md").read_text()
    asked = text.index("What the instance asks"), text.index("The daemon's own execution")
    rows = (text[: asked[0]] + text[asked[1] :]).splitlines()
    firsts = [row.split("|")[1] for row in rows if row.startswith("| `")]
    return [topic for first in firsts for topic in re.findall(r"`([a-z.-]+)`", first)]


def test_every_request_that_is_described_is_served(start):
    topics = described()
    assert len(topics) > 50
    with start("--nodes", "1") as instance, Client(instance.uri, timeout=60) as client:
        unknown = []
        for topic in topics:
            if topic == "broker.shutdown":
                continue
            try:
                # What needs a payload or the streaming flag refuses this, but knows its name.
                client.rpc(topic, {})
            except RpcError as error:
                if error.errno == errno.ENOSYS:
                    unknown.append(topic)
        assert not unknown
