"""Schedulers and execution services that violate the protocols: rejected, logged, contained."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64encode
from collections import defaultdict
from contextlib import ExitStack, contextmanager

import pytest

from penstock import ResourceSet
from penstock._core import (
    ALLOC_CANCEL,
    ALLOC_DENY,
    ALLOC_SUCCESS,
    NORESPONSE,
    STREAMING,
    Decoder,
    Message,
    fluid_dothex,
    fluid_f58,
)
from penstock.client import Client, connect
from penstock.jobspec import from_command


class Peer:
    """A service over the socket that sends what a test wants, valid or not."""

    def __init__(self, uri):
        self.socket = connect(uri)
        self.decoder = Decoder()
        self.tag = 0
        self.requests = []

    def ask(self, topic, payload=None, flags=0):
        """The responses to a request, up to the last; other requests are put aside."""
        self.tag += 1
        self.send(Message.request(topic, payload, matchtag=self.tag, flags=flags))
        responses = []
        while not (responses and (not flags or responses[-1].errnum)):
            for message in self.read():
                (responses if message.kind == "response" else self.requests).append(message)
        return responses

    def state(self, job):
        """The job's state after everything that this peer has sent is handled."""
        (response,) = self.ask("job-list.list-id", {"id": job})
        return response.object()["job"]["state"]

    def read(self):
        data = self.socket.recv(65536)
        assert data, "the instance has closed the connection"
        return list(self.decoder.feed(data))

    def request(self, topic):
        """The next request of this topic."""
        while True:
            for message in self.requests:
                if message.topic == topic:
                    self.requests.remove(message)
                    return message
            self.requests += self.read()

    def send(self, *messages):
        for message in messages:
            self.socket.sendall(message.encode())

    def rejected(self, topic, payload=None, flags=0):
        (response,) = self.ask(topic, payload, flags)
        assert response.errnum
        return response.errnum, response.error_text

    def granted(self, topic, payload=None, flags=0):
        *_, last = self.ask(topic, payload, flags)
        assert last.errnum in (0, 61), last.error_text


@pytest.fixture
def peer():
    """Makes peers of an instance, which disconnect at the end of the test."""
    with ExitStack() as stack:

        def attach(instance):
            peer = Peer(instance.uri)
            stack.enter_context(peer.socket)
            return peer

        yield attach


def commit(*documents):
    ops = []
    for job, r in documents:
        value = {"ver": 1, "type": "val", "data": b64encode(bytes(r)).decode()}
        ops.append({"key": f"job.{fluid_dothex(job)}.R", "flags": 0, "dirent": value})
    return {"namespace": "primary", "flags": 0, "ops": ops}


def resources(rank, cores):
    r = ResourceSet()
    r.insert(rank, f"node{rank}", cores, "")
    return r


@contextmanager
def good_scheduler(instance):
    command = [sys.executable, "-m", "penstock", "sched", "--uri", instance.uri]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


def shares(one, other):
    """Whether two jobs had the same core at the same time."""
    (first, last, r), (other_first, other_last, other_r) = one, other
    return first < other_last and other_first < last and bool((r & other_r).ncores)


def test_a_scheduler_that_breaks_every_rule_corrupts_nothing(start, peer, tmp_path):
    log = tmp_path / "log"
    options = ("--nodes", "2", "--cores", "4", "--sched", "none")
    with start(*options, stderr=log) as instance, Client(instance.uri) as client:
        long = submit(client, run="1h")
        jobs = [submit(client) for _ in range(3)]
        break_the_rules(peer(instance), long, jobs)
        more = [submit(client, cores=1 + number % 3, run="5ms") for number in range(60)]
        with good_scheduler(instance):
            rows = list(client.wait_rows([*jobs, *more]))
            assert {row["result"] for row in rows} == {1}
        assert client.cancel([long]).done == 1
        rows += list(client.wait_rows([long]))
        held = defaultdict(list)
        for row in rows:
            r = ResourceSet(client.lookup(row["id"], "R")["R"])
            for rank in r.ranks:
                held[rank].append((row["t_run"], row["t_cleanup"], r))
        for spans in held.values():
            for at, one in enumerate(spans):
                assert not any(shares(one, other) for other in spans[:at])
    logged = log.read_text()
    for fault in [
        "alloc response before sched-ready",
        "none is due",
        "without committing R",
        "with another R than was committed",
        "it was not requested",
        "unknown type 9",
        "sched.alloc: invalid JSON",
        "scheduling is suspended: sched.alloc failed: Input/output error",
    ]:
        assert fault in logged, fault


def handshake(scheduler):
    scheduler.granted("service.add", {"service": "sched"})
    scheduler.granted("job-manager.sched-hello", {"partial-ok": True}, STREAMING)
    scheduler.granted("job-manager.sched-ready", {"mode": "unlimited"})


def allocated(scheduler, rank=0):
    """Allocates a core of its own to the job of the next alloc request; returns the request."""
    request = scheduler.request("sched.alloc")
    job = request.object()["id"]
    r = resources(rank, "0")
    scheduler.granted("kvs.commit", commit((job, r)))
    scheduler.send(request.respond({"id": job, "type": ALLOC_SUCCESS}))
    assert scheduler.state(job) == 16
    return request


@pytest.mark.parametrize("how", ["alloc", "free"])
def test_a_scheduler_that_unregisters_suspends_scheduling(start, peer, how):
    options = ("--nodes", "2", "--cores", "4", "--sched", "none")
    with start(*options) as instance, Client(instance.uri) as client:
        job = submit(client, cores=1, run="1h")
        scheduler = peer(instance)
        handshake(scheduler)
        allocated(scheduler)
        scheduler.granted("service.remove", {"service": "sched"})
        assert client.stats()["sched"]["state"] == "ready"
        # The broker answers, in the instance's name: there is no such service.
        if how == "alloc":
            submit(client, cores=1)
        else:
            client.cancel([job])
            list(client.wait_rows([job]))
        assert client.stats()["sched"]["state"] == "suspended"
        last = [row["text"] for row in client.dmesg()][-1]
        assert f"sched.{how} failed: Function not implemented" in last


def test_a_running_job_is_updated_without_a_scheduler(start, peer):
    options = ("--nodes", "2", "--cores", "4", "--sched", "none")
    with start(*options) as instance, Client(instance.uri) as client:
        job = submit(client, cores=1, run="1h")
        scheduler = peer(instance)
        handshake(scheduler)
        allocated(scheduler)
        # The scheduler is ready, and not registered: the broker answers for it.
        scheduler.granted("service.remove", {"service": "sched"})
        client.update(job, duration=500)
        assert client.job_row(job)["duration"] == 500
        scheduler.socket.close()
        # A scheduler that registers without a hello gets no requests; its exit changes nothing.
        silent = peer(instance)
        silent.granted("service.add", {"service": "sched"})
        client.update(job, duration=600)
        assert client.job_row(job)["duration"] == 600
        silent.granted("broker.ping", {})
        assert silent.requests == []
        silent.socket.close()
        client.update(job, duration=700)
        assert client.job_row(job)["duration"] == 700


def test_a_job_whose_service_is_not_registered_is_started_by_the_next_or_cancelled(
    start, peer, tmp_path
):
    # The job that is left at the end is given up soon.
    config = tmp_path / "config.toml"
    config.write_text("[penstock.exec]\nkill-timeout = '0.1s'\n")
    options = ("--exec", "sim", "--config", str(config))
    with start(*options) as instance, Client(instance.uri) as client:
        ghost = peer(instance)
        ghost.granted("service.add", {"service": "ghost"})
        ghost.granted("job-manager.exec-hello", {"service": "ghost"})
        ghost.granted("service.remove", {"service": "ghost"})
        job = submit(client, cores=1)
        for event in client.eventlog(job, follow=True):
            if event["name"] == "alloc":
                break
        assert ghost.state(job) == 16
        assert client.stats()["exec"]["service"] is None
        other = submit(client, cores=1)
        client.cancel([other])
        (row,) = client.wait_rows([other])
        assert row["state"] == 64
        good = peer(instance)
        good.granted("service.add", {"service": "good"})
        good.granted("job-manager.exec-hello", {"service": "good"})
        request = good.request("good.start")
        assert (request.object()["id"], request.object()["reattach"]) == (job, False)


def test_a_stray_hello_does_not_block_our_scheduler(start, peer):
    options = ("--nodes", "1", "--cores", "1", "--sched", "process")
    with start(*options) as instance, Client(instance.uri) as client:
        first = submit(client, cores=1)
        list(client.wait_rows([first]))
        stranger = peer(instance)
        hello = ("job-manager.sched-hello", {"partial-ok": True}, STREAMING)
        assert stranger.rejected(*hello)[0] == 16
        # With NORESPONSE there is no error response either.
        stranger.send(Message.request(hello[0], hello[1], flags=STREAMING | NORESPONSE))
        ready = ("job-manager.sched-ready", {"mode": "unlimited"})
        assert stranger.rejected(*ready)[0] == 71
        assert stranger.requests == []
        (row,) = client.wait_rows([submit(client, cores=1)])
        assert row["result"] == 1
        assert any("sched-hello rejected" in row["text"] for row in client.dmesg())


def test_requests_of_other_clients_free_no_cores_of_our_scheduler(start, peer):
    with start("--nodes", "1", "--cores", "2") as instance, Client(instance.uri) as client:
        list(client.wait_rows([submit(client, cores=1)]))
        stranger = peer(instance)
        spec = from_command(["mock"], cores_per_task=2, environment={})
        for number in (1, 1, 2):
            payload = {"id": number, "priority": 16, "userid": os.getuid(), "t_submit": 1.0}
            (answer,) = stranger.ask("sched.alloc", {**payload, "jobspec": spec})
            assert answer.object()["type"] == ALLOC_DENY
            assert "no job" in answer.object()["note"]
        (row,) = client.wait_rows([submit(client, cores=2)])
        assert row["result"] == 1


def test_a_cancelled_job_has_no_annotations(start, peer):
    options = ("--nodes", "1", "--cores", "1", "--sched", "none")
    with start(*options) as instance, Client(instance.uri) as client:
        job = submit(client, cores=1)
        scheduler = peer(instance)
        handshake(scheduler)
        request = scheduler.request("sched.alloc")
        scheduler.granted("kvs.commit", commit((job, resources(0, "0"))))
        client.cancel([job])
        annotations = {"sched": {"resource_summary": "rank0/core0"}}
        payload = {"id": job, "type": ALLOC_SUCCESS, "annotations": annotations}
        scheduler.send(request.respond(payload))
        (row,) = client.wait_rows([job])
        assert not row.get("annotations")


def submit(client, cores=2, run="0"):
    options = {"attributes.system.exec.test.run_duration": run}
    spec = from_command(["mock"], cores_per_task=cores, setattr=options, environment={})
    return client.submit(spec)


def alloc_requests_of(scheduler):
    """Sends ready; returns the four alloc requests that follow, by job."""
    scheduler.granted("job-manager.sched-ready", {"mode": "unlimited"})
    requests = [scheduler.request("sched.alloc") for _ in range(4)]
    return {request.object()["id"]: request for request in requests}


def break_the_rules(bad, long, jobs):
    """Every violation by a scheduler; the first job runs in the end, the others stay pending."""
    bad.granted("service.add", {"service": "sched"})
    assert bad.rejected("job-manager.sched-ready", {"mode": "unlimited"})[0] == 71
    bad.granted("job-manager.sched-hello", {"partial-ok": True}, STREAMING)
    for mode in ({"mode": "limited", "limit": 0}, {"mode": "limited", "limit": 2**31}):
        assert bad.rejected("job-manager.sched-ready", mode)[0] == 22
    requests = alloc_requests_of(bad)
    # Another hello cancels the earlier requests; no response is allowed until ready.
    bad.granted("job-manager.sched-hello", {"partial-ok": True}, STREAMING)
    bad.send(requests[long].respond({"id": long, "type": ALLOC_SUCCESS}))
    requests = alloc_requests_of(bad)

    def answer(job, **payload):
        bad.send(requests[job].respond({"id": job, **payload}))

    def committed(*documents):
        (response,) = bad.ask("kvs.commit", commit(*documents))
        return response.error_text

    second, third, _fourth = jobs
    name = fluid_f58(long)
    answer(long, type=ALLOC_SUCCESS)
    assert "there is no rank2" in committed((long, resources(2, "0")))
    assert "there is no rank0/core4" in committed((long, resources(0, "3-4")))
    mine, others = resources(0, "0-1"), resources(0, "1-2")
    assert f"job {name} has rank0/core1" in committed((long, mine), (second, others))
    assert not committed((long, mine))
    answer(long, type=ALLOC_SUCCESS, R=mine.to_dict())
    assert bad.state(long) == 16
    answer(long, type=ALLOC_SUCCESS)
    assert f"job {name} has rank0/core1" in committed((second, others))
    assert "has no outstanding request" in committed((long, others))
    assert not committed((second, resources(1, "0-1")))
    answer(second, type=ALLOC_SUCCESS, R=resources(1, "2-3").to_dict())
    bad.send(requests[second].respond({"id": 123, "type": ALLOC_SUCCESS}))
    answer(third, type=ALLOC_CANCEL)
    answer(third, type=9)
    bad.send(requests[third].respond(b"{"))
    assert bad.rejected("job-manager.sched-ready", {"mode": "unlimited"})[0] == 71
    for job in jobs:
        assert bad.state(job) == 8
    bad.send(requests[third].respond(errnum=5))
    # A commit of the rejected scheduler does not prevent that of the next one.
    (response,) = bad.ask("kvs.commit", commit((second, mine)))
    assert "has no outstanding request" in response.error_text
    bad.socket.close()


def test_an_execution_service_that_breaks_every_rule_corrupts_nothing(start, peer, tmp_path):
    log, gate = tmp_path / "log", tmp_path / "gate"
    os.mkfifo(gate)
    with start(stderr=log) as instance, Client(instance.uri) as client:
        # The job holds the FIFO open until it is ended.
        (name,) = instance.lines("submit", "sh", "-c", f"exec sleep 1000 > {gate}")
        pipe = gate.open()
        (job,) = [row["id"] for row in client.job_rows()]
        assert fluid_f58(job) == name
        assert any(event["name"] == "start" for event in client.eventlog(job, follow=True))
        bad = peer(instance)
        bad.granted("service.add", {"service": "bad"})
        bad.granted("job-manager.exec-hello", {"service": "bad"})
        request = bad.request("bad.start")
        assert (request.object()["id"], request.object()["reattach"]) == (job, True)
        # The service that ran it has learnt of that, and has ended it.
        assert pipe.read() == ""
        pipe.close()

        def answer(kind, **data):
            payload = {"id": job, "type": kind, "data": data}
            bad.send(request.respond(payload, streaming=True))

        answer("dance")
        bad.send(request.respond({"id": job, "type": "reattached"}, streaming=True))
        answer("release", ranks="7", final=False)
        answer("reattached")
        answer("reattached")
        answer("start")
        answer("finish")
        bad.send(request.respond({"id": 123, "type": "finish", "data": {"status": 0}}))
        assert bad.state(job) == 16
        answer("finish", status=0)
        answer("finish", status=256)
        assert bad.state(job) == 32
        answer("release", ranks="all", final=True)
        answer("release", ranks="all", final=True)
        answer("exception", severity=0, type="late")
        (row,) = client.wait_rows([job])
        assert (row["result"], row["returncode"]) == (1, 0)
        events = [
            json.loads(line)
            for line in client.lookup(job, "eventlog")["eventlog"].split("\n")
            if line
        ]
        names = [event["name"] for event in events]
        assert names[-6:] == ["start", "reattached", "finish", "release", "free", "clean"]
        # An error ends the service; the next one gets the start requests.
        (name,) = instance.lines("submit", "true")
        request = bad.request("bad.start")
        bad.send(request.respond(errnum=5))
        assert bad.state(job) == 64
        good = peer(instance)
        good.granted("service.add", {"service": "good"})
        good.granted("job-manager.exec-hello", {"service": "good"})
        request = good.request("good.start")
        last = request.object()["id"]
        # The first service may have started it.
        assert (fluid_f58(last), request.object()["reattach"]) == (name, True)
        for kind, data in [
            ("reattached", {}),
            ("finish", {"status": 0}),
            ("release", {"ranks": "all", "final": True}),
        ]:
            good.send(request.respond({"id": last, "type": kind, "data": data}, streaming=True))
        assert next(iter(client.wait_rows([last])))["result"] == 1
    logged = log.read_text()
    for fault in [
        "unknown type",
        "ranks 7",
        "started before",
        "missing key `data`",
        "malformed data",
        "finished before",
        "none is due",
        "bad.start failed: Input/output error",
    ]:
        assert fault in logged, fault


def test_exec_hello_requires_a_registered_service(start, peer):
    with start("--nodes", "1", "--exec", "sim") as instance, Client(instance.uri) as client:
        stranger = peer(instance)
        rejected = stranger.rejected("job-manager.exec-hello", {"service": "job-exec"})
        assert rejected == (1, "service `job-exec` is not registered by this connection")
        stranger.socket.close()
        job = submit(client, cores=1, run="0s")
        assert [row["returncode"] for row in client.wait_rows([job])] == [0]


def test_jobs_of_an_external_service_outlive_the_instance(start, peer):
    options = ("--nodes", "1", "--exec", "none")
    with start(*options) as instance, Client(instance.uri) as client:
        job = submit(client, cores=1, run="1h")
        service = peer(instance)
        service.granted("service.add", {"service": "mine"})
        service.granted("job-manager.exec-hello", {"service": "mine"})
        begun = service.request("mine.start")
        assert begun.object()["reattach"] is False
        service.send(begun.respond({"id": job, "type": "start", "data": {}}, streaming=True))
        assert service.state(job) == 16
    with start(*options) as instance, Client(instance.uri) as client:
        assert client.job_row(job)["state"] == 16
        service = peer(instance)
        service.granted("service.add", {"service": "mine"})
        service.granted("job-manager.exec-hello", {"service": "mine"})
        again = service.request("mine.start")
        assert again.object()["reattach"] is True
        responses = [("reattached", {}), ("finish", {"status": 3 << 8})]
        responses.append(("release", {"ranks": "all", "final": True}))
        for kind, data in responses:
            payload = {"id": job, "type": kind, "data": data}
            service.send(again.respond(payload, streaming=True))
        assert [row["returncode"] for row in client.wait_rows([job])] == [3]
