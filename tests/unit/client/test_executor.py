"""The executor against a fake instance."""

from __future__ import annotations

import errno
from concurrent.futures import CancelledError, wait

import pytest

from penstock import JobExecutor, RpcError
from penstock.client import NoInstanceError
from penstock.executor import JobFuture
from penstock.executor.worker import Worker


@pytest.fixture
def ids(fake):
    """The fake instance gives jobs ids from 1."""
    given = []

    def submit(request):
        jobs = request.object()["jobs"]
        fresh = range(len(given) + 1, len(given) + len(jobs) + 1)
        given.extend(fresh)
        return [request.respond({"results": [{"ids": [job]} for job in fresh]})]

    fake.methods["job-ingest.submit"] = submit
    return given


def test_a_purged_job_does_not_affect_others(fake, ids):
    def waited(request):
        jobs = request.object()["ids"]
        if 2 in jobs:
            return [request.respond(errnum=errno.ENOENT, errtext="no job ƒ3")]
        rows = [{"id": job, "returncode": 10 + job} for job in jobs]
        return [request.respond({"jobs": rows}), request.respond(errnum=errno.ENODATA)]

    fake.methods["job-list.wait"] = waited
    with JobExecutor() as executor:
        futures = [executor.submit({"name": str(n)}) for n in range(3)]
        assert futures[0].result() == 11
        with pytest.raises(RpcError, match="no job ƒ3"):
            futures[1].result()
        assert futures[1].jobid() == 2
        assert futures[2].result() == 13


def test_a_request_is_longer_than_its_limit_only_where_one_job_is(fake, ids, monkeypatch):
    monkeypatch.setattr("penstock.executor.worker.MAX_SUBMISSION_BYTES", 200)

    def waited(request):
        rows = [{"id": job, "returncode": 0} for job in request.object()["ids"]]
        return [request.respond({"jobs": rows}), request.respond(errnum=errno.ENODATA)]

    fake.methods["job-list.wait"] = waited
    with JobExecutor() as executor:
        futures = [executor.submit({"name": "x" * (1000 if n == 7 else 20)}) for n in range(20)]
        assert [future.result() for future in futures] == [0] * 20
    names = []
    while not fake.received.empty():
        message = fake.received.get()
        if message.topic == "job-ingest.submit":
            names.append([job["jobspec"]["name"] for job in message.object()["jobs"]])
    assert ["x" * 1000] in names
    assert all(len(part) <= 4 for part in names)


def test_a_request_has_a_limited_number_of_jobs(fake, ids, monkeypatch):
    monkeypatch.setattr("penstock.executor.worker.MAX_SUBMISSION_JOBS", 3)

    def waited(request):
        rows = [{"id": job, "returncode": 0} for job in request.object()["ids"]]
        return [request.respond({"jobs": rows}), request.respond(errnum=errno.ENODATA)]

    fake.methods["job-list.wait"] = waited
    with JobExecutor() as executor:
        futures = [executor.submit({"name": str(n)}) for n in range(20)]
        assert [future.result() for future in futures] == [0] * 20
    counts = []
    while not fake.received.empty():
        message = fake.received.get()
        if message.topic == "job-ingest.submit":
            counts.append(len(message.object()["jobs"]))
    assert sum(counts) == 20
    assert max(counts) <= 3


def test_submissions_during_a_request_go_into_the_next_one(fake, ids):
    submit, requests = fake.methods["job-ingest.submit"], []

    def hesitate(request):
        requests.append(request)
        return submit(request) if len(requests) > 1 else []

    def waited(request):
        jobs = request.object()["ids"]
        if jobs == [99]:
            # The wait comes while the first submission is in flight; respond to that now.
            return submit(requests[0])
        rows = [{"id": job, "returncode": 0} for job in jobs]
        return [request.respond({"jobs": rows}), request.respond(errnum=errno.ENODATA)]

    fake.methods |= {"job-ingest.submit": hesitate, "job-list.wait": waited}
    with JobExecutor() as executor:
        first = executor.submit({"name": "first"})
        fake.wait_for("job-ingest.submit")
        rest = [executor.submit({"name": str(n)}) for n in range(5)]
        assert rest[3].cancel()
        other = executor.attach(99)
        assert first.result() == 0
        assert [future.result() for future in rest if not future.cancelled()] == [0] * 4
        assert [len(request.object()["jobs"]) for request in requests] == [1, 4]
        with pytest.raises(CancelledError):
            rest[3].jobid()
        fake.hang_up()
        with pytest.raises(NoInstanceError, match="closed the connection"):
            other.result()


def test_the_thread_ends_when_its_last_job_is_cancelled_before_it_is_submitted(fake, ids):
    worker = Worker(None)
    future = JobFuture(worker)
    worker.post("submit", future, b"{}")
    assert future.cancel()
    worker.close()
    # It has been woken for all of that at once.
    worker._alarm.recv(100)
    worker.start()
    worker.join(60)
    assert not worker.is_alive()
    assert ids == []
    assert wait([future], 0).done == {future}
