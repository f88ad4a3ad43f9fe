"""Hostlists (RFC 29): the shared vectors, Python's habits, and the verb `penstock hostlist`."""

from __future__ import annotations

import copy
import doctest
import io
import json
import operator
import pickle
import sys
import threading
from collections.abc import Callable, MutableSequence, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from penstock import Error, Hostlist, HostlistError
from penstock import hostlist as module
from penstock.cli import main

VECTORS = json.loads((Path(__file__).parent.parent / "vectors" / "hostlist.json").read_text())


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


@pytest.mark.parametrize("row", VECTORS["operations"], ids=lambda row: row["left"])
def test_operations(row: dict[str, Any]) -> None:
    left, right = Hostlist(row["left"]), Hostlist(row["right"])
    assert str(left | right) == row["union"]
    assert str(left & right) == row["intersection"]
    assert str(left - right) == row["difference"]
    assert str(left ^ right) == row["symmetric_difference"]
    assert (left == right) == row["equal"]
    assert str(left.copy().sort()) == row["sort"]
    assert str(left.copy().uniq()) == row["uniq"]
    assert left.delete(right) == row["deleted"]
    assert str(left) == row["delete"]


def test_doctest() -> None:
    assert doctest.testmod(module).failed == 0


def test_it_is_a_mutable_sequence() -> None:
    assert isinstance(Hostlist(), MutableSequence)
    names = [name for name in vars(MutableSequence) | vars(Sequence) if not name.startswith("_")]
    assert [name for name in names if not hasattr(Hostlist, name)] == []


def test_what_a_list_can_be_made_of() -> None:
    assert Hostlist() == Hostlist(None) == Hostlist("") == Hostlist([])
    assert str(Hostlist(["foo1", "foo2", "bar"])) == "foo[1-2],bar"
    assert str(Hostlist(["foo[1-3]", "foo7,x"])) == "foo[1-3,7],x"
    assert str(Hostlist(f"n{i}" for i in range(3))) == "n[0-2]"
    other = Hostlist("a")
    same = Hostlist(other)
    same.append("b")
    assert str(other) == "a"


@pytest.mark.parametrize("made_of", [5, 1.5, object(), [1], [None], ["a", b"b"], b"foo"])
def test_what_is_no_list(made_of: Any) -> None:
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
    assert hosts.find("nobody") is None
    assert hosts.find("foo03") is None
    assert hosts.index("foo3", 4) == 11
    assert hosts.index("foo3", -1) == 11
    assert hosts.index("bar", 0, 11) == 10
    assert hosts.count("foo3") == 2
    assert "bar" in hosts
    assert cast("Any", 3) not in hosts
    assert "foo[0-3]" not in hosts
    assert "\ud800" not in hosts
    for arguments in (("nobody",), ("foo3", 4, 11), ("foo1", 5), ("foo1", 99)):
        with pytest.raises(ValueError, match="is not in the list"):
            hosts.index(*arguments)


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
    assert hosts.delete(["nobody"]) == 0


def test_sorting_is_natural_and_returns_the_list() -> None:
    hosts = Hostlist("n10,n9,n010,n009,n1,x10n2,x9n3,n,b-ib2,b-ib10")
    assert hosts.sort() is hosts
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
    assert str(Hostlist("foo3,foo1,foo3,bar,foo1").uniq()) == "foo[3,1],bar"


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


def test_iteration_goes_on_with_the_list_as_it_is() -> None:
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


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def penstock(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(["hostlist", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.mark.parametrize(
    ("arguments", "out"),
    [
        ("expand n[8-10],a a", "n8\nn9\nn10\na\na\n"),
        ("expand -d , n[1-3]", "n1,n2,n3\n"),
        ("expand --json n[8-9]", '{"position": 0, "host": "n8"}\n{"position": 1, "host": "n9"}\n'),
        ("fold n1 n2 x n3", "n[1-2],x,n3\n"),
        ("count n[0-99] n5", "101\n"),
        ("nth 2 n[1-5]", "n3\n"),
        ("slice 1:3 n[1-5]", "n[2-3]\n"),
        ("slice ::-1 n[1-3]", "n[3,2,1]\n"),
        ("find n4 n[1-5]", "3\n"),
        ("split 2 n[1-5]", "n[1-3]\nn[4-5]\n"),
        ("split --json 1 n[1-5]", '{"part": 0, "hosts": "n[1-5]", "count": 5}\n'),
        ("sort n10 n9 a", "a,n[9-10]\n"),
        ("uniq a b a", "a,b\n"),
        ("union a,a b", "a,b\n"),
        ("intersection a,b,a a,c", "a\n"),
        ("difference n[0-9],n0 n[2-3] n5", "n[0-1,4,6-9]\n"),
        ("symmetric-difference a,b b,c", "a,c\n"),
    ],
)
def test_verb(penstock: Run, arguments: str, out: str) -> None:
    assert penstock(*arguments.split()) == (0, out, "")


def test_verb_reads_the_standard_input(penstock: Run) -> None:
    many = "\n".join(f"n{i}" for i in range(70_000)).encode() + b"\n"
    assert penstock("fold", stdin=many) == (0, "n[0-69999]\n", "")
    code, out, _ = penstock("expand", "n[0-69999]")
    assert (code, out.encode()) == (0, many)
    assert penstock("union", "-", "b", stdin=b"a b\na") == (0, "a,b\n", "")
    assert penstock("count", "") == (0, "0\n", "")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("fold foo[1-]", 'invalid hostlist "foo[1-]": expected a number at byte 6'),
        ("find n9 n[1-3]", "host `n9` is not in it"),
        ("nth 5 n[1-3]", "no position 5 among 3 hosts"),
        ("expand a]", 'invalid hostlist "a]": expected no `]` without `[` at byte 1'),
    ],
)
def test_verb_names_bad_input(penstock: Run, arguments: str, error: str) -> None:
    assert penstock(*arguments.split()) == (1, "", f"penstock hostlist: {error}\n")


@pytest.mark.parametrize("arguments", ["", "bogus", "nth x a", "split -- -1 a", "fold -b a"])
def test_verb_names_bad_usage(penstock: Run, arguments: str) -> None:
    code, out, error = penstock(*arguments.split())
    assert (code, out) == (2, "")
    assert "penstock hostlist" in error
