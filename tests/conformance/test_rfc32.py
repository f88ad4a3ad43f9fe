"""RFC 32, execution: the job manager and the execution services."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from errno import EBUSY, EINVAL, EIO, ENOSPC, ENOSYS, EPROTO
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.conformance.harness import (
    GUEST,
    OWNER,
    Manager,
    inventory,
    jobspec,
    payloads,
    requests,
    responses,
    topics,
)
from tests.conformance.requirements import requirement
from tests.conformance.simulated import Simulated, parsed

from penstock import ResourceSet
from penstock._core import Batch, Message, MockExec, StartRequest
from penstock.client import Client
from penstock.clock import SystemClock
from penstock.errors import ProtocolError
from penstock.instance.alarm import Alarm
from penstock.instance.services import MockExecService
from penstock.protocol.execution import StartStream

EXAMPLES = Path(__file__).parents[2] / "examples"


# --- Implementation


@requirement("rfc32.general.job-id", "rfc32.start.response-keys", "rfc32.start.types")
def test_the_job_id_is_in_requests_and_responses():
    manager = Manager()
    manager.scheduler()
    manager.exec_hello()
    job = manager.submit()
    (request,) = payloads(manager.allocate(job), "job-exec.start")
    assert request["id"] == job
    mock = Simulated()
    received = [*mock.start(7), *mock.start(8, duration=10), *mock.interrupt(8)]
    assert [(response[0], response[1]) for response in received] == [
        (7, "start"),
        (7, "finish"),
        (7, "release"),
        (8, "start"),
        (8, "finish"),
        (8, "release"),
    ]
    stream = StartStream(Message.request("job-exec.start", {"id": 9}), 9)
    stream_told = [stream.start(), stream.exception("x", "y"), stream.finish(0), stream.release()]
    assert {parsed(message)[0] for message in stream_told} == {9}
    # The job manager uses both.
    for broken in ({"type": "start", "data": {}}, {"id": job, "data": {}}):
        before = len(manager.log)
        manager.respond(Message.request("job-exec.start"), broken)
        assert len(manager.log) == before + 1
    assert "start" not in manager.names(job)


def test_a_start_request_within_the_process_reads_as_its_bytes_do():
    manager = Manager()
    manager.scheduler()
    manager.exec_hello()
    job = manager.submit()
    (request,) = requests(manager.allocate(job), "job-exec.start")
    sent = (request, Message.decode(request.encode()))
    value, decoded = (StartRequest.read(message) for message in sent)
    assert (value.id, value.reattach) == (decoded.id, decoded.reattach) == (job, False)
    assert value.jobspec == decoded.jobspec
    assert json.loads(value.jobspec)["version"] == 1
    assert value.r is not None
    assert value.r == decoded.r


@requirement("rfc32.general.one-in-flight")
def test_a_job_is_started_once():
    manager = Manager()
    job = manager.running()
    sent = manager.raise_exception(job, severity=3, kind="mild")
    sent += manager.hello() + manager.ready()
    manager.submit()
    sent += manager.sent
    assert requests(sent, "job-exec.start") == []
    # A new service ends the request to the old one, and gets a request of its own.
    sent = manager.exec_hello(origin=b"another")
    assert [payload["id"] for payload in payloads(sent, "job-exec.start")] == [job]
    assert requests(manager.raise_exception(job, 3, "mild"), "job-exec.start") == []


@requirement("rfc32.general.errnum-zero")
def test_an_error_of_a_job_has_errnum_0(start):
    received = Simulated().start(7, spec={"attributes": {"system": {"duration": "x"}}})
    assert [(response[0], response[1]) for response in received] == [
        (7, "exception"),
        (7, "release"),
    ]
    assert "duration" in received[0][2]["note"] or "invalid type" in received[0][2]["note"]
    received = Simulated().start(8, exec={"test": {"run_duration": "nonsense"}})
    assert [response[1] for response in received] == ["exception", "release"]
    # The service for processes does the same: an error would end the stream.
    options = ["--nodes=1", "--cores=1", "--exec=local", "--oversubscribe"]
    with start(*options) as instance, Client(instance.uri, timeout=60) as client:
        for broken in ({"tasks": []}, {"attributes": {"system": {"cwd": 7}}}, {"tasks": 7}):
            request = {"id": 9, "userid": os.getuid(), "jobspec": {**jobspec(), **broken}}
            request |= {"reattach": False, "R": inventory(1, 1).to_dict()}
            answers = client.stream("job-exec.start", request)
            received = [next(answers), next(answers)]
            assert [response["type"] for response in received] == ["exception", "release"], broken


@requirement("rfc32.general.error-is-fatal")
def test_a_conventional_error_stops_starts_until_exec_hello():
    manager = Manager()
    manager.scheduler()
    manager.exec_hello()
    first = manager.submit()
    (request,) = requests(manager.allocate(first), "job-exec.start")
    assert manager.log == []
    manager.respond_unserved(request)
    reason = os.strerror(ENOSYS)
    assert any("job-exec.start" in line and reason in line for line in manager.log)
    second = manager.submit()
    # Jobs are still allocated, but not started.
    sent = manager.allocate(second)
    assert "alloc" in manager.names(second)
    assert requests(sent, "job-exec.start") == []
    sent = manager.exec_hello()
    assert {payload["id"] for payload in payloads(sent, "job-exec.start")} == {first, second}


# --- Hello


@requirement("rfc32.hello.register", "rfc32.hello.name", "rfc32.hello.request")
def test_a_service_says_hello_with_its_name():
    for name in ("job-exec", "sim-exec"):
        said = list(MockExec(name).start())
        assert payloads(said, "service.add") == [{"service": name}]
        assert payloads(said, "job-manager.exec-hello") == [{"service": name}]
    # The job manager needs the name, and starts jobs by it.
    manager = Manager()
    (answer,) = responses(manager.request("job-manager.exec-hello", {}, origin=b"exec"))
    assert answer.errnum == EPROTO
    manager.exec_hello("sim-exec")
    manager.scheduler()
    assert "sim-exec.start" in topics(manager.allocate(manager.submit()))


@requirement("rfc32.hello.override", "rfc32.hello.response")
def test_another_service_overrides_the_one_before():
    manager = Manager()
    manager.scheduler()
    for name, origin in [("job-exec", b"exec"), ("sim-exec", b"sim")]:
        (answer,) = responses(manager.exec_hello(name, origin))
        assert (answer.errnum, answer.payload) == (0, None)
    sent = manager.allocate(manager.submit())
    assert "sim-exec.start" in topics(sent)
    assert "job-exec.start" not in topics(sent)
    # The disconnect of the old one does not affect the new one.
    manager.disconnect(b"exec")
    assert "sim-exec.start" in topics(manager.allocate(manager.submit()))


@requirement("rfc32.hello.outstanding")
def test_hello_is_rejected_while_starts_are_outstanding_if_configured():
    manager = Manager(exec_hello="reject")
    assert responses(manager.exec_hello())[0].errnum == 0
    job = manager.running()
    (answer,) = responses(manager.exec_hello("sim-exec", b"sim"))
    assert answer.errnum == EINVAL
    # The registered service still serves its job.
    manager.finish(job)
    assert manager.row(job)["state"] == 64
    assert responses(manager.exec_hello("sim-exec", b"sim"))[0].errnum == 0


def fake_broker(sent):
    """The interface of a broker that a service of the daemon uses."""
    clock = SystemClock()
    return SimpleNamespace(
        owner=OWNER,
        attach=lambda _service, **_options: 1,
        clock=clock,
        alarm=lambda: Alarm(clock),
        wait_writable=None,
        post=lambda _peer, batch: sent.extend(batch),
        post_messages=lambda _peer, messages: sent.extend(messages),
        set_core=lambda _peer, _core, _prepare=None: None,
    )


@requirement("rfc32.hello.error")
def test_a_rejected_hello_ends_the_service():
    sent = []
    mock = MockExecService(fake_broker(sent), "job-exec")
    (hello,) = requests(sent, "job-manager.exec-hello")
    mock.deliver(Batch([hello.respond()]))
    mock.deliver(Batch([hello.respond(errnum=EINVAL)]))
    with pytest.raises(OSError, match="exec-hello failed: Invalid argument"):
        mock.post_output(0.0)


@pytest.mark.parametrize("errnum", [ENOSPC, EIO, EBUSY])
def test_a_hello_that_a_failed_job_manager_answers_is_no_fault(errnum):
    sent, replaced = [], []
    broker = fake_broker(sent)
    broker.replace = replaced.append
    mock = MockExecService(broker, "job-exec")
    (hello,) = requests(sent, "job-manager.exec-hello")
    mock.deliver(Batch([hello.respond(errnum=errnum)]))
    mock.post_output(0.0)
    assert replaced == [mock.peer]
    assert mock.restarts.failed


@pytest.mark.parametrize("kind", ["example", "process"])
@requirement("rfc32.hello.error")
def test_a_rejected_hello_ends_a_service_outside(start, tmp_path, kind):
    config = tmp_path / "reject.toml"
    config.write_text('[compat]\nexec_hello = "reject"\n')
    with (
        start("--config", str(config), "--exec=sim", "--nodes=1") as instance,
        Client(instance.uri, timeout=60) as client,
    ):
        job = client.submit(jobspec(duration=1000))
        assert any(event["name"] == "start" for event in client.eventlog(job, follow=True))
        command = [EXAMPLES / "exec_service.py", "my-exec", tmp_path, instance.uri]
        if kind == "process":
            command = ["-m", "penstock", "exec", "--name=my-exec", "--uri", instance.uri]
            command += ["--directory", tmp_path / "exec"]
        command = [sys.executable, *command]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode != 0
        assert "exec-hello" in done.stderr
        assert "exec-hello is done" not in done.stderr


# --- Start


@requirement("rfc32.start.when")
def test_every_job_with_resources_is_started():
    manager = Manager()
    manager.scheduler()
    first = manager.submit()
    assert topics(manager.allocate(first)) == []
    waiting = manager.submit()
    sent = manager.exec_hello()
    assert [payload["id"] for payload in payloads(sent, "job-exec.start")] == [first]
    sent = manager.allocate(waiting)
    assert [payload["id"] for payload in payloads(sent, "job-exec.start")] == [waiting]
    (request,) = requests(sent, "job-exec.start")
    assert request.matchtag == 0


@requirement("rfc32.start.keys")
def test_a_start_request_has_its_keys(tmp_path):
    environment = {"PATH": "/bin"}
    path = tmp_path / "jobs.sqlite"
    manager = Manager(path=path, guests=True)
    manager.scheduler()
    manager.exec_hello()
    spec = jobspec(environment=environment)
    (answer,) = responses(manager.request("job-ingest.submit", {"jobspec": spec}, userid=GUEST))
    job = answer.object()["id"]
    (request,) = payloads(manager.allocate(job), "job-exec.start")
    assert (request["id"], request["userid"], request["reattach"]) == (job, GUEST, False)
    assert request["jobspec"] == spec
    manager.respond_start(job, "start")
    # After a restart the job should still be running.
    del manager.manager
    again = Manager(path=path, guests=True)
    (request,) = payloads(again.exec_hello(), "job-exec.start")
    assert (request["id"], request["reattach"]) == (job, True)
    assert request["jobspec"] == spec


@requirement("rfc32.start.start")
def test_start_has_no_data_and_logs_an_event():
    manager = Manager()
    manager.scheduler()
    manager.exec_hello()
    job = manager.submit()
    manager.allocate(job)
    assert "start" not in manager.names(job)
    manager.respond_start(job, "start")
    assert manager.names(job)[-1] == "start"
    assert Simulated().start(7, duration=5) == [(7, "start", {})]


@requirement("rfc32.start.release")
def test_a_release_names_ranks_and_whether_it_is_the_last():
    manager = Manager()
    job = manager.running()
    manager.respond_start(job, "finish", status=0)
    (free,) = payloads(manager.respond_start(job, "release", ranks="1", final=False), "sched.free")
    assert str(ResourceSet(free["R"]).ranks) == "1"
    assert manager.row(job)["state"] == 32
    (free,) = payloads(manager.respond_start(job, "release", ranks="0-1", final=True), "sched.free")
    assert str(ResourceSet(free["R"]).ranks) == "0"
    assert manager.row(job)["state"] == 64
    last = Simulated().start(7)[-1]
    assert last == (7, "release", {"ranks": "all", "final": True})
    # Without either key it is no release.
    job = manager.submit()
    manager.allocate(job)
    for data in ({"ranks": "0-1"}, {"final": True}, {"ranks": 0, "final": True}):
        manager.respond_start(job, "release", **data)
        assert "release" not in manager.names(job)


@requirement("rfc32.start.exception", "rfc32.start.exception-note")
def test_an_exception_has_a_severity_a_type_and_a_note():
    manager = Manager()
    job = manager.running()
    for data in ({"severity": 1}, {"type": "x"}, {"severity": "0", "type": "x"}):
        manager.respond_start(job, "exception", **data)
        assert "exception" not in manager.names(job)
    manager.respond_start(job, "exception", severity=3, type="mild")
    assert manager.event(job, "exception")["severity"] == 3
    note = "resource allocation expired"
    manager.respond_start(job, "exception", severity=0, type="timeout", note=note)
    exception = manager.event(job, "exception")
    assert (exception["severity"], exception["type"], exception["note"]) == (0, "timeout", note)
    # Both services send all three.
    mock = Simulated()
    mock.start(7, duration=1, exec={"test": {"run_duration": "5s"}})
    data = {"severity": 0, "type": "timeout", "note": note}
    assert mock.advance(2)[0] == (7, "exception", data)
    stream = StartStream(Message.request("job-exec.start", {"id": 9}), 9)
    assert parsed(stream.exception("timeout", note)) == (9, "exception", data)


@requirement("rfc32.start.finish")
def test_finish_has_the_greatest_wait_status(start):
    manager = Manager()
    job = manager.running()
    for data in ({}, {"status": "143"}):
        manager.respond_start(job, "finish", **data)
        assert "finish" not in manager.names(job)
    manager.finish(job, 143)
    assert manager.row(job)["waitstatus"] == 143
    script = "case $PENSTOCK_TASK_RANK in 0) exit 1;; 1) exit 7;; *) kill -9 $$;; esac"
    options = ["--nodes=1", "--cores=3", "--exec=local", "--oversubscribe"]
    with start(*options) as instance:
        (job,) = instance.lines("submit", "-n3", "sh", "-c", script)
        assert instance.penstock("wait", job).returncode == 7
        row = json.loads(instance.lines("info", "--json", job)[0])
        assert row["waitstatus"] == 7 << 8


@pytest.mark.parametrize("when", range(4))
@requirement("rfc32.start.types", "rfc32.start.exception-any-time")
def test_an_exception_may_come_at_any_point(when):
    manager = Manager()
    manager.scheduler()
    manager.exec_hello()
    job = manager.submit()
    manager.allocate(job)
    stream = StartStream(Message.request("job-exec.start", {"id": job}), job)
    steps = [
        ("start", {}, stream.start),
        ("finish", {"status": 0}, lambda: stream.finish(0)),
        ("release", {"ranks": "0", "final": False}, lambda: stream.release("0", final=False)),
        ("release", {"ranks": "all", "final": True}, stream.release),
    ]
    for at, (kind, data, say) in enumerate(steps):
        if at == when:
            stream.exception("mild", "", severity=2)
            manager.respond_start(job, "exception", severity=2, type="mild", note="")
        say()
        manager.respond_start(job, kind, **data)
    names = manager.names(job)
    assert names.count("exception") == 1
    expected = ["start", "finish", "release", "release"]
    assert [name for name in names if name in expected] == expected
    assert names[names.index("exception") + 1] == expected[when]
    assert manager.row(job)["state"] == 64


@requirement("rfc32.start.omitted")
def test_after_a_fatal_exception_start_and_finish_may_be_missing():
    for said in ([], ["start"]):
        manager = Manager()
        manager.scheduler()
        manager.exec_hello()
        job = manager.submit()
        manager.allocate(job)
        stream = StartStream(Message.request("job-exec.start", {"id": job}), job)
        for kind in said:
            getattr(stream, kind)()
            manager.respond_start(job, kind)
        stream.exception("exec", "no shell")
        manager.respond_start(job, "exception", severity=0, type="exec", note="no shell")
        assert parsed(stream.release())[1] == "release"
        sent = manager.respond_start(job, "release", ranks="all", final=True)
        assert topics(sent).count("sched.free") == 1
        assert manager.row(job)["state"] == 64
        assert "finish" not in manager.names(job)
    assert [response[1] for response in Simulated().start(7, spec={})] == ["exception", "release"]
    # Without such an exception finish is required.
    stream = StartStream(Message.request("job-exec.start", {"id": 7}), 7)
    stream.start()
    with pytest.raises(ProtocolError):
        stream.release()


FINAL = ("release", {"ranks": "all", "final": True})


@requirement("rfc32.start.final-release")
def test_a_simulated_job_always_ends_with_its_final_release():
    mock = Simulated()
    overrun = {"duration": 1, "exec": {"test": {"run_duration": "5s"}}}
    ends = [
        mock.start(1),
        mock.start(2, spec={}),
        mock.start(6, exec={"test": {"run_duration": "x"}}),
    ]
    mock.start(3, **overrun)
    mock.start(4, duration=1)
    mock.start(5, duration=1)
    ends += [
        mock.interrupt(5),
        [response for response in mock.advance(9) if response[0] == 3],
        mock.start(7),
    ]
    assert [stream[-1][1:] for stream in ends] == [FINAL] * len(ends)
    assert mock.service.running == 0
    # A mild exception, and one of another job, ends nothing.
    mock.start(8, duration=5)
    assert mock.interrupt(8, severity=2) == mock.interrupt(9) == []
    assert mock.advance(6)[-1] == (8, *FINAL)


@requirement("rfc32.start.final-release", "rfc32.start.final-is-last")
def test_a_process_always_ends_with_its_final_release(start):
    options = ["--nodes=1", "--cores=8", "--exec=local", "--oversubscribe"]
    with start(*options) as instance, Client(instance.uri, timeout=60) as client:
        commands = [
            ["true"],
            ["no-such-command-at-all"],
            ["sh", "-c", "kill -9 $$"],
            ["-t", "0.1s", "sleep", "1000"],
            ["--cwd=/no/such/directory", "true"],
            ["-n2", "sh", "-c", "test $PENSTOCK_TASK_RANK = 0"],
        ]
        jobs = [instance.lines("submit", *command)[0] for command in commands]
        (cancelled,) = instance.lines("submit", "sleep", "1000")
        rows = client.job_rows(constraint={})
        # Rows are sorted by id, the newest first.
        assert any(
            event["name"] == "start" for event in client.eventlog(rows[0]["id"], follow=True)
        )
        instance.lines("cancel", cancelled)
        instance.penstock("wait", cancelled, *jobs)
        assert len(rows) == len(commands) + 1
        for row in rows:
            log = client.lookup(row["id"], "eventlog")["eventlog"].splitlines()
            events = [json.loads(line) for line in log]
            of_service = [
                event for event in events if event["name"] in ("start", "finish", "release")
            ]
            assert of_service[-1]["name"] == "release"
            assert [
                event["context"]["final"] for event in of_service if event["name"] == "release"
            ] == [True]
            assert events[-1]["name"] == "clean"


@requirement("rfc32.start.final-is-last")
def test_nothing_comes_after_the_final_release():
    manager = Manager()
    job = manager.running()
    manager.finish(job)
    before = manager.names(job)
    for kind, data in [
        ("start", {}),
        ("finish", {"status": 9}),
        ("exception", {"severity": 0, "type": "late", "note": ""}),
        ("release", {"ranks": "all", "final": True}),
    ]:
        count = len(manager.log)
        assert manager.respond_start(job, kind, **data) == []
        assert len(manager.log) == count + 1
    assert manager.names(job) == before
    stream = StartStream(Message.request("job-exec.start", {"id": 7}), 7)
    stream.start()
    stream.finish(0)
    stream.release()
    for late in (stream.start, stream.release, lambda: stream.finish(0)):
        with pytest.raises(ProtocolError):
            late()
    with pytest.raises(ProtocolError):
        stream.exception("late", "")
