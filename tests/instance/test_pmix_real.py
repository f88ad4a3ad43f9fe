"""A job that asks for resources through PMIx: real tasks, a real server, a real instance."""

from __future__ import annotations

import json
import os
import select
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest
from pmixdaemon import (
    EXAMPLE,
    GRANTED,
    PATIENCE,
    Book,
    Service,
    codes,
    compile_program,
    server_program,
)


@pytest.fixture(scope="module")
def alloc(tmp_path_factory):
    """The example, compiled."""
    server_program()
    return str(compile_program(EXAMPLE, tmp_path_factory.mktemp("alloc")))


@pytest.fixture
def instance(start):
    """An instance with room for three tasks."""
    with start("--nodes=1", "--cores=4", "--exec=local", "--oversubscribe") as started:
        yield started


def children(instance, name):
    """The processes of this name that the instance has started."""
    threads = Path(f"/proc/{instance.process.pid}/task").iterdir()
    pids = " ".join((thread / "children").read_text() for thread in threads).split()
    return [int(pid) for pid in pids if Path(f"/proc/{pid}/comm").read_text().strip() == name]


@contextmanager
def service(instance, answer):
    """Serves `pmix` in the instance."""
    serving = Service(instance.uri, answer)
    try:
        yield serving
    finally:
        serving.hang_up()


def test_a_job_of_three_tasks_asks_and_is_granted(instance, alloc):
    book = Book({"MYALLOCATION": (0, "", GRANTED)})
    with service(instance, book.answer) as serving:
        lines = instance.lines("run", "-n3", "--pmix", alloc, "new:nodes=12,id=MYALLOCATION")
        assert "rank 0: new: status 0 (SUCCESS)" in lines
        assert "rank 0: new: pmix.alloc.nlist = n[1-12]" in lines
        assert "rank 1: event: penstock.alloc.status = 0" in lines
        assert "rank 2: query: pmix.query.alloc = granted" in lines
        (row,) = map(json.loads, instance.lines("jobs", "-a", "--json"))
        asked = [serving.asked.get_nowait().object() for _ in range(serving.asked.qsize())]
        ids = {request["job"] for request in asked}
        assert [instance.lines("info", str(number))[0] for number in ids]
        assert len(ids) == 1
        assert row["result"] == "COMPLETED"


def test_a_refusal_is_told_to_all(instance, alloc):
    book = Book({"MYALLOCATION": (-29, "too big", [])})
    with service(instance, book.answer):
        lines = instance.lines(
            "run", "-n3", "--pmix", alloc, "new:nodes=12,id=MYALLOCATION,required"
        )
    assert "rank 0: new: status -29" in codes(lines)
    assert "rank 1: event: pmix.evtext = too big" in lines
    assert "rank 2: query: pmix.query.alloc = refused" in lines


def test_an_instance_without_the_service_supports_nothing(instance, alloc):
    lines = instance.lines("run", "--pmix", alloc, "new:nodes=1")
    assert "rank 0: new: status -47" in codes(lines)


def test_a_thousand_requests_of_one_job(instance, alloc):
    with service(instance, lambda *_: {"status": 0, "reason": "", "results": GRANTED}):
        lines = instance.lines("run", "--pmix", alloc, "--count", "1000", "new:nodes=1")
    assert lines[-1] == "rank 0: new: 1000 answers, 0 refused"


def test_an_abort_is_an_exception(instance, alloc):
    done = instance.penstock("run", "-n2", "--pmix", alloc, "--abort", "7")
    assert done.returncode != 0
    assert "abort: rank 0 aborted with status 7: given up" in done.stderr


def test_a_killed_server_is_an_exception(instance, alloc):
    with service(instance, lambda *_: None) as serving:
        (job,) = instance.lines("submit", "--pmix", alloc, "new:nodes=1")
        serving.asked.get(timeout=PATIENCE)
        [server] = children(instance, "penstock-pmix")
        os.kill(server, signal.SIGKILL)
        assert instance.penstock("wait", job).returncode != 0
        reason = json.loads(instance.lines("info", "--json", job)[0])["reason"]
        assert "the job's PMIx server has ended before the tasks" in reason


def test_the_instance_is_killed_with_a_request_waiting(instance, alloc):
    with service(instance, lambda *_: None) as serving:
        instance.lines("submit", "--pmix", alloc, "new:nodes=1")
        number = serving.asked.get(timeout=PATIENCE).object()["job"]
        pids = [*children(instance, "penstock-pmix"), *children(instance, "alloc")]
        assert len(pids) == 2
        ends = [os.pidfd_open(pid) for pid in pids]
        instance.process.kill()
        for end in ends:
            assert select.select([end], [], [], PATIENCE)[0]
            os.close(end)
    output = instance.state / "output" / str(number) / "stdout"
    assert "rank 0: new: status -25" in codes(output.read_text().splitlines())
