"""The resource service, round by round: permissions, and the responses of a round."""

from __future__ import annotations

import errno
import json
import sqlite3
from contextlib import closing

import pytest

from penstock import ResourceSet
from penstock._core import (
    NORESPONSE,
    ROLE_OWNER,
    ROLE_USER,
    STREAMING,
    Batch,
    JobManager,
    Message,
)
from penstock.clock import SystemClock
from penstock.config import Resource
from penstock.errors import StoreError
from penstock.instance.control import ControlService
from penstock.instance.resource import ResourceService
from penstock.inventory import simulated

OWNER, GUEST = 1000, 2000


class Broker:
    """A broker that collects the messages sent."""

    owner = OWNER
    clock = SystemClock()

    def __init__(self):
        self.sent = []

    def attach(self, _service, *, names=(), **_options):
        self.names = names
        return 1

    def post_messages(self, _peer, messages):
        self.sent += messages

    def post(self, _peer, batch):
        self.sent += list(batch)

    def nudge(self):
        pass


class Bench:
    """A service over a store in memory."""

    def __init__(self, manager=None, **config):
        self.manager = manager or JobManager(None, json.dumps({"owner": OWNER}), 1.0)
        self.broker = Broker()
        resources = simulated(4, 2)
        self.service = ResourceService(self.broker, self.manager, resources, Resource(**config))

    def ask(self, topic, payload=None, *, userid=OWNER, flags=0, matchtag=1):
        """Takes a request in; it is answered when the service posts its output."""
        roles = ROLE_OWNER if userid == OWNER else ROLE_USER
        request = Message.request(
            topic, payload, matchtag=matchtag, flags=flags, userid=userid, rolemask=roles
        )
        self.service.deliver(Batch([request]))

    def settle(self):
        self.manager.flush()
        self.service.post_output(1.0)
        sent, self.broker.sent = self.broker.sent, []
        return sent

    def rpc(self, *args, **kwargs):
        self.ask(*args, **kwargs)
        (response,) = self.settle()
        return response


@pytest.mark.parametrize(
    ("topic", "payload"),
    [
        ("resource.acquire", None),
        ("resource.monitor", {"ranks": "0"}),
        ("resource.drain", {"targets": "0"}),
        ("resource.undrain", {"targets": "0", "mode": "force"}),
        ("resource.grow", {"R": ResourceSet.uniform("9", "x", cores="0").to_dict()}),
        ("resource.shrink", {"targets": "0"}),
        ("resource.property-add", {"targets": "0", "name": "p"}),
        ("resource.property-remove", {"targets": "0", "name": "p"}),
        ("resource.expiration", {"expiration": 5}),
        ("resource.unmonitor", {"targets": "0"}),
    ],
)
def test_guests_may_look_and_do_nothing(topic, payload):
    bench = Bench()
    before = bench.rpc("resource.status", userid=GUEST).object()
    rejected = bench.rpc(topic, payload, userid=GUEST, flags=STREAMING)
    assert rejected.errnum == errno.EPERM
    assert bench.rpc("resource.status", userid=GUEST).object() == before
    assert bench.manager.resource_events() == []
    assert bench.rpc("resource.stats-get").object()["acquired"] is False


def test_a_guest_may_not_change_the_configuration():
    broker = Broker()
    control = ControlService(
        broker, attributes={}, config={"a": 1}, shut_down=lambda _how: None, reload=None
    )
    request = Message.request("config.reload", {"config": {}}, matchtag=1, rolemask=ROLE_USER)
    control.deliver(Batch([request]))
    assert broker.sent.pop().errnum == errno.EPERM
    request = Message.request("config.reload", {"config": {}}, matchtag=1, rolemask=ROLE_OWNER)
    control.deliver(Batch([request]))
    assert broker.sent.pop().errnum == errno.ENOSYS


def test_changes_that_cancel_out_are_not_sent():
    bench = Bench()
    assert bench.rpc("resource.acquire", flags=STREAMING, matchtag=7).object()["up"] == "0-3"
    bench.ask("resource.drain", {"targets": "0-1"})
    bench.ask("resource.undrain", {"targets": "0-1"})
    bench.ask("resource.property-add", {"targets": "0-1", "name": "p"})
    bench.ask("resource.property-remove", {"targets": "0-1", "name": "p"})
    assert {response.matchtag for response in bench.settle()} == {1}
    # The history has these changes nevertheless.
    assert len(bench.manager.resource_events()) == 4
    # Changes of one round are one response.
    bench.ask("resource.drain", {"targets": "0-1"})
    bench.ask("resource.shrink", {"targets": "3"})
    bench.ask("resource.undrain", {"targets": "1"})
    received = [message.object() for message in bench.settle() if message.matchtag == 7]
    assert received == [{"shrink": "3", "down": "0,3"}]
    # The first response to an acquire includes changes of the same round that precede it.
    bench.ask("resource.disconnect")
    bench.ask("resource.undrain", {"targets": "0"})
    bench.ask("resource.acquire", flags=STREAMING, matchtag=8)
    received = [message.object() for message in bench.settle() if message.matchtag == 8]
    assert [payload["up"] for payload in received] == ["0-2"]


def test_a_request_that_wants_no_response_gets_none_and_holds_nothing():
    bench = Bench()
    bench.ask("resource.acquire", flags=STREAMING | NORESPONSE, matchtag=0)
    bench.ask("resource.drain", {"targets": "9"}, flags=NORESPONSE, matchtag=0)
    bench.ask("resource.drain", {"targets": "1"}, flags=NORESPONSE, matchtag=0)
    bench.ask("resource.monitor", {"ranks": "1"}, flags=STREAMING | NORESPONSE, matchtag=0)
    assert bench.settle() == []
    stats = bench.rpc("resource.stats-get").object()
    assert (stats["acquired"], stats["monitors"], stats["drained"]) == (False, 0, 1)


def test_an_excluded_host_that_is_gone_does_not_keep_the_instance_from_starting():
    bench = Bench(exclude="node3", properties={"p": "node[2-3]"})
    assert bench.rpc("resource.shrink", {"targets": "3"}).errnum == 0
    again = Bench(bench.manager, exclude="node3", properties={"p": "node[2-3]"})
    assert again.rpc("resource.status").object()["exclude"] == ""
    with pytest.raises(ValueError, match=r"resource\.exclude: no such hosts: nosuch"):
        Bench(bench.manager, exclude="nosuch,node3")


def test_a_failed_append_leaves_the_service(tmp_path):
    manager = JobManager(tmp_path / "jobs", json.dumps({"owner": OWNER}), 1.0)
    bench = Bench(manager)
    manager.commit()
    with closing(sqlite3.connect(tmp_path / "jobs")) as other:
        other.execute("DROP TABLE resource_events")
    with pytest.raises(StoreError, match="resource_events"):
        bench.ask("resource.drain", {"targets": "0"})
