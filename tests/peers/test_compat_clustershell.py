"""`penstock.compat.ClusterShell` against ClusterShell itself, where that is installed."""

from __future__ import annotations

import re
from importlib import import_module

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

our_nodes = import_module("penstock.compat.ClusterShell.NodeSet")
our_ranges = import_module("penstock.compat.ClusterShell.RangeSet")
REASON = "the peer is not installed: pip install ClusterShell"
their_nodes = pytest.importorskip("ClusterShell.NodeSet", reason=REASON)
their_ranges = pytest.importorskip("ClusterShell.RangeSet", reason=REASON)


def outcome(call):
    """The result of a call, or None if it fails."""
    try:
        return call()
    except Exception:
        # Of two faults either may be reported, and theirs has some that are Python's own.
        return None


@st.composite
def ranges(draw, widths=(0, 0, 0, 2, 3)):
    start, count = draw(st.integers(0, 130)), draw(st.sampled_from([0, 0, 1, 5, 40]))
    width, step = draw(st.sampled_from(widths)), draw(st.sampled_from([1, 1, 2, 3]))
    text = f"{start:0{width}d}"
    if count:
        text += f"-{start + count:0{width}d}"
        text += f"/{step}" if step > 1 else ""
    return text


# Not partly padded ones: `docs/compat.md` says how those may differ.
TEXTS = st.sampled_from([(0,), (3,), (4,)]).flatmap(
    lambda widths: st.lists(ranges(widths), min_size=1, max_size=5).map(",".join)
)
OPERATIONS = ["union", "intersection", "difference", "symmetric_difference"]


@given(TEXTS, TEXTS, st.sampled_from([None, 2, 3, 4]))
def test_rangesets(left, right, autostep):
    def results(module):
        a, b = module.RangeSet(left, autostep=autostep), module.RangeSet(right)
        combined = [str(getattr(a, name)(b)) for name in OPERATIONS]
        parts = [str(part) for part in a.split(3)]
        return [str(a), len(a), list(a), a.padding, a <= b, a == b, *combined, *parts]

    assert results(our_ranges) == results(their_ranges)


@example("0-00")
@example("0--0")
@example("-0/2")
@example("-01--00")
@given(st.text("0129-/, x", max_size=9))
def test_texts_of_rangesets(text):
    # `docs/compat.md`: three numbers are no range.
    assume(not re.search("[0-9] *- *[0-9]+ *-", text))
    expected = outcome(lambda: str(their_ranges.RangeSet(text)))
    assert outcome(lambda: str(our_ranges.RangeSet(text))) == expected


AXES = st.lists(
    st.tuples(*[st.lists(st.integers(0, 12), min_size=1, max_size=4, unique=True)] * 2), max_size=4
)


@given(AXES, AXES)
def test_folds_of_two_axes(left, right):
    def results(module):
        vectors = [
            [[module.RangeSet(axis) for axis in vector] for vector in vectors]
            for vectors in (left, right)
        ]
        a, b = map(module.RangeSetND, vectors)
        combined = [str(getattr(a, name)(b)) for name in OPERATIONS] if left and right else []
        return [str(a), len(a), list(a), *combined]

    assert results(our_ranges) == results(their_ranges)


PIECES = st.sampled_from(
    ["n", "x", "-", "1", "02", "[1-3]", "[01,3]", "[0-8/2]", ",", "!", "&", "^", " ", "%", "]", "["]
)


@given(st.lists(PIECES, max_size=8).map("".join))
def test_texts_of_nodesets(text):
    # Theirs reads `[]1` as `1`.
    assume("[]" not in text)

    def results(module):
        nodes = module.NodeSet(text, resolver=module.RESOLVER_NOGROUP)
        return [str(nodes), len(nodes), list(nodes)]

    assert outcome(lambda: results(our_nodes)) == outcome(lambda: results(their_nodes))
