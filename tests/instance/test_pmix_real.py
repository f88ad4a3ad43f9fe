"""Jobs that request resources by PMIx: real tasks, a real server, a real instance."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import sqlite3
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
from pmixdaemon import EXAMPLE, PATIENCE, Gates, codes, compile_program, server_program
from tests.instance.conftest import RunningInstance, foreground, is_running, kill, service_of

from penstock.client import Client
from penstock.errors import RpcError
from penstock.jobid import parse
from penstock.jobspec import from_command

MINE = "id=MYALLOCATION"
PROGRAMS = Path(__file__).parents[1] / "pmix"
# Of what a race could spoil.
ROUNDS = int(os.environ.get("PENSTOCK_PMIX_ROUNDS", "5"))


@pytest.fixture(scope="module")
def alloc(tmp_path_factory):
    """The example, compiled."""
    server_program()
    return str(compile_program(EXAMPLE, tmp_path_factory.mktemp("alloc")))


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Compiles a program of the tests."""
    server_program()
    directory = tmp_path_factory.mktemp("programs")
    return lambda name: str(compile_program(PROGRAMS / f"{name}.c", directory))


@pytest.fixture
def instance(start):
    """An instance of four nodes."""
    with start("--nodes=4", "--cores=4", "--oversubscribe") as started:
        yield started


def run(instance, alloc, *words, ntasks=3):
    """The lines of a job on one node, by rank."""
    lines = instance.lines("run", "-N1", f"-n{ntasks}", "-t10", "--pmix", alloc, *words)
    return [
        [line.removeprefix(f"rank {rank}: ") for line in lines if line.startswith(f"rank {rank}:")]
        for rank in range(ntasks)
    ]


def submit(instance, client, alloc, *words, ntasks=3):
    """Submits such a job; returns its id, and its number once it has sent its request."""
    (job,) = instance.lines("submit", "-N1", f"-n{ntasks}", "--pmix", alloc, *words)
    # The newest job can be the request's already.
    number = parse(job)
    for event in client.eventlog(number, follow=True):
        if event["name"] == "penstock.alloc-request":
            return job, number
    raise AssertionError(f"job {job} has not asked")


def rows(instance):
    """The jobs, newest first."""
    return [json.loads(line) for line in instance.lines("jobs", "-a", "--json", "--sort=-id.dec")]


def processes(instance, *names):
    """The processes of jobs that have these names: tasks, and PMIx servers."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (path / "comm").read_text().strip() in names:
                mark = f"PENSTOCK_URI={instance.uri}".encode()
                if mark in (path / "environ").read_bytes().split(b"\0"):
                    found.append(int(path.name))
    return found


def test_granted(instance, alloc):
    [zero, one, two] = run(instance, alloc, f"new:nodes=2,{MINE}")
    assert codes(zero[:3]) == [
        "3 tasks in a universe of 3, 3 of them here",
        "new: asked",
        "new: status 0",
    ]
    assert "new: pmix.alloc.nlist = node[1-2]" in zero
    assert "event: penstock.alloc.status = 0" in one
    assert "event: pmix.alloc.nlist = node[1-2]" in one
    assert "query: pmix.query.alloc = granted" in two
    # The allocation outlives the requesting job, and ends when it is cancelled.
    [allocation, asker] = rows(instance)
    assert (allocation["state"], asker["result"]) == ("RUN", "COMPLETED")
    assert f"new: pmix.alloc.id = {allocation['id']}" in zero
    instance.lines("cancel", allocation["id"])
    assert instance.penstock("wait", allocation["id"]).returncode == 1


def test_a_required_request_that_is_too_large_is_denied(instance, alloc):
    [zero, one, two] = run(instance, alloc, f"new:nodes=12,{MINE},required")
    assert "new: status -29" in codes(zero)
    assert "event: penstock.alloc.status = -29" in one
    assert "query: pmix.query.alloc = denied" in two
    [reason] = [line for line in one if line.startswith("event: pmix.evtext = ")]
    assert reason.replace("event", "query") in two


def test_queued_then_granted(instance, alloc):
    (blocker,) = instance.lines("submit", "-N3", "sleep", "1000")
    with Client(instance.uri) as client:
        job, _ = submit(instance, client, alloc, f"new:nodes=3,{MINE}")
    instance.lines("cancel", blocker)
    assert instance.penstock("wait", job).returncode == 0
    lines = instance.lines("logs", job)
    assert "rank 0: new: status 0" in codes(lines)
    assert "rank 1: event: penstock.alloc.status = 0" in lines
    assert "rank 2: query: pmix.query.alloc = granted" in lines


def test_cancelled(instance, alloc):
    [zero, one, two] = run(instance, alloc, f"new:nodes=4,{MINE},nowait", f"cancel:{MINE}")
    assert "cancel: status 0" in codes(zero)
    assert "new: status -180" in codes(zero)
    assert "event: penstock.alloc.status = -180" in one
    assert "query: pmix.query.alloc = cancelled" in two


def test_cancelled_without_an_id(instance, alloc):
    words = ["new:nodes=1,id=C", "new:nodes=4,id=A,nowait", "new:nodes=4,nowait", "cancel"]
    [zero] = run(instance, alloc, *words, "status", ntasks=1)
    assert "cancel: status 0" in codes(zero)
    assert codes(zero).count("new: status -180") == 2
    # The grant stays, and is reported with the other requests.
    states = [line for line in zero if line.startswith("status: pmix.query.alloc")]
    assert sorted(line.rpartition(" ")[2] for line in states) == [
        "cancelled",
        "cancelled",
        "granted",
    ]
    assert "status: pmix.alloc.reqid = A" in zero
    assert "status: pmix.alloc.reqid = C" in zero


def test_an_allocation_of_its_own_ends_by_release(instance, alloc):
    [zero] = run(instance, alloc, "new:nodes=2,id=A", "release:alloc=A", ntasks=1)
    assert codes(zero).count("release: status 0") == 1
    assert "release: pmix.alloc.nlist = node[1-2]" in zero
    [allocation, asker] = rows(instance)
    assert (allocation["state"], asker["state"]) == ("INACTIVE", "INACTIVE")
    assert f"new: pmix.alloc.id = {allocation['id']}" in zero


def test_hosts_go_back_by_name_but_never_the_requesters(instance, alloc):
    words = ["extend:nodes=2,id=A", "release:hosts=node1,id=B", "release:hosts=node0,id=C"]
    [zero] = run(instance, alloc, *words, "status", ntasks=1)
    assert "release: pmix.alloc.nlist = node1" in zero
    assert [line for line in codes(zero) if line.startswith("release: status")] == [
        "release: status 0",
        "release: status -29",
    ]
    # Both are reported, with the reason.
    assert [line for line in zero if line.startswith("status: pmix.alloc.reqid")] == [
        f"status: pmix.alloc.reqid = {name}" for name in "ABC"
    ]
    assert [line for line in zero if line.startswith("status: pmix.evtext")] != []


def test_an_id_is_the_jobs_own(instance, alloc):
    run(instance, alloc, f"new:nodes=1,{MINE}", ntasks=1)
    [zero] = run(
        instance, alloc, "status", "release:alloc=MYALLOCATION", f"cancel:{MINE}", ntasks=1
    )
    assert [line for line in codes(zero) if "asked" not in line][1:] == [
        "status: status 0",
        "release: status -46",
        "cancel: status -46",
    ]


def test_lent_and_reacquired(instance, alloc):
    words = ["extend:nodes=2,id=A", "release:nodes=1,time=600,id=L", "reacquire:alloc=L,id=R"]
    [zero] = run(instance, alloc, *words, "reacquire:alloc=L,required", ntasks=1)
    assert "release: pmix.alloc.time = 600" in zero
    [lent] = [line for line in zero if line.startswith("release: pmix.alloc.nlist")]
    assert lent.replace("release", "reacquire") in zero
    # Once only.
    assert [line for line in codes(zero) if "status" in line] == [
        "extend: status 0",
        "release: status 0",
        "reacquire: status 0",
        "reacquire: status -46",
    ]


def test_a_loan_is_reclaimed_when_it_ends(instance, alloc):
    # The job is still running when its program has ended.
    script = f"{alloc} extend:nodes=1,id=A release:nodes=1,time=1,id=L; exec sleep 1000"
    (job,) = instance.lines("submit", "-N1", "-n1", "--pmix", "sh", "-c", script)
    with Client(instance.uri) as client:
        number = parse(job)
        names = []
        for event in client.eventlog(number, follow=True):
            names.append(event["name"])
            if names.count("penstock.resource-add") == 2:
                break
    assert names.count("penstock.resource-remove") == 1
    instance.lines("cancel", job)


def test_a_partial_grant_at_the_timeout(instance, alloc):
    instance.lines("submit", "-N2", "sleep", "1000")
    words = ["extend:nodes=3,timeout=1,id=A", "extend:nodes=1,timeout=1,id=B"]
    [zero] = run(instance, alloc, *words, "status", ntasks=1)
    assert [line for line in codes(zero) if line.startswith("extend: status")] == [
        "extend: status 0",
        "extend: status -24",
    ]
    # The answer has the reason, as the query has; both have the same hosts.
    assert "extend: pmix.evtext = in part: 1 of 3 nodes" in zero
    assert "status: pmix.evtext = in part: 1 of 3 nodes" in zero
    [hosts] = [line for line in zero if line.startswith("extend: pmix.alloc.nlist")]
    assert hosts.replace("extend", "status") in zero


def test_attributes_of_every_type(instance, programs):
    one = "pmix.alloc.nnodes:uint64=1"
    nodes = "pmix.alloc.nlist"
    values = {
        f"{nodes}:regex=node1,node2,node3 :blank=": "node[1-3] 4,4,4",
        f"{nodes}:string=node[1-2]": "node[1-2] 4,4",
        "pmix.alloc.ncpus:nodes=node1,node2/3,3": "node[1-2] 3,3",
        f"{nodes}:string=node3,node1 pmix.alloc.ncpulist:string=2": "node[1,3] 2,2",
        f"{one} pmix.alloc.ncpus:uint64=4! {nodes}:string=node2": "node2 4",
        "pmix.alloc.time:uint32=90": "90",
        "pmix.alloc.time:string=1:30": "90",
        "pmix.alloc.time:string=1:0:0": "3600",
    }
    dropped = {
        "pmix.alloc.msize:float=1.5": -47,
        "pmix.alloc.net:network=eth0/fast": -47,
        "pmix.alloc.queue:string=nosuch": -29,
        "pmix.alloc.nlist:string=nosuch": -29,
        "pmix.other:string=x": -47,
    }
    rejected = {
        **{f"2 {one} {word}!": status for word, status in dropped.items()},
        **{f"{directive} {one}": -47 for directive in (6, 128, 255)},
        "3 pmix.alloc.id:string=nosuch!": -46,
        "2 pmix.alloc.nnodes:string=x": -27,
    }
    # The grant of one request is released before the next.
    back = "pmix.alloc.reqid:string=it then 3 pmix.alloc.id:string=it!"
    requests = [f"2 {words}" if "time" in words else f"2 {words} {back}" for words in values]
    requests += [f"2 {one} {word} {back}" for word in dropped]
    requests += [*rejected, f"1 {one} pmix.alloc.id:string=mine"]
    words = " then ".join(requests).split()
    lines = instance.lines("run", "-N1", "-n1", "-t10", "--pmix", programs("attributes"), *words)
    answers = [block.splitlines() for block in "\n".join(lines).split("status: ")[1:]]
    results = iter(
        (int(first), dict(line.split(" = ") for line in rest)) for first, *rest in answers
    )
    for request, expected in values.items():
        status, response = next(results)
        found = [response.get(key) for key in (nodes, "pmix.alloc.ncpulist")]
        found = [response["pmix.alloc.time"]] if "time" in request else found
        assert (request, status, " ".join(found)) == (request, 0, expected)
        if "time" not in request:
            assert next(results)[0] == 0
    for word in dropped:
        status, response = next(results)
        assert (status, response["penstock.alloc.dropped"]) == (0, word.partition(":")[0])
        assert next(results)[0] == 0
    for request, expected in rejected.items():
        assert (request, next(results)) == (request, (expected, {}))
    # If there is no such allocation, it is the request's own name.
    status, response = next(results)
    assert (status, response["pmix.alloc.reqid"]) == (0, "mine")
    assert next(results, None) is None


def test_extended_released_and_prolonged(instance, alloc):
    words = ["extend:nodes=2,id=A", "release:nodes=1,id=B", "extend:time=60,id=C"]
    [zero] = run(instance, alloc, *words, ntasks=1)
    assert codes(zero).count("extend: status 0") == 2
    assert "release: status 0" in codes(zero)
    assert "extend: pmix.alloc.nlist = node[1-2]" in zero
    assert "release: pmix.alloc.nlist = node2" in zero
    assert "extend: pmix.alloc.time = 60" in zero
    with Client(instance.uri) as client:
        (asker,) = [row["id"] for row in rows(instance) if row["name"] == "alloc"]
        assert asker
        names = [
            event["name"]
            for number in client.rpc("job-manager.history.get", {"slice": "[:]"})["jobs"]
            for event in client.eventlog(number)
        ]
    for name in ["penstock.resource-add", "penstock.resource-remove", "resource-update"]:
        assert name in names


def test_each_task_knows_its_own_node(instance, programs):
    lines = instance.lines("run", "-N2", "-n4", "--pmix", programs("where"))
    for rank in range(4):
        node = rank // 2
        peers = f"{2 * node},{2 * node + 1}, first {2 * node}"
        others = [
            f"{other} on node{other // 2}, {other % 2} there, card {100 + other}"
            for other in range(4)
        ]
        assert [line.partition(": ")[2] for line in lines if line.startswith(f"{rank}: ")] == [
            f"of 4 on 2 nodes; here 2: {peers}; 2 on node{node}, node {node}, env node{node}",
            *others,
        ]


# libpmix may fail if several tasks end at a time of which some are in a fence (docs/pmix.md):
# either one task ends, or none of those that end is in a fence.
@pytest.mark.parametrize(("tasks", "fencing", "remaining"), [(2, 2, 1), (6, 3, 3)])
def test_the_remaining_tasks_fence_after_a_release(instance, programs, tasks, fencing, remaining):
    words = ["run", "-N2", f"-n{tasks}", "--pmix", programs("release"), "10", str(fencing)]
    for _ in range(ROUNDS):
        lines = instance.lines(*words)
        assert "release: 0" in lines
        ranks = tuple(f"{rank} " for rank in range(remaining))
        fences = [line for line in lines if line.startswith(ranks)]
        assert len(fences) == 10 * remaining
        assert {line.partition(": ")[2] for line in fences} <= {"0", "-52"}


def test_a_late_event_handler_is_called(instance, alloc):
    [_, one, _] = run(instance, alloc, "--late", f"new:nodes=1,{MINE}")
    assert one[1:3] == ["registered", "event: pmix.alloc.reqid = MYALLOCATION"]


def test_a_late_default_event_handler_is_called(instance, alloc):
    [_, one] = run(instance, alloc, "--late", "new:nodes=1", ntasks=2)
    assert one[1] == "registered"
    assert "event: penstock.alloc.status = 0" in one


def test_a_thousand_requests_of_one_job(instance, alloc):
    [zero] = run(instance, alloc, "--count", "1000", "new:nodes=1,required", ntasks=1)
    # Three nodes are free.
    assert zero[-1] == "new: 1000 answers, 997 denied"
    assert [row["state"] for row in rows(instance)].count("RUN") == 3


def test_an_abort_is_an_exception(instance, alloc):
    done = instance.penstock("run", "-n2", "--pmix", alloc, "--abort", "7")
    assert done.returncode != 0
    assert "abort: rank 0 aborted with status 7: given up" in done.stderr


def test_a_killed_server_is_an_exception(instance, alloc):
    with Client(instance.uri) as client:
        job, _ = submit(instance, client, alloc, f"new:nodes=4,{MINE}")
    [server] = processes(instance, "penstock-pmix")
    os.kill(server, signal.SIGKILL)
    assert instance.penstock("wait", job).returncode != 0
    reason = json.loads(instance.lines("info", "--json", job)[0])["reason"]
    assert "the job's PMIx server has ended before the tasks" in reason


def test_a_pending_request_ends_with_its_task(instance, alloc):
    with Client(instance.uri) as client:
        job, _ = submit(instance, client, alloc, f"new:nodes=4,{MINE}")
    for task in processes(instance, "alloc"):
        os.kill(task, signal.SIGKILL)
    assert instance.penstock("wait", job).returncode != 0
    instance.penstock("wait", "--all")
    assert {row["state"] for row in rows(instance)} == {"INACTIVE"}


def test_a_request_outlives_the_task_that_made_it(instance, alloc):
    (blocker,) = instance.lines("submit", "-N3", "sleep", "1000")
    with Client(instance.uri) as client:
        job, _ = submit(instance, client, alloc, f"new:nodes=3,{MINE}")
    [zero] = [
        task
        for task in processes(instance, "alloc")
        if b"PMIX_RANK=0" in Path(f"/proc/{task}/environ").read_bytes().split(b"\0")
    ]
    os.kill(zero, signal.SIGKILL)
    instance.lines("cancel", blocker)
    assert instance.penstock("wait", job).returncode != 0
    lines = instance.lines("logs", job)
    assert "rank 0: new: asked" in lines
    assert not any(line.startswith("rank 0: new: status") for line in lines)
    assert "rank 1: event: penstock.alloc.status = 0" in lines
    assert "rank 2: query: pmix.query.alloc = granted" in lines


def test_tasks_get_events_after_the_job_manager_has_failed(instance, alloc):
    (blocker,) = instance.lines("submit", "-N3", "sleep", "1000")
    with Client(instance.uri) as client:
        job, _ = submit(instance, client, alloc, f"new:nodes=3,{MINE}")
        with closing(sqlite3.connect(instance.state / "jobs.sqlite", isolation_level=None)) as lock:
            lock.execute("BEGIN IMMEDIATE")
            with pytest.raises(RpcError) as caught:
                client.submit(from_command(["true"]))
            assert caught.value.errno == errno.EBUSY
            lock.execute("ROLLBACK")
        while {row["name"]: row["state"] for row in client.services()}["job-manager"] != "running":
            pass
    instance.lines("cancel", blocker)
    assert instance.penstock("wait", job).returncode == 0
    lines = instance.lines("logs", job)
    # The response is lost with the job manager; the request is not.
    assert "rank 0: new: status -61" in codes(lines)
    assert "rank 1: event: penstock.alloc.status = 0" in lines
    assert "rank 2: query: pmix.query.alloc = granted" in lines


def test_the_instance_is_killed_with_a_pending_request(start, alloc):
    with start("--nodes=4", "--cores=4", "--oversubscribe") as instance:
        with Client(instance.uri) as client:
            job, number = submit(instance, client, alloc, f"new:nodes=4,{MINE}", ntasks=1)
        ends = [os.pidfd_open(pid) for pid in processes(instance, "penstock-pmix", "alloc")]
        assert len(ends) == 2
        kill(instance)
        # The request fails, the task ends, and so does its server.
        for end in ends:
            assert select.select([end], [], [], PATIENCE)[0]
            os.close(end)
    output = instance.state / "exec" / "output" / f"{number}.stdout"
    assert "rank 0: new: status -61" in codes(output.read_text().splitlines())
    with start("--nodes=4", "--cores=4", "--oversubscribe") as instance:
        assert instance.penstock("wait", job).returncode == 0
        instance.penstock("wait", "--all")
        assert {row["state"] for row in rows(instance)} == {"INACTIVE"}
    assert list((instance.state / "exec" / "pmix").iterdir()) == []


class BetweenFences:
    """A job whose tasks are stopped between two fences, and request resources after them.

    Args:
        submit: submits the job of these words; returns its id.
        program: `tests/pmix/between.c`, compiled.
        directory: for FIFOs.
    """

    def __init__(self, submit, program, directory):
        gates = Gates(directory, 2)
        self.job = submit("-N1", "-n2", "-t10", "--pmix", program, gates.name)
        with ExitStack() as stack:
            # Returns when the tasks have left the first fence.
            stack.enter_context(gates)
            self._gates = stack.pop_all()

    def finish(self):
        """Lets the tasks continue."""
        self._gates.close()


def check_fences(instance, job):
    """Checks a job of `BetweenFences`."""
    assert instance.penstock("wait", job).returncode == 0
    assert sorted(instance.lines("logs", job)) == [
        "rank 0: 1 nodes: 0",
        "rank 0: 1000 nodes: -29",
        "rank 0: fence: 0",
        "rank 0: fence: 0",
        "rank 1: fence: 0",
        "rank 1: fence: 0",
    ]
    (row,) = [row for row in rows(instance) if row["id"] == job]
    assert row["result"] == "COMPLETED"
    assert processes(instance, "penstock-pmix") == []


@pytest.fixture
def fenced(programs, tmp_path):
    """Submits such a job to an instance."""
    return lambda instance: BetweenFences(
        lambda *words: instance.lines("submit", *words)[0], programs("between"), tmp_path
    )


NODES = ("--nodes=4", "--cores=4", "--oversubscribe")


@pytest.mark.parametrize("is_early", [False, True], ids=["with the daemon", "without the daemon"])
def test_a_job_continues_when_the_daemon_is_killed(start, fenced, is_early):
    with start(*NODES) as instance:
        tasks = fenced(instance)
        [server] = processes(instance, "penstock-pmix")
        kill(instance)
    if is_early:
        # The second fence needs no daemon, and requests are held.
        tasks.finish()
    with start(*NODES) as instance:
        if not is_early:
            assert processes(instance, "penstock-pmix") == [server]
            tasks.finish()
        check_fences(instance, tasks.job)
        # The request of this job is forwarded to the instance in its name.
        assert [row["state"] for row in rows(instance)].count("RUN") == 1


def test_a_job_continues_when_its_service_is_killed(start, fenced):
    with start(*NODES) as instance:
        tasks = fenced(instance)
        service = service_of(instance.state / "exec")
        end = os.pidfd_open(service)
        os.kill(service, signal.SIGKILL)
        assert select.select([end], [], [], PATIENCE)[0]
        os.close(end)
        tasks.finish()
        check_fences(instance, tasks.job)


def test_a_job_continues_when_daemon_and_service_are_killed(start, fenced):
    with start(*NODES) as instance:
        tasks = fenced(instance)
        os.kill(service_of(instance.state / "exec"), signal.SIGKILL)
        kill(instance)
    with start(*NODES) as instance:
        tasks.finish()
        check_fences(instance, tasks.job)


def test_a_job_continues_when_the_instance_is_restarted(programs, tmp_path):
    state = tmp_path / "state"
    with foreground(state, *NODES) as daemon:
        instance = RunningInstance(daemon, state)
        submit = lambda *words: instance.lines("submit", *words)[0]  # noqa: E731
        tasks = BetweenFences(submit, programs("between"), tmp_path)
        instance.lines("restart")
        tasks.finish()
        check_fences(instance, tasks.job)


def test_the_server_of_a_job_that_is_cancelled_while_the_daemon_restarts_ends(start, fenced):
    with start(*NODES) as instance:
        tasks = fenced(instance)
        pids = processes(instance, "penstock-pmix", "between")
        assert len(pids) == 3
        kill(instance)
    with start(*NODES) as instance:
        instance.lines("cancel", tasks.job)
        assert instance.penstock("wait", tasks.job).returncode != 0
        assert [pid for pid in pids if is_running(pid)] == []
    tasks.finish()


def test_a_task_that_ends_while_the_daemon_is_away_is_no_longer_waited_for(
    start, programs, tmp_path
):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    # Without a connection to lose: libpmix does not see the end.
    script = f"test $PMIX_RANK = 0 || cat {gate}; exec {programs('fence')} exits 1 3"
    with start(*NODES) as instance:
        command = ["-N1", "-n2", "-t10", "--pmix", "sh", "-c", script]
        (job,) = instance.lines("submit", *command)
        with gate.open("w"):
            kill(instance)
    with start(*NODES) as instance:
        assert instance.penstock("wait", job).returncode == 0
        first, *others = instance.lines("logs", job)
        assert first in ("fence: 0", "fence: -52")
        assert others == ["fence: 0"] * 2
