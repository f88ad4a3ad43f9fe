"""The current version of RFC 32, where it differs: ends that speak both versions."""

from __future__ import annotations

import json

import pytest
from tests.conformance.harness import Manager, jobspec, payloads, requests, responses
from tests.conformance.requirements import requirement
from tests.conformance.simulated import Simulated, parsed

from penstock import ResourceSet
from penstock._core import Message
from penstock.client import Client
from penstock.protocol.execution import StartStream


@requirement("rfc32.start.r")
def test_a_start_request_is_served_with_and_without_r(start):
    manager = Manager()
    manager.scheduler()
    manager.exec_hello()
    job = manager.submit()
    r = manager.next_r()
    (request,) = payloads(manager.allocate(job, r), "job-exec.start")
    assert ResourceSet(request["R"]) == ResourceSet(r)
    assert [response[1] for response in Simulated().start(7)] == ["start", "finish", "release"]
    # Without R in the request the service looks it up: here that of an inactive job.
    options = ["--nodes=1", "--cores=1", "--exec=local", "--oversubscribe"]
    with start(*options) as instance, Client(instance.uri, timeout=60) as client:
        assert instance.penstock("run", "true").returncode == 0
        (row,) = client.job_rows(constraint={})
        request = {
            "id": row["id"],
            "userid": row["userid"],
            "jobspec": jobspec(),
            "reattach": False,
        }
        received = client.stream("job-exec.start", request)
        assert [next(received)["type"] for _ in range(3)] == ["start", "finish", "release"]


@requirement("rfc32.start.reattached")
def test_a_reattached_job_continues():
    assert Simulated().start(7, reattach=True, duration=5) == [(7, "reattached", {})]
    manager = Manager()
    job = manager.running()
    (request,) = payloads(manager.exec_hello(origin=b"another"), "job-exec.start")
    assert request["reattach"] is True
    manager.respond_start(job, "reattached")
    assert manager.names(job).count("start") == 1
    manager.finish(job)
    assert manager.row(job)["state"] == 64


@pytest.mark.parametrize("settings", [{}, {"exec_hello": "replace"}])
@requirement("rfc32.hello.replace")
def test_a_new_service_replaces_one_with_running_jobs(settings):
    manager = Manager(**settings)
    job = manager.running()
    sent = manager.exec_hello("sim-exec", b"sim")
    assert [response.errnum for response in responses(sent)] == [0]
    (request,) = payloads(sent, "sim-exec.start")
    assert (request["id"], request["reattach"]) == (job, True)
    assert "exception" not in manager.names(job)


# A wait status, and its exit code in a shell: exit codes, signals, one with a core dump.
WAIT_STATUSES = [(0, 0), (1 << 8, 1), (255 << 8, 255), (9, 137), (15, 143), (11 | 0x80, 139)]


@pytest.mark.parametrize(("wait_status", "code"), WAIT_STATUSES)
@requirement("rfc32.start.wait-status")
def test_finish_has_the_wait_status_of_the_first_fatal_exception(wait_status, code):
    manager = Manager()
    job = manager.running()
    raised = {"id": job, "type": "x", "severity": 0, "wait_status": wait_status}
    (event,) = [
        message
        for message in manager.request("job-manager.raise", raised)
        if message.kind == "event"
    ]
    assert event.object()["wait_status"] == wait_status
    assert manager.event(job, "exception")["wait_status"] == wait_status
    mock = Simulated()
    mock.start(job, duration=5)
    received = [parsed(message) for message in mock.deliver(event)]
    assert received[0] == (job, "finish", {"status": code << 8})
    mock.start(8, duration=5)
    without = mock.interrupt(8)
    assert without[0] == (8, "finish", {"status": 15})
    # The event tells a service that uses `StartStream` the same.
    stream = StartStream(Message.request("job-exec.start", {"id": job}), job)
    stream.start()
    stream.interrupt(event.object()["wait_status"])
    stream.interrupt(9 << 8)
    assert parsed(stream.finish(15)) == (job, "finish", {"status": code << 8})
    # That of the first one only, even if it has none.
    stream = StartStream(Message.request("job-exec.start", {"id": job}), job)
    stream.start()
    stream.interrupt()
    stream.interrupt(wait_status)
    assert parsed(stream.finish(9)) == (job, "finish", {"status": 9})


@pytest.mark.parametrize(("wait_status", "code"), [(7 << 8, 7), (15, 143)])
@requirement("rfc32.start.wait-status")
def test_a_process_ends_with_the_wait_status_of_the_first_fatal_exception(
    start, tmp_path, wait_status, code
):
    config = tmp_path / "config.toml"
    config.write_text("[penstock.exec]\nkill-timeout = '2s'\n")
    options = ["--nodes=1", "--cores=1", "--exec=local", "--oversubscribe", f"--config={config}"]
    with start(*options) as instance, Client(instance.uri, timeout=60) as client:
        # It outlasts the first exception's SIGTERM, so that the second finds it running.
        (name,) = instance.lines("submit", "sh", "-c", "trap '' TERM; sleep 1000")
        (row,) = client.job_rows(constraint={})
        assert any(event["name"] == "start" for event in client.eventlog(row["id"], follow=True))
        for status in (wait_status, 9 << 8):
            raised = {"id": row["id"], "type": "x", "severity": 0, "wait_status": status}
            client.rpc("job-manager.raise", raised)
        assert instance.penstock("wait", name).returncode != 0
        row = json.loads(instance.lines("info", "--json", name)[0])
        assert row["waitstatus"] == code << 8


@requirement("rfc32.start.stream", "rfc32.start.no-flag")
def test_a_start_request_has_no_streaming_flag_and_its_responses_have():
    manager = Manager()
    manager.scheduler()
    manager.exec_hello()
    (request,) = requests(manager.allocate(manager.submit()), "job-exec.start")
    assert not request.streaming
    # They last as long as the job runs.
    mock = Simulated()
    assert [response[1] for response in mock.start(7, exec={"test": {"run_duration": "5s"}})] == [
        "start"
    ]
    assert mock.advance(4) == []
    assert [response[1] for response in mock.advance(2)] == ["finish", "release"]
    # The responses have the streaming flag (`parsed` checks it), unlike the request.
    assert parsed(StartStream(request, 7).start())[1] == "start"


@requirement("rfc32.start.release-all")
def test_a_release_may_name_all_ranks():
    manager = Manager()
    job = manager.running()
    manager.respond_start(job, "finish", status=0)
    sent = manager.respond_start(job, "release", ranks="all", final=True)
    (free,) = payloads(sent, "sched.free")
    assert (str(ResourceSet(free["R"]).ranks), free["final"]) == ("0-1", True)


@requirement("rfc32.start.exception-event")
def test_exceptions_are_published_and_end_the_job(start):
    manager = Manager()
    job = manager.running()
    for severity in (3, 0):
        sent = manager.raise_exception(job, severity)
        (event,) = [message for message in sent if message.kind == "event"]
        exception = event.object()
        assert (event.topic, exception["id"], exception["type"]) == ("job-exception", job, "cancel")
        assert exception["severity"] == severity
    mock = Simulated()
    assert requests(mock.service.start(), "event.subscribe")[0].object() == {
        "topic": "job-exception"
    }
    mock.start(7, duration=5)
    assert mock.interrupt(7, severity=1) == []
    assert [response[1] for response in mock.interrupt(7)] == ["finish", "release"]
    with start("--nodes=1", "--cores=1", "--exec=local", "--oversubscribe") as instance:
        (name,) = instance.lines("submit", "sleep", "1000")
        assert instance.penstock("cancel", name).returncode == 0
        assert instance.penstock("wait", name).returncode != 0
