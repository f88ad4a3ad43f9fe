"""Requests and results of each method, for each client."""

from __future__ import annotations

import errno
import signal

import pytest
from asynclibraries import Asyncio, Trio

from penstock.aclient import Stream
from penstock.client import Client
from penstock.client.calls import PARTS_IN_FLIGHT, submission_list
from penstock.errors import JobspecError, RpcError, WireError
from penstock.job import Job, JobState
from penstock.jobid import JobId
from penstock.resource import ResourceSet
from penstock.rows import BulkResponse, Estimates, Explained

SPEC = {"version": 1}
ROW = {"id": 1, "state": 64}
RAISE_RESPONSE = {"count": 1, "errors": {"2": "no job ƒ3"}}
BULK_RESPONSE = BulkResponse(1, {2: "no job ƒ3"})
EVENT = {"timestamp": 1.5, "name": "submit", "context": {"userid": 0}}
LINE = '{"timestamp":1.5,"name":"submit","context":{"userid":0}}\n'
LIST_REQUEST = {"max_entries": 0, "attrs": ["all"], "since": 0.0, "order": "newest"}
STATUS = {"enable": True, "start": False, "stop_reason": "later"}
LOG_LINE = {"timestamp": 1.5, "level": "info", "component": "user", "text": "hello"}
REASON = {"id": 1, "kind": "first", "reason": "r", "details": {}, "start": None}
ESTIMATE = {"id": 1, "start": 5.0}
ACCURACY = {"count": 0, "mean": 0.0, "low": 0.0, "median": 0.0, "high": 0.0}
RESOURCES = {
    "R": {},
    "drain": {"0-1": {"timestamp": 1.5, "reason": "bad"}},
    "online": "2",
    "offline": "0-1",
    "exclude": "",
}
SCHEDULABLE = {"all": {}, "down": {}, "allocated": {}}
SERVICE = {"name": "sched", "pid": 1, "uid": 0, "inside": True}


def raised(kind, severity, note, **more):
    return {"type": kind, "severity": severity, "note": note, **more}


# Method, positional and named arguments; topic and payload of the request; response; result.
CALLS = [
    ("submit", [SPEC], {}, "job-ingest.submit", {"jobspec": SPEC, "urgency": 16}, {"id": 7}, 7),
    (
        *("submit", [SPEC], {"urgency": 3, "count": 2, "flags": 4}, "job-ingest.submit"),
        *({"jobspec": SPEC, "urgency": 3, "count": 2, "flags": 4}, {"ids": [7, 8]}, [7, 8]),
    ),
    ("feasible", [SPEC], {}, "feasibility.check", {"jobspec": SPEC}, {}, None),
    ("job_row", [1], {}, "job-list.list-id", {"id": 1, "attrs": ["all"]}, {"job": ROW}, ROW),
    (
        *("lookup", [1, "R", "jobspec"], {}, "job-info.lookup"),
        {"id": 1, "keys": ["R", "jobspec"], "flags": 0},
        *({"id": 1, "R": "{}", "jobspec": "[]"}, {"R": "{}", "jobspec": "[]"}),
    ),
    (
        *("history", [], {}, "job-manager.history.get", {"slice": "[:]"}),
        *({"jobs": [2, 1]}, [2, 1]),
    ),
    ("history", [1], {}, "job-manager.history.get", {"slice": "[:1]"}, {"jobs": [2]}, [2]),
    (
        *("cancel", [[1, 2]], {"note": "n"}, "job-manager.raise"),
        *(raised("cancel", 0, "n", ids=[1, 2]), RAISE_RESPONSE, BULK_RESPONSE),
    ),
    (
        *("cancel", [], {"userid": 5}, "job-manager.raise"),
        *(raised("cancel", 0, "", all=True, userid=5), RAISE_RESPONSE, BULK_RESPONSE),
    ),
    (
        *("raise_exception", [[1, 2], "odd"], {"severity": 3, "note": "n", "wait_status": 256}),
        *("job-manager.raise", raised("odd", 3, "n", ids=[1, 2], wait_status=256)),
        *(RAISE_RESPONSE, BULK_RESPONSE),
    ),
    (
        *("urgency", [[1, 2], 31], {}, "job-manager.urgency", {"ids": [1, 2], "urgency": 31}),
        *(RAISE_RESPONSE, BULK_RESPONSE),
    ),
    (
        *("prioritize", [[(1, 5), (2, 6)]], {}, "job-manager.prioritize"),
        *({"jobs": [[1, 5], [2, 6]]}, RAISE_RESPONSE, BULK_RESPONSE),
    ),
    (
        *("memo", [1, {"a": 1, "b": None}], {}, "job-manager.memo"),
        *({"id": 1, "memo": {"a": 1, "b": None}}, None, None),
    ),
    (
        *("update", [1], {"duration": 60.0}, "job-manager.update"),
        *({"id": 1, "updates": {"attributes.system.duration": 60.0}}, None, None),
    ),
    (
        *("purge", [], {"age_limit": 60.0, "num_limit": 0}, "job-manager.purge"),
        {"force": False, "age_limit": 60.0, "num_limit": 0},
        *({"count": 3, "inactives": 4}, {"count": 3, "inactives": 4}),
    ),
    (
        *("purge", [[1]], {"force": True}, "job-manager.purge", {"force": True, "ids": [1]}),
        *({"count": 1, "inactives": 0}, {"count": 1, "inactives": 0}),
    ),
    ("queue_list", [], {}, "job-manager.queue-list", {}, {"queues": ["a"]}, ["a"]),
    ("queue_status", [], {}, "job-manager.queue-status", {}, STATUS, STATUS),
    ("queue_status", ["a"], {}, "job-manager.queue-status", {"name": "a"}, STATUS, STATUS),
    (
        *("queue_enable", ["a"], {}, "job-manager.queue-enable"),
        *({"name": "a", "enable": True, "all": False}, None, None),
    ),
    (
        *("queue_disable", [], {"reason": "r", "everything": True}, "job-manager.queue-enable"),
        *({"enable": False, "reason": "r", "all": True}, None, None),
    ),
    (
        *("queue_start", [], {}, "job-manager.queue-start"),
        *({"start": True, "all": False}, None, None),
    ),
    (
        *("queue_stop", ["a"], {"reason": "r"}, "job-manager.queue-start"),
        *({"name": "a", "start": False, "all": False, "reason": "r"}, None, None),
    ),
    ("queue_drain", [], {}, "job-manager.drain", {}, None, None),
    ("queue_idle", [], {}, "job-manager.idle", {}, None, None),
    ("queue_drain", ["a"], {}, "job-manager.drain", {"name": "a"}, None, None),
    ("resource_status", [], {}, "resource.status", None, RESOURCES, RESOURCES),
    ("sched_status", [], {}, "resource.sched-status", None, SCHEDULABLE, SCHEDULABLE),
    (
        *("explain", [[1, 2]], {}, "sched.explain", {"ids": [1, 2]}),
        *({"jobs": [REASON], "errors": {"2": "no"}}, Explained([REASON], {2: "no"})),
    ),
    (
        *("estimate", [], {"max_entries": 3}, "sched.estimate", {"max_entries": 3}),
        *(
            {"jobs": [ESTIMATE], "accuracy": ACCURACY, "errors": {}},
            Estimates([ESTIMATE], ACCURACY, {}),
        ),
    ),
    (
        *("estimate", [[1]], {}, "sched.estimate", {"ids": [1]}),
        *(
            {"jobs": [], "accuracy": ACCURACY, "errors": {"1": "no"}},
            Estimates([], ACCURACY, {1: "no"}),
        ),
    ),
    (
        *("what_if", [{"cancel": 1}], {}, "sched.what-if", {"cancel": 1}),
        *({"text": "t", "moved": []}, {"text": "t", "moved": []}),
    ),
    ("drain", ["0-1"], {}, "resource.drain", {"targets": "0-1", "reason": ""}, None, None),
    (
        *("drain", ["n1", "bad"], {"mode": "update"}, "resource.drain"),
        *({"targets": "n1", "reason": "bad", "mode": "update"}, None, None),
    ),
    ("undrain", ["0"], {}, "resource.undrain", {"targets": "0"}, None, None),
    (
        *("undrain", ["0", "mended"], {"mode": "force"}, "resource.undrain"),
        *({"targets": "0", "reason": "mended", "mode": "force"}, None, None),
    ),
    (
        *("resource_history", ["0"], {}, "resource.history", {"targets": "0"}),
        *({"events": [EVENT]}, [EVENT]),
    ),
    ("resource_history", [], {}, "resource.history", {}, {"events": []}, []),
    ("stats", [], {}, "job-manager.stats-get", None, {"n": 1}, {"n": 1}),
    ("stats", ["sched"], {}, "sched.stats-get", None, {"n": 1}, {"n": 1}),
    ("services", [], {}, "service.list", None, {"services": [SERVICE]}, [SERVICE]),
    ("config", [], {}, "config.get", None, {"access": {}}, {"access": {}}),
    (
        *("config_reload", [{"a": {}}], {}, "config.reload", {"config": {"a": {}}}),
        *({"changed": ["a.b"]}, ["a.b"]),
    ),
    (
        *("log_append", ["hello"], {"level": "error"}, "log.append"),
        *({"level": "error", "text": "hello"}, None, None),
    ),
    ("log_clear", [], {}, "log.clear", {}, None, None),
    ("log_clear", [7], {}, "log.clear", {"upto": 7}, None, None),
    ("shutdown", [], {}, "broker.shutdown", None, None, None),
]

# The same with several responses, and a list as the result.
STREAMS = [
    (
        *("iter_job_rows", [], {}, "job-list.list", LIST_REQUEST),
        *([{"jobs": [ROW, ROW]}, {"jobs": [ROW]}], [ROW] * 3),
    ),
    (
        *("job_rows", [], {}, "job-list.list", LIST_REQUEST),
        *([{"jobs": [ROW, ROW]}, {"jobs": [ROW]}], [ROW] * 3),
    ),
    (
        "job_rows",
        [],
        {"ids": [1], "constraint": {}, "max_entries": 5, "since": 2.5, "attrs": ["name"]},
        "job-list.list",
        {"ids": [1], "constraint": {}, "max_entries": 5, "since": 2.5, "attrs": ["name"]},
        *([{"jobs": [ROW]}], [ROW]),
    ),
    (
        *("job_rows", [], {"order": "state"}, "job-list.list", LIST_REQUEST | {"order": "state"}),
        *([{"jobs": [ROW]}], [ROW]),
    ),
    (
        *("iter_job_rows", [], {"skip": 100}, "job-list.list", LIST_REQUEST | {"skip": 100}),
        *([{"jobs": [ROW]}], [ROW]),
    ),
    ("wait_rows", [[1]], {}, "job-list.wait", {"ids": [1]}, [{"jobs": [ROW]}], [ROW]),
    (
        *("eventlog", [1], {"follow": True}, "job-info.eventlog-watch"),
        *({"id": 1, "path": "eventlog", "flags": 0}, [{"event": LINE}] * 2, [EVENT] * 2),
    ),
    (
        *("output", [1], {"follow": True, "streams": ["stderr"]}, "job-exec.output"),
        {"id": 1, "follow": True, "streams": ["stderr"]},
        *([{"stream": "stderr", "data": "aGk="}], [("stderr", b"hi")]),
    ),
    (
        *("dmesg", [], {}, "log.dmesg", {"follow": False, "nobacklog": False, "rows": True}),
        *([{"lines": [LOG_LINE] * 2}], [LOG_LINE] * 2),
    ),
    (
        *("dmesg", [], {"follow": True, "backlog": False}, "log.dmesg"),
        *({"follow": True, "nobacklog": True, "rows": True}, [{"lines": [LOG_LINE]}], [LOG_LINE]),
    ),
]


async def rows_or_result(client, method, args, named):
    """The result of a method of the client for Trio or asyncio; a stream as a list."""
    result = getattr(client, method)(*args, **named)
    if isinstance(result, Stream):
        return [row async for row in result]
    return await result


def over_all(method, args, named):
    """The results of a method of the blocking client and of those for Trio and asyncio."""
    with Client() as client:
        blocking = getattr(client, method)(*args, **named)
        if hasattr(blocking, "__next__"):
            blocking = list(blocking)
    results = [blocking]
    for library in (Trio, Asyncio):

        async def main(library=library):
            async with library.connect() as client:
                return await rows_or_result(client, method, args, named)

        results.append(library.run(main))
    return results


@pytest.mark.parametrize(
    ("method", "args", "named", "topic", "payload", "response", "result"), CALLS
)
def test_calls(fake, method, args, named, topic, payload, response, result):
    fake.methods[topic] = lambda request: [request.respond(response)]
    assert over_all(method, args, named) == [result] * 3
    for _ in range(3):
        request = fake.wait_for(topic)
        sent = request.object() or {}
        # Each submission has a token of its own.
        assert len(sent.pop("token", "")) == (32 if method == "submit" else 0)
        assert sent == (payload or {})
        assert not request.streaming


@pytest.mark.parametrize(
    ("method", "args", "named", "topic", "payload", "responses", "result"), STREAMS
)
def test_streams(fake, answers, method, args, named, topic, payload, responses, result):
    fake.methods[topic] = answers(*responses)
    assert over_all(method, args, named) == [result] * 3
    for _ in range(3):
        request = fake.wait_for(topic)
        assert request.object() == payload
        assert request.streaming


# Method and arguments; topic; a malformed payload; the error.
MALFORMED = [
    ("submit", [SPEC], "job-ingest.submit", {}, "missing key `id`"),
    (
        "submit",
        [SPEC],
        "job-ingest.submit",
        {"id": "7"},
        "`id`: expected an integer, found a string",
    ),
    ("job_row", [1], "job-list.list-id", {"job": []}, "`job`: expected an object, found an array"),
    ("job_row", [1], "job-list.list-id", {"job": {}}, "missing key `id`"),
    (
        "job_rows",
        [],
        "job-list.list",
        {"jobs": [3]},
        "`jobs[0]`: expected an object, found an integer",
    ),
    ("cancel", [[1]], "job-manager.raise", {"count": 1}, "missing key `errors`"),
    ("cancel", [[1]], "job-manager.raise", {"count": True, "errors": {}}, "found a boolean"),
    ("explain", [[1]], "sched.explain", {"jobs": [], "errors": {"a": "b"}}, "invalid literal"),
    ("estimate", [[1]], "sched.estimate", {"jobs": []}, "missing key `accuracy`"),
    ("history", [], "job-manager.history.get", {"jobs": [1.5]}, "found a number"),
    ("queue_list", [], "job-manager.queue-list", {"queues": None}, "found null"),
    ("eventlog", [1], "job-info.lookup", {"eventlog": "{"}, "an event is not JSON"),
    ("eventlog", [1], "job-info.lookup", {"eventlog": "1"}, "an event: expected an object"),
    ("eventlog", [1], "job-info.lookup", {"eventlog": '{"name":"x"}'}, "missing key `timestamp`"),
    ("lookup", [1, "R"], "job-info.lookup", {"id": 1}, "missing key `R`"),
    ("lookup", [1, "R"], "job-info.lookup", {"R": {}}, "`R`: expected a string, found an object"),
    ("purge", [], "job-manager.purge", {"count": 1}, "missing key `inactives`"),
    ("queue_status", [], "job-manager.queue-status", {"enable": 1}, "`enable`: expected a boolean"),
    ("queue_status", [], "job-manager.queue-status", {"enable": True}, "missing key `start`"),
    ("queue_status", [], "job-manager.queue-status", STATUS | {"stop_reason": 1}, "`stop_reason`"),
    ("resource_status", [], "resource.status", RESOURCES | {"R": "{}"}, "`R`: expected an object"),
    ("resource_status", [], "resource.status", RESOURCES | {"drain": {"0": {}}}, "`timestamp`"),
    ("resource_status", [], "resource.status", RESOURCES | {"exclude": None}, "`exclude`"),
    ("sched_status", [], "resource.sched-status", {"all": {}, "down": {}}, "key `allocated`"),
    ("what_if", [{"cancel": 1}], "sched.what-if", {"moved": []}, "missing key `text`"),
    (
        *("what_if", [{"cancel": 1}], "sched.what-if"),
        *({"text": "", "moved": [{"id": 1, "after": "now"}]}, "`after`: expected a number"),
    ),
    ("explain", [[1]], "sched.explain", {"jobs": [{"id": 1}], "errors": {}}, "missing key `kind`"),
    ("output", [1], "job-exec.output", {"stream": "stdout", "data": "%"}, "`data`: "),
    ("rpc", ["x.y"], "x.y", b"[1]\0", "the payload: expected an object, found an array"),
]


@pytest.mark.parametrize(("method", "args", "topic", "payload", "expected"), MALFORMED)
def test_a_malformed_response_is_an_error_of_the_topic(
    fake, method, args, topic, payload, expected
):
    fake.methods[topic] = lambda request: [request.respond(payload)]
    fake.methods["still.there"] = lambda request: [request.respond({})]

    def blocking():
        with Client() as client:
            found = getattr(client, method)(*args)
            return list(found) if hasattr(found, "__next__") else found

    with pytest.raises(WireError) as caught:
        blocking()
    errors = [caught.value]
    for library in (Trio, Asyncio):

        async def main(library=library):
            async with library.connect() as client:
                with pytest.raises(WireError) as caught:
                    await rows_or_result(client, method, args, {})
                assert await client.rpc("still.there") == {}
            return caught.value

        errors.append(library.run(main))
    for error in errors:
        assert str(error).startswith(f"{topic}: ")
        assert expected in str(error)


def test_every_method_is_here():
    named = {case[0] for case in [*CALLS, *STREAMS]}
    below = {
        "job",
        "jobs",
        "iter_jobs",
        "wait",
        "submit_many",
        "kill",
        "wait_one",
        "wait_row",
        "ping",
    }
    sending = {"rpc", "call_many", "do", "stream", "collect", "merge"}
    connection = {"waking_on_signals", "close", "timeout"}
    public = {name for name in dir(Client) if not name.startswith("_")}
    assert named | below | sending | connection == public


def test_an_eventlog_that_is_not_followed_is_read_at_once(fake):
    fake.methods["job-info.lookup"] = lambda request: [request.respond({"eventlog": LINE * 2})]
    assert over_all("eventlog", [1], {}) == [[EVENT] * 2] * 3
    request = fake.wait_for("job-info.lookup")
    assert request.object() == {"id": 1, "keys": ["eventlog"], "flags": 0}
    fake.methods["job-info.lookup"] = lambda request: [request.respond(errnum=errno.ENOENT)]
    with pytest.raises(RpcError):
        over_all("eventlog", [1], {})


R = ResourceSet.uniform("0", "node0", cores="0-1")


@pytest.mark.parametrize(
    ("answer", "r"), [({"id": 1, "R": R.encode()}, R), (errno.ENOENT, None), (errno.EPERM, None)]
)
def test_a_job_is_an_object_with_its_r(fake, answer, r):
    fake.methods["job-list.list-id"] = lambda request: [request.respond({"job": ROW})]
    fake.methods["job-info.lookup"] = lambda request: [
        request.respond(errnum=answer) if isinstance(answer, int) else request.respond(answer)
    ]
    assert over_all("job", [1], {}) == [Job(id=JobId(1), state=JobState.INACTIVE, R=r)] * 3
    assert fake.wait_for("job-list.list-id").object() == {"id": 1, "attrs": ["all"]}
    assert fake.wait_for("job-info.lookup").object() == {"id": 1, "keys": ["R"], "flags": 0}


def test_another_error_of_the_r_of_a_job_is_raised(fake):
    fake.methods["job-list.list-id"] = lambda request: [request.respond({"job": ROW})]
    fake.methods["job-info.lookup"] = lambda request: [request.respond(errnum=errno.EIO)]
    with pytest.raises(RpcError) as caught:
        over_all("job", [1], {})
    assert caught.value.errno == errno.EIO


@pytest.mark.parametrize("method", ["jobs", "iter_jobs"])
def test_jobs_are_listed_as_objects(fake, answers, method):
    fake.methods["job-list.list"] = answers({"jobs": [ROW, {"id": 2, "state": 16}]})
    listed = over_all(method, [], {"ids": [1, 2], "max_entries": 5})
    jobs = [Job(id=JobId(1), state=JobState.INACTIVE), Job(id=JobId(2), state=JobState.RUN)]
    assert listed == [jobs] * 3
    payload = {"max_entries": 5, "attrs": ["all"], "since": 0.0, "ids": [1, 2]}
    assert fake.wait_for("job-list.list").object() == payload


def test_jobs_that_have_ended_are_objects(fake, answers):
    ended = Job(id=JobId(1), state=JobState.INACTIVE)
    fake.methods["job-list.wait"] = answers({"jobs": [ROW]})
    assert over_all("wait", [[1]], {}) == [[ended]] * 3
    assert over_all("wait_one", [1], {}) == [ended] * 3


def test_ids_show_themselves_in_base_58(fake):
    fake.methods["job-ingest.submit"] = lambda request: [request.respond({"id": 7, "ids": [7, 8]})]
    fake.methods["job-manager.history.get"] = lambda request: [request.respond({"jobs": [8]})]
    assert over_all("submit", [SPEC], {}) == [JobId(7)] * 3
    for ids in (*over_all("submit", [SPEC], {"count": 2}), *over_all("history", [], {})):
        assert {type(job) for job in ids} == {JobId}
        assert str(ids[-1]) == "ƒ9"


@pytest.mark.parametrize("ids", [[1, -1], [2**64, 1]])
def test_a_number_that_no_job_can_have_is_a_malformed_response(fake, ids):
    fake.methods["job-manager.history.get"] = lambda request: [request.respond({"jobs": ids})]
    with pytest.raises(WireError, match="expected a job id"):
        over_all("history", [], {})


def test_a_signal_for_several_jobs_is_one_request(fake):
    fake.methods["job-manager.kill"] = lambda request: [
        request.respond({"count": 2, "errors": {"2": "not running"}, "unlisted": 5})
    ]
    expected = BulkResponse(2, {2: "not running"}, 5)
    found = over_all("kill", [[1, 2, 3, 2], signal.SIGUSR1], {})
    assert found == [expected] * 3
    assert [response.unlisted for response in found] == [5] * 3
    for _ in range(3):
        payload = fake.wait_for("job-manager.kill").object()
        assert payload == {"ids": [1, 2, 3, 2], "signum": signal.SIGUSR1}


def test_one_job_is_waited_for(fake, answers):
    fake.methods["job-list.wait"] = answers({"jobs": [ROW]})
    assert over_all("wait_row", [1], {}) == [ROW] * 3
    fake.methods["job-list.wait"] = answers(errnum=errno.ENOENT, errtext="no job ƒ2")
    with pytest.raises(RpcError, match="no job ƒ2"):
        over_all("wait_one", [1], {})


def test_a_ping_takes_time(fake):
    fake.methods["kvs.ping"] = lambda request: [request.respond(request.object())]
    assert all(taken > 0 for taken in over_all("ping", ["kvs", {"seq": 1}], {}))
    assert fake.wait_for("kvs.ping").object() == {"seq": 1}


@pytest.mark.parametrize(
    ("errnum", "reason"),
    [(errno.EINVAL, "no node has 9 cores"), (errno.ENOSYS, None), (errno.EPERM, None)],
)
def test_a_reason_is_returned_and_an_error_is_raised(fake, errnum, reason):
    text = "no node has 9 cores"
    fake.methods["feasibility.check"] = lambda request: [
        request.respond(errnum=errnum, errtext=text)
    ]
    if reason is not None:
        assert over_all("feasible", [SPEC], {}) == [reason] * 3
        return
    with pytest.raises(RpcError) as caught:
        over_all("feasible", [SPEC], {})
    assert caught.value.errno == errnum


@pytest.fixture
def small_parts(monkeypatch):
    """Has each job of a list be a part."""
    monkeypatch.setattr(
        "penstock.client.methods.submission_list",
        lambda jobs, token: submission_list(jobs, limit=1, token=token),
    )


@pytest.mark.parametrize("count", [3, 20])
def test_a_part_that_is_rejected_rejects_the_list(fake, small_parts, count):
    def submit(request):
        (job,) = request.object()["jobs"]
        if job["jobspec"]["n"] == 1:
            return [request.respond(errnum=errno.EPERM, errtext="not now")]
        return [request.respond({"results": [job["jobspec"]["n"]]})]

    fake.methods["job-ingest.submit-part"] = submit
    jobs = [{"jobspec": {"n": n}} for n in range(count)]
    with pytest.raises(RpcError, match="not now") as caught:
        over_all("submit_many", [jobs], {})
    assert caught.value.errno == errno.EPERM


def test_the_parts_of_a_list_are_sent_in_order_and_few_at_a_time(fake, small_parts):
    parts, waiting = [], []

    def submit(request):
        payload = request.object()
        (job,) = payload["jobs"]
        parts.append((payload["part"], payload.get("more", False), job["jobspec"]["n"]))
        waiting.append(request.respond({"results": [payload["part"]]}))
        # No response is sent before the client waits for one, or is at the end.
        if len(waiting) < PARTS_IN_FLIGHT and payload.get("more"):
            return []
        responses = waiting[:]
        waiting.clear()
        return responses

    fake.methods["job-ingest.submit-part"] = submit
    jobs = [{"jobspec": {"n": n}} for n in range(10)]
    for results in over_all("submit_many", [iter(jobs)], {}):
        assert results == [[n] for n in range(len(results))]
    # The iterator was that of the first client.
    assert parts == [(n, n < 9, n) for n in range(10)]


def test_the_results_of_a_part_are_ids_and_lists_of_ids(fake, small_parts):
    answers = [7, [8, 9], 10]
    fake.methods["job-ingest.submit-part"] = lambda request: [
        request.respond({"results": [answers[request.object()["part"]]]})
    ]
    jobs = [{"jobspec": {"n": n}} for n in range(3)]
    for results in over_all("submit_many", [jobs], {}):
        assert results == [[7], [8, 9], [10]]
        assert all(isinstance(job, JobId) for ids in results for job in ids)


def test_a_list_with_an_invalid_jobspec_is_rejected_with_the_last_part(fake, small_parts):
    text = "no job is submitted: jobs[1]: no such queue"

    def submit(request):
        payload = request.object()
        if payload.get("more"):
            result = "no such queue" if payload["part"] == 1 else payload["part"]
            return [request.respond({"results": [result]})]
        return [request.respond(errnum=errno.EINVAL, errtext=text)]

    fake.methods["job-ingest.submit-part"] = submit
    with pytest.raises(RpcError) as caught:
        over_all("submit_many", [[{"jobspec": {"n": n}} for n in range(3)]], {})
    assert (caught.value.errno, caught.value.strerror) == (errno.EINVAL, text)


def test_a_list_is_given_up_at_a_job_that_cannot_be_sent(fake, small_parts):
    parts = []

    def submit(request):
        payload = request.object()
        parts.append((payload["part"], payload.get("abort", False)))
        if payload.get("abort"):
            return [request.respond(errnum=errno.ECANCELED, errtext="given up")]
        return [request.respond({"results": [payload["part"]]})]

    fake.methods["job-ingest.submit-part"] = submit
    jobs = [{"jobspec": {"n": n}} for n in range(10)]
    jobs[7] = {"jobspec": {"n": object()}}
    with Client() as client, pytest.raises(JobspecError, match=r"jobs\[7\]: .*no JSON form"):
        client.submit_many(jobs)
    number = len(parts) - 1
    assert parts == [*((part, False) for part in range(number)), (number, True)]


@pytest.mark.parametrize("results", [[], [1, 2], [True], [-1], [{}], [[1.5]]], ids=str)
def test_malformed_results_of_a_part_are_an_error(fake, small_parts, results):
    fake.methods["job-ingest.submit-part"] = lambda request: [request.respond({"results": results})]
    with pytest.raises(WireError, match=r"job-ingest\.submit-part: "):
        over_all("submit_many", [[{"jobspec": {}}] * 2], {})
