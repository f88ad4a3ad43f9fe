"""RFC 28 as the provider."""

from __future__ import annotations

import errno

from penstock import IDset
from penstock._core import Message
from penstock.instance.inventory import made_up
from penstock.protocol.acquire import AcquireProvider

STREAMING = 64


def request(flags=STREAMING):
    return Message.request("resource.acquire", flags=flags, matchtag=3)


def provider():
    return AcquireProvider(made_up(4, 2), IDset("0-2"))


def test_the_first_response_has_the_inventory_and_what_is_up():
    response = provider().acquire(request())
    assert response.object()["up"] == "0-2"
    assert response.object()["resources"]["execution"]["nodelist"] == ["node[0-3]"]
    assert (response.streaming, response.matchtag) == (True, 3)


def test_one_at_a_time_streaming_only_and_free_again_after_a_disconnect():
    made = provider()
    assert made.acquire(request(flags=0)).errnum == errno.EPROTO
    assert not made.active
    made.acquire(request())
    assert made.acquire(request()).errnum == errno.EBUSY
    assert not made.disconnect(b"somebody else")
    assert made.disconnect(b"")
    assert made.acquire(request()).errnum == 0


def test_only_transitions_are_told():
    made = provider()
    assert made.set_up(IDset("0-1")) == []
    assert made.acquire(request()).object()["up"] == "0-1"
    (change,) = made.set_up(IDset("1-3"))
    assert change.object() == {"up": "2-3", "down": "0"}
    assert made.set_up(IDset("1-3")) == []
    # What is not in the inventory is not told of.
    assert made.set_up(IDset("1-9")) == []
    (change,) = made.set_up(IDset())
    assert change.object() == {"down": "1-3"}
