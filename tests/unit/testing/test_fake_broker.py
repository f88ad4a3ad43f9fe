"""`penstock.testing.FakeBroker`."""

from __future__ import annotations

import errno
import socket

import pytest

from penstock.client import Client
from penstock.errors import NoInstanceError, RpcError
from penstock.testing import FakeBroker


@pytest.fixture
def broker():
    with FakeBroker() as started:
        yield started


@pytest.fixture
def client(broker):
    with Client(broker.uri, timeout=60) as connected:
        yield connected


def test_a_payload_a_stream_and_an_error(broker, client):
    broker.respond("a.one", {"n": 1})
    broker.respond("a.none")
    broker.respond("a.many", {"n": 1}, {"n": 2})
    broker.fail("a.bad", errno.EPERM, "not you")
    assert client.rpc("a.one") == {"n": 1}
    assert client.rpc("a.none") == {}
    assert [row["n"] for row in client.stream("a.many")] == [1, 2]
    with pytest.raises(RpcError, match="not you"):
        client.rpc("a.bad")


def test_requests_can_be_read(broker, client):
    broker.respond("a.other")
    broker.respond("a.one")
    client.rpc("a.other")
    client.rpc("a.one", {"x": 1})
    assert broker.wait_for("a.one").object() == {"x": 1}


def test_a_method_of_ones_own(broker, client):
    broker.methods["a.sum"] = lambda request: [
        request.respond({"sum": sum(request.object()["numbers"])})
    ]
    assert client.rpc("a.sum", {"numbers": [1, 2]}) == {"sum": 3}


def test_a_lost_connection_and_a_rejection(broker, client):
    broker.methods["a.one"] = lambda _request: broker.hang_up() or []
    with pytest.raises(NoInstanceError, match="closed the connection"):
        client.rpc("a.one")
    with (
        FakeBroker(status=errno.EMFILE) as full,
        pytest.raises(NoInstanceError, match="too many connections"),
    ):
        Client(full.uri)


def test_a_connection_that_is_made_during_a_hang_up_remains(broker, client, monkeypatch):
    broker.respond("a.one", {"n": 1})
    later = []
    shutdown = socket.socket.shutdown

    def shut_down(connection, how):
        shutdown(connection, how)
        if not later:
            later.append(Client(broker.uri, timeout=60))

    with monkeypatch.context() as patched:
        patched.setattr(socket.socket, "shutdown", shut_down)
        broker.hang_up()
    with later.pop() as other:
        assert other.rpc("a.one") == {"n": 1}
    with pytest.raises(NoInstanceError, match="closed the connection"):
        client.rpc("a.one")
