"""`Hostlist` against Python's `list`."""

from __future__ import annotations

import itertools
import pickle
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock import Hostlist, HostlistError

# Few stems, so that names meet; digits in many places, with and without zeroes, of any size.
numbers = (
    st.integers(0, 12).map(str)
    | st.builds(lambda n, width: f"{n:0{width}}", st.integers(0, 120), st.integers(1, 4))
    | st.integers(2**64 - 2, 2**64 + 1).map(str)
    | st.integers(10**19 - 2, 10**19 + 1).map(str)
)
stems = st.sampled_from(["n", "foo", "", "a1", "a10", "r2-n"])
suffixes = st.sampled_from(["", "", "", "-ib", "-eth2", "0", ".c1.org"])
names = st.builds("{}{}{}".format, stems, numbers, suffixes) | st.text(
    alphabet="".join(chr(c) for c in range(33, 127) if chr(c) not in ",[]"), min_size=1, max_size=4
)
runs = st.builds(
    lambda stem, start, count, width: [f"{stem}{n:0{width}}" for n in range(start, start + count)],
    stems.filter(bool),
    st.integers(0, 110),
    st.integers(1, 25),
    st.integers(1, 4),
)
lists = st.lists(st.lists(names, max_size=6) | runs, max_size=5).map(
    lambda parts: list(itertools.chain(*parts))
)


@given(lists)
def test_names_are_kept(hosts: list[str]) -> None:
    made = Hostlist(hosts)
    assert list(made) == made.expand() == hosts
    assert list(reversed(made)) == hosts[::-1]
    assert len(made) == len(hosts)
    assert list(Hostlist(str(made))) == list(Hostlist(",".join(hosts))) == hosts
    assert str(Hostlist(str(made))) == str(made)
    assert pickle.loads(pickle.dumps(made)) == made


@st.composite
def expressions(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A bracket expression and its hosts by RFC 29."""
    stem = draw(st.sampled_from(["n", "", "a1", "n0"]))
    suffix = draw(st.sampled_from(["", "-ib", "-eth2", "0"]))
    items = draw(
        st.lists(st.tuples(st.integers(0, 120), st.integers(0, 9)), min_size=1, max_size=4)
    )
    zeroes = draw(st.integers(0, 3))
    width = len(str(items[0][0])) + zeroes if zeroes else 1
    texts, hosts = [], []
    for index, (first, more) in enumerate(items):
        low = f"{first:0{width}}" if index == 0 else str(first)
        texts.append(f"{low}-{first + more}" if more else low)
        hosts += [f"{stem}{n:0{width}}{suffix}" for n in range(first, first + more + 1)]
    return f"{stem}[{','.join(texts)}]{suffix}", hosts


@given(st.lists(expressions(), max_size=4))
def test_bracket_expressions_expand_as_rfc_29_says(parts: Any) -> None:
    made = Hostlist(",".join(text for text, _ in parts))
    hosts = [host for _, hosts in parts for host in hosts]
    assert list(made) == hosts
    assert made == Hostlist(hosts)
    assert list(Hostlist(str(made))) == hosts
    made.uniq()
    assert made == Hostlist(dict.fromkeys(hosts))


@given(lists, lists)
def test_set_operations(left: list[str], right: list[str]) -> None:
    a, b = Hostlist(left), Hostlist(right)
    assert list(a | b) == list(a | right) == list(left | b) == list(dict.fromkeys(left + right))
    assert list(a & b) == list(a & right) == list(dict.fromkeys(h for h in left if h in right))
    assert list(a - b) == list(left - b) == list(dict.fromkeys(h for h in left if h not in right))
    assert a ^ b == (a - b) + (b - a)
    assert list(a + b) == list(left + b) == left + right
    assert (a == b) == (left == right)
    assert list(a) == left
    kept = Hostlist(left)
    kept.uniq()
    assert list(kept) == list(dict.fromkeys(left))


@given(lists, lists)
def test_deletion(hosts: list[str], others: list[str]) -> None:
    made, model, gone = Hostlist(hosts), list(hosts), 0
    for host in others + others[::2] + hosts[::3]:
        if host in model:
            model.remove(host)
            gone += 1
    assert made.delete(others + others[::2] + hosts[::3]) == gone
    assert list(made) == model


def natural(name: str) -> tuple[Any, ...]:
    """The sort key of a name: prefix with its numbers, number, digits, suffix."""

    def tokens(text: str) -> list[tuple[str, int, int]]:
        parts = re.findall(r"\d+|\D", text)
        return [("0", int(p), len(p)) if p.isdigit() else (p, 0, 0) for p in parts]

    if found := re.fullmatch(r"(.*?)(\d{1,19})(\D*)", name):
        prefix, number, suffix = found.groups()
        return tokens(prefix), int(number), len(number), tokens(suffix)
    return tokens(name), 0, 0, []


@given(lists)
def test_sorting(hosts: list[str]) -> None:
    ordered = Hostlist(hosts)
    ordered.sort()
    assert list(ordered) == sorted(hosts, key=natural)


@given(lists, st.lists(names, max_size=5))
def test_questions(hosts: list[str], others: list[str]) -> None:
    made = Hostlist(hosts)
    for host in hosts + others:
        assert (host in made) == (host in hosts)
        assert made.count(host) == hosts.count(host)
        assert made.find(host) == (hosts.index(host) if host in hosts else None)


@given(lists, st.integers(1, 40))
def test_parts(hosts: list[str], parts: int) -> None:
    split = [list(part) for part in Hostlist(hosts).split(parts)]
    assert list(itertools.chain(*split)) == hosts
    sizes = [len(part) for part in split]
    assert len(sizes) == min(parts, len(hosts))
    assert sizes == sorted(sizes, reverse=True)
    assert not sizes or sizes[0] - sizes[-1] <= 1


@given(lists)
def test_folding_in_n_dimensions_keeps_the_hosts(hosts: list[str]) -> None:
    text = Hostlist(hosts).fold(nd=True)
    assert sorted(Hostlist(text)) == sorted(hosts)
    assert Hostlist(hosts[::-1]).fold(nd=True) == Hostlist(text).fold(nd=True) == text


@given(lists, lists)
def test_ranks(hosts: list[str], others: list[str]) -> None:
    made, known = Hostlist(hosts), [host for host in others if host in hosts]
    ranks = made.ranks(known)
    assert list(ranks) == [rank for rank, host in enumerate(hosts) if host in known]
    assert list(made.at(ranks)) == [host for host in hosts if host in known]
    assert made.issuperset(known)
    assert made.issuperset(others) == set(hosts).issuperset(others)
    assert made.issubset(others) == set(hosts).issubset(others)
    assert made.isdisjoint(others) == set(hosts).isdisjoint(others)
    assert made.has_intersection(others) != made.isdisjoint(others)


@given(lists, st.lists(st.sampled_from([" ", "\n", ", ", ",,", " ,"]), min_size=40, max_size=40))
def test_lenient_reading(hosts: list[str], gaps: list[str]) -> None:
    text = "".join(host + gap for host, gap in zip(hosts, itertools.cycle(gaps), strict=False))
    made, mended = Hostlist.parse_lenient(text)
    assert list(made) == hosts
    assert bool(mended) == bool(hosts)


@given(st.text(alphabet="a0123456789-,[] \x00", max_size=14) | st.text(max_size=8))
def test_no_text_is_a_danger(text: str) -> None:
    try:
        made = Hostlist(text)
    except HostlistError:
        return
    assert Hostlist(str(made)) == made
    if "[" not in text:
        assert list(made) == text.split(",") if text else not made


class Changes(RuleBasedStateMachine):
    """The list equals the model after any sequence of changes."""

    def __init__(self) -> None:
        super().__init__()
        self.made = Hostlist()
        self.model: list[str] = []

    def both(self, change: Any) -> None:
        """Applies a change to the list and to the model: both do the same, or raise the same."""
        try:
            expected = change(self.model)
        except (IndexError, ValueError) as error:
            with pytest.raises(type(error)):
                change(self.made)
        else:
            assert change(self.made) == expected

    @rule(host=names)
    def append(self, host: str) -> None:
        self.both(lambda hosts: hosts.append(host))

    @rule(more=lists)
    def extend(self, more: Any) -> None:
        self.both(lambda hosts: hosts.extend(more))

    @rule(index=st.integers(-40, 40), host=names)
    def insert(self, index: int, host: str) -> None:
        self.both(lambda hosts: hosts.insert(index, host))

    @rule(index=st.integers(-40, 40))
    def pop(self, index: int) -> None:
        self.both(lambda hosts: hosts.pop(index))

    @rule(host=names)
    def remove(self, host: str) -> None:
        self.both(lambda hosts: hosts.remove(host))

    @rule()
    def reverse(self) -> None:
        self.both(lambda hosts: hosts.reverse())

    @rule(index=st.integers(-40, 40), host=names)
    def assign(self, index: int, host: str) -> None:
        self.both(lambda hosts: hosts.__setitem__(index, host))

    @rule(key=st.slices(40), more=lists)
    def assign_slice(self, key: Any, more: Any) -> None:
        self.both(lambda hosts: hosts.__setitem__(key, more))

    @rule(key=st.slices(40), data=st.data())
    def assign_as_many(self, key: Any, data: st.DataObject) -> None:
        count = len(self.model[key])
        more = data.draw(st.lists(names, min_size=count, max_size=count))
        self.both(lambda hosts: hosts.__setitem__(key, more))

    @rule(key=st.slices(40) | st.integers(-40, 40))
    def delete(self, key: Any) -> None:
        self.both(lambda hosts: hosts.__delitem__(key))

    @rule(key=st.slices(40))
    def slice(self, key: Any) -> None:
        assert list(self.made[key]) == self.model[key]

    @rule(host=names, start=st.integers(-40, 40), stop=st.integers(-40, 40))
    def index(self, host: str, start: int, stop: int) -> None:
        self.both(lambda hosts: hosts.index(host, start, stop))

    @invariant()
    def same(self) -> None:
        assert list(self.made) == self.model
        assert len(self.made) == len(self.model)


TestChanges = Changes.TestCase
TestChanges.settings = settings(max_examples=30, stateful_step_count=30)
