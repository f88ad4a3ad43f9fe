"""Jobs as values: what is read from a row, and ids that print in base 58."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from datetime import UTC, datetime, timedelta

import pytest

from penstock.errors import JobspecError, WireError
from penstock.hostlist import Hostlist
from penstock.idset import IDset
from penstock.job import Job, JobState, RaisedException, Result
from penstock.jobid import JobId
from penstock.rows import JobRow

ROW = {
    "id": 6731191091817518,
    "userid": 1000,
    "urgency": 16,
    "priority": 16,
    "state": 64,
    "result": 2,
    "name": "train",
    "queue": "batch",
    "ntasks": 4,
    "ncores": 8,
    "nnodes": 2,
    "duration": 90.0,
    "t_submit": 1.0,
    "t_sched": 2.0,
    "t_run": 2.5,
    "t_inactive": 86400.0,
    "ranks": "0-1",
    "nodelist": "node[0-1]",
    "success": False,
    "returncode": 143,
    "exception_occurred": True,
    "exception_type": "timeout",
    "exception_severity": 0,
    "exception_note": "too long",
    "dependencies": ["after:ƒ2"],
    "annotations": {"sched": {"t_estimate": 3.0}},
    "a_key_of_a_later_version": 1,
}


def test_a_row_becomes_a_job_with_types():
    job = Job.from_row(ROW)
    assert (job.state, job.result) == (JobState.INACTIVE, Result.FAILED)
    assert (str(job.id), job.id) == ("ƒuZZybuNNy", ROW["id"])
    assert job.t_run == datetime(1970, 1, 1, 0, 0, 2, 500000, tzinfo=UTC)
    assert job.t_inactive - job.t_submit == timedelta(days=1, seconds=-1)
    assert job.t_run - job.t_sched == timedelta(seconds=0.5)
    assert job.duration == timedelta(seconds=90)
    assert (job.ranks, job.nodelist) == (IDset("0-1"), Hostlist("node[0-1]"))
    assert job.exception == RaisedException("timeout", 0, "too long")
    assert job.dependencies == ("after:ƒ2",)
    assert (job.name, job.queue, job.returncode, job.success) == ("train", "batch", 143, False)
    assert job.t_depend is None
    assert job.R is None
    assert len({job, Job.from_row(ROW)}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        job.name = "other"


def test_a_short_row_leaves_the_other_fields_empty():
    job = Job.from_row({"id": 1, "state": 8, "duration": 0.0, "exception_occurred": False})
    assert job == Job(id=JobId(1), state=JobState.SCHED)
    assert job.state.is_pending
    assert not job.state.is_running


def test_every_key_of_a_row_has_a_field():
    names = {each.name for each in dataclasses.fields(Job)} - {"exception", "R"}
    exception = {f"exception_{name}" for name in ("occurred", "type", "severity", "note")}
    assert names | exception == set(JobRow.__annotations__)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"state": 3}, "row of a job: state: 3 is not a valid JobState"),
        ({"result": "x"}, "row of a job: result: 'x' is not a valid Result"),
        ({"t_run": "soon"}, "row of a job: t_run: "),
        ({"t_run": 1e300}, "row of a job: t_run: "),
        ({"ranks": "x"}, "row of a job: ranks: "),
        ({"id": -1}, "row of a job: id: "),
    ],
)
def test_an_invalid_value_is_named(change, text):
    with pytest.raises(WireError) as caught:
        Job.from_row(ROW | change)
    assert str(caught.value).startswith(text)


def test_a_row_without_an_id_is_rejected():
    with pytest.raises(WireError, match="expected the key `id`"):
        Job.from_row({"state": 8})


def test_an_id_is_a_number_that_prints_in_base_58():
    job = JobId("0017.e9fb.8df1.6c2e")
    assert (job, f"{job}", f"{job:>12}", f"{job:d}") == (
        *(6731191091817518, "ƒuZZybuNNy", "  ƒuZZybuNNy"),
        "6731191091817518",
    )
    assert (repr(job), job.f58, job.dothex) == (
        *("JobId('ƒuZZybuNNy')", "ƒuZZybuNNy"),
        "0017.e9fb.8df1.6c2e",
    )
    assert json.dumps([job]) == "[6731191091817518]"
    assert {job: 1}[6731191091817518] == 1
    for same in (pickle.loads(pickle.dumps(job)), copy.deepcopy(job), JobId(job)):
        assert (same, type(same)) == (job, JobId)
    with pytest.raises(JobspecError):
        JobId("x")
    with pytest.raises(OverflowError):
        JobId(-1)
