"""The clients for Trio and asyncio against a fake instance."""

from __future__ import annotations

import errno

import pytest

from penstock._core import Message
from penstock.client import NoInstanceError
from penstock.errors import RpcError


def test_requests_streams_and_errors(library, fake, answers):
    fake.methods["a.b"] = lambda request: [request.respond({"got": request.object()})]
    fake.methods["a.bad"] = lambda request: [request.respond(errnum=1, errtext="not you")]
    fake.methods["s.good"] = answers({"n": 1}, {"n": 2})
    fake.methods["s.bad"] = answers({"n": 1}, errnum=errno.EIO, errtext="torn")

    async def main():
        async with library.connect() as client:
            assert await client.rpc("a.b", {"x": 1}) == {"got": {"x": 1}}
            with pytest.raises(RpcError, match="not you"):
                await client.rpc("a.bad")
            async with client.stream("s.good") as responses:
                assert [part["n"] async for part in responses] == [1, 2]
                assert [part async for part in responses] == []
            async with client.stream("s.bad") as responses:
                assert await anext(responses) == {"n": 1}
                with pytest.raises(RpcError, match="torn"):
                    await anext(responses)
            good, bad = (
                await client.call_many("a.b", [{"x": 1}]),
                await client.call_many("a.bad", [{}]),
            )
            assert good == [{"got": {"x": 1}}]
            assert bad[0].errno == errno.EPERM

    library.run(main)


def test_cbor_is_sent_on_request(library, fake):
    fake.methods["a.b"] = lambda request: [request.respond({"got": request.object()})]

    async def main():
        async with library.connect(encoding="cbor") as client:
            assert await client.rpc("a.b", {"x": [1, None, "ƒ"]}) == {"got": {"x": [1, None, "ƒ"]}}

    library.run(main)


def test_a_cancelled_call_leaves_the_connection_as_it_was(library, fake, answers):
    requests = []

    def silent(request):
        requests.append(request)
        return []

    def late(request):
        # Responses to abandoned calls come first.
        for one in requests:
            yield from answers({"late": True})(one)
        yield request.respond({"n": 1})

    fake.methods |= {"a.silent": silent, "a.late": late}

    async def main():
        async with library.connect() as client:
            for _ in range(3):
                async with library.move_on_after(0) as scope:
                    await client.rpc("a.silent", {"text": "x" * 300_000})
                assert scope.cancelled_caught
            async with library.move_on_after(0) as scope, client.stream("a.silent") as responses:
                await anext(responses)
            assert scope.cancelled_caught
            assert await client.rpc("a.late") == {"n": 1}
            assert not client._calls

    library.run(main)
    assert len(requests) == 4


def test_errors_without_an_instance_on_rejection_and_on_disconnect(
    library, fake, rejecting, tmp_path
):
    async def attempt(uri):
        async with library.connect(uri):
            pass

    with pytest.raises(NoInstanceError, match=r"(?s)no instance.*hint"):
        library.run(lambda: attempt(f"local://{tmp_path}/absent"))
    with pytest.raises(NoInstanceError, match="rejected the connection: Operation not permitted"):
        library.run(lambda: attempt(rejecting.uri))

    def hang_up(_request):
        fake.hang_up()
        return []

    fake.methods["a.b"] = hang_up

    async def lost():
        async with library.connect() as client:
            with pytest.raises(NoInstanceError, match="closed the connection"):
                await client.rpc("a.b")
            await client.wait_lost()
            with pytest.raises(NoInstanceError, match="closed the connection"):
                client.send(Message.request("a.b"))
            with pytest.raises(NoInstanceError, match="closed the connection"):
                await client.rpc("a.b")

    library.run(lost)


def test_exceptions_of_the_block_are_propagated(library, fake):
    async def main():
        async with library.connect():
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        library.run(main)


def test_a_service_gets_its_requests_and_answers(library, fake):
    def added(request):
        yield request.respond()
        # Behind the answer at once, and one for a service that is not there.
        for n, topic in enumerate(["echo.one", "echo.two", "other.one"]):
            yield Message.request(topic, {"n": n}, matchtag=10 + n)
        yield Message.request("other.quiet", {}, matchtag=0, flags=4)

    fake.methods["service.add"] = added
    fake.methods["service.remove"] = lambda request: [request.respond()]
    batches = []

    async def main():
        async with library.connect() as client:

            def handler(batch):
                batches.append([(request.topic, request.object()) for request in batch])
                for request in batch:
                    client.send(request.respond({"echo": request.object()["n"]}))

            await client.add_service("echo", handler)
            with pytest.raises(RpcError, match="already registered"):
                await client.add_service("echo", handler)
            answers = {}
            while len(answers) < 3:
                message = await library.to_thread(lambda: fake.received.get(timeout=60))
                if message.kind == "response":
                    answers[message.matchtag] = message
            assert [answers[10].object(), answers[11].object()] == [{"echo": 0}, {"echo": 1}]
            assert answers[12].errnum == errno.ENOSYS
            await client.remove_service("echo")

    library.run(main)
    assert [one for batch in batches for one in batch] == [
        ("echo.one", {"n": 0}),
        ("echo.two", {"n": 1}),
    ]


def test_a_rejected_service_is_not_served(library, fake):
    fake.methods["service.add"] = lambda request: [request.respond(errnum=errno.EEXIST)]

    async def main():
        async with library.connect() as client:
            with pytest.raises(RpcError) as caught:
                await client.add_service("taken", lambda _batch: None)
            assert caught.value.errno == errno.EEXIST
            assert not client._services

    library.run(main)


def test_a_handler_s_fault_comes_out_of_the_block(library, fake):
    def added(request):
        yield request.respond()
        yield Message.request("echo.one", {}, matchtag=1)

    fake.methods["service.add"] = added

    def handler(_batch):
        raise ZeroDivisionError("handler")

    async def main():
        async with library.connect() as client:
            await client.add_service("echo", handler)
            await library.sleep_forever()

    with pytest.raises(ZeroDivisionError, match="handler"):
        library.run(main)


def test_events_go_to_subscribers(library, fake):
    def subscribed(request):
        yield request.respond()
        for topic in ("job-state", "other", "job-exception"):
            yield Message.event(topic, {"topic": topic}, sequence=1)

    fake.methods["event.subscribe"] = subscribed
    fake.methods["event.unsubscribe"] = lambda request: [request.respond()]

    async def main():
        seen = []
        enough = library.event()
        async with library.connect() as client:

            def handler(event):
                seen.append(event.object()["topic"])
                if len(seen) == 2:
                    enough.set()

            await client.subscribe("job-", handler)
            with pytest.raises(RpcError, match="subscribed"):
                await client.subscribe("job-", handler)
            await enough.wait()
            await client.unsubscribe("job-")
        return seen

    assert library.run(main) == ["job-state", "job-exception"]


def test_each_row_of_an_answer_is_a_place_to_be_cancelled_at(library, fake, answers):
    fake.methods["job-list.list"] = answers({"jobs": [{"id": n} for n in range(1000)]})
    seen = []

    async def main():
        async with library.connect() as client:
            async with library.move_on_after(60) as scope:
                async for row in client.iter_job_rows():
                    seen.append(row["id"])
                    if len(seen) == 10:
                        scope.cancel()
            assert scope.cancelled_caught
            assert await client.job_rows() == [{"id": n} for n in range(1000)]

    library.run(main)
    # asyncio cancels a task in its next round.
    assert seen in (list(range(10)), list(range(11)))


def test_pending_output_is_written_before_the_block_ends(library, fake):
    text = "x" * 5_000_000

    async def main():
        async with library.connect() as client:
            client.send(Message.request("a.first", {"text": text}))
            client.send(Message.request("a.last"))
        with pytest.raises(NoInstanceError):
            client.send(Message.request("a.late"))

    library.run(main)
    assert fake.wait_for("a.first").object() == {"text": text}
    fake.wait_for("a.last")


def test_a_lost_connection_does_not_keep_the_block_from_its_end(library, fake):
    async def main():
        async with library.connect() as client:
            fake.hang_up()
            await client.wait_lost()
            assert client._written.is_set()

    library.run(main)
