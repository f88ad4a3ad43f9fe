"""`IDset` against Python's `set`."""

from __future__ import annotations

import bisect
import itertools
import pickle
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock import IDset, IdsetError

MAX = 4294967294

# Near each other, around the borders of the forms, far apart, at the end.
ids = st.integers(0, 140) | st.integers(0, 3000) | st.integers(0, MAX) | st.integers(MAX - 100, MAX)
runs = st.builds(
    lambda start, count: range(start, min(start + count, MAX + 1)), ids, st.integers(0, 90)
)
combs = st.builds(
    lambda start, count, step: range(start, start + count * step, step),
    st.integers(0, 2000),
    st.integers(0, 400),
    st.integers(2, 70),
)
sets = st.lists(st.sets(ids, max_size=12) | runs | combs, max_size=4).map(
    lambda parts: set().union(*parts)
)


def text(members: set[int]) -> str:
    """The canonical text by its definition."""
    parts, rest = [], sorted(members)
    while rest:
        count = 1
        while count < len(rest) and rest[count] == rest[0] + count:
            count += 1
        parts.append(f"{rest[0]}-{rest[count - 1]}" if count > 1 else str(rest[0]))
        rest = rest[count:]
    return ",".join(parts)


@given(sets)
def test_text(members: set[int]) -> None:
    made = IDset(members)
    assert str(made) == text(members)
    assert IDset(str(made)) == made == IDset(made.encode(brackets=True)) == members
    assert IDset(",".join(map(str, sorted(members)))) == members
    assert pickle.loads(pickle.dumps(made)) == made


@given(sets)
def test_it_is_a_sorted_list(members: set[int]) -> None:
    made, model = IDset(members), sorted(members)
    assert list(made) == made.expand() == model
    assert list(reversed(made)) == model[::-1]
    assert len(made) == len(model)
    assert bool(made) == bool(model)
    assert [i for run in made.ranges() for i in run] == model
    assert (made.first(), made.last()) == ((model[0], model[-1]) if model else (None, None))


@given(sets, sets)
def test_algebra(left: set[int], right: set[int]) -> None:
    a, b = IDset(left), IDset(right)
    for other in (b, right, sorted(right), str(b), iter(right)):
        assert a | other == left | right
    assert a & b == a & right == left & b == left & right
    assert a - b == a - right == left - b == left - right
    assert a ^ b == a ^ right == left ^ b == left ^ right
    assert (a == b, a != b) == (left == right, left != right)
    assert (a <= b, a < b) == (left <= right, left < right) == (a <= right, a < right)
    assert (a >= b, a > b) == (left >= right, left > right) == (left >= b, left > b)
    assert a.isdisjoint(b) == left.isdisjoint(right)
    assert a.issubset(b) == left.issubset(right)
    assert a.issuperset(b) == left.issuperset(right)
    assert a == left
    assert b == right


@given(sets, st.slices(300) | st.builds(slice, st.none(), st.none(), st.integers(-5, -1)))
def test_slices(members: set[int], key: Any) -> None:
    assert list(IDset(members)[key]) == sorted(sorted(members)[key])


@given(sets, ids)
def test_questions(members: set[int], member: int) -> None:
    made, model = IDset(members), sorted(members)
    before, after = bisect.bisect_left(model, member), bisect.bisect_right(model, member)
    assert (member in made) == (member in members)
    assert made.prev(member) == (model[before - 1] if before else None)
    assert made.next(member) == (model[after] if after < len(model) else None)
    if member in members:
        assert made.index(member) == before
        assert made.nth(before) == made[before - len(model)] == member


@given(sets, st.integers(1, 50))
def test_parts(members: set[int], parts: int) -> None:
    split = [list(part) for part in IDset(members).split(parts)]
    assert list(itertools.chain(*split)) == sorted(members)
    sizes = [len(part) for part in split]
    assert len(sizes) == min(parts, len(members))
    assert sizes == sorted(sizes, reverse=True)
    assert not sizes or sizes[0] - sizes[-1] <= 1


@given(st.text(alphabet="0123456789-,[] \x00x", max_size=12) | st.text(max_size=8))
def test_no_text_is_read_otherwise_than_it_is_written(written: str) -> None:
    try:
        made = IDset(written)
    except IdsetError:
        return
    inner = written[1:-1] if written.startswith("[") else written
    last = -1
    for part in filter(None, inner.split(",")):
        low, _, high = part.partition("-")
        assert str(int(low)) == low
        assert int(low) > last
        last = int(high or low)
        assert int(low) in made
        assert last in made
        assert int(low) - 1 not in made or IDset(inner).index(int(low)) > 0
    assert made.last() == (last if last >= 0 else None)


class Changes(RuleBasedStateMachine):
    """The set equals the model after any sequence of changes."""

    def __init__(self) -> None:
        super().__init__()
        self.made = IDset()
        self.model: set[int] = set()

    @rule(member=ids)
    def add(self, member: int) -> None:
        self.made.add(member)
        self.model.add(member)

    @rule(member=ids)
    def discard(self, member: int) -> None:
        self.made.discard(member)
        self.model.discard(member)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.model:
            member = data.draw(st.sampled_from(sorted(self.model)))
            self.made.remove(member)
            self.model.remove(member)

    @rule()
    def pop(self) -> None:
        if self.model:
            member = self.made.pop()
            assert member == min(self.model)
            self.model.remove(member)

    @rule(members=sets)
    def update(self, members: set[int]) -> None:
        self.made |= members
        self.model |= members

    @rule(members=sets)
    def subtract(self, members: set[int]) -> None:
        self.made -= members
        self.model -= members

    @rule(members=runs)
    def cut(self, members: set[int]) -> None:
        self.made.difference_update(members)
        self.model.difference_update(members)

    @rule(members=sets)
    def flip(self, members: set[int]) -> None:
        self.made ^= members
        self.model ^= members

    @rule(members=sets, more=runs)
    def intersect(self, members: set[int], more: Any) -> None:
        self.made &= members | set(more) | set(range(500))
        self.model &= members | set(more) | set(range(500))

    @invariant()
    def same(self) -> None:
        assert self.made == self.model
        assert len(self.made) == len(self.model)
        assert list(self.made) == sorted(self.model)


TestChanges = Changes.TestCase
TestChanges.settings = settings(max_examples=30, stateful_step_count=30)
