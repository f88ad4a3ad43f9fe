"""`penstock.pmix` and `penstock elastic` against a fake instance."""

from __future__ import annotations

import inspect
import json

import pytest
import trio

from penstock.cli import main
from penstock.errors import Error, WireError
from penstock.pmix import AsyncJob, DeniedError, Job, Lent, attributes
from penstock.protocol.message import STREAMING

JOB = 42
GRANT_RESPONSE = {
    "status": 0,
    "reason": "not met: pmix.alloc.nlist",
    "results": [
        {"key": "pmix.alloc.id", "type": "string", "value": "ƒ9"},
        {"key": "pmix.alloc.reqid", "type": "string", "value": "mine"},
        {"key": "pmix.alloc.nlist", "type": "string", "value": "n[1-2]"},
        {"key": "pmix.alloc.ncpulist", "type": "string", "value": "4,2"},
        {"key": "penstock.alloc.dropped", "type": "string", "value": "pmix.alloc.nlist"},
    ],
}
QUEUED_RESPONSE = {"status": 1, "queued": True, "id": "mine", "alloc": "ƒ9"}
DENIAL_RESPONSE = {"status": -29, "reason": "not\x1b available now", "results": []}
ROW = {
    "id": "mine",
    "alloc": "ƒ9",
    "directive": "new",
    "rank": 0,
    "status": 1,
    "state": "queued",
    "reason": "needs 4 nodes",
    "nodes": 4,
    "cores": 0,
    "time": 0,
    "estimate": None,
    "results": [],
}
LOAN = {"id": "loan", "nodes": 2, "hosts": "n[4-5]", "returning": 0, "until": None, "cpus": 4}


@pytest.fixture
def says(fake, monkeypatch):
    """Makes `pmix.alloc` and the like answer this; a stream ends after it."""
    monkeypatch.setenv("PENSTOCK_JOB_ID", "ƒi")
    monkeypatch.setenv("PENSTOCK_TASK_RANK", "3")
    monkeypatch.setenv("PENSTOCK_URI", fake.uri)

    def make(topic, *answers):
        def serve(request):
            sent = [request.respond(answer) for answer in answers]
            if request.flags & STREAMING:
                sent.append(request.respond(errnum=61))
            return sent

        fake.methods[topic] = serve

    return make


def requested(fake, topic="pmix.alloc"):
    return fake.wait_for(topic).object()


def test_a_request_has_the_attributes_of_pmix(fake, says):
    says("pmix.alloc", QUEUED_RESPONSE, GRANT_RESPONSE)
    with Job() as job:
        answer = job.extend(
            nodes=2, hosts="n[1-2]", time=60.4, timeout=5, name="mine", required=True
        )
    assert answer.granted
    assert (answer.alloc, answer.id, answer.hosts) == ("ƒ9", "mine", "n[1-2]")
    assert (answer.cpus, answer.dropped) == ((4, 2), ("pmix.alloc.nlist",))
    payload = requested(fake)
    assert (payload["job"], payload["rank"], payload["directive"]) == (41, 3, "extend")
    assert {
        attribute["key"]: (attribute["value"], attribute["required"])
        for attribute in payload["attributes"]
    } == {
        "pmix.alloc.reqid": ("mine", True),
        "pmix.alloc.nnodes": (2, True),
        "pmix.alloc.nlist": ("n[1-2]", True),
        "pmix.alloc.time": (60, True),
        "pmix.timeout": (5, True),
    }


def test_an_allocation_that_is_named_has_to_be_there(fake, says):
    says("pmix.alloc", GRANT_RESPONSE)
    with Job() as job:
        job.release(alloc="ƒ9")
        job.reacquire(alloc="loan", required=True)
    flags = [
        {
            attribute["key"]: (attribute["value"], attribute["required"])
            for attribute in requested(fake)["attributes"]
        }
        for _ in range(2)
    ]
    assert flags[0] == {"pmix.alloc.id": ("ƒ9", True)}
    assert flags[1] == {"pmix.alloc.id": ("loan", True), "pmix.timeout": (0, True)}


def test_a_denial_is_an_error_with_its_status(says):
    says("pmix.alloc", DENIAL_RESPONSE)
    with Job(JOB) as job, pytest.raises(DeniedError, match="out of resources") as caught:
        job.new(nodes=1)
    assert (caught.value.status, caught.value.reason) == (-29, DENIAL_RESPONSE["reason"])


@pytest.mark.parametrize(
    ("verb", "topic", "payload", "expected"),
    [
        ("extend", "pmix.alloc", {"results": []}, "missing key `status`"),
        ("extend", "pmix.alloc", {"status": 0, "results": [{}]}, "missing key `key`"),
        (
            *("extend", "pmix.alloc"),
            {"status": 0, "results": [{"key": "pmix.alloc.ncpulist", "value": "a,b"}]},
            "`pmix.alloc.ncpulist`: ",
        ),
        ("status", "pmix.query", {"status": 0, "requests": [{}]}, "missing key `directive`"),
        ("lent", "pmix.query", {"status": 0, "lent": [{"nodes": "2"}]}, "found a string"),
        ("cancel", "pmix.cancel", {"status": 0}, "missing key `cancelled`"),
    ],
)
def test_a_malformed_response_is_an_error_of_the_topic(says, verb, topic, payload, expected):
    says(topic, payload)
    with Job() as job, pytest.raises(WireError) as caught:
        getattr(job, verb)()
    assert str(caught.value).startswith(f"{topic}: ")
    assert expected in str(caught.value)


def test_a_later_key_of_a_loan_is_ignored(says):
    says("pmix.query", {"status": 0, "lent": [LOAN | {"later": 1}]})
    with Job() as job:
        assert job.lent() == [Lent(**LOAN)]


def test_without_waiting_the_queued_request_is_returned(fake, says):
    fake.methods["pmix.alloc"] = lambda request: [request.respond(QUEUED_RESPONSE)]
    with Job() as job:
        answer = job.new(nodes=1, wait=False)
    assert (answer.status, answer.granted, answer.id, answer.alloc) == (1, False, "mine", "ƒ9")
    fake.wait_for("pmix.alloc-cancel")


def test_a_loan_is_a_release_with_time(fake, says):
    says("pmix.alloc", GRANT_RESPONSE)
    with Job() as job:
        job.lend(600, nodes=1)
    payload = requested(fake)
    assert payload["directive"] == "release"
    assert payload["attributes"] == attributes({"nodes": 1, "time": 600})


def test_without_a_job_there_is_nothing_to_ask_for(monkeypatch):
    monkeypatch.delenv("PENSTOCK_JOB_ID", raising=False)
    with pytest.raises(Error, match="belongs to no job"):
        Job()


REQUESTS = "new extend release lend reacquire cancel status lent events".split()


@pytest.mark.parametrize("name", REQUESTS)
def test_each_request_is_defined_once_with_its_documentation(name):
    method = getattr(Job, name)
    assert method is getattr(AsyncJob, name)
    assert method.__doc__
    assert str(inspect.signature(method)).startswith("(self")


def test_both_ways_to_ask_say_the_same(fake, says):
    says("pmix.alloc", QUEUED_RESPONSE, GRANT_RESPONSE)
    says("pmix.cancel", {"status": 0, "reason": "", "cancelled": ["mine"]})
    says("pmix.query", {"status": 0, "reason": "", "requests": [ROW], "lent": [LOAN]})
    says("pmix.events", GRANT_RESPONSE, DENIAL_RESPONSE | {"id": "b", "alloc": None})

    async def ask():
        async with AsyncJob.connect() as job:
            answers = [
                await job.new(nodes=1),
                await job.extend(time=5),
                await job.release(nodes=1),
                await job.lend(5, nodes=1),
                await job.reacquire(),
            ]
            events = [event async for event in job.events("mine")]
            return answers, await job.cancel(), await job.status(), await job.lent(), events

    with Job() as job:
        answers = [
            job.new(nodes=1),
            job.extend(time=5),
            job.release(nodes=1),
            job.lend(5, nodes=1),
            job.reacquire(),
        ]
        blocking = answers, job.cancel(), job.status(), job.lent(), list(job.events("mine"))
    topics = ["pmix.alloc"] * 5 + ["pmix.cancel", "pmix.query", "pmix.query", "pmix.events"]
    sent = [requested(fake, topic) for topic in topics]
    assert trio.run(ask) == blocking
    assert blocking[3] == [Lent("loan", 2, "n[4-5]", 0, None, 4)]
    assert [(event.status, event.id) for event in blocking[4]] == [(0, "mine"), (-29, "b")]
    again = [requested(fake, topic) for topic in ["pmix.alloc"] * 5 + ["pmix.events"]]
    assert again == [*sent[:5], sent[8]]


@pytest.mark.parametrize(
    ("arguments", "directive", "wanted"),
    [
        ("new -N 2 -t 1h --name mine", "new", {"nodes": 2, "time": 3600, "name": "mine"}),
        ("extend -c 4 --required", "extend", {"cpus": 4, "required": True}),
        ("extend -w n1 --cpus-per-host 3", "extend", {"hosts": "n1", "cpus_per_host": "3"}),
        ("extend -t 90 --timeout 5", "extend", {"time": 90, "timeout": 5}),
        ("release -N 1 --alloc ƒ9", "release", {"nodes": 1, "alloc": "ƒ9"}),
        ("lend -N 1 -t 5m", "release", {"nodes": 1, "time": 300}),
        ("reacquire --alloc loan", "reacquire", {"alloc": "loan"}),
    ],
)
def test_the_verbs_ask(fake, says, capsys, arguments, directive, wanted):
    says("pmix.alloc", GRANT_RESPONSE)
    assert main(["elastic", *arguments.split()]) == 0
    payload = requested(fake)
    assert (payload["directive"], payload["attributes"]) == (directive, attributes(wanted))
    lines = capsys.readouterr().out.splitlines()
    rows = ["alloc    ƒ9", "hosts    n[1-2]", "cpus     4,2", "reason   not met: pmix.alloc.nlist"]
    assert lines == rows


@pytest.mark.parametrize(
    ("cpus", "shown"), [("4,4", ["cpus     4 each"]), ("3", ["cpus     3"]), ("", [])]
)
def test_the_verbs_print_cpus_per_host(fake, says, capsys, cpus, shown):
    results = [{"key": "pmix.alloc.ncpulist", "type": "string", "value": cpus}]
    says("pmix.alloc", {"status": 0, "reason": "", "results": results})
    assert main(["elastic", "extend", "-N1"]) == 0
    assert capsys.readouterr().out.splitlines() == shown


def test_the_verbs_tell(fake, says, capsys):
    says("pmix.alloc", DENIAL_RESPONSE)
    assert main(["elastic", "new", "-N", "1"]) == 1
    assert r"out of resources (-29): not\x1b available now" in capsys.readouterr().err
    assert main(["elastic", "new", "-N", "1", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["status"] == -29
    says("pmix.alloc", QUEUED_RESPONSE)
    assert main(["elastic", "new", "-N", "1", "--no-wait"]) == 0
    assert capsys.readouterr().out == "queued: mine\n"
    says("pmix.query", {"status": 0, "reason": "", "requests": [ROW], "lent": [LOAN]})
    assert main(["elastic", "status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["mine", "new", "queued", "needs", "4", "nodes"],
        ["loan", "lent", "2", "of", "n[4-5]"],
    ]
    more = {"key": "pmix.alloc.time", "type": "uint32", "value": 60}
    longer = ROW | {"state": "granted", "status": 0, "reason": "", "results": [more]}
    says("pmix.query", {"status": 0, "reason": "", "requests": [longer]})
    assert main(["elastic", "status", "mine"]) == 0
    assert capsys.readouterr().out.split() == ["mine", "new", "granted", "60", "s", "more"]
    says("pmix.query", {"status": 0, "reason": "", "requests": [ROW], "lent": [LOAN]})
    assert main(["elastic", "status", "--json", "mine"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "queued"
    says("pmix.cancel", {"status": 0, "reason": "", "cancelled": ["a", "b"]})
    assert main(["elastic", "cancel"]) == 0
    assert capsys.readouterr().out == "a\nb\n"
