"""Jobs as futures."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import FIRST_COMPLETED, CancelledError, as_completed, wait

import pytest

from penstock import JobExecutor, RpcError
from penstock._core import fluid_f58
from penstock.client import Client, NoInstanceError
from penstock.errors import JobspecError
from penstock.executor import EVENTS, JobException
from penstock.jobspec import from_command

SIM = {"system.exec.test.run_duration": "0s"}


@pytest.fixture
def sim(start):
    with start("--nodes=16", "--cores=16") as instance:
        yield instance


@pytest.fixture
def local(start):
    with start("--nodes=1", "--cores=8", "--oversubscribe") as instance:
        yield instance


@pytest.fixture
def executor(local):
    with JobExecutor(local.uri) as executor:
        yield executor


def shell(line):
    return ["sh", "-c", line]


def test_the_result_is_the_exit_code(executor):
    codes = {"exit 0": 0, "exit 7": 7, "kill -9 $$": 137}
    futures = {executor.submit(shell(line)): code for line, code in codes.items()}
    for future in as_completed(futures):
        assert future.result() == futures[future]
        assert future.done()
        assert not future.running()
        assert not future.cancel()


def test_a_thousand_jobs(sim):
    with JobExecutor(sim.uri) as executor, Client(sim.uri) as client:
        spec = from_command(["app"], environment={}, cwd="/", setattr=SIM)
        futures = [executor.submit(spec) for _ in range(1000)]
        ids = [future.jobid() for future in futures]
        assert len(set(ids)) == 1000
        # In the order in which they were submitted.
        assert ids == sorted(ids)
        assert [future.result() for future in futures] == [0] * 1000
        assert len(client.job_rows(constraint={"states": ["inactive"]})) == 1000


def test_a_job_that_ends_by_an_exception_raises_it(executor, local):
    late = executor.submit(["sleep", "1000"], duration=0.01)
    denied = executor.submit(["true"], nodes=9)
    cancelled = executor.submit(["sleep", "1000"])
    local.lines("cancel", "-m", "enough", fluid_f58(cancelled.jobid()))
    for future, kind, text in [
        (late, "timeout", "timeout: resource allocation expired"),
        (denied, "alloc", "alloc: "),
        (cancelled, "cancel", "cancel: enough"),
    ]:
        error = future.exception()
        assert isinstance(error, JobException)
        assert (error.type, error.severity, error.jobid) == (kind, 0, future.jobid())
        assert str(error).startswith(text)


def test_a_rejected_jobspec_does_not_affect_other_jobs(executor):
    spec = from_command(["true"])
    bad = spec | {"version": 9}
    futures = [executor.submit(jobspec) for jobspec in (spec, bad, spec)]
    assert [futures[0].result(), futures[2].result()] == [0, 0]
    for ask in (futures[1].result, futures[1].jobid):
        with pytest.raises(RpcError, match="version"):
            ask()


def test_an_invalid_job_raises_at_submit(executor):
    with pytest.raises(TypeError, match="it runs jobs, not Python callables"):
        executor.submit(print)
    with pytest.raises(TypeError, match="a list of words"):
        executor.submit("sleep 1")
    with pytest.raises(TypeError, match="ntasks: options are for commands"):
        executor.submit(from_command(["true"]), ntasks=2)
    with pytest.raises(ValueError, match="expected a command"):
        executor.submit([])
    with pytest.raises(ValueError, match="the jobspec has no JSON form"):
        executor.submit({"version": {1}})
    futures = [executor.submit(["true"]) for _ in range(10)]
    with pytest.raises(JobspecError, match="the jobspec has no JSON form"):
        executor.submit(["true"], duration=float("inf"))
    assert [future.result() for future in futures] == [0] * 10


def test_large_jobspecs_do_not_end_the_connection(sim):
    def spec(size):
        return from_command(["app"], environment={"BIG": "x" * size}, cwd="/", setattr=SIM)

    with JobExecutor(sim.uri) as executor, Client(sim.uri) as client:
        # Together they are more than one frame holds.
        futures = [executor.submit(spec(15_000_000)) for _ in range(5)]
        with pytest.raises(JobspecError, match="expected at most 16777216 bytes of JSON"):
            executor.submit(spec(17_000_000))
        with pytest.raises(JobspecError, match="too large"):
            client.submit(spec(17_000_000))
        with pytest.raises(JobspecError, match=r"jobs\[1\]: .*too large"):
            client.submit_many([{"jobspec": spec(size)} for size in (1, 17_000_000)])
        (small,) = client.submit_many([{"jobspec": spec(1)}])
        assert [row["id"] for row in client.wait_rows(small)] == small
        assert [future.result() for future in futures] == [0] * 5


def test_a_cancelled_future_is_cancelled_at_once_and_its_job_ends(executor, local):
    future = executor.submit(["sleep", "1000"])
    job = future.jobid()
    assert future.running()
    called = threading.Event()
    future.add_done_callback(lambda _: called.set())
    assert future.cancel()
    assert future.cancel()
    assert future.cancelled()
    assert called.wait(60)
    with pytest.raises(CancelledError):
        future.result()
    assert future.jobid() == job
    assert wait([future], 60).done == {future}
    with Client(local.uri) as client:
        (row,) = client.wait_rows([job])
    assert row["exception_type"] == "cancel"


def test_events_come_in_order_past_ones_included(executor):
    seen, names = [], ("submit", "alloc", "start", "finish", "clean")
    started = threading.Event()
    read, write = os.pipe()
    future = executor.submit(shell(f"cat < /proc/{os.getpid()}/fd/{read}"))
    future.add_event_callback("start", lambda *_: started.set())
    for name in names:
        future.add_event_callback(name, lambda job, event: seen.append((job, event["name"])))
    assert started.wait(60)
    os.close(write)
    assert future.result() == 0
    os.close(read)
    assert {job for job, _ in seen} == {future}
    assert sorted(name for _, name in seen) == sorted(names)
    assert [name for _, name in seen][-2:] == ["finish", "clean"]
    past = []
    future.add_event_callback("finish", lambda _, event: past.append(event["context"]))
    assert [context["status"] for context in past] == [0]
    with pytest.raises(ValueError, match="unknown event `begin`"):
        future.add_event_callback("begin", print)
    assert set(names) <= EVENTS
    for name in ("flux-restart", "reattached"):
        future.add_event_callback(name, print)


def test_a_failing_callback_does_not_affect_others(executor, caplog):
    future = executor.submit(["true"])
    future.add_event_callback("submit", lambda *_: 1 / 0)
    assert future.result() == 0
    assert "callback for `submit`" in caplog.text


def test_a_job_id_is_reported_once_it_is_known(executor):
    called = threading.Event()
    future = executor.submit(["true"])
    future.add_jobid_callback(lambda job: called.set() if job is future else None)
    assert called.wait(60)
    assert future.jobid(0) > 0


def test_a_job_submitted_by_another_client(executor, local):
    (name,) = local.lines("submit", *shell("exit 3"))
    future = executor.attach(name)
    assert future.result() == 3
    again = executor.attach(future.jobid())
    events = []
    again.add_event_callback("finish", lambda _, event: events.append(event))
    assert again.result() == 3
    with pytest.raises(RpcError, match="no job ƒ1"):
        executor.attach("ƒ1").result()
    with pytest.raises(ValueError, match="job id"):
        executor.attach("?")


def test_map_makes_jobs(executor):
    assert list(executor.map(lambda n: shell(f"exit {n}"), range(4))) == [0, 1, 2, 3]
    with pytest.raises(TimeoutError):
        list(executor.map(lambda n: ["sleep", str(n)], [1000], timeout=0))
    with pytest.raises(TypeError, match="not Python callables"):
        executor.map(lambda n: lambda: n, [1])


def test_shutdown_rejects_new_jobs_and_waits_for_submitted_ones(local):
    executor = JobExecutor(local.uri)
    futures = [executor.submit(["true"]) for _ in range(20)]
    executor.shutdown(wait=False)
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(["true"])
    assert [future.result() for future in futures] == [0] * 20
    executor.shutdown()
    with pytest.raises(RuntimeError, match="shut down"):
        executor.attach("ƒ1")


def test_shutdown_can_cancel_active_jobs(local):
    with JobExecutor(local.uri) as executor:
        over = executor.submit(["true"])
        assert over.result() == 0
        futures = [executor.submit(["sleep", "1000"]) for _ in range(20)]
        executor.shutdown(cancel_futures=True)
        assert all(future.cancelled() for future in futures)
        assert over.result() == 0
    assert local.penstock("wait", "--all").returncode in (0, 1)
    with Client(local.uri) as client:
        assert client.job_rows(constraint={"states": ["active"]}) == []


def test_a_lost_instance_fails_every_future(local):
    with JobExecutor(local.uri) as executor:
        futures = [executor.submit(["sleep", "1000"]) for _ in range(3)]
        futures[2].jobid()
        local.process.kill()
        for future in futures:
            with pytest.raises(NoInstanceError, match="closed the connection"):
                future.result()
        assert wait(futures, return_when=FIRST_COMPLETED).done == set(futures)
        with pytest.raises(NoInstanceError):
            executor.submit(["true"])
        assert not futures[0].cancel()


def test_without_an_instance_there_is_no_executor(tmp_path):
    with pytest.raises(NoInstanceError, match="no instance at"):
        JobExecutor(f"local://{tmp_path}/none")


def test_a_program_that_forgets_the_executor_ends_when_its_jobs_have(local):
    code = (
        "from penstock import JobExecutor; e = JobExecutor();"
        "e.submit(['true']).add_done_callback(lambda job: print('over', job.result()));"
        "JobExecutor()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PENSTOCK_URI": local.uri},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "over 0\n", "")
