"""`penstock exec` as the execution service of a live instance of Flux."""

from __future__ import annotations

import os
import signal

import pytest


@pytest.fixture
def flux(start_flux):
    with start_flux(without=("job-exec",)) as instance:
        yield instance


LAST_EVENTS = ["start", "finish", "release", "free", "clean"]


def test_jobs_run_and_their_wait_status_is_in_the_eventlog(flux):
    with flux.exec_service():
        job = flux.submit("sh", "-c", "exit 3")
        assert flux.end(job) == (3 << 8, LAST_EVENTS)
        jobs = flux.flux("submit", "--cc=1-20", "true").split()
        assert [flux.end(job) for job in jobs] == [(0, LAST_EVENTS)] * 20


def test_a_job_continues_while_the_service_is_killed_and_started_again(flux, tmp_path):
    os.mkfifo(tmp_path / "gate")
    with flux.exec_service() as service:
        job = flux.submit("sh", "-c", f"echo $$ >> {tmp_path}/starts; cat gate; exit 4")
        service.kill()
        service.wait()
    with flux.exec_service():
        (tmp_path / "gate").write_text("")
        assert flux.end(job) == (4 << 8, LAST_EVENTS)
    assert len((tmp_path / "starts").read_text().split()) == 1


def test_a_job_that_ends_while_no_service_runs_is_reported_by_the_next(flux, tmp_path):
    os.mkfifo(tmp_path / "gate")
    with flux.exec_service() as service:
        job = flux.submit("sh", "-c", "cat gate; exit 5")
        service.kill()
        service.wait()
    with (tmp_path / "gate").open("w"):
        pass
    with flux.exec_service():
        assert flux.end(job) == (5 << 8, LAST_EVENTS)


def test_cancelled_jobs_and_expired_jobs_end(flux):
    with flux.exec_service():
        job = flux.submit("sleep", "1000")
        flux.flux("cancel", job)
        assert flux.end(job) == (signal.SIGTERM, [LAST_EVENTS[0], "exception", *LAST_EVENTS[1:]])
        job = flux.submit("-t", "0.2s", "sleep", "1000")
        events = flux.events(job)
        (exception,) = (event["context"] for event in events if event["name"] == "exception")
        assert (exception["type"], exception["severity"]) == ("timeout", 0)
        job = flux.submit("-t", "1h", "sleep", "1000")
        flux.flux("update", job, "duration=8s")
        events = flux.events(job)
        (exception,) = (event["context"] for event in events if event["name"] == "exception")
        assert exception["type"] == "timeout"


def test_simulated_jobs_last_as_long_as_they_say(flux):
    with flux.simulation():
        job = flux.submit("-t", "1h", "--setattr=exec.test.run_duration=0.1s", "false")
        assert flux.end(job) == (0, LAST_EVENTS)
        job = flux.submit("-t", "1h", "false")
        flux.flux("cancel", job)
        assert flux.end(job)[0] == signal.SIGTERM
