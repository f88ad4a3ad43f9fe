"""Schedulers that attach, detach, are killed and replaced, as clients see it."""

from __future__ import annotations

import os
import signal

import pytest
from tests.instance.test_scheduling import (
    COMPLETED,
    EXTERNAL,
    RUN,
    SCHED,
    end,
    event,
    r_of,
    results,
    row,
    running,
    spec,
)

from penstock import ResourceSet
from penstock.client import Client


def served_by(client, name="sched"):
    services = client.rpc("service.list", {})["services"]
    return next((service["pid"] for service in services if service["name"] == name), None)


@pytest.mark.parametrize("kind", EXTERNAL)
def test_a_scheduler_is_killed_while_jobs_run_and_another_takes_over(
    start, scheduler, tmp_path, kind
):
    gate, started = tmp_path / "gate", tmp_path / "started"
    os.mkfifo(gate)
    os.mkfifo(started)
    with start("--sched", "none") as instance, Client(instance.uri, timeout=60) as client:
        assert served_by(client) is None
        with scheduler(kind, instance) as first:
            assert served_by(client) == first.pid
            # The job says that it runs, then runs until the gate opens.
            script = f"echo running > {started}; cat {gate}"
            job = client.submit(spec(["sh", "-c", script]))
            assert started.read_text() == "running\n"
            # It needs the first job's cores, so it starts after that one.
            cores = len(ResourceSet(client.resource_status()["R"]).node(0).cores)
            waiting = client.submit(spec(cores_per_task=cores))
            os.kill(first.pid, signal.SIGKILL)
            assert first.wait() == -signal.SIGKILL
        with scheduler(kind, instance) as second:
            assert second.pid != first.pid
            assert served_by(client) == second.pid
            if cores > 1:
                assert results(client, [client.submit(spec(), urgency=20)]) == [COMPLETED]
            assert row(client, waiting)["state"] == SCHED
            gate.write_text("open\n")
            assert results(client, [job, waiting]) == [COMPLETED] * 2
            assert b"".join(data for _, data in client.output(job)) == b"open\n"
            assert row(client, job)["t_cleanup"] <= row(client, waiting)["t_run"]


@pytest.mark.parametrize("kind", EXTERNAL)
def test_hello_tells_the_next_scheduler_of_partial_releases(
    start, scheduler, exec_service, tmp_path, kind
):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    epilog = f'test "$FLUX_TASK_RANK" = 0 || cat {gate}'
    with (
        start("--sched", "none", "--nodes", "2") as instance,
        Client(instance.uri, timeout=60) as client,
        exec_service(instance, epilog),
    ):
        with scheduler(kind, instance):
            wide = client.submit(spec(nodes=2))
            event(client, wide, "release")
        with scheduler(kind, instance):
            narrow = client.submit(spec())
            assert event(client, narrow, "finish") == {"status": 0}
            assert str(r_of(client, narrow).ranks) == "0"
            gate.write_text("")
            assert results(client, [wide, narrow]) == [COMPLETED] * 2


@pytest.mark.parametrize("kind", EXTERNAL)
def test_running_and_pending_jobs_survive_the_daemon(start, scheduler, kind):
    options = ("--sched", "none", "--nodes", "2")
    with (
        start(*options) as instance,
        Client(instance.uri, timeout=60) as client,
        scheduler(kind, instance) as first,
    ):
        job = running(client)
        waiting = client.submit(spec(nodes=2))
        os.kill(instance.process.pid, signal.SIGKILL)
        # Without its instance the scheduler exits: at the end of the connection (0) or, if the
        # instance has left messages unread, at its reset (1 for the example).
        assert first.wait(timeout=60) in (0, 1)
    with (
        start(*options) as instance,
        Client(instance.uri, timeout=60) as client,
        scheduler(kind, instance),
    ):
        assert results(client, [client.submit(spec(), urgency=20)]) == [COMPLETED]
        assert row(client, job)["state"] == RUN
        assert row(client, waiting)["state"] == SCHED
        end(client, job)
        assert results(client, [waiting]) == [COMPLETED]


def test_the_daemon_keeps_a_scheduler_process_running(start):
    with (
        start("--sched", "process", "--nodes", "2") as instance,
        Client(instance.uri, timeout=60) as client,
    ):
        assert results(client, [client.submit(spec())]) == [COMPLETED]
        first = served_by(client)
        assert first not in (None, instance.process.pid)
        os.kill(first, signal.SIGKILL)
        # The scheduler is restarted: the next job can end only with one.
        assert results(client, [client.submit(spec())]) == [COMPLETED]
        assert served_by(client) not in (None, first, instance.process.pid)


def test_a_second_scheduler_is_rejected(start):
    with start("--nodes", "1") as instance:
        done = instance.penstock("sched")
        assert done.returncode == 1
        assert "another scheduler" in done.stderr


def test_a_signal_ends_a_scheduler_after_its_services(start, scheduler):
    options = ("--sched", "none", "--exec", "sim")
    with start(*options) as instance, Client(instance.uri, timeout=60) as client:
        for number in (signal.SIGTERM, signal.SIGINT):
            with scheduler("process", instance) as process:
                assert results(client, [client.submit(spec())]) == [COMPLETED]
                process.send_signal(number)
                assert process.wait(timeout=60) == 0
                assert served_by(client) is None
                assert served_by(client, "feasibility") is None
