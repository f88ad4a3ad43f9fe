"""`IDset` and `Hostlist` against the behaviour of ClusterShell's `RangeSet` and `NodeSet`.

These differ from the RFCs, and are left out here:

- A `NodeSet` is a set in an order of its own; a `Hostlist` keeps order and repeats.
- The zeroes in front of the first number hold for the whole idlist in RFC 29, for one number there.
- `RangeSet` reads repeats, disorder, blanks, signs, zeroes and steps (`0-10/2`); RFC 22 has none.
- `NodeSet` reads several brackets in a name, groups (`@all`), operators (`a!b`) and wildcards.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Hostlist, HostlistError, IDset, IdsetError

pytest.importorskip(
    "ClusterShell", reason="ClusterShell is not installed: `make test-peers` does it"
)
from ClusterShell.NodeSet import NodeSet, NodeSetException
from ClusterShell.RangeSet import RangeSet, RangeSetException

ids = st.integers(0, 140) | st.integers(0, 3000)
members = st.lists(
    st.sets(ids, min_size=1, max_size=12)
    | st.builds(lambda start, count: set(range(start, start + count)), ids, st.integers(1, 90)),
    max_size=4,
).map(lambda parts: set().union(*parts))


def rangeset(numbers: set[int]) -> RangeSet:
    made = RangeSet()
    for number in numbers:
        made.add(number)
    return made


@given(members.filter(bool))
def test_idset_texts(numbers: set[int]) -> None:
    ours, theirs = IDset(numbers), rangeset(numbers)
    assert str(ours) == str(theirs)
    assert set(IDset(str(theirs))) == numbers
    assert set(RangeSet(str(ours)).intiter()) == numbers
    assert len(ours.ranges()) == len(list(theirs.contiguous()))


@given(members, members)
def test_idset_algebra(left: set[int], right: set[int]) -> None:
    a, b = IDset(left), IDset(right)
    x, y = rangeset(left), rangeset(right)
    assert str(a | b) == str(x | y)
    assert str(a & b) == str(x & y)
    assert str(a - b) == str(x - y)
    assert str(a ^ b) == str(x ^ y)
    assert (a <= b, a >= b, a == b) == (x <= y, x >= y, x == y)


@given(members.filter(bool), st.integers(1, 20))
def test_idset_parts(numbers: set[int], parts: int) -> None:
    theirs = rangeset(numbers).split(parts)
    assert [str(part) for part in IDset(numbers).split(parts)] == [str(part) for part in theirs]


@pytest.mark.parametrize("text", ["1-", "x", "1-x", "3-1", "1,,2", ",", "1,", "[1-2", "1--2"])
def test_neither_reads_these_as_idsets(text: str) -> None:
    with pytest.raises(RangeSetException):
        RangeSet(text)
    with pytest.raises(IdsetError):
        IDset(text)


# Names that both libraries read alike: at most one number, and no operator of ClusterShell.
stems = st.sampled_from(["n", "foo", "rack", "a-b", "x.y"])
suffixes = st.sampled_from(["", "", "-ib", ".example"])


@st.composite
def runs(draw: st.DrawFn) -> list[str]:
    """Names that count up, all with as many digits or with none in front."""
    stem, suffix = draw(stems), draw(suffixes)
    start, count = draw(st.integers(0, 120)), draw(st.integers(1, 30))
    width = draw(st.sampled_from([0, 0, 3, 4]))
    return [f"{stem}{number:0{width}}{suffix}" for number in range(start, start + count)]


hosts = st.lists(runs() | stems.map(lambda stem: [stem]), max_size=5).map(
    lambda parts: list(itertools.chain(*parts))
)


def once(names: list[str]) -> list[str]:
    return list(dict.fromkeys(names))


def nodeset(names: list[str]) -> NodeSet:
    return NodeSet.fromlist(names)


@given(hosts)
def test_hostlist_texts(names: list[str]) -> None:
    ours, theirs = Hostlist(names), nodeset(names)
    assert len(theirs) == len(ours | [])
    # Each reads what the other wrote.
    assert sorted(NodeSet(str(ours))) == sorted(set(names))
    assert sorted(Hostlist(str(theirs))) == sorted(set(names))


@given(runs())
def test_hostlist_foldings(names: list[str]) -> None:
    assert str(Hostlist(names)) == str(nodeset(names))


@given(hosts, hosts)
def test_hostlist_algebra(left: list[str], right: list[str]) -> None:
    a, b = Hostlist(left), Hostlist(right)
    x, y = nodeset(left), nodeset(right)
    for ours, theirs in ((a | b, x | y), (a & b, x & y), (a - b, x - y), (a ^ b, x ^ y)):
        assert len(ours) == len(theirs)
        assert set(ours) == set(theirs)


@given(runs(), st.integers(1, 20))
def test_hostlist_parts(names: list[str], parts: int) -> None:
    theirs = nodeset(names).split(parts)
    assert [str(part) for part in Hostlist(names).split(parts)] == [str(part) for part in theirs]


@given(stems, st.sets(st.integers(0, 300), min_size=1, max_size=40))
def test_hostlist_order(stem: str, numbers: set[int]) -> None:
    names = [f"{stem}{number}" for number in numbers]
    ours = Hostlist(names)
    ours.sort()
    assert list(ours) == list(nodeset(names))


@given(hosts.filter(bool))
def test_hostlist_membership(names: list[str]) -> None:
    ours, theirs = Hostlist(names), nodeset(names)
    for name in once(names)[:20]:
        longer = f"{name}0"
        assert (name in ours, longer in ours) == (name in theirs, longer in theirs)
    first = [str(theirs[index]) for index in range(len(theirs))]
    assert sorted(first) == sorted(ours | [])


@pytest.mark.parametrize(
    "text", ["n[1-", "n[]", "n[x]", "n[1-x]", "n[3-1]", "n[1,,2]", "n1]", "a,,b"]
)
def test_neither_reads_these_as_hostlists(text: str) -> None:
    with pytest.raises(NodeSetException):
        NodeSet(text)
    with pytest.raises(HostlistError):
        Hostlist(text)
