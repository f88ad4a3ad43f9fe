"""The examples of `docs/allocation.md` and `docs/execution.md`, run against a real instance.

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
    """Waits for a job's first event of this name; returns its context."""
    for event in client.eventlog(job, follow=True):
        if event["name"] == name:
            return event.get("context", {})
    raise AssertionError(f"the job has ended without `{name}`")


def end_of(client, job):
    (row,) = client.wait_rows([job])
    return row


@pytest.fixture
def executed(start, exec_service):
    """An instance with simulated execution, which the example takes over; and a client."""
    with (
        start("--exec", "sim", "--nodes", "2", "--cores", "2") as instance,
        exec_service(instance) as service,
        Client(instance.uri, timeout=60) as client,
    ):
        yield instance, client, service


@pytest.mark.parametrize("name", ["scheduler.py", "exec_service.py"])
def test_an_example_has_at_most_150_lines(name):
    assert len((EXAMPLES / name).read_text().splitlines()) <= 150


def test_a_second_scheduler_exits_with_the_reason(start):
    with start("--nodes", "1") as instance:
        command = [sys.executable, str(EXAMPLES / "scheduler.py"), instance.uri]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 1
        assert done.stderr.startswith("scheduler: ")
        assert "EEXIST" in done.stderr
        assert "service.add" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_commands_of_the_execution_page_work_as_printed(start, tmp_path):
    page = (ROOT / "docs" / "execution.md").read_text()
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    (block,) = [block for block in blocks if "examples/exec_service.py" in block]
    first, *rest = block.splitlines()
    prefix, suffix = "$ penstock start ", " -- sh"
    assert first.startswith(prefix)
    assert first.endswith(suffix)
    prompts = [number for number, line in enumerate(rest) if line.startswith("$ ")]
    commands = [rest[number][2:].replace("/tmp/my-jobs", f"{tmp_path}/jobs") for number in prompts]
    # The last shows what the jobs have written; before that the service need not be waited for.
    with start(*first.removeprefix(prefix).removesuffix(suffix).split()) as instance:
        # Not links: an interpreter finds its environment by the name that it is called by.
        for name, words in (("penstock", "-m penstock "), ("python", "")):
            (tmp_path / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}"$@"\n')
            (tmp_path / name).chmod(0o755)
        path = f"{tmp_path}:{os.environ['PATH']}"
        done = subprocess.run(
            ["sh", "-c", "\n".join([*commands, "kill $!"])],
            env={**os.environ, "PATH": path, "PENSTOCK_URI": instance.uri},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.stderr.splitlines() == [line for line in rest if line.startswith("exec_service: ")]
    assert done.stdout.splitlines() == [os.uname().nodename] * 2


def test_without_an_instance_the_examples_exit_with_one_line(tmp_path):
    uri = f"local://{tmp_path}/missing"
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
    outputs = sorted((tmp_path / "example-exec").glob(f"{job:d}.task.*.out"))
    assert [path.read_text() for path in outputs] == ["hello 0\n", "hello 1\n", "hello 2\n"]


def test_a_job_fails_with_the_greatest_status_of_its_tasks(executed):
    _, client, _ = executed
    job = client.submit(sh("exit $FLUX_TASK_RANK", ntasks=4))
    row = end_of(client, job)
    assert (row["result"], row["waitstatus"]) == (FAILED, 3 << 8)


def test_a_job_that_cannot_be_started_gets_an_exception_and_is_released(executed):
    _, client, _ = executed
    job = client.submit(from_command(["true"], environment={}, cwd="/no/such/place"))
    row = end_of(client, job)
    assert row["result"] == FAILED
    raised = follow(client, job, "exception")
    assert raised["type"] == "exec"
    assert "/no/such/place" in raised["note"]
    assert "start" not in names(client, job)
    assert names(client, job)[-2:] == ["free", "clean"]


def test_a_time_limit_ends_a_job(executed):
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


def test_the_status_of_an_exception_is_the_jobs(executed):
    _, client, _ = executed
    for wait_status, code in ((signal.SIGTERM, 128 + signal.SIGTERM), (3 << 8, 3)):
        job = client.submit(spec("sleep", "1000"))
        follow(client, job, "start")
        raised = {"id": job, "type": "site", "severity": 0, "wait_status": int(wait_status)}
        client.rpc("job-manager.raise", raised)
        assert end_of(client, job)["waitstatus"] == code << 8


def test_a_job_runs_up_to_a_long_time_limit(executed):
    _, client, _ = executed
    # Longer than what epoll can wait for.
    job = client.submit(spec("sleep", "1000", duration=1e8))
    follow(client, job, "start")
    assert end_of(client, client.submit(spec("true")))["result"] == COMPLETED
    assert client.cancel([job]) == (1, {})
    assert end_of(client, job)["result"] == CANCELED


def answers(client, **payload):
    """All responses to a start request of the test, as type and data."""
    seen = []
    for answer in client.stream("example-exec.start", payload):
        seen.append((answer["type"], answer["data"]))
        if answer["data"].get("final"):
            return seen
    raise AssertionError(f"no final release: {seen}")


def test_a_start_request_without_r_is_served_by_the_r_of_the_store(executed):
    _, client, _ = executed
    job = client.submit(spec("true", nodes=2))
    assert end_of(client, job)["result"] == COMPLETED
    said = answers(client, id=job, userid=0, jobspec=spec("sh", "-c", "exit 3"), reattach=False)
    assert said[:2] == [("start", {}), ("finish", {"status": 3 << 8})]
    assert sorted(data["ranks"] for _, data in said[2:]) == ["0", "1"]


BAD_STARTS = [
    {"jobspec": {}, "R": {}},
    {"jobspec": {}, "R": {"version": 7}},
    {"jobspec": None, "R": None},
    {"jobspec": {"tasks": [], "attributes": {"system": {}}}},
    {"R": 7},
]


@pytest.mark.parametrize("bad", BAD_STARTS, ids=str)
def test_a_malformed_start_request_fails_its_job_only(executed, bad):
    _, client, _ = executed
    (kind, raised), (last, released) = answers(client, id=7, userid=0, **bad)
    assert (kind, raised["severity"], raised["type"]) == ("exception", 0, "exec")
    assert (last, released) == ("release", {"ranks": "all", "final": True})
    assert end_of(client, client.submit(spec("true")))["result"] == COMPLETED


@pytest.mark.parametrize(
    ("method", "payload"),
    [
        ("start", {"id": []}),
        ("start", {}),
        ("kill", {"id": []}),
        ("kill", {"id": 7, "signum": 15}),
        ("kill", {}),
        ("expiration", {"id": {}, "expiration": 0}),
        ("replaced", {}),
    ],
)
def test_a_malformed_request_is_rejected_without_effect(executed, method, payload):
    _, client, _ = executed
    with pytest.raises(RpcError) as caught:
        client.rpc(f"example-exec.{method}", payload)
    assert caught.value.errno == errno.EINVAL
    assert end_of(client, client.submit(spec("true")))["result"] == COMPLETED


@pytest.mark.parametrize("signum", [-1, 12345, 1 << 70, "TERM", None])
def test_an_invalid_signal_is_rejected(executed, signum):
    _, client, _ = executed
    job = client.submit(spec("sleep", "1000"))
    follow(client, job, "start")
    with pytest.raises(RpcError) as caught:
        client.rpc("example-exec.kill", {"id": job, "signum": signum})
    assert caught.value.errno == errno.EINVAL
    assert client.cancel([job]) == (1, {})
    assert end_of(client, job)["result"] == CANCELED


def test_a_process_that_reuses_the_pid_is_not_signalled(start, exec_service, tmp_path):
    started = tmp_path / "started"
    os.mkfifo(started)
    with (
        start("--exec", "sim", "--nodes", "2") as instance,
        Client(instance.uri, timeout=60) as client,
        subprocess.Popen(["sleep", "1000"], start_new_session=True) as other,
    ):
        try:
            with exec_service(instance) as first:
                job = client.submit(sh(f"echo running > {started}; exec sleep 1000"))
                assert started.read_text() == "running\n"
                follow(client, job, "start")
                os.kill(first.pid, signal.SIGKILL)
                first.wait()
            note = tmp_path / "example-exec" / f"{job:d}.task.0.pid"
            os.killpg(int(note.read_text()), signal.SIGKILL)
            note.write_text(str(other.pid))
            with exec_service(instance):
                assert end_of(client, job)["waitstatus"] == signal.SIGKILL
            assert other.poll() is None
        finally:
            other.kill()


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
            (row,) = client.job_rows(ids=[job])
            assert row["state"] == RUN
            gate.write_text("open\n")
            assert end_of(client, job)["waitstatus"] == 5 << 8
            assert names(client, job).count("start") == 1


def test_a_service_of_another_name_takes_over_running_jobs(start, exec_service, tmp_path):
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
            # Read a line, not to the end: the processes of the old service keep the pipe open.
            assert "`new` has the jobs now" in old.stderr.readline()
            assert old.wait(timeout=60) == 1
            follow(client, job, "reattached")
            gate.write_text("open\n")
            assert end_of(client, job)["waitstatus"] == 5 << 8


def test_without_an_execution_service_jobs_stay_allocated(start, exec_service):
    with (
        start("--exec", "sim", "--nodes", "2") as instance,
        Client(instance.uri, timeout=60) as client,
    ):
        with exec_service(instance):
            assert end_of(client, client.submit(spec("true")))["result"] == COMPLETED
        assert any("it disconnected" in line["text"] for line in client.dmesg(follow=True))
        assert client.stats()["exec"]["service"] is None
        # No service reports that the nodes are alive, either.
        assert client.resource_status()["offline"] == "0-1"
        job = client.submit(spec("true"))
        assert client.job_row(job)["state"] == SCHED
        with exec_service(instance):
            assert end_of(client, job)["result"] == COMPLETED


@pytest.fixture
def scheduled(start, scheduler):
    """An instance whose scheduler is the example, and a client."""
    with (
        start("--sched", "none", "--nodes", "2", "--cores", "2") as instance,
        scheduler("example", instance),
        Client(instance.uri, timeout=60) as client,
    ):
        yield instance, client


def test_every_service_answers_pings(scheduled, exec_service):
    instance, client = scheduled
    with exec_service(instance):
        for name in ("sched", "feasibility", "example-exec"):
            assert client.rpc(f"{name}.ping", {"seq": 3})["seq"] == 3


def changed(**changes):
    """A copy of a jobspec with other counts or resources."""
    made = spec("true", duration=60.0)
    (slot,) = made["resources"]
    slot["count"] = changes.get("slots", 1)
    slot["with"][0]["count"] = changes.get("cores", 1)
    if "gpus" in changes:
        slot["with"].append({"type": "gpu", "count": changes["gpus"]})
    return {**made, **changes.get("parts", {})}


BAD_JOBSPECS = [
    *(changed(cores=count) for count in (0, -1, 0.5, "1", None, 10**30)),
    *(changed(slots=count) for count in (0, -1, 0.5, "1", [], 10**9, 10**30)),
    *(changed(gpus=count) for count in (-1, "1", None)),
    *(changed(parts={"resources": part}) for part in (None, [], {}, [7], [{"type": "node"}])),
    *(changed(parts={"attributes": part}) for part in (None, [], {"system": None}, {"system": {}})),
    changed(parts={"attributes": {"system": {"duration": "long"}}}),
    changed(parts={"attributes": {"system": {"duration": 0, "constraints": {"near": [1]}}}}),
    None,
    7,
]


def test_a_feasibility_check_does_not_end_the_scheduler(scheduled):
    _, client = scheduled
    for request in [{}, *({"jobspec": bad} for bad in BAD_JOBSPECS)]:
        with pytest.raises(RpcError) as caught:
            client.rpc("feasibility.check", request)
        assert caught.value.errno == errno.EINVAL, request
    assert client.rpc("feasibility.check", {"jobspec": changed(slots=4)}) == {}
    assert end_of(client, client.submit(spec("true")))["result"] == COMPLETED


def test_an_unsatisfiable_job_is_denied_behind_a_blocked_head(scheduled):
    _, client = scheduled
    hold = {"attributes.system.exec.test.run_duration": "1h"}
    running = client.submit(spec("true", nodes=2, exclusive=True, setattr=hold))
    follow(client, running, "start")
    waiting = client.submit(spec("true", nodes=2))
    impossible = client.submit(spec("true", nodes=3))
    assert follow(client, impossible, "exception")["type"] == "alloc"
    assert end_of(client, impossible)["result"] == FAILED
    assert client.job_row(waiting)["state"] == SCHED
    client.cancel([running])
    assert end_of(client, waiting)["result"] == COMPLETED


def test_one_commit_covers_as_many_jobs_as_fit(start, scheduler):
    def commit(client):
        return client.rpc("kvs.commit", {"ops": []})["rootseq"]

    hold = {"attributes.system.exec.test.run_duration": "1h"}
    with (
        start("--sched", "none", "--nodes", "4", "--cores", "8") as instance,
        Client(instance.uri, timeout=60) as client,
    ):
        jobs = client.submit(spec("true", setattr=hold), count=100)
        before = commit(client)
        with scheduler("example", instance):
            for job in jobs[:32]:
                follow(client, job, "alloc")
            # The requests may arrive in several reads of the socket.
            assert commit(client) - before - 1 <= 16
        client.cancel(jobs)


def described():
    """The requests in the tables of `docs/services.md`."""
    text = (ROOT / "docs" / "services.md").read_text()
    # The instance sends these itself, to services that may be missing.
    sent = (
        text.index("The instance sends these requests"),
        text.index("`penstock-exec` also serves"),
    )
    rows = (text[: sent[0]] + text[sent[1] :]).splitlines()
    firsts = [row.split("|")[1] for row in rows if row.startswith("| `")]
    return [topic for first in firsts for topic in re.findall(r"`([a-z.-]+)`", first)]


def test_every_documented_request_is_served(start):
    topics = described()
    assert len(topics) > 50
    with start("--nodes", "1") as instance, Client(instance.uri, timeout=60) as client:
        unknown = []
        for topic in topics:
            if topic == "broker.shutdown":
                continue
            try:
                # Without a payload or the streaming flag it may be rejected, but not with ENOSYS.
                client.rpc(topic, {})
            except RpcError as error:
                if error.errno == errno.ENOSYS:
                    unknown.append(topic)
        assert not unknown
