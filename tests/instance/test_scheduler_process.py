"""The scheduler as a process of its own: killed and replaced while a job runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from penstock.client import Client


@contextmanager
def scheduler(instance):
    """A `penstock sched` that has registered."""
    command = [sys.executable, "-m", "penstock", "sched", "--uri", instance.uri]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for(process, "ready")
            yield process
        finally:
            process.kill()


def wait_for(process, word):
    for line in process.stderr:
        if word in line:
            return
    raise AssertionError(f"the scheduler ended without saying `{word}`")


def served_by(client, name="sched"):
    services = client.rpc("service.list", {})["services"]
    return next((it["pid"] for it in services if it["name"] == name), None)


def test_a_scheduler_process_is_killed_while_a_job_runs_and_another_takes_over(start, tmp_path):
    gate, started = tmp_path / "gate", tmp_path / "started"
    os.mkfifo(gate)
    os.mkfifo(started)
    with start("--sched", "none") as instance, Client(instance.uri) as client:
        assert served_by(client) is None
        with scheduler(instance) as first:
            assert served_by(client) == first.pid
            # The job says that it runs, then runs until the gate opens.
            script = f"echo running > {started}; cat {gate}"
            (job,) = instance.lines("submit", "sh", "-c", script)
            assert started.read_text() == "running\n"
            (waiting,) = instance.lines("submit", "true")
            os.kill(first.pid, signal.SIGKILL)
            assert first.wait() == -signal.SIGKILL
        with scheduler(instance) as second:
            assert second.pid != first.pid
            assert served_by(client) == second.pid
            gate.write_text("go on\n")
            assert instance.penstock("wait", job, waiting).returncode == 0
            assert instance.penstock("logs", job).stdout == "go on\n"
            (after,) = instance.lines("submit", "true")
            assert instance.penstock("wait", after).returncode == 0


def test_the_daemon_keeps_a_scheduler_process_running(start):
    with start("--sched", "process", "--nodes", "2") as instance, Client(instance.uri) as client:
        (job,) = instance.lines("submit", "true")
        assert instance.penstock("wait", job).returncode == 0
        first = served_by(client)
        assert first not in (None, instance.process.pid)
        os.kill(first, signal.SIGKILL)
        # It comes back by itself: the next job can end only if it does.
        (job,) = instance.lines("submit", "true")
        assert instance.penstock("wait", job).returncode == 0
        assert served_by(client) not in (None, first, instance.process.pid)


def test_a_second_scheduler_is_turned_away(start):
    with start("--nodes", "1") as instance:
        done = instance.penstock("sched")
        assert done.returncode == 1
        assert "another scheduler" in done.stderr


@pytest.mark.parametrize("limit", ["1", "3"])
def test_a_limited_scheduler_gets_through_a_queue(start, limit):
    with start("--sched", "none", "--nodes", "2") as instance:
        ids = instance.lines("submit", "--cc=1-20", "true")
        command = [sys.executable, "-m", "penstock", "sched", "--uri", instance.uri]
        with subprocess.Popen([*command, "--limit", limit], stderr=subprocess.DEVNULL) as process:
            try:
                assert instance.penstock("wait", *ids).returncode == 0
            finally:
                process.kill()
