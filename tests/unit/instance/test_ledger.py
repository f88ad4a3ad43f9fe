"""The resource service's books: the same events give the same state."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import IDset, ResourceSet
from penstock.instance.inventory import made_up
from penstock.instance.ledger import ALL, KEEP, REASON, Drain, Ledger, TargetError


def ledger(nodes=4, exclude=None, **properties):
    return Ledger(made_up(nodes, 2), exclude, properties)


def event(what, ranks="", /, *, time=1.0, **context):
    return {"timestamp": time, "name": what, "context": {"idset": ranks, **context}}


def grown(ranks, hosts):
    return event("grow", ranks, R=ResourceSet.uniform(ranks, hosts, cores="0").to_dict())


def test_a_drain_keeps_its_time_and_reason_unless_told_otherwise():
    made = ledger()
    # As an earlier version wrote it.
    made.apply(event("drain", "0-1", time=1.0, nodelist="node[0-1]", reason="a"))
    made.apply(event("drain", "1-2", time=2.0, reason="", overwrite=KEEP))
    made.apply(event("drain", "0-2", time=3.0, reason="b", overwrite=KEEP))
    assert made.drained == {0: Drain(1.0, "a"), 1: Drain(1.0, "a"), 2: Drain(2.0, "b")}
    made.apply(event("drain", "0,3", time=4.0, reason="c", overwrite=REASON))
    made.apply(event("drain", "1", time=5.0, reason="d", overwrite=ALL))
    made.apply(event("undrain", "2"))
    assert made.drained == {0: Drain(1.0, "c"), 1: Drain(5.0, "d"), 3: Drain(4.0, "c")}
    assert str(made.up) == "2"


def test_what_a_later_version_wrote_is_passed_over():
    made = ledger()
    made.apply(event("teleport", "0-1", nodelist="node[0-1]"))
    assert made.up == made.resources.ranks


def test_hosts_are_followed_where_each_has_one_rank():
    drain = event("drain", "1-2", nodelist="node[1-2]", reason="x")
    moved = Ledger(ResourceSet.uniform("0-3", "node2,node1,a,b", cores="0"), None, {})
    moved.apply(drain)
    assert set(moved.drained) == {0, 1}
    gone = Ledger(ResourceSet.uniform("0-3", "a,b,node2,c", cores="0"), None, {})
    gone.apply(drain)
    assert set(gone.drained) == {2}
    # One host, several ranks: only the ranks can tell.
    same = Ledger(ResourceSet.uniform("0-1", "vm,vm", cores="0"), None, {})
    same.apply(event("shrink", "2", nodelist="vm"))
    assert str(same.resources.ranks) == "0-1"


def test_exclusion_and_properties_of_configuration_hold_for_what_comes_later():
    made = ledger(2, "1,5", fast="0,5")
    assert (str(made.exclude), str(made.resources.properties["fast"])) == ("1", "0")
    made.apply(grown("5-6", "late[0-1]"))
    assert (str(made.exclude), str(made.resources.properties["fast"])) == ("1,5", "0,5")
    assert str(made.up) == "0,6"


def test_commands_count_more_than_configuration():
    made = ledger(4, None, p="0-1")
    made.apply(event("property-remove", "1", name="p"))
    made.apply(event("property-add", "2-3", name="p"))
    made.apply(event("property-remove", "3", name="p"))
    assert str(made.resources.properties["p"]) == "0,2"
    made.configure(None, {"p": "node[1-3]"})
    assert str(made.resources.properties["p"]) == "2"
    made.apply(event("property-add", "1", name="p"))
    assert str(made.resources.properties["p"]) == "1-2"


def test_a_configuration_that_names_strangers_changes_nothing():
    made = ledger(4, "node1", p="2")
    with pytest.raises(TargetError) as error:
        made.configure("node[0,8],x", {"q": "0-1", "r": "y"})
    lines = str(error.value).splitlines()
    assert lines[0].startswith("resource.exclude: no such hosts: ")
    assert lines[1] == "resource.properties.r: no such hosts: y"
    assert (str(made.exclude), list(made.resources.properties)) == ("1", ["p"])
    # A host that was there once is no stranger: a restart after a shrink must not fail.
    made.apply(event("shrink", "1", nodelist="node1"))
    made.check()
    assert made.exclude == IDset()


def test_growth_names_everything_that_is_in_its_way():
    made = ledger()
    made.apply(event("shrink", "3", nodelist="node3"))
    more = ResourceSet.uniform("2-4", "node[0-1],new", cores="0")
    with pytest.raises(TargetError) as error:
        made.check_growth(more)
    assert str(error.value) == (
        "ranks that are there already: 2; ranks that were removed for good: 3; "
        "hosts that are there already: node[0-1]"
    )
    made.check_growth(ResourceSet.uniform("4", "node3", cores="0"))


def test_ranks_may_come_in_any_order_where_no_host_is_called_so():
    assert str(ledger().targets("3,1,0")) == "0-1,3"
    numbers = Ledger(ResourceSet.uniform("0-3", "[3,2,1,0]", cores="0"), None, {})
    assert str(numbers.targets("3,2")) == "0-1"
    for text, what in [("3,9,1", "ranks: 9"), ("3,1,03", "hosts: "), ("9,4294967296", "hosts: ")]:
        with pytest.raises(TargetError, match=f"no such {what}"):
            ledger().targets(text)


def test_liveness_is_counted():
    made = ledger()
    made.apply(event("online", "0-2"))
    assert str(made.live(IDset("0-1"))) == "0-1"
    assert str(made.live(IDset("1-2"))) == "2"
    assert str(made.dead(IDset("0-1"))) == "0"
    assert (str(made.offline), str(made.up)) == ("0", "1-3")
    made.apply(event("unmonitor", "0"))
    assert made.offline == IDset()


subset = st.sets(st.integers(0, 5), min_size=1).map(lambda ranks: str(IDset(ranks)))
events = st.lists(
    st.one_of(
        st.builds(
            lambda ranks, time, reason, mode: event(
                "drain", ranks, time=time, reason=reason, overwrite=mode
            ),
            subset,
            st.floats(1, 9),
            st.sampled_from(["", "a", "b"]),
            st.sampled_from([KEEP, REASON, ALL]),
        ),
        st.builds(event, st.sampled_from(["undrain", "online", "offline", "unmonitor"]), subset),
        st.builds(
            lambda name, ranks, key: event(name, ranks, name=key),
            st.sampled_from(["property-add", "property-remove"]),
            subset,
            st.sampled_from(["p", "q"]),
        ),
        st.builds(lambda end: event("expiration", expiration=end), st.sampled_from([0.0, 7.5])),
        st.builds(event, st.just("shrink"), st.integers(0, 5).map(str)),
        st.builds(lambda rank: grown(str(rank), f"late{rank}"), st.integers(4, 6)),
    ),
    max_size=30,
)


def state(made):
    return (made.resources, made.exclude, made.drained, made.offline, made.up)


@given(events, st.integers(0, 30))
@settings(max_examples=300, deadline=None)
def test_replaying_gives_the_same_state_wherever_a_restart_was(happened, restart):
    made = ledger(4, "1,4", p="0,5")
    log = []
    for it in happened:
        if it["name"] == "grow":
            try:
                made.check_growth(ResourceSet(it["context"]["R"]))
            except TargetError:
                continue
        ranks = IDset(it["context"]["idset"]) & made.resources.ranks
        if it["name"] not in ("grow", "expiration"):
            # What a request names is there.
            if not ranks:
                continue
            it["context"] |= {"idset": str(ranks), "nodelist": made.nodelist(ranks)}
        made.apply(it)
        log.append(it)
        assert made.up <= made.resources.ranks - made.exclude
        assert set(made.drained) <= set(made.resources.ranks)
        if len(log) == restart:
            made = ledger(4, "1,4", p="0,5")
            for old in log:
                made.apply(old)
    again = ledger(4, "1,4", p="0,5")
    for it in log:
        again.apply(it)
    assert state(again) == state(made)
