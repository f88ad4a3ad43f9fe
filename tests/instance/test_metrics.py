"""The metrics of real instances, read by a strict reader of OpenMetrics."""

from __future__ import annotations

import openmetrics
import pytest

from penstock import metrics
from penstock.client import Client
from penstock.jobspec import from_command


@pytest.fixture
def sim(start):
    with start("--nodes", "4", "--cores", "2") as instance:
        yield instance


def read(instance, *args):
    done = instance.penstock("stats", "--openmetrics", *args)
    assert done.returncode == 0, done.stderr
    return openmetrics.parse(done.stdout)


def test_slices_of_large_requests_and_checkpoints_are_counted(sim):
    sim.lines("submit", "--cc=1-5000", "--urgency=hold", "true")
    sim.lines("cancel", "--all")
    assert read(sim)["penstock_slice_seconds"].value("_count") > 0
    with Client(sim.uri) as client:
        # Longer than the log that is not checkpointed.
        for number in range(30):
            environment = {"TEXT": "x" * 500_000, "NUMBER": str(number)}
            client.submit(from_command(["true"], environment=environment))
    while read(sim)["penstock_checkpoint_seconds"].value("_count") == 0:
        pass


def test_slices_of_a_long_list_are_counted(sim):
    def slices() -> float:
        return read(sim)["penstock_slice_seconds"].value("_count")

    sim.lines("submit", "--cc=1-3000", "--urgency=hold", "true")
    # The submission itself is done in slices.
    before = slices()
    while (now := slices()) != before:
        before = now
    assert len(sim.lines("jobs", "--count=0", "--no-header")) == 3000
    assert slices() >= before + 3


def test_metrics_count_jobs_and_the_work_of_the_daemon(sim):
    ids = sim.lines("submit", "--cc=1-5", "true")
    sim.penstock("wait", *ids)
    (held,) = sim.lines("submit", "--urgency=hold", "true")
    (cancelled,) = sim.lines("submit", "--urgency=hold", "true")
    sim.lines("cancel", cancelled)
    sim.penstock("wait", cancelled)
    sim.lines("resource", "drain", "3", "broken")
    found = read(sim)
    value = {name: family.value for name, family in found.items()}
    assert value["penstock_jobs_submitted"]("_total") == 7
    assert value["penstock_jobs_ended"]("_total", result="completed") == 5
    assert value["penstock_jobs_ended"]("_total", result="canceled") == 1
    assert value["penstock_jobs"](state="inactive") == 6
    assert value["penstock_jobs"](state="sched") == 1
    for stage, count in {"pending": 5, "start": 5, "run": 5, "cleanup": 5}.items():
        assert value["penstock_job_stage_seconds"]("_count", stage=stage) == count
    assert value["penstock_nodes"]() == 4
    assert (value["penstock_nodes_up"](), value["penstock_nodes_drained"]()) == (3, 1)
    assert value["penstock_commit_seconds"]("_count") > 0
    assert value["penstock_round_seconds"]("_count") > 0
    # A list, and two jobs.
    assert value["penstock_submission_seconds"]("_count") == 3
    assert 0 < value["penstock_submission_seconds"]("_sum") < 60
    assert value["penstock_store_log_bytes"]() > 4096
    assert value["penstock_messages_received"]("_total") > 7
    assert value["penstock_sched_pass_seconds"]("_count") > 0
    assert value["penstock_store_bytes"]() > 4096
    assert value["penstock_store_free_bytes"]() < value["penstock_store_bytes"]()
    assert value["penstock_store_released_bytes"]("_total") == 0
    assert value["process_resident_memory_bytes"]() > 1 << 20
    assert value["process_cpu_seconds"]("_total") > 0
    assert value["process_open_fds"]() > 3
    assert found.keys() == {family.name for family in metrics.FAMILIES} - {
        # Simulated execution counts running jobs alone, and no queue is configured.
        *("penstock_exec_jobs", "penstock_exec_tasks", "penstock_queue_jobs"),
    }
    sim.lines("cancel", held)


def test_a_service_that_does_not_answer_is_down(start):
    with start("--nodes", "1", "--cores", "1", "--sched", "none", "--exec", "none") as instance:
        up = read(instance)["penstock_service_up"]
        services = {dict(labels)["service"]: value for (_, labels), value in up.samples.items()}
        assert services == {
            **dict.fromkeys(metrics.SERVICES, 1),
            "sched": 0,
            "job-exec": 0,
        }
