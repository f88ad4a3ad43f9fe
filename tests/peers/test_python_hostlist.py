"""`penstock.compat.hostlist` against python-hostlist itself, where that is installed."""

from __future__ import annotations

import inspect
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.compat import hostlist as ours

theirs = pytest.importorskip(
    "hostlist", reason="the peer is not installed: pip install python-hostlist"
)

# Few letters and digits, so that names meet, fold, and have faults.
TEXTS = st.text("n0129-[],x.", max_size=14)
RANGES = st.from_regex(r"\A(0?[0-9]{1,2}-)?0{0,2}[0-9]{1,2}\Z")
BRACKETS = st.lists(RANGES, min_size=1, max_size=3).map(lambda ranges: f"[{','.join(ranges)}]")
PARTS = st.lists(BRACKETS | st.sampled_from(["n", "x", "-ib", "1", "0", "é "]), max_size=4)
HOSTLISTS = st.lists(PARTS.map("".join), max_size=4).map(",".join)
NAMES = st.lists(st.sampled_from(["n", "x", "-ib", "é", " ", *map(str, range(12)), "0", "09"]))
HOSTS = st.lists(NAMES.map("".join), max_size=12)


def outcome(call, *args):
    """The result of a call, or the kind of exception and the words that both libraries use."""
    try:
        return call(*args)
    except Exception as error:
        return type(error).__name__, str(error).partition(":")[0]


@given(text=TEXTS | HOSTLISTS, allow_duplicates=st.booleans(), sort=st.booleans())
@example(text="n[1-60000,1-60000]", allow_duplicates=True, sort=False)
@example(text="n[1-100000],m[1-100000]", allow_duplicates=False, sort=True)
@example(text="x[1-1000]y[1-100]", allow_duplicates=False, sort=False)
@example(text="x[1-1000]y[1-101]", allow_duplicates=False, sort=False)
@example(text="n[1-100002]", allow_duplicates=False, sort=False)
@example(text="n[1-99999999999999999999]", allow_duplicates=False, sort=False)
@example(text="n[99999999999999999999-99999999999999999999]", allow_duplicates=False, sort=False)
def test_expand(text, *, allow_duplicates, sort):
    expected = outcome(theirs.expand_hostlist, text, allow_duplicates, sort)
    assert outcome(ours.expand_hostlist, text, allow_duplicates, sort) == expected


@given(hosts=HOSTS | st.lists(TEXTS, max_size=4), silently_discard_bad=st.booleans())
@example(
    hosts=["n9", "n10", "n09", "n010", "n99999999999", "n100000000000"],
    silently_discard_bad=False,
)
def test_collect(hosts, *, silently_discard_bad):
    expected = outcome(theirs.collect_hostlist, hosts, silently_discard_bad)
    assert outcome(ours.collect_hostlist, hosts, silently_discard_bad) == expected


@given(st.lists(st.tuples(NAMES.map("".join), st.sampled_from(["", "[1-2]", "-ib[1-2]"]))))
def test_collect_one_round(left_right):
    assert ours.collect_hostlist_1(left_right) == theirs.collect_hostlist_1(left_right)


def test_collect_many():
    hosts = [f"{name}{number}" for name in ("node", "n0", "x1y") for number in range(0, 9000, 3)]
    hosts += [f"node{number:05}-ib{number % 2}" for number in range(5000)]
    random.Random(1).shuffle(hosts)
    folded = ours.collect_hostlist(hosts)
    assert folded == theirs.collect_hostlist(hosts)
    assert sorted(ours.expand_hostlist(folded)) == sorted(hosts)


@given(HOSTS)
def test_sort_and_remove_duplicates(names):
    assert ours.numerically_sorted(names) == theirs.numerically_sorted(names)
    assert ours.remove_duplicates(names) == theirs.remove_duplicates(names)
    keys = [ours.numeric_sort_key(name) for name in names]
    assert keys == [theirs.numeric_sort_key(name) for name in names]


@given(st.text("n01-", max_size=3), st.text("019-,", max_size=9))
def test_expand_ranges(prefix, text):
    for name in ("expand_range", "expand_rangelist"):
        expected = outcome(getattr(theirs, name), prefix, text)
        assert outcome(getattr(ours, name), prefix, text) == expected


@given(st.integers(0, 999), st.integers(0, 999), st.integers(0, 5))
def test_format_range(low, high, width):
    assert ours.format_range(low, high, width) == theirs.format_range(low, high, width)


@given(st.from_regex(r"\A[0-9]{1,2}(\(x[0-9]{1,2}\))?(,[0-9](\(x[0-9]\))?)*\Z") | st.text("4(x),2"))
@example("4(x100001)")
def test_parse_slurm_tasks_per_node(text):
    expected = outcome(theirs.parse_slurm_tasks_per_node, text)
    assert outcome(ours.parse_slurm_tasks_per_node, text) == expected


def test_arguments_have_the_same_names():
    for name in ours.__all__:
        function = getattr(theirs, name)
        if inspect.isfunction(function):
            expected = inspect.getfullargspec(function)
            found = inspect.getfullargspec(getattr(ours, name))
            assert (found.args, found.defaults) == (expected.args, expected.defaults), name


def test_other_types_are_rejected_alike():
    for value in (5, None, ["a"], b"a"):
        expected = outcome(theirs.expand_hostlist, value)[0]
        assert outcome(ours.expand_hostlist, value)[0] == expected
    for value in (5, None, [1]):
        expected = outcome(theirs.collect_hostlist, value)
        assert outcome(ours.collect_hostlist, value) == expected
