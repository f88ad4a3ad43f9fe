"""`penstock exec` as the execution service of a live Flux broker.

The tests need `flux` (flux-core) on the PATH, and are skipped without it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.instance.conftest import attached, is_running, reaper_of

if TYPE_CHECKING:
    from pathlib import Path

FLUX = shutil.which("flux")
pytestmark = pytest.mark.skipif(FLUX is None, reason="flux is not installed")

EXEC = [sys.executable, "-m", "penstock", "exec"]
# Ends with the test's end of the FIFO.
HOLD = 'flux module remove job-exec && echo "$FLUX_URI" > uri && cat hold'


class Broker:
    """A broker without an execution service of its own."""

    def __init__(self, uri: str, directory: Path) -> None:
        self.directory = directory
        self._env = {**os.environ, "FLUX_URI": uri}
        self._exec = [*EXEC, "--uri", uri]

    def flux(self, *words: str) -> str:
        """The output of a command of Flux, which must succeed."""
        done = subprocess.run(
            [str(FLUX), *words],
            env=self._env,
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def submit(self, *words: str) -> str:
        """Submits a job and waits until it has started."""
        return self.flux("submit", "--wait-event=start", *words)

    def events(self, job: str) -> list[dict]:
        """The events of a job, once it is inactive."""
        self.flux("job", "wait-event", "--timeout=60", job, "clean")
        return [
            json.loads(line) for line in self.flux("job", "eventlog", "-f", "json", job).split("\n")
        ]

    def end(self, job: str) -> tuple[int, list[str]]:
        """The wait status of a job, and its events from the start on."""
        events = self.events(job)
        names = [event["name"] for event in events]
        (finish,) = (event["context"] for event in events if event["name"] == "finish")
        return finish["status"], names[names.index("start") :]

    def service(self):
        """Runs the execution service."""
        return attached([*self._exec, "--directory", str(self.directory / "exec")], "ready")

    def simulation(self):
        """Runs simulated execution."""
        return attached([*self._exec, "--simulate"], "ready")


@pytest.fixture
def broker(tmp_path):
    for name in ("uri", "hold"):
        os.mkfifo(tmp_path / name)
    command = [str(FLUX), "start", "sh", "-c", HOLD]
    with subprocess.Popen(command, cwd=tmp_path) as process:
        uri = (tmp_path / "uri").read_text().strip()
        with (tmp_path / "hold").open("w"):
            yield Broker(uri, tmp_path)
        assert process.wait(timeout=60) == 0
    pid = reaper_of(tmp_path / "exec")
    if is_running(pid):
        os.kill(pid, signal.SIGKILL)


LAST_EVENTS = ["start", "finish", "release", "free", "clean"]


def test_jobs_run_and_their_wait_status_is_in_the_eventlog(broker):
    with broker.service():
        job = broker.submit("sh", "-c", "exit 3")
        assert broker.end(job) == (3 << 8, LAST_EVENTS)
        jobs = broker.flux("submit", "--cc=1-20", "true").split()
        assert [broker.end(job) for job in jobs] == [(0, LAST_EVENTS)] * 20


def test_a_job_continues_while_the_service_is_killed_and_started_again(broker, tmp_path):
    os.mkfifo(tmp_path / "gate")
    with broker.service() as service:
        job = broker.submit("sh", "-c", f"echo $$ >> {tmp_path}/starts; cat gate; exit 4")
        service.kill()
        service.wait()
    with broker.service():
        (tmp_path / "gate").write_text("")
        assert broker.end(job) == (4 << 8, LAST_EVENTS)
    assert len((tmp_path / "starts").read_text().split()) == 1


def test_a_job_that_ends_while_no_service_runs_is_reported_by_the_next(broker, tmp_path):
    os.mkfifo(tmp_path / "gate")
    with broker.service() as service:
        job = broker.submit("sh", "-c", "cat gate; exit 5")
        service.kill()
        service.wait()
    with (tmp_path / "gate").open("w"):
        pass
    with broker.service():
        assert broker.end(job) == (5 << 8, LAST_EVENTS)


def test_cancelled_jobs_and_expired_jobs_end(broker):
    with broker.service():
        job = broker.submit("sleep", "1000")
        broker.flux("cancel", job)
        assert broker.end(job) == (signal.SIGTERM, [LAST_EVENTS[0], "exception", *LAST_EVENTS[1:]])
        job = broker.submit("-t", "0.2s", "sleep", "1000")
        events = broker.events(job)
        (exception,) = (event["context"] for event in events if event["name"] == "exception")
        assert (exception["type"], exception["severity"]) == ("timeout", 0)
        job = broker.submit("-t", "1h", "sleep", "1000")
        broker.flux("update", job, "duration=8s")
        events = broker.events(job)
        (exception,) = (event["context"] for event in events if event["name"] == "exception")
        assert exception["type"] == "timeout"


def test_simulated_jobs_last_as_long_as_they_say(broker):
    with broker.simulation():
        job = broker.submit("-t", "1h", "--setattr=exec.test.run_duration=0.1s", "false")
        assert broker.end(job) == (0, LAST_EVENTS)
        job = broker.submit("-t", "1h", "false")
        broker.flux("cancel", job)
        assert broker.end(job)[0] == signal.SIGTERM
