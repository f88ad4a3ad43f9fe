"""Calls and streams that are left early: the cancel is sent, late responses are dropped."""

from __future__ import annotations

import errno
import gc
import signal
import threading
from collections import deque

import pytest

from penstock._core import MATCHTAG_MAX, Message
from penstock.client import Client, async_connection, connection
from penstock.client.outstanding import CANCEL_TOPICS, NORESPONSE, Outstanding

STREAMS = {
    "job-list.list": lambda client: client.stream("job-list.list"),
    "job-list.wait": lambda client: client.wait_rows([1]),
    "job-info.eventlog-watch": lambda client: client.eventlog(1, follow=True),
    "job-exec.output": lambda client: client.output(1, follow=True),
    "log.dmesg": lambda client: client.dmesg(follow=True),
    "resource.acquire": lambda client: client.stream("resource.acquire"),
    "resource.monitor": lambda client: client.stream("resource.monitor", {"ranks": "0"}),
}
# One answer of each, from which a row is read.
ANSWERS = {
    "job-list.list": {"jobs": [{"id": 1}]},
    "job-list.wait": {"jobs": [{"id": 1}]},
    "job-info.eventlog-watch": {"event": '{"timestamp":1.0,"name":"submit"}\n'},
    "job-exec.output": {"stream": "stdout", "data": "aGk="},
    "log.dmesg": {"lines": [{"text": "hello"}]},
    "resource.acquire": {},
    "resource.monitor": {},
}


class Interrupted:
    """A socket whose user presses Ctrl-C while it is read from."""

    def __init__(self, socket):
        self.send = socket.send

    def recv(self, size):
        signal.raise_signal(signal.SIGINT)


@pytest.fixture(params=sorted(STREAMS))
def topic(request, fake):
    """A stream that answers once and stays open until it is cancelled."""
    topic, requests = request.param, {}

    def begin(message):
        requests[message.matchtag] = message
        yield message.respond(ANSWERS[topic])

    def cancel(message):
        assert message.noresponse
        first = requests.pop(message.object()["matchtag"])
        # A response that was in flight, and the end of the stream, caused by the cancellation.
        yield first.respond(ANSWERS[topic])
        yield first.respond(errnum=errno.ENODATA)

    fake.methods |= {
        topic: begin,
        f"{topic}-cancel": cancel,
        "a.b": lambda message: [message.respond({"open": len(requests)})],
    }
    return topic


def cancelled(fake, topic, first):
    message = fake.wait_for(CANCEL_TOPICS[topic])
    assert message.flags & NORESPONSE
    assert message.matchtag == 0
    assert message.object() == {"matchtag": first.matchtag}


def test_a_stream_that_is_closed_is_cancelled(topic, fake):
    with Client() as client:
        stream = STREAMS[topic](client)
        next(stream)
        stream.close()
        stream.close()
        assert list(stream) == []
        assert client.rpc("a.b") == {"open": 0}
        assert len(client._calls) == 0
        first = fake.wait_for(topic)
        cancelled(fake, topic, first)


def test_a_stream_that_is_let_go_of_is_cancelled(topic, fake):
    with Client() as client:
        for _ in STREAMS[topic](client):
            break
        gc.collect()
        assert client.rpc("a.b") == {"open": 0}


def test_a_block_that_is_left_by_an_exception_cancels_its_stream(topic, fake):
    def leave(client):
        with STREAMS[topic](client) as stream:
            next(stream)
            raise KeyError

    with Client() as client:
        with pytest.raises(KeyError):
            leave(client)
        assert client.rpc("a.b") == {"open": 0}


def test_a_stream_that_runs_out_of_time_is_cancelled(topic, fake):
    with Client() as client:
        stream = STREAMS[topic](client)
        next(stream)
        client._socket.settimeout(0.01)
        with pytest.raises(TimeoutError):
            next(stream)
        client._socket.settimeout(60)
        assert client.rpc("a.b") == {"open": 0}
        assert list(stream) == []


def test_an_interrupt_cancels_the_stream(topic, fake, monkeypatch):
    with Client() as client:
        stream = STREAMS[topic](client)
        next(stream)
        with monkeypatch.context() as patch:
            patch.setattr(client, "_socket", Interrupted(client._socket))
            with pytest.raises(KeyboardInterrupt):
                next(stream)
        assert client.rpc("a.b") == {"open": 0}


def test_streams_of_tasks_are_cancelled_however_they_are_left(library, topic, fake):
    async def main():
        async with library.connect() as client:
            async with STREAMS[topic](client) as stream:
                await anext(stream)
            assert [row async for row in stream] == []
            assert await client.rpc("a.b") == {"open": 0}
            async for _ in STREAMS[topic](client):
                break
            gc.collect()
            assert await client.rpc("a.b") == {"open": 0}
            stream = STREAMS[topic](client)
            await anext(stream)
            async with library.move_on_after(0.01) as scope:
                await anext(stream)
            assert scope.cancelled_caught
            assert await client.rpc("a.b") == {"open": 0}
            assert len(client._calls) == 0

    library.run(main)


def test_streams_that_are_merged_are_cancelled_together(library, topic, fake):
    requests = {n: (topic, {"id": n}) for n in range(3)}
    with Client() as client:
        merged = client.merge(requests)
        assert {next(merged)[0] for _ in requests} == set(requests)
        merged.close()
        assert client.rpc("a.b") == {"open": 0}

    async def main():
        async with library.connect() as client:
            async with client.merge(requests) as merged:
                assert {(await anext(merged))[0] for _ in requests} == set(requests)
            assert await client.rpc("a.b") == {"open": 0}

    library.run(main)


def test_a_stream_outlives_its_connection_in_peace(library, topic, fake):
    with Client() as client:
        stream = STREAMS[topic](client)
        next(stream)
    stream.close()
    later = []

    async def main():
        async with library.connect() as client:
            later.append(STREAMS[topic](client))
            await anext(later[0])

    library.run(main)
    later[0].close()


def test_a_stream_that_has_ended_is_not_cancelled(fake, answers):
    fake.methods["job-list.wait"] = answers({"jobs": [{"id": 1}]})
    fake.methods["a.b"] = lambda message: [message.respond()]
    with Client() as client:
        assert [row["id"] for row in client.wait_rows([1])] == [1]
        client.rpc("a.b")
    assert [fake.received.get(timeout=60).topic for _ in range(2)] == ["job-list.wait", "a.b"]
    assert fake.received.empty()


def test_a_partial_write_is_completed(fake):
    go = threading.Event()

    def slow(message):
        go.wait(60)
        return [message.respond({"late": True})]

    fake.methods |= {
        "a.slow": slow,
        "a.b": lambda message: [message.respond({"size": len(message.object().get("text", ""))})],
    }
    with Client(timeout=0.01) as client:
        with pytest.raises(TimeoutError):
            client.rpc("a.slow")
        # The other side does not read now: more than the socket holds stays half written.
        for _ in range(2):
            with pytest.raises(TimeoutError):
                client.rpc("a.b", {"text": "x" * 5_000_000})
        assert client._unsent
        go.set()
        client._socket.settimeout(60)
        assert client.rpc("a.b", {"text": "y"}) == {"size": 1}
        assert not client._unsent
        assert len(client._calls) == 0


@pytest.mark.parametrize("what", ["drain", "idle"])
def test_waiting_for_a_queue_is_cancelled(library, fake, what):
    fake.methods["a.b"] = lambda message: [message.respond()]
    topic = f"job-manager.{what}"

    def cancelled():
        first, cancel = fake.wait_for(topic), fake.wait_for(f"{topic}-cancel")
        assert cancel.noresponse
        assert cancel.object() == {"matchtag": first.matchtag}

    with Client(timeout=0.01) as client:
        with pytest.raises(TimeoutError):
            getattr(client, f"queue_{what}")()
        assert len(client._calls) == 0
        cancelled()

    async def main():
        async with library.connect() as client:
            for seconds in (0, 0.01):
                async with library.move_on_after(seconds):
                    await getattr(client, f"queue_{what}")("a")
                assert len(client._calls) == 0
            await client.rpc("a.b")

    library.run(main)
    cancelled()
    cancelled()


def test_a_partly_written_wait_is_cancelled_after_it(fake):
    go = threading.Event()

    def slow(message):
        go.wait(60)
        return [message.respond()]

    fake.methods |= {"a.slow": slow, "a.b": lambda message: [message.respond()]}
    with Client(timeout=0.01) as client:
        with pytest.raises(TimeoutError):
            client.rpc("a.slow")
        with pytest.raises(TimeoutError):
            client.rpc("job-manager.drain", {"name": "x" * 5_000_000})
        assert client._unsent
        go.set()
        client._socket.settimeout(60)
        client.rpc("a.b")
        drain, cancel = (
            fake.wait_for("job-manager.drain"),
            fake.wait_for("job-manager.drain-cancel"),
        )
        assert cancel.object() == {"matchtag": drain.matchtag}
        assert len(client._calls) == 0


def test_a_call_that_is_never_answered_leaves_nothing_behind(library, fake):
    with Client(timeout=0.01) as client:
        for call in (client.rpc, lambda topic: client.call_many(topic, [None] * 3)):
            with pytest.raises(TimeoutError):
                call("a.silent")
            assert len(client._calls) == 0

    async def main():
        async with library.connect() as client:
            for call in (client.rpc, lambda topic: client.call_many(topic, [None] * 3)):
                async with library.move_on_after(0.01) as scope:
                    await call("a.silent")
                assert scope.cancelled_caught
                assert len(client._calls) == 0

    library.run(main)


def test_matchtags_are_not_used_again_while_an_answer_may_come():
    calls = Outstanding()
    assert [calls.begin("one", streaming=False), calls.begin("two", streaming=True)] == [1, 2]
    calls._last = MATCHTAG_MAX - 1
    assert calls.begin("last", streaming=False) == MATCHTAG_MAX
    assert calls.leave(2) == "two"
    assert calls.leave(2) is None
    # 0 is no matchtag, 1 and 2 may still be answered.
    assert calls.begin("three", streaming=False) == 3

    def response(tag, errnum=0):
        return Message.request("a.b", matchtag=tag).respond(errnum=errnum)

    assert calls.deliver(response(1)) == "one"
    assert calls.deliver(response(2)) is None
    assert 2 in calls
    assert calls.deliver(response(2, errno.ENODATA)) is None
    assert 2 not in calls
    # Its one answer may never come.
    assert calls.leave(3) == "three"
    assert len(calls) == 1
    calls._last = MATCHTAG_MAX
    assert [calls.begin("four", streaming=False) for _ in range(4)] == [1, 2, 3, 4]


@pytest.mark.parametrize("kind", [connection.Stream, async_connection.Stream])
def test_a_stream_whose_construction_a_signal_has_interrupted_is_collected(kind):
    stream = kind.__new__(kind)
    # Before its first attribute, and after it.
    stream.__del__()
    stream._rows = deque()
    stream.__del__()
