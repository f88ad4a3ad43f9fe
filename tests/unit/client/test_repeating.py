"""A submission whose connection is lost before the response is sent again, with the same token.

No token is given twice, not in a child process either.
"""

from __future__ import annotations

import asyncio
import os

import pytest
import trio
from asynclibraries import Asyncio, Trio

from penstock import aioclient
from penstock.aclient import connect
from penstock.cli import main
from penstock.client import Client, NoInstanceError, repeating
from penstock.client.calls import PART_BYTES
from penstock.client.repeating import new_token
from penstock.errors import RpcError


@pytest.fixture
def tokens(fake):
    """The tokens of submissions; the connections of the first two are lost without a response."""
    found = []

    def method(request):
        payload = request.object()
        found.append(payload["token"])
        if len(found) <= 2:
            fake.hang_up()
            return []
        if "part" in payload:
            return [request.respond({"results": [payload["part"]] * len(payload["jobs"])})]
        if "jobs" in payload:
            return [request.respond({"results": [{"ids": [7]}] * len(payload["jobs"])})]
        return [request.respond({"ids": [7, 8]} if "count" in payload else {"id": 7})]

    fake.methods["job-ingest.submit"] = fake.methods["job-ingest.submit-part"] = method
    return found


@pytest.mark.parametrize("kind", ["one", "copies", "many"])
def test_a_submission_is_sent_again_on_a_connection_that_remains(fake, tokens, kind):
    fake.methods["a.b"] = lambda request: [request.respond({"n": 1})]
    with Client(timeout=60) as client:
        if kind == "one":
            assert client.submit({}) == 7
        elif kind == "copies":
            assert client.submit({}, count=2) == [7, 8]
        else:
            assert client.submit_many([{"jobspec": {}}] * 3) == [[7]] * 3
        assert client.timeout == 60
        assert client.rpc("a.b") == {"n": 1}
    assert len(tokens) == 3
    assert len(set(tokens)) == 1


@pytest.mark.parametrize("library", [None, Trio, Asyncio])
def test_all_parts_of_a_list_are_sent_again(fake, tokens, library):
    # Three parts: the connection is lost behind the first one, and behind the first one again.
    jobs = ({"jobspec": {"text": "x" * PART_BYTES}} for _ in range(3))
    if library is None:
        with Client(timeout=60) as client:
            assert client.submit_many(jobs) == [[0], [1], [2]]
    else:

        async def submit():
            async with library.connect() as client:
                assert await client.submit_many(jobs) == [[0], [1], [2]]

        library.run(submit)
    assert len(set(tokens)) == 1
    assert len(tokens) >= 5


def test_the_trio_client_sends_it_again(fake, tokens):
    async def submit():
        async with connect() as client:
            assert await client.submit({}) == 7
            await client.wait_lost()

    trio.run(submit)
    assert len(tokens) == 3
    assert len(set(tokens)) == 1


def test_the_asyncio_client_sends_it_again(fake, tokens):
    async def submit():
        async with aioclient.connect() as client:
            assert await client.submit({}) == 7
            await client.wait_lost()

    asyncio.run(submit())
    assert len(tokens) == 3
    assert len(set(tokens)) == 1


def test_the_command_sends_it_again(fake, tokens, capsys):
    assert main(["submit", "--token=nightly", "true"]) == 0
    assert capsys.readouterr() == ("ƒ8\n", "")
    assert tokens == ["nightly"] * 3


def test_a_rejection_after_the_loss_is_raised(fake, tokens):
    def method(request):
        return [request.respond(errnum=17, errtext="the token names another submission")]

    first = fake.methods["job-ingest.submit"]

    def lose_once(request):
        fake.methods["job-ingest.submit"] = method
        return first(request)

    fake.methods["job-ingest.submit"] = lose_once
    with Client() as client, pytest.raises(RpcError, match="names another"):
        client.submit({})


def test_attempts_end_after_some_time(fake, tokens, monkeypatch):
    assert sum(repeating.pauses()) == pytest.approx(30)
    assert max(repeating.pauses()) <= 2
    monkeypatch.setattr(repeating, "REPEAT_TIME_S", 0.06)

    def lose(request):
        tokens.append(request.object()["token"])
        fake.hang_up()
        return []

    fake.methods["job-ingest.submit"] = lose
    with Client() as client, pytest.raises(NoInstanceError, match="closed the connection"):
        client.submit({})
    # The first, one after each pause and the last.
    assert len(tokens) == 2 + len(list(repeating.pauses()))
    assert len(set(tokens)) == 1


def test_a_connection_with_an_open_stream_stays_lost(fake, tokens):
    with Client() as client:
        stream = client.stream("a.b")
        with pytest.raises(NoInstanceError, match="closed the connection"):
            client.submit({})
        with pytest.raises(NoInstanceError, match="closed the connection"):
            next(stream)
    assert len(tokens) == 1


def test_other_requests_are_not_sent_again(fake):
    count = 0

    def lose(_request):
        nonlocal count
        count += 1
        fake.hang_up()
        return []

    fake.methods["job-manager.raise"] = lose
    with Client() as client, pytest.raises(NoInstanceError):
        client.rpc("job-manager.raise", {"id": 1})
    assert count == 1


def test_tokens_differ():
    tokens = {new_token() for _ in range(1000)}
    assert len(tokens) == 1000
    assert {len(token) for token in tokens} == {32}


def test_a_child_process_begins_elsewhere():
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, new_token().encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        token = pipe.read()
    os.waitpid(child, 0)
    # 2^64 tokens are more than any process makes.
    assert abs(int(token, 16) - int(new_token(), 16)) > 2**64
