"""RFC 28 as the provider."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import IDset, ResourceSet
from penstock._core import STREAMING, Message
from penstock.inventory import simulated
from penstock.protocol.acquire import AcquireProvider

EMPTY = IDset()


def request(payload=None, *, flags=STREAMING, matchtag=3):
    return Message.request("resource.acquire", payload, flags=flags, matchtag=matchtag)


def provider(nodes=4, exclude="", up="0-2"):
    return AcquireProvider(simulated(nodes, 2), IDset(exclude), IDset(up))


def told(made):
    return [response.object() for response in made.changes()]


def test_acquire_is_streaming_exclusive_and_freed_by_a_disconnect():
    made = provider()
    assert made.acquire(request(flags=0)).errnum == errno.EPROTO
    assert not made.active
    made.acquire(request())
    # EBUSY comes before any other error.
    assert made.acquire(request(flags=0)).errnum == errno.EBUSY
    assert made.acquire(request()).errnum == errno.EBUSY
    assert not made.disconnect(b"another client")
    assert made.disconnect(b"")
    assert made.acquire(request()).errnum == 0


def test_a_cancel_ends_the_stream_and_frees_it():
    made = provider()
    made.acquire(request())
    assert made.cancel(b"", 4) == made.cancel(b"another client", 3) == []
    (last,) = made.cancel(b"", 3)
    assert (last.errnum, last.matchtag, last.streaming) == (errno.ENODATA, 3, True)
    assert made.cancel(b"", 3) == []
    made.update(simulated(4, 2), EMPTY, EMPTY)
    assert made.changes() == []
    assert made.acquire(request()).object()["up"] == ""


@pytest.mark.parametrize("payload", [{"grow-ok": 1}, {"grow-ok": None}, b"[]\0", b"nonsense\0"])
def test_a_malformed_payload_is_rejected(payload):
    made = provider()
    assert made.acquire(request(payload)).errnum == errno.EPROTO
    assert not made.active


def test_only_transitions_are_sent_in_one_response():
    made, resources = provider(up="0-1"), simulated(4, 2)
    assert told(made) == []
    assert made.acquire(request()).object()["up"] == "0-1"
    made.update(resources, EMPTY, IDset("1-3"))
    assert told(made) == [{"up": "2-3", "down": "0"}]
    made.update(resources, EMPTY, IDset("1-3"))
    assert told(made) == []
    # A change that is undone before the next response is not sent.
    made.update(resources, EMPTY, IDset("0"))
    made.update(resources, EMPTY, IDset("1-3"))
    assert told(made) == []
    made.update(resources, EMPTY, EMPTY)
    assert told(made) == [{"down": "1-3"}]


def test_removed_ranks_are_sent_once_and_in_down_if_they_were_up():
    made, resources = provider(), simulated(4, 2)
    made.acquire(request())
    resources.remove_ranks("2-3")
    made.update(resources, EMPTY, IDset("0-1"))
    assert told(made) == [{"shrink": "2-3", "down": "2"}]
    made.update(resources, EMPTY, IDset("0"))
    assert told(made) == [{"down": "1"}]


def test_changes_of_properties_and_expiration_are_sent():
    made, resources = provider(), simulated(4, 2)
    resources.add_property("old", "0-2")
    made.update(resources, EMPTY, IDset("0-2"))
    made.acquire(request())
    assert told(made) == []
    resources = resources.copy()
    resources.remove_property("old", "0")
    resources.add_property("new", "0-1")
    resources.expiration = 1234.5
    made.update(resources, EMPTY, IDset("0-2"))
    assert told(made) == [
        {"property-add": {"new": "0-1"}, "property-remove": {"old": "0"}, "expiration": 1234.5}
    ]
    resources = resources.copy()
    resources.expiration = None
    made.update(resources, EMPTY, IDset("0-2"))
    assert told(made) == [{"expiration": 0.0}]


def test_new_ranks_are_sent_on_request_or_at_the_next_acquire():
    more = simulated(6, 2)
    more.add_property("p", "3-4")
    asking, other = provider(), provider()
    asking.acquire(request({"grow-ok": True}))
    other.acquire(request({"grow-ok": False}))
    for made in (asking, other):
        made.update(more, IDset("5"), IDset("0-5"))
    ((change,), (less,)) = told(asking), told(other)
    new = ResourceSet(change.pop("grow"))
    assert str(new.nodelist) == "node4"
    assert new.properties == {"p": IDset("4")}
    assert change == {"up": "3-4", "property-add": {"p": "3"}}
    assert less == {"up": "3", "property-add": {"p": "3"}}
    # A rank that was excluded from the beginning is new once it is no longer excluded.
    for made in (asking, other):
        made.update(more, EMPTY, IDset("0-5"))
    assert told(asking)[0]["up"] == "5"
    assert told(other) == []
    other.disconnect(b"")
    assert other.acquire(request()).object()["up"] == "0-5"


def test_an_excluded_rank_goes_down_and_can_come_up_again():
    made, resources = provider(), simulated(4, 2)
    made.acquire(request({"grow-ok": True}))
    made.update(resources, IDset("1"), IDset("0,2"))
    assert told(made) == [{"down": "1"}]
    assert made.schedulable.ranks == IDset("0,2-3")
    made.update(resources, EMPTY, IDset("0-2"))
    assert told(made) == [{"up": "1"}]


# --- the scheduler's view equals the provider's after every step


@dataclass
class Consumer:
    """A scheduler's view of the resources, from the responses."""

    ranks: IDset = field(default_factory=IDset)
    up: IDset = field(default_factory=IDset)
    properties: dict[str, IDset] = field(default_factory=dict)
    expiration: float = 0.0

    def take(self, response):
        if "resources" in response:
            assert set(response) == {"resources", "up"}
            r = ResourceSet(response["resources"])
            self.ranks, self.up = r.ranks, IDset(response["up"])
            assert self.up <= self.ranks
            self.properties, self.expiration = r.properties, r.expiration or 0.0
            return
        assert response, "an empty response"
        assert set(response) <= {
            *("up", "down", "shrink", "property-add", "property-remove", "expiration", "grow"),
        }
        came, gone, lost = (IDset(response.get(key, "")) for key in ("up", "down", "shrink"))
        assert all(response.values()) or response["expiration"] == 0.0
        if "grow" in response:
            more = ResourceSet(response["grow"])
            assert more.ranks
            assert more.ranks.isdisjoint(self.ranks), "a rank that is known is not new"
            self.ranks = self.ranks | more.ranks
            for name, ranks in more.properties.items():
                self.properties[name] = self.properties.get(name, IDset()) | ranks
        assert came.isdisjoint(gone)
        assert came.isdisjoint(lost)
        assert came <= self.ranks - self.up, "up: transitions only"
        assert gone <= self.up, "down: transitions only"
        assert lost <= self.ranks
        assert lost & self.up <= gone, "removed targets are in `down`, too"
        self.up = (self.up | came) - gone
        added, removed = (
            {name: IDset(ranks) for name, ranks in response.get(key, {}).items()}
            for key in ("property-add", "property-remove")
        )
        for name in added.keys() & removed.keys():
            assert added[name].isdisjoint(removed[name])
        for name, ranks in added.items():
            assert ranks
            assert ranks <= self.ranks - lost
            assert ranks.isdisjoint(self.properties.get(name, IDset()))
            self.properties[name] = self.properties.get(name, IDset()) | ranks
        for name, ranks in removed.items():
            assert ranks
            assert ranks <= self.properties[name] - lost
            self.properties[name] = self.properties[name] - ranks
        self.ranks = self.ranks - lost
        self.properties = {
            name: ranks & self.ranks
            for name, ranks in self.properties.items()
            if ranks & self.ranks
        }
        if "expiration" in response:
            assert isinstance(response["expiration"], float)
            assert response["expiration"] != self.expiration
            self.expiration = response["expiration"]


RANKS = 6
subset = st.sets(st.integers(0, RANKS - 1)).map(IDset)
step = st.one_of(
    st.tuples(st.just("there"), subset.filter(bool)),
    st.tuples(st.just("exclude"), subset),
    st.tuples(st.just("up"), subset),
    st.tuples(st.just("up"), subset),
    st.tuples(st.just("a"), subset),
    st.tuples(st.just("b"), subset),
    st.tuples(st.just("expiration"), st.sampled_from([0.0, 5.5, 7.0])),
    st.tuples(st.just("settle"), st.none()),
    st.tuples(st.just("settle"), st.none()),
    st.tuples(st.just("acquire"), st.booleans()),
    st.tuples(st.just("disconnect"), st.none()),
)


def inventory(state):
    resources = simulated(RANKS, 2)
    resources.remove_ranks(resources.ranks - state["there"])
    for name in ("a", "b"):
        if here := state[name] & state["there"]:
            resources.add_property(name, here)
    resources.expiration = state["expiration"] or None
    return resources


@given(st.lists(step, max_size=40))
@settings(max_examples=500, deadline=None)
def test_scheduler_and_provider_agree_after_every_step(steps):
    state = {"there": IDset("0-3"), "exclude": IDset(), "up": IDset("0-5"), "expiration": 0.0}
    state |= {"a": IDset(), "b": IDset()}
    made = AcquireProvider(inventory(state), state["exclude"], state["up"])
    consumer, grow_ok = None, False
    for what, value in [*steps, ("settle", None)]:
        if what in state:
            state[what] = value
            made.update(inventory(state), state["exclude"], state["up"])
            continue
        if what == "acquire":
            response = made.acquire(request({"grow-ok": value}))
            if consumer is not None:
                assert response.errnum == errno.EBUSY
            else:
                consumer, grow_ok = Consumer(), value
                consumer.take(response.object())
                assert consumer.ranks == state["there"] - state["exclude"]
        elif what == "disconnect":
            assert made.disconnect(b"") == (consumer is not None)
            consumer = None
        else:
            responses = told(made)
            assert len(responses) <= (consumer is not None)
            for response in responses:
                consumer.take(response)
            assert told(made) == [], "a change is sent twice"
        if consumer is None or what == "disconnect":
            continue
        if what == "settle":
            schedulable = state["there"] - state["exclude"]
            assert consumer.ranks <= state["there"]
            if grow_ok:
                assert schedulable <= consumer.ranks
            assert consumer.up == state["up"] & schedulable & consumer.ranks
            assert consumer.expiration == state["expiration"]
            for name in ("a", "b"):
                known = consumer.properties.get(name, IDset())
                assert known == state[name] & consumer.ranks
