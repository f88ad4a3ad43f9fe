"""The commands of Flux's users and administrators, with sched-penstock as the scheduler."""

from __future__ import annotations

import json
import os
import signal
from random import Random

from tests.flux.conftest import TIMEOUT_S

from penstock.idset import IDset

QUEUES = """
[[resource.config]]
hosts = "fake[0-1]"
properties = ["batch"]

[[resource.config]]
hosts = "fake[2-3]"
properties = ["debug"]

[queues.batch]
requires = ["batch"]

[queues.debug]
requires = ["debug"]
"""


def test_queues_have_their_nodes_and_are_stopped_alone(start_cluster):
    with start_cluster(4, QUEUES) as flux:
        flux.flux("queue", "start", "--all", "--quiet")
        jobs = [flux.submit(f"-q{queue}", "-N2", "true") for queue in ("batch", "debug")]
        assert [flux.end(job)[0] for job in jobs] == [0, 0]
        assert [flux.ranks(job) for job in jobs] == ["0-1", "2-3"]
        flux.flux("queue", "stop", "--quiet", "debug")
        stopped = flux.flux("submit", "-qdebug", "-N1", "true")
        assert flux.end(flux.submit("-qbatch", "-N1", "true"))[0] == 0
        assert flux.flux("jobs", "-no", "{state}", stopped) == "SCHED"
        flux.flux("queue", "start", "--quiet", "debug")
        assert flux.end(stopped)[0] == 0
        flux.flux("queue", "disable", "--quiet", "-m", "closed", "batch")
        assert "closed" in flux.fails("submit", "-qbatch", "-N1", "true")
        events = flux.events(flux.flux("submit", "-qdebug", "-N3", "true"))
        (exception,) = (event["context"] for event in events if event["name"] == "exception")
        assert exception["type"] == "alloc"
        note = "3 nodes requested, 2 exist among the nodes that meet the constraint debug"
        assert exception["note"] == note


def test_predictions_while_another_scheduler_is_loaded(start_cluster):
    with start_cluster(2) as flux:
        flux.flux("module", "remove", "sched-penstock")
        flux.flux("module", "load", "sched-simple")
        running = flux.submit("-N2", "-t1h", "sleep", "inf")
        pending = flux.flux("submit", "-N1", "-t1h", "true")
        flux.flux("resource", "drain", "1")
        done = flux.penstock("estimate", "--uri", flux.uri, "--json")
        row = json.loads(done.stdout)
        assert row["id"] == pending
        ends = json.loads(flux.flux("job", "info", running, "R"))["execution"]["expiration"]
        assert row["start"] == ends
        assert "the scheduler of the instance does not answer" in done.stderr
        explained = flux.penstock("explain", "--policy", "fcfs", pending)
        assert explained.stdout.startswith(f"{pending}: needs 1 whole node: none is free")
        earlier = flux.penstock("what-if", "cancel", running)
        assert "1 other job would start earlier" in earlier.stdout
        done = flux.penstock("sim", "--from-flux", "--json")
        simulation = json.loads(done.stdout)
        assert simulation["workload"]["jobs"] == 2
        assert simulation["machine"]["nodes"] == 1


def test_drained_nodes_get_no_jobs_until_they_are_undrained(start_cluster):
    with start_cluster(2) as flux:
        flux.flux("resource", "drain", "0", "broken", "fan")
        assert "broken fan" in flux.flux("resource", "drain")
        assert flux.flux("resource", "list", "-s", "down", "-no", "{rlist}") == "rank0/core[0-3]"
        job = flux.submit("-N1", "true")
        assert flux.ranks(job) == "1"
        both = flux.flux("submit", "-N2", "true")
        assert "node" in flux.annotation(both, "reason_pending")
        flux.flux("resource", "undrain", "0")
        assert flux.end(both)[0] == 0
        assert flux.ranks(both) == "0-1"


def test_a_lost_node_ends_its_job_and_gets_jobs_again_when_it_returns(start_cluster):
    with start_cluster(3) as flux:
        lost = flux.submit("-N1", "--requires=rank:2", "sleep", "1000")
        kept = flux.submit("-N1", "--requires=rank:1", "sleep", "1000")
        flux.broker("kill", 2, signum=signal.SIGKILL)
        events = flux.events(lost)
        exceptions = [event["context"] for event in events if event["name"] == "exception"]
        assert exceptions[0]["severity"] == 0
        while flux.flux("resource", "list", "-s", "down", "-no", "{nnodes}") != "1":
            pass
        waiting = flux.flux("submit", "-N1", "--requires=rank:2", "true")
        assert "down" in flux.annotation(waiting, "reason_pending")
        flux.broker("run", 2)
        assert flux.end(waiting)[0] == 0
        assert flux.flux("jobs", "-no", "{state}", kept) == "RUN"
        flux.flux("cancel", kept)


def state_of_active_jobs(flux, lost: list[int]) -> str:
    """The active jobs with their events, and the nodes."""
    active = flux.flux("jobs", "-no", "{id} {state} {nnodes} {nodelist} {annotations.sched}")
    logs = [
        flux.run("job", "eventlog", "-p", path, line.split()[0]).stdout
        for line in active.splitlines()
        for path in ("eventlog", "guest.exec.eventlog")
    ]
    tree = flux.run("overlay", "status").stdout
    nodes = flux.flux("resource", "list")
    return "\n".join([f"lost: {lost}", active, *logs, nodes, tree, str(flux.stats())])


def test_no_job_is_lost_while_brokers_are_killed_and_run_again(start_cluster):
    """`FLUX_ROUNDS` makes it a soak."""
    random = Random(1)
    rounds = int(os.environ.get("FLUX_ROUNDS", "1"))
    jobs, killed = [], IDset()
    with start_cluster(16) as flux:
        for _ in range(rounds):
            jobs += flux.flux("submit", "--cc=1-40", "-N1", "sleep", "0.2").split()
            jobs += flux.flux("submit", "--cc=1-4", "-N12", "true").split()
            lost = random.sample(range(1, 16), 2)
            killed |= IDset(lost)
            for rank in lost:
                flux.broker("kill", rank, signum=signal.SIGKILL)
            while flux.flux("resource", "list", "-s", "down", "-no", "{nnodes}") != "2":
                pass
            for rank in lost:
                flux.broker("run", rank)
            drained = flux.run("queue", "drain", f"--timeout={TIMEOUT_S - 20}")
            assert drained.returncode == 0, state_of_active_jobs(flux, lost)
            while flux.flux("resource", "list", "-s", "down", "-no", "{nnodes}") != "0":
                pass
        assert flux.flux("resource", "list", "-s", "allocated", "-no", "{nnodes}") == "0"
        stats = flux.stats()
        assert (stats["ready"], stats["queued"], stats["running"]) == (True, 0, 0)
        ended = flux.flux("jobs", "-a", "--count=0", "-no", "{id} {result}").split("\n")
        results = dict(line.split() for line in ended)
        assert sorted(results) == sorted(jobs)
        # The jobs on the lost nodes alone have failed.
        failed = [job for job, result in results.items() if result != "COMPLETED"]
        ranks = {job: IDset(flux.ranks(job)) for job in failed}
        assert all(job_ranks & killed for job_ranks in ranks.values()), (ranks, killed)


HOUSEKEEPING = """
[job-manager.housekeeping]
command = ["sh", "-c", "test $(flux getattr rank) != 0 || cat {gate}"]
release-after = "0s"
"""


def test_nodes_are_allocated_again_while_others_are_in_housekeeping(start_cluster, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with start_cluster(2, HOUSEKEEPING.format(gate=gate)) as flux:
        first = flux.submit("-N2", "true")
        assert flux.ranks(first) == "0-1"
        second = flux.submit("-N1", "true")
        assert flux.ranks(second) == "1"
        assert flux.flux("resource", "list", "-s", "allocated", "-no", "{rlist}").startswith(
            "rank0"
        )
        # The scheduler that takes over learns what is released already.
        flux.flux("module", "reload", "sched-penstock")
        assert flux.end(flux.submit("-N1", "true"))[0] == 0
        third = flux.flux("submit", "-N2", "true")
        gate.write_text("")
        flux.wait(third, "start")
        assert flux.ranks(third) == "0-1"
        gate.write_text("")


def test_a_changed_duration_changes_r_and_the_estimates_of_others(flux):
    cores = flux.flux("resource", "list", "-s", "up", "-no", "{ncores}")
    running = flux.submit("-n1", "-c", cores, "-t", "1h", "sleep", "1000")
    before = flux.resources(running)["execution"]["expiration"]
    pending = flux.flux("submit", "-n1", "-c", cores, "true")
    assert abs(float(flux.annotation(pending, "t_estimate")) - before) < 2
    assert "core" in flux.annotation(pending, "reason_pending")
    flux.flux("update", running, "duration=+1h")
    while abs(float(flux.annotation(pending, "t_estimate")) - before - 3600) > 2:
        pass
    flux.flux("cancel", running)
    assert flux.end(pending)[0] == 0


def test_priorities_order_the_queue_and_200_jobs_run(flux):
    cores = flux.flux("resource", "list", "-s", "up", "-no", "{ncores}")
    os.mkfifo(flux.directory / "gate")
    first = flux.submit("-n1", "-c", cores, "cat", "gate")
    script = f"echo $FLUX_JOB_NAME >> {flux.directory}/order"
    for name, urgency in (("low", 5), ("high", 20), ("held", 0), ("late", 16)):
        words = [f"--job-name={name}", f"--urgency={urgency}"]
        flux.flux(
            "submit", *words, "-n1", "-c", cores, "--env=FLUX_JOB_NAME=" + name, "sh", "-c", script
        )
    late = flux.flux("jobs", "-no", "{id}", "--name=late")
    flux.flux("job", "urgency", late, "25")
    (flux.directory / "gate").write_text("")
    flux.flux("job", "urgency", flux.flux("jobs", "-no", "{id}", "--name=held"), "1")
    flux.wait(first)
    flux.flux("queue", "drain")
    assert (flux.directory / "order").read_text().split() == ["late", "high", "low", "held"]
    jobs = flux.flux("submit", "--cc=1-200", "true").split()
    flux.flux("queue", "drain")
    states = flux.flux("jobs", "-a", "-c", "400", "-no", "{status}", *jobs).split()
    assert states == ["COMPLETED"] * 200


JGF = {
    "graph": {
        "nodes": [{"id": "0", "metadata": {"type": "cluster", "name": "c"}}],
        "edges": [],
    }
}


def test_an_r_with_a_resource_graph_is_scheduled(flux):
    r = json.loads(flux.flux("R", "encode", "-r", "0", "-c", "0-3", "-H", "fake0"))
    r["scheduling"] = JGF
    (flux.directory / "R").write_text(json.dumps(r))
    flux.flux("module", "remove", "sched-penstock")
    flux.flux("resource", "reload", str(flux.directory / "R"))
    flux.flux("module", "load", "sched-penstock")
    assert flux.flux("resource", "list", "-s", "free", "-no", "{ncores}") == "4"
    job = flux.submit("-n1", "-c2", "true", until="alloc")
    assert flux.resources(job)["execution"]["R_lite"] == [
        {"rank": "0", "children": {"core": "0-1"}}
    ]
    flux.end(job)


def test_penstock_explains_and_estimates_the_jobs_of_flux(flux):
    cores = flux.flux("resource", "list", "-s", "up", "-no", "{ncores}")
    running = flux.submit("-n1", "-c", cores, "-t", "1h", "sleep", "1000")
    expiration = flux.resources(running)["execution"]["expiration"]
    pending = flux.flux("submit", "-n1", "-c", cores, "-t", "30m", "true")
    # The request of a user is after that of the job manager, which may still be on its way.
    flux.annotation(pending, "reason_pending")
    explained = flux.penstock("explain", pending)
    assert explained.returncode == 0, explained.stderr
    assert f"needs 1 slot of {cores} core" in explained.stdout
    row = json.loads(flux.penstock("estimate", "--json", pending).stdout)
    assert abs(row["start"] - expiration) < 2
    answer = flux.penstock("what-if", "cancel", running)
    assert answer.returncode == 0, answer.stderr
    assert pending in answer.stdout
    assert "queued" in flux.penstock("stats", "sched").stdout
    flux.flux("cancel", running)
    assert flux.end(pending)[0] == 0
