"""`penstock.testing.MemoryInstance`."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from penstock._core import ResourceSet, job_state
from penstock.client import Client
from penstock.errors import ConfigError, NoInstanceError
from penstock.jobspec import from_command
from penstock.testing import MemoryInstance

HOUR = 3600.0


def hours(client, count, **options):
    """Submits jobs of an hour on all nodes."""
    return [client.submit(from_command(["x"], duration=HOUR, **options)) for _ in range(count)]


def test_jobs_run_one_after_the_other_as_time_is_skipped():
    with MemoryInstance(nodes=2, cores=4) as instance, instance.client() as client:
        jobs = hours(client, 3, nodes=2, exclusive=True)
        instance.advance(2 * HOUR + 60)
        first, second = client.wait_rows(jobs[:2])
        third = client.job_row(jobs[2])
        assert [row["result"] for row in (first, second)] == [1, 1]
        # To a second: real time passes, too.
        assert second["t_run"] - first["t_run"] == pytest.approx(HOUR, abs=60)
        assert third["t_run"] - second["t_run"] == pytest.approx(HOUR, abs=60)
        assert third["state"] == job_state.RUN


def test_resources_and_configuration():
    config = 'policy.jobspec.defaults.system.queue = "batch"\n[queues.debug]\n[queues.batch]\n'
    with MemoryInstance(3, 2, 1, config=config) as instance, instance.client() as client:
        assert client.queue_list() == ["batch", "debug"]
        resources = ResourceSet(client.resource_status()["R"])
        assert (resources.nnodes, resources.ncores, resources.ngpus) == (3, 6, 3)


def test_an_invalid_configuration():
    with pytest.raises(ConfigError, match="unknown key"):
        MemoryInstance(config="nope = 1")


def test_an_instance_without_a_scheduler():
    with MemoryInstance(sched="none") as instance, instance.client() as client:
        (job,) = hours(client, 1)
        instance.advance(HOUR)
        assert client.job_row(job)["state"] == job_state.SCHED


def test_several_instances_are_independent_and_leave_nothing():
    with MemoryInstance() as one, MemoryInstance() as other:
        with one.client() as client:
            assert len(hours(client, 2)) == 2
        with other.client() as client:
            assert client.job_rows() == []
    assert not [thread for thread in threading.enumerate() if thread.name == "MemoryInstance"]
    with pytest.raises(NoInstanceError):
        Client(one.uri)


def test_commands_use_it():
    with MemoryInstance(nodes=2) as instance:
        command = [sys.executable, "-m", "penstock", "ping", "-c1", "job-manager"]
        environment = {**os.environ, "PENSTOCK_URI": instance.uri}
        done = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert done.stdout.startswith(b"job-manager.ping seq=0")
