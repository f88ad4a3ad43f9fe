"""PMI-1 (RFC 13) of jobs: real tasks, which find each other by the server of their job."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from tests.instance.conftest import service_of
from tests.instance.test_flux_submissions import output
from tests.instance.test_flux_submissions import submit as submit_signed

from penstock.client import Client
from penstock.jobspec import from_command

SUPPORT = Path(__file__).parents[1] / "support"
HEAD = f"""
import os, sys
sys.path.insert(0, {str(SUPPORT)!r})
from pmiclient import PmiClient
pmi = PmiClient()
"""
# Each task publishes its process, and prints those of all tasks.
EXCHANGE = (
    HEAD
    + """
assert pmi.rank == int(os.environ["PENSTOCK_TASK_RANK"])
assert pmi.size == int(os.environ["PENSTOCK_NTASKS"])
space = pmi.init()
assert pmi.request("cmd=get_universe_size")["size"] == str(pmi.size)
for round in range(3):
    put = f"cmd=put kvsname={space} key=r{round}-{pmi.rank} value={os.getpid()} is {pmi.rank}"
    assert pmi.request(put)["rc"] == "0"
    assert pmi.barrier() == 0
    get = f"cmd=get kvsname={space} key=r{round}-"
    values = [pmi.request(f"{get}{rank}")["value"] for rank in range(pmi.size)]
    assert [value.split()[-1] for value in values] == [str(rank) for rank in range(pmi.size)]
mapping = pmi.request(f"cmd=get kvsname={space} key=PMI_process_mapping")["value"]
pmi.finalize()
print(pmi.rank, space, mapping, len({value.split()[0] for value in values}))
"""
)
PYTHON = (sys.executable, "-c")


@pytest.fixture
def instance(start):
    """An instance of two nodes, whose tasks run on this machine."""
    with start("--nodes=2", "--cores=4", "--exec=local", "--oversubscribe") as running:
        yield running


def submit(client: Client, program: str, ntasks: int, nnodes: int = 1, **options: object) -> int:
    """Submits a job whose tasks run a program in Python."""
    jobspec = from_command([*PYTHON, program], ntasks=ntasks, nodes=nnodes)
    shell = jobspec["attributes"]["system"].setdefault("shell", {})
    shell.setdefault("options", {}).update(options)
    return client.submit(jobspec)


def lines(instance, job: int) -> list[str]:
    """The lines of the output, sorted."""
    return sorted(instance.penstock("logs", str(job)).stdout.splitlines())


@pytest.mark.parametrize(
    ("ntasks", "nnodes", "mapping"), [(1, 1, "(0,1,1)"), (4, 1, "(0,1,4)"), (6, 2, "(0,2,3)")]
)
def test_tasks_exchange_values_by_their_server(instance, ntasks, nnodes, mapping):
    with Client(instance.uri) as client:
        job = submit(client, EXCHANGE, ntasks, nnodes, pmi="simple")
        row = client.wait_row(job)
        assert row["success"], instance.penstock("logs", str(job))
    found = lines(instance, job)
    spaces = {line.split()[1] for line in found}
    assert len(spaces) == 1
    (space,) = spaces
    text = "{} {} (vector,{}) {}"
    assert found == [text.format(rank, space, mapping, ntasks) for rank in range(ntasks)]


def test_several_tasks_of_flux_clients_have_it_without_an_option(instance):
    show = "import os; print(os.environ.get('PMI_FD'), os.environ.get('PMI_SIZE'))"
    with Client(instance.uri) as client:
        several = submit_signed(client, 2, *PYTHON, show)
        without = submit_signed(client, 2, *PYTHON, show, pmi="off")
        one = submit_signed(client, 1, *PYTHON, show)
        # Penstock's clients request it.
        unrequested = submit(client, show, 2)
        list(client.wait([several, without, one, unrequested]))
    assert output(instance, several) == {("stdout", rank): "4 2\n" for rank in "01"}
    assert output(instance, without) == {("stdout", rank): "None None\n" for rank in "01"}
    assert output(instance, one) == {("stdout", "0"): "None None\n"}
    assert lines(instance, unrequested) == ["None None"] * 2


def test_abort_ends_the_job(instance):
    program = (
        f"{HEAD}\npmi.init()\npmi.rank == 1 and pmi.send('cmd=abort exitcode=7')\npmi.barrier()"
    )
    with Client(instance.uri) as client:
        row = client.wait_row(submit(client, program, 3, pmi="simple"))
    assert not row["success"]
    assert (row["exception_type"], row["exception_note"]) == (
        "abort",
        "a task has aborted the job by PMI",
    )


def test_a_violation_ends_the_job_and_its_reason_is_in_the_output(instance):
    program = (
        f"{HEAD}\npmi.init()\npmi.send('cmd=dance')\npmi.response()\nimport signal; signal.pause()"
    )
    with Client(instance.uri) as client:
        job = submit(client, program, 2, pmi="simple")
        row = client.wait_row(job)
    assert row["exception_type"] == "pmi"
    assert row["exception_note"].startswith("a task has violated the PMI protocol")
    said = instance.penstock("logs", str(job)).stderr
    assert "a task has violated the PMI protocol: unknown command `dance`" in said


def test_a_task_that_leaves_fails_the_barrier_of_the_others(instance):
    program = f"{HEAD}\npmi.init()\npmi.rank == 0 and sys.exit()\nprint(pmi.barrier())"
    with Client(instance.uri) as client:
        job = submit(client, program, 3, pmi="simple")
        assert client.wait_row(job)["success"]
    assert lines(instance, job) == ["-1", "-1"]


def test_the_server_outlives_the_execution_service(instance, tmp_path):
    """The tasks of the first half of the ranks are in the barrier when the service is killed."""
    program = f"""{HEAD}
space = pmi.init()
open({str(tmp_path)!r} + f"/{{pmi.rank}}", "w").close()
if pmi.rank > 0:
    with open({str(tmp_path / "gate")!r}) as gate:
        gate.read()
print(pmi.barrier())
pmi.finalize()
"""
    os.mkfifo(tmp_path / "gate")
    with Client(instance.uri) as client:
        job = submit(client, program, 2, pmi="simple")
        # Both ends of the FIFO are open: the task with the rank 1 runs.
        with (tmp_path / "gate").open("w"):
            os.kill(service_of(instance.state / "exec"), signal.SIGKILL)
        assert client.wait_row(job)["success"]
    assert lines(instance, job) == ["0", "0"]
