"""The blocking client against a fake instance."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import threading

import pytest
import trio

from penstock import aclient, paths
from penstock.client import Client, NoInstanceError
from penstock.client.calls import JOBS_PER_CHUNK, SubmissionList
from penstock.errors import JobspecError, RpcError


def test_a_request_gets_its_response(fake):
    fake.methods["a.b"] = lambda request: [request.respond({"got": request.object()})]
    fake.methods["a.empty"] = lambda request: [request.respond()]
    with Client() as client:
        assert client.rpc("a.b", {"x": 1}) == {"got": {"x": 1}}
        assert client.rpc("a.b", b'{"x":2}\0') == {"got": {"x": 2}}
        assert client.rpc("a.empty") == {}
    first = fake.wait_for("a.b")
    assert (first.userid, first.rolemask, first.routes) == (0xFFFFFFFF, 0, [])


@pytest.mark.parametrize(
    ("text", "said"), [("no such job", "no such job"), (None, os.strerror(errno.ENOENT))]
)
def test_an_error_has_the_text_of_the_service(fake, text, said):
    fake.methods["a.b"] = lambda request: [request.respond(errnum=errno.ENOENT, errtext=text)]
    with Client() as client, pytest.raises(RpcError) as caught:
        client.rpc("a.b")
    assert caught.value.errno == errno.ENOENT
    assert caught.value.strerror == said


def test_a_signal_wakes_a_wait_that_it_does_not_interrupt(fake):
    handled = threading.Event()

    def answer(request):
        # It interrupts nothing in this thread, as one that comes just before the wait.
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        return [request.respond({"handled": handled.wait(60)})]

    fake.methods["a.b"] = answer
    before = signal.signal(signal.SIGUSR1, lambda *_: handled.set())
    try:
        with Client() as client:
            with client.waking_on_signals():
                assert client.rpc("a.b") == {"handled": True}
            assert signal.set_wakeup_fd(-1) == -1
        with (
            Client(timeout=0.01) as client,
            client.waking_on_signals(),
            pytest.raises(TimeoutError),
        ):
            client.rpc("a.silent")
    finally:
        signal.signal(signal.SIGUSR1, before)


def deny(connection, address):
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def test_errors_without_an_instance_on_rejection_and_for_a_bad_address(
    tmp_path, rejecting, monkeypatch
):
    with pytest.raises(NoInstanceError, match=r"(?s)no instance at .*hint: start one with"):
        Client(f"local://{tmp_path}/absent")
    monkeypatch.setattr(socket.socket, "connect", deny)
    with pytest.raises(NoInstanceError, match=r"(?s)no access .*allow-guest-user"):
        Client(rejecting.uri)
    monkeypatch.undo()
    with pytest.raises(NoInstanceError, match="rejected the connection: Operation not permitted"):
        Client(rejecting.uri)
    with pytest.raises(paths.AddressError, match="unsupported address `tcp://host`"):
        Client("tcp://host")
    with pytest.raises(NoInstanceError, match="path too long"):
        Client("local:///" + "x" * 200)
    monkeypatch.setenv("PENSTOCK_URI", "")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/me")
    assert paths.default_uri() == "local:///run/me/penstock/default.sock"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert str(paths.default_socket()) == f"/tmp/penstock-{os.getuid()}/default.sock"


def test_a_stream_ends_well_or_badly(fake, answers):
    fake.methods["s.good"] = answers({"n": 1}, {"n": 2})
    fake.methods["s.bad"] = answers({"n": 1}, errnum=errno.EIO, errtext="torn")
    with Client() as client:
        assert [part["n"] for part in client.stream("s.good")] == [1, 2]
        stream = client.stream("s.bad")
        assert next(stream) == {"n": 1}
        with pytest.raises(RpcError, match="torn"):
            next(stream)
    assert fake.wait_for("s.good").streaming


def test_streams_may_be_open_at_the_same_time_and_be_left(fake, answers):
    fake.methods["s.t"] = lambda request: answers(*({"n": n} for n in range(3)))(request)
    with Client() as client:
        one, two = client.stream("s.t"), client.stream("s.t")
        assert [next(one)["n"], next(two)["n"], next(one)["n"], next(two)["n"]] == [0, 0, 1, 1]
        one.close()
        assert [part["n"] for part in two] == [2]
        assert [part["n"] for part in client.stream("s.t")] == [0, 1, 2]


def test_merged_streams_come_in_the_order_of_arrival(fake, answers):
    waiting = []

    def held(request):
        waiting.append(request)
        return []

    def last(request):
        (first,) = waiting
        yield request.respond({"n": 1})
        yield first.respond({"n": 2})
        yield from answers({"n": 3}, errnum=errno.ENOENT, errtext="no more")(request)
        yield from answers({"n": 4})(first)

    fake.methods |= {"s.held": held, "s.last": last}
    with Client() as client:
        got = list(client.merge({"a": ("s.held", None), "b": ("s.last", {})}))
        assert [(key, part["n"]) for key, part in got if isinstance(part, dict)] == [
            ("b", 1),
            ("a", 2),
            ("b", 3),
            ("a", 4),
        ]
        assert [(key, str(part)) for key, part in got if isinstance(part, RpcError)] == [
            ("b", "[Errno 2] no more")
        ]
        assert client.merge({}) is not None
        assert list(client.merge({})) == []


def test_many_calls_are_sent_before_the_first_is_answered(fake):
    requests = []

    def method(request):
        requests.append(request)
        if len(requests) < 3:
            return
        for one in reversed(requests):
            n = one.object()["n"]
            yield one.respond(errnum=errno.EPERM) if n == 1 else one.respond({"n": n})

    fake.methods["a.b"] = method
    with Client() as client:
        results = client.call_many("a.b", [{"n": n} for n in range(3)])
    assert [results[0], results[2]] == [{"n": 0}, {"n": 2}]
    assert results[1].errno == errno.EPERM


def test_a_lost_connection_is_an_error(fake):
    def hang_up(_request):
        fake.hang_up()
        return []

    fake.methods["a.b"] = hang_up
    with Client() as client:
        with pytest.raises(NoInstanceError, match="closed the connection"):
            client.rpc("a.b")
        with pytest.raises(NoInstanceError, match="closed the connection"):
            list(client.stream("a.b"))


def test_a_call_that_runs_out_of_time_leaves_the_connection_usable(fake):
    fake.methods["a.b"] = lambda request: [request.respond({"n": 1})]
    with Client(timeout=0.01) as client:
        with pytest.raises(TimeoutError):
            client.rpc("a.silent")
        client._socket.settimeout(60)
        assert client.rpc("a.b") == {"n": 1}


def test_a_list_is_split_into_parts():
    jobs = [{"jobspec": {"n": n, "text": "ƒ" * 10}} for n in range(10)]

    def sent(listed):
        return [json.loads(call.payload.removesuffix(b"\0")) for call in listed]

    (whole,) = sent(SubmissionList(jobs, token="t"))
    assert whole == {"token": "t", "jobs": jobs}
    for limit in (0, 1, 60, 100, 200):
        listed = SubmissionList(iter(jobs), limit=limit)
        parts = sent(listed)
        assert [job for part in parts for job in part["jobs"]] == jobs
        assert len(parts) == len(jobs) or limit >= 60
        assert [part["part"] for part in parts] == list(range(len(parts)))
        assert [part.get("more", False) for part in parts] == [True] * (len(parts) - 1) + [False]
        assert len({part["token"] for part in parts}) == 1
        # The same once more, for a connection that was lost.
        assert sent(listed) == parts
    assert sent(SubmissionList([])) == []
    # The last part is known to be the last one, whatever cannot be encoded behind it.
    parts = sent(SubmissionList([*jobs[:2], {"jobspec": {"n": object()}}], limit=1))
    assert [part.get("more", False) for part in parts] == [True, False]


def test_a_part_is_encoded_when_it_is_requested():
    taken = []

    def jobs():
        for n in range(100 * JOBS_PER_CHUNK):
            taken.append(n)
            yield {"jobspec": {"n": n}}

    calls = iter(SubmissionList(jobs(), limit=1000))
    next(calls)
    assert len(taken) < 10 * JOBS_PER_CHUNK
    assert len(list(calls)) > 10
    assert len(taken) == 100 * JOBS_PER_CHUNK


UNENCODABLE = ["\udcff", object(), float("inf"), float("nan"), {"a": {1}}]


@pytest.mark.parametrize("bad", UNENCODABLE, ids=lambda value: ascii(value)[:8])
def test_a_jobspec_without_a_json_form_is_an_error_and_nothing_is_sent(fake, bad):
    jobs = [{"jobspec": {"n": 1}}, {"jobspec": {"n": 2, "bad": bad}}, {"jobspec": {"n": 3}}]

    async def main():
        async with aclient.connect() as client:
            for method in (client.submit, client.feasible):
                with pytest.raises(JobspecError, match="no JSON form"):
                    await method(jobs[1]["jobspec"])
            with pytest.raises(JobspecError, match=r"jobs\[1\]: .*no JSON form"):
                await client.submit_many(jobs)

    with Client() as client:
        for method in (client.submit, client.feasible):
            with pytest.raises(JobspecError, match="no JSON form"):
                method(jobs[1]["jobspec"])
        with pytest.raises(JobspecError, match=r"jobs\[1\]: .*no JSON form"):
            client.submit_many(jobs)
    trio.run(main)
    assert fake.received.empty()


def test_jobs_that_are_too_large_are_named_and_not_sent():
    jobs = [{"jobspec": {"n": n, "text": "x" * n}} for n in (1, 1000, 2, 2000)]
    many = SubmissionList(jobs, limit=10_000, job_limit=100)
    assert list(many) == []
    assert set(many.errors) == {1, 3}
    with pytest.raises(JobspecError, match=r"jobs\[1\]: .*; jobs\[3\]: .*at most 100 bytes"):
        many.results([])


def test_many_jobs_get_their_ids(fake):
    def method(request):
        payload = request.object()
        assert "independent" not in payload
        numbers = [job["jobspec"]["n"] for job in payload["jobs"]]
        yield request.respond({"results": [{"ids": [n]} for n in numbers]})

    fake.methods["job-ingest.submit"] = method
    with Client() as client:
        ids = client.submit_many([{"jobspec": {"n": n}} for n in range(3)])
    assert ids == [[0], [1], [2]]
