"""`IDset` against pyroaring's `BitMap`, which holds millions of ids as easily as a few."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock import IDset

pytest.importorskip("pyroaring", reason="pyroaring is not installed: `make test-peers` does it")
from pyroaring import BitMap

MAX = 4294967294

# The borders of both libraries' forms: 64, 128 and 65536 bits, and the ends.
borders = st.sampled_from([0, 64, 128, 4096, 65536, 131072, 2**31, MAX])
ids = st.builds(lambda near, by: min(max(near + by, 0), MAX), borders, st.integers(-70, 70))
ranges = st.builds(
    lambda start, count, step: range(start, min(start + count * step, MAX + 1), step),
    ids,
    st.integers(0, 5000),
    st.sampled_from([1, 1, 2, 3, 63, 64, 1000]),
)
parts = st.lists(st.lists(ids, max_size=12) | ranges, max_size=4)


def text(bitmap: BitMap) -> str:
    """The idset text of a bitmap, by its runs alone."""
    runs: list[list[int]] = []
    for member in bitmap:
        if runs and runs[-1][1] + 1 == member:
            runs[-1][1] = member
        else:
            runs.append([member, member])
    return ",".join(f"{low}-{high}" if low < high else f"{low}" for low, high in runs)


def pair(members: list[list[int] | range]) -> tuple[IDset, BitMap]:
    made, bitmap = IDset(), BitMap()
    for part in members:
        made.update(part)
        bitmap.update(part)
    return made, bitmap


def same(made: IDset, bitmap: BitMap) -> None:
    assert len(made) == len(bitmap)
    assert str(made) == text(bitmap)


@given(parts, parts)
def test_algebra(left: list[list[int] | range], right: list[list[int] | range]) -> None:
    (a, x), (b, y) = pair(left), pair(right)
    same(a | b, x | y)
    same(a & b, x & y)
    same(a - b, x - y)
    same(a ^ b, x ^ y)
    assert (a == b, a <= b, a < b) == (x == y, x <= y, x < y)
    assert (a.issubset(b), a.issuperset(b)) == (x.issubset(y), x.issuperset(y))
    assert a.isdisjoint(b) == x.isdisjoint(y)
    same(a, x)
    same(b, y)


@given(parts, st.lists(ids, max_size=20))
def test_questions(members: list[list[int] | range], candidates: list[int]) -> None:
    made, bitmap = pair(members)
    if bitmap:
        assert (made.first(), made.last()) == (bitmap.min(), bitmap.max())
    for member in candidates:
        assert (member in made) == (member in bitmap)
        assert made.next(member) == next(bitmap.iter_equal_or_larger(member + 1), None)
        if member in bitmap:
            # Positions count from 0; the ranks of a bitmap count from 1.
            assert made.index(member) == bitmap.rank(member) - 1
            assert made.nth(bitmap.rank(member) - 1) == member


@given(parts, st.integers(0, 20000), st.integers(0, 20000))
def test_slices(members: list[list[int] | range], start: int, stop: int) -> None:
    made, bitmap = pair(members)
    same(made[start:stop], bitmap[start:stop])
    assert list(made[start:]) == list(bitmap)[start:]


def test_ranges_of_billions() -> None:
    made, bitmap = IDset(f"5-{MAX}"), BitMap(range(5, MAX + 1))
    made -= "70000-3000000000"
    bitmap.remove_range(70000, 3000000001)
    made ^= IDset("0-9")
    bitmap ^= BitMap(range(10))
    assert len(made) == len(bitmap)
    assert [(run.start, run.stop) for run in made.ranges()] == [
        (0, 5),
        (10, 70000),
        (3000000001, MAX + 1),
    ]
    for position in (0, 4, 5, 69994, 69995, len(bitmap) - 1):
        assert made.nth(position) == bitmap[position]


class Changes(RuleBasedStateMachine):
    """Any changes one after the other leave both the same."""

    def __init__(self) -> None:
        super().__init__()
        self.made = IDset()
        self.bitmap = BitMap()

    @rule(member=ids)
    def add(self, member: int) -> None:
        self.made.add(member)
        self.bitmap.add(member)

    @rule(member=ids)
    def discard(self, member: int) -> None:
        self.made.discard(member)
        self.bitmap.discard(member)

    @rule(start=ids, stop=ids)
    def add_range(self, start: int, stop: int) -> None:
        if start < stop:
            self.made |= f"{start}-{stop}"
            self.bitmap.add_range(start, stop + 1)

    @rule(start=ids, stop=ids)
    def remove_range(self, start: int, stop: int) -> None:
        if start < stop:
            self.made -= f"{start}-{stop}"
            self.bitmap.remove_range(start, stop + 1)

    @rule(members=parts)
    def flip(self, members: list[list[int] | range]) -> None:
        made, bitmap = pair(members)
        self.made ^= made
        self.bitmap ^= bitmap

    @rule(start=ids, stop=ids, members=parts)
    def keep(self, start: int, stop: int, members: list[list[int] | range]) -> None:
        made, bitmap = pair(members)
        if start < stop:
            made |= f"{start}-{stop}"
            bitmap.add_range(start, stop + 1)
        self.made &= made
        self.bitmap &= bitmap

    @invariant()
    def same(self) -> None:
        assert len(self.made) == len(self.bitmap)
        # As many ids, and each run of the one is in the other: equal, without going through all.
        for run in self.made.ranges():
            assert self.bitmap.contains_range(run.start, run.stop)
        if self.bitmap:
            assert (self.made.first(), self.made.last()) == (self.bitmap.min(), self.bitmap.max())


TestChanges = Changes.TestCase
TestChanges.settings = settings(max_examples=50, stateful_step_count=30)
