"""Hostlists (RFC 29): the shared vectors and Python's protocols."""

from __future__ import annotations

import copy
import doctest
import json
import operator
import pickle
import re
import threading
from collections.abc import MutableSequence, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from penstock import Error, Hostlist, HostlistError, IDset, IdsetError
from penstock import hostlist as module
from penstock.errors import MendedWarning

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "hostlist.json").read_text())


def name(row: dict[str, Any]) -> str:
    return ascii(row["text"])[:40]


@pytest.mark.parametrize("row", VECTORS["valid"], ids=name)
def test_valid_text(row: dict[str, Any]) -> None:
    hosts = Hostlist(row["text"])
    assert str(hosts) == row["canonical"]
    assert len(hosts) == row["count"]
    assert Hostlist(str(hosts)) == hosts
    if "hosts" in row:
        assert list(hosts) == hosts.expand() == row["hosts"]
        assert Hostlist(row["hosts"]) == hosts


@pytest.mark.parametrize("row", VECTORS["invalid"], ids=name)
def test_invalid_text(row: dict[str, Any]) -> None:
    with pytest.raises(HostlistError) as caught:
        Hostlist(row["text"])
    assert str(caught.value) == row["error"]
    assert caught.value.offset == row["offset"]
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, Error)


@pytest.mark.parametrize("row", VECTORS["invalid_names"], ids=name)
def test_invalid_name(row: dict[str, Any]) -> None:
    hosts = Hostlist("a")
    for change in (
        hosts.append,
        lambda host: hosts.insert(0, host),
        lambda host: hosts.__setitem__(0, host),
    ):
        with pytest.raises(HostlistError) as caught:
            change(row["text"])
        assert str(caught.value) == row["error"]
        assert caught.value.offset == row["offset"]
    assert list(hosts) == ["a"]


def in_order(hosts: Hostlist) -> Hostlist:
    made = hosts.copy()
    made.sort()
    return made


def without_repeats(hosts: Hostlist) -> Hostlist:
    made = hosts.copy()
    made.uniq()
    return made


@pytest.mark.parametrize("row", VECTORS["operations"], ids=lambda row: row["left"])
def test_operations(row: dict[str, Any]) -> None:
    left, right = Hostlist(row["left"]), Hostlist(row["right"])
    assert str(left | right) == row["union"]
    assert str(left & right) == row["intersection"]
    assert str(left - right) == row["difference"]
    assert str(left ^ right) == row["symmetric_difference"]
    assert (left == right) == row["equal"]
    assert str(in_order(left)) == row["sort"]
    assert str(without_repeats(left)) == row["uniq"]
    assert left.delete(right) == row["deleted"]
    assert str(left) == row["delete"]


@pytest.mark.parametrize("row", VECTORS["lenient"], ids=name)
def test_lenient_text(row: dict[str, Any]) -> None:
    if "error" in row:
        for read in (Hostlist.parse_lenient, lambda text: Hostlist(text, lenient=True)):
            with pytest.raises(HostlistError) as caught:
                read(row["text"])
            assert str(caught.value) == row["error"]
            assert caught.value.offset == row["offset"]
        return
    hosts, mended = Hostlist.parse_lenient(row["text"])
    assert str(hosts) == row["canonical"]
    assert mended == row["mended"]
    if mended:
        with pytest.warns(MendedWarning, match=re.escape(mended[0])):
            assert Hostlist(row["text"], lenient=True) == hosts
        with pytest.raises(HostlistError):
            Hostlist(row["text"])
    else:
        assert Hostlist(row["text"], lenient=True) == Hostlist(row["text"]) == hosts


def test_lenient_reading_of_other_things() -> None:
    with pytest.warns(MendedWarning, match='mended "a, b": left out blanks at byte 2') as caught:
        assert str(Hostlist(["a, b", "c"], lenient=True)) == "a,b,c"
    assert [warning.filename for warning in caught] == [__file__]
    assert Hostlist(Hostlist("a"), lenient=True) == Hostlist("a")
    assert not Hostlist(None, lenient=True)
    wrong: Any = 5
    with pytest.raises(TypeError, match="expected a Hostlist, its text or an iterable"):
        Hostlist(wrong, lenient=True)
    with pytest.raises(TypeError, match="expected a host name"):
        Hostlist([wrong], lenient=True)
    with pytest.raises(TypeError):
        Hostlist.parse_lenient(wrong)


@pytest.mark.parametrize("row", VECTORS["folded"], ids=name)
def test_folding_in_n_dimensions(row: dict[str, Any]) -> None:
    hosts = Hostlist(row["text"])
    assert hosts.fold(nd=True) == row["nd"]
    assert sorted(Hostlist(row["nd"])) == sorted(hosts)
    assert hosts.fold() == hosts.fold(nd=False) == hosts.encode()


def test_doctest() -> None:
    assert doctest.testmod(module).failed == 0


def test_the_page_is_true() -> None:
    page = Path(__file__).parents[3] / "docs" / "hostlist.md"
    tested = doctest.testfile(str(page), module_relative=False)
    assert tested.attempted > 20
    assert tested.failed == 0


def test_it_is_a_mutable_sequence() -> None:
    assert isinstance(Hostlist(), MutableSequence)
    names = [name for name in vars(MutableSequence) | vars(Sequence) if not name.startswith("_")]
    assert [name for name in names if not hasattr(Hostlist, name)] == []


def test_a_list_is_constructed_from_many_types() -> None:
    assert Hostlist() == Hostlist(None) == Hostlist("") == Hostlist([])
    assert str(Hostlist(["foo1", "foo2", "bar"])) == "foo[1-2],bar"
    assert str(Hostlist(["foo[1-3]", "foo7,x"])) == "foo[1-3,7],x"
    assert str(Hostlist(f"n{i}" for i in range(3))) == "n[0-2]"
    other = Hostlist("a")
    same = Hostlist(other)
    same.append("b")
    assert str(other) == "a"


@pytest.mark.parametrize("made_of", [5, 1.5, object(), [1], [None], ["a", b"b"], b"foo"])
def test_invalid_lists_are_rejected(made_of: Any) -> None:
    with pytest.raises(TypeError, match=r"expected a (Hostlist|host name)"):
        Hostlist(made_of)


def test_names_in_an_iterable_are_checked() -> None:
    with pytest.raises(HostlistError, match='invalid host name "": expected a name at byte 0'):
        Hostlist(["a", ""])
    with pytest.raises(HostlistError, match='invalid hostlist "a,,b"'):
        Hostlist(["a,,b"])
    with pytest.raises(HostlistError, match="printable"):
        Hostlist(["a\ud800"])
    hosts = Hostlist("a")
    with pytest.raises(HostlistError):
        hosts.extend(["b", "c["])
    assert str(hosts) == "a"


def test_it_is_a_list() -> None:
    hosts = Hostlist("foo[0-9]")
    names = hosts.expand()
    for index in range(-10, 10):
        assert hosts[index] == names[index]
    for key in (
        slice(2, 5),
        slice(None, None, 3),
        slice(None, None, -1),
        slice(8, 1, -3),
        slice(5, 2),
    ):
        assert list(hosts[key]) == names[key]
        assert isinstance(hosts[key], Hostlist)
    for index in (10, -11, 10**30):
        with pytest.raises(IndexError, match="index out of range"):
            hosts[index]
    with pytest.raises(TypeError, match="must be integers or slices, not str"):
        hosts[cast("Any", "a")]
    assert list(reversed(hosts)) == names[::-1]
    assert bool(hosts)
    assert not Hostlist()


def both(change: Any) -> None:
    """Applies a change to a Hostlist and to a list, and compares."""
    names = [f"n{i}" for i in range(7)]
    hosts = Hostlist(names)
    change(hosts)
    change(names)
    assert list(hosts) == names


@pytest.mark.parametrize(
    "key", [slice(2, 5), slice(5, 2), slice(None), slice(-2, None), slice(9, 12), slice(0, 0)]
)
@pytest.mark.parametrize("value", [[], ["x"], ["x1", "x2", "n9", "x4"]])
def test_assignment_to_slices(key: Any, value: list[str]) -> None:
    both(lambda hosts: hosts.__setitem__(key, value))


@pytest.mark.parametrize("key", [slice(None, None, 2), slice(None, None, -2), slice(5, 0, -3)])
def test_assignment_to_slices_with_a_step(key: Any) -> None:
    count = len(range(7)[key])
    both(lambda hosts: hosts.__setitem__(key, [f"x{i}" for i in range(count)]))
    with pytest.raises(
        ValueError, match=f"attempt to assign {count + 1} hosts to a slice of {count}"
    ):
        both(lambda hosts: hosts.__setitem__(key, Hostlist([f"x{i}" for i in range(count + 1)])))


@pytest.mark.parametrize(
    "key",
    [
        0,
        -1,
        3,
        slice(2, 5),
        slice(5, 2),
        slice(None),
        slice(None, None, 2),
        slice(6, 1, -2),
        slice(9, 12),
    ],
)
def test_deletion(key: Any) -> None:
    both(lambda hosts: hosts.__delitem__(key))


def test_changes() -> None:
    def change(hosts: list[str]) -> None:
        hosts.append("n7")
        hosts.insert(0, "a")
        hosts.insert(-1, "b")
        hosts.insert(99, "c")
        hosts.insert(-99, "d")
        hosts[3] = "e"
        hosts[-1] = "f"
        assert hosts.pop() == "f"
        assert hosts.pop(1) == "a"
        assert hosts.pop(-2) == "b"
        hosts.remove("n4")
        hosts.reverse()
        hosts.extend(["n1", "n1"])
        hosts += ["z"]

    both(change)
    hosts = Hostlist("a,b,a")
    hosts.remove("a")
    assert str(hosts) == "b,a"
    with pytest.raises(HostlistError, match='host "c" is not in the list'):
        hosts.remove("c")
    with pytest.raises(IndexError, match="out of range"):
        hosts.pop(5)
    hosts.clear()
    assert not hosts
    with pytest.raises(IndexError, match="pop from an empty"):
        hosts.pop()
    with pytest.raises(TypeError):
        hosts.append(cast("Any", 5))
    for key in (0, 5):
        with pytest.raises(IndexError):
            del hosts[key]
        with pytest.raises(IndexError):
            hosts[key] = "a"


def test_search() -> None:
    hosts = Hostlist("foo[0-9],bar,foo3")
    assert hosts.find("foo3") == 3
    assert hosts.find("absent") is None
    assert hosts.find("foo03") is None
    assert hosts.index("foo3", 4) == 11
    assert hosts.index("foo3", -1) == 11
    assert hosts.index("bar", 0, 11) == 10
    assert hosts.count("foo3") == 2
    assert "bar" in hosts
    assert cast("Any", 3) not in hosts
    assert "foo[0-3]" not in hosts
    assert "\ud800" not in hosts
    for arguments in (("absent",), ("foo3", 4, 11), ("foo1", 5), ("foo1", 99)):
        with pytest.raises(ValueError, match="is not in the list"):
            hosts.index(*arguments)


def test_positions() -> None:
    hosts = Hostlist("n[0-3],x,n[0-1]")
    assert hosts.nth(4) == hosts.nth(-3) == "x"
    for outside in (7, -8):
        with pytest.raises(IndexError, match="index out of range"):
            hosts.nth(outside)
    assert hosts.ranks("n[0-1]") == IDset("0-1,5-6")
    assert hosts.ranks(["x", "n3"]) == IDset("3-4")
    assert hosts.ranks("") == IDset()
    with pytest.raises(HostlistError, match='host "n9" is not in the list'):
        hosts.ranks("x,n9")
    assert str(hosts.at("0,4-5")) == str(hosts.at([5, 0, 4])) == "n0,x,n0"
    assert str(hosts.at(IDset("1-6"))) == "n[1-3],x,n[0-1]"
    assert hosts.at(hosts.ranks(hosts)) == hosts
    with pytest.raises(IndexError, match="no position 7 among 7 hosts"):
        hosts.at("5-9")
    with pytest.raises(IdsetError):
        hosts.at("x")
    great = Hostlist("n[0-4294967294]")
    assert great.ranks(great) == IDset("0-4294967294")
    assert great.at("0-4294967294") == great


def test_questions_about_two_lists() -> None:
    hosts = Hostlist("n[0-3],n0")
    assert hosts.has_intersection("n3,x")
    assert not hosts.isdisjoint(["n3"])
    assert not hosts.has_intersection("n03,x")
    assert hosts.isdisjoint("")
    assert hosts.issubset("n[0-9]")
    assert not hosts.issubset("n[1-9]")
    assert hosts.issuperset("n[1,1]")
    assert not hosts.issuperset(["n1", "x"])
    for question in (hosts.has_intersection, hosts.isdisjoint, hosts.issubset, hosts.issuperset):
        with pytest.raises(TypeError):
            question(cast("Any", 5))


def test_many_single_hosts() -> None:
    # More ranges than are searched from the start.
    names = [f"n{i * 7 % 1000}" for i in range(1000)]
    hosts = Hostlist(names)
    for _ in range(2):
        assert [hosts.find(host) for host in names] == list(range(1000))
        assert hosts.find("n1000") is None
        assert hosts.find("n007") is None
    hosts.remove("n7")
    assert hosts.find("n14") == 1
    assert "n7" not in hosts
    assert in_order(hosts).fold() == "n[0-6,8-999]"


def test_names_must_match_to_the_letter() -> None:
    hosts = Hostlist("foo[01-12]")
    assert [
        host for host in ("foo01", "foo1", "foo001", "foo10", "foo10x", "oo10") if host in hosts
    ] == [
        "foo01",
        "foo10",
    ]


def test_deletion_takes_one_for_one() -> None:
    hosts = Hostlist("foo1,foo1,bar,foo1")
    assert hosts.delete("foo1,foo1,other") == 2
    assert str(hosts) == "bar,foo1"
    assert hosts.delete(["absent"]) == 0


def test_sorting_is_natural_and_in_place() -> None:
    hosts = Hostlist("n10,n9,n010,n009,n1,x10n2,x9n3,n,b-ib2,b-ib10")
    # As the method of `list`.
    assert hosts.sort() is None
    assert list(hosts) == [
        "b-ib2",
        "b-ib10",
        "n",
        "n1",
        "n9",
        "n009",
        "n10",
        "n010",
        "x9n3",
        "x10n2",
    ]
    hosts = Hostlist("foo3,foo1,foo3,bar,foo1")
    assert hosts.uniq() is None
    assert str(hosts) == "foo[3,1],bar"


def test_operators_take_texts_and_iterables_on_both_sides() -> None:
    hosts = Hostlist("a,b")
    assert str(hosts + "b,c") == "a,b,b,c"
    names = ["z"]
    assert str(names + hosts) == "z,a,b"
    assert str("z" + hosts) == "z,a,b"
    assert str("c,b" | hosts) == "c,b,a"
    assert str(hosts & ["b"]) == "b"
    assert str(("c", "a") - hosts) == "c"
    assert str(hosts ^ "b,c") == str("b,c" ^ hosts)[::-1] == "a,c"
    nothing: list[Any] = [5, None, 1.5, b"x"]
    for other in nothing:
        with pytest.raises(TypeError):
            hosts | other
        with pytest.raises(TypeError):
            other + hosts


def test_operators_in_place_keep_the_object() -> None:
    hosts = same = Hostlist("n[0-9],n3")
    hosts |= "x"
    hosts -= ["n0", "n1"]
    hosts &= "n[0-8],x"
    hosts ^= "x,y"
    hosts += "n2"
    assert hosts is same
    assert str(hosts) == "n[2-8],y,n2"
    hosts |= hosts
    hosts -= hosts
    assert not hosts
    with pytest.raises(HostlistError):
        hosts += "["
    with pytest.raises(TypeError):
        hosts &= cast("Any", 5)


def test_methods_take_several() -> None:
    hosts = Hostlist("a,b,a")
    assert str(hosts.union("c", ["a", "d"])) == "a,b,c,d"
    assert str(hosts.intersection("a,b", ["a"])) == "a"
    assert str(hosts.difference("a", "c")) == "b"
    assert str(hosts.symmetric_difference("a,c")) == "b,c"
    assert str(hosts.union()) == "a,b,a"


def test_equality_is_that_of_the_names() -> None:
    assert Hostlist("n1[00-02]") == Hostlist("n[100-102]")
    assert Hostlist("n1[00-02]") == Hostlist(["n100", "n101", "n102"])
    assert Hostlist("a,b") != Hostlist("b,a")
    assert Hostlist("a,a") != Hostlist("a")
    assert Hostlist("a") != "a"
    assert Hostlist("a") != ["a"]
    with pytest.raises(TypeError):
        Hostlist("a") < cast("Any", Hostlist("b"))  # noqa: B015
    with pytest.raises(TypeError, match="unhashable"):
        hash(Hostlist("a"))


def test_texts() -> None:
    hosts = Hostlist("foo[1-3],bar")
    assert repr(hosts) == "Hostlist('foo[1-3],bar')"
    assert eval(repr(Hostlist("it's\\"))) == Hostlist("it's\\")
    assert str(hosts) == hosts.encode() == f"{hosts}"
    assert f"{hosts:>14}" == "  foo[1-3],bar"


@pytest.mark.parametrize("text", ["", "foo[1-3],bar", "foo[0-4294967294]", "a,a,a"])
def test_copies(text: str) -> None:
    hosts = Hostlist(text)
    copies = [hosts.copy(), copy.copy(hosts), copy.deepcopy(hosts), Hostlist(hosts)]
    copies += [pickle.loads(pickle.dumps(hosts, protocol)) for protocol in range(6)]
    for other in copies:
        assert other == hosts
        assert other is not hosts
        other.clear()
        other.append("z")
        assert other != hosts
    assert str(hosts) == text


def test_a_great_list_costs_nothing() -> None:
    hosts = Hostlist("foo[0-4294967294]")
    assert len(hosts) == 4294967295
    assert hosts[-1] == "foo4294967294"
    assert hosts.find("foo4000000000") == 4000000000
    assert str(hosts[1:-1] - "foo[2-4294967290]") == "foo[1,4294967291-4294967293]"
    assert next(reversed(hosts)) == "foo4294967294"
    for change in (
        lambda: hosts.append("x"),
        lambda: hosts + "x",
        lambda: hosts | "x",
        lambda: hosts.insert(0, "x"),
        lambda: hosts.extend(hosts),
    ):
        with pytest.raises(
            HostlistError, match="hostlist too long: expected at most 4294967295"
        ) as caught:
            change()
        assert caught.value.offset is None
    for change in (hosts.reverse, lambda: hosts[::2]):
        with pytest.raises(HostlistError, match="too long"):
            change()
    hosts[:] = "foo[0-4000000000],bar,foo[0-20000000]"
    with pytest.raises(HostlistError, match="fall apart"):
        hosts.sort()
    assert len(hosts) == 4020000003


def test_iteration_follows_changes_of_the_list() -> None:
    hosts, names = Hostlist("n[0-4]"), [f"n{i}" for i in range(5)]
    for some in (hosts, names):
        seen = []
        for host in some:
            seen.append(host)
            if host in ("n1", "n3"):
                some.remove(host)
            if len(some) < 6:
                some.append("x")
        assert seen == ["n0", "n1", "n3", "x", "x", "x"]
    turns = iter(Hostlist("a"))
    assert iter(turns) is turns
    assert [next(turns), next(turns, None), next(turns, None)] == ["a", None, None]
    hosts = Hostlist("n[0-3000]")
    back = reversed(hosts)
    assert operator.length_hint(back) == 3001
    assert next(back) == "n3000"
    hosts[10:] = []
    assert list(back) == [f"n{i}" for i in range(9, -1, -1)]


def test_a_list_is_usable_from_several_threads() -> None:
    hosts = Hostlist("n[0-9999]")
    barrier = threading.Barrier(4)

    def work(number: int) -> None:
        barrier.wait()
        for turn in range(200):
            hosts.append(f"x{number}-{turn}")
            assert hosts.delete(f"n{number * 1000 + turn}") == 1
        assert len(Hostlist(str(hosts))) > 9000

    threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(hosts) == 10_000
    assert max(hosts) == "x3-99"


def test_parts() -> None:
    hosts = Hostlist("n[0-9],x")
    assert [str(part) for part in hosts.split(4)] == ["n[0-2]", "n[3-5]", "n[6-8]", "n9,x"]
    assert len(hosts.split(100)) == 11
    assert hosts.split(0) == []
