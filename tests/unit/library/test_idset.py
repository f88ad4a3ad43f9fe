"""Idsets (RFC 22): the shared vectors, Python's protocols, and the verb `penstock idset`."""

from __future__ import annotations

import array
import copy
import doctest
import io
import json
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, MutableSet
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, cast

import pytest

from penstock import Error, FrozenIDset, IDset, IdsetError, NotFoundError
from penstock import idset as module
from penstock.cli import main
from penstock.errors import MendedWarning

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "idset.json").read_text())


@pytest.mark.parametrize("row", VECTORS["valid"], ids=lambda row: row["text"])
def test_valid_text(row: dict[str, Any]) -> None:
    ids = IDset(row["text"])
    assert str(ids) == row["canonical"]
    assert len(ids) == row["count"]
    if "ids" in row:
        assert list(ids) == row["ids"]
        assert ids == set(row["ids"])
        assert IDset(row["ids"]) == ids


@pytest.mark.parametrize("row", VECTORS["invalid"], ids=lambda row: ascii(row["text"])[:40])
def test_invalid_text(row: dict[str, Any]) -> None:
    with pytest.raises(IdsetError) as caught:
        IDset(row["text"])
    assert str(caught.value) == row["error"]
    assert caught.value.offset == row["offset"]
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, Error)


@pytest.mark.parametrize("row", VECTORS["operations"], ids=lambda row: row["left"])
def test_operations(row: dict[str, Any]) -> None:
    left, right = IDset(row["left"]), IDset(row["right"])
    assert left | right == IDset(row["union"])
    assert left & right == IDset(row["intersection"])
    assert left - right == IDset(row["difference"])
    assert left ^ right == IDset(row["symmetric_difference"])
    assert (left <= right) == row["subset"]
    assert left.isdisjoint(right) == row["disjoint"]


def test_doctest() -> None:
    assert doctest.testmod(module).failed == 0


def test_it_is_a_mutable_set() -> None:
    assert isinstance(IDset(), MutableSet)
    # The internals of the mixin may change.
    names = [name for name in vars(MutableSet) | vars(AbstractSet) if not name.startswith("_")]
    assert [name for name in names if not hasattr(IDset, name)] == []


def test_a_set_is_constructed_from_many_types() -> None:
    assert IDset() == IDset(None) == IDset("") == IDset([]) == set()
    assert str(IDset(5)) == "5"
    assert str(IDset([3, 1, 2, 1])) == "1-3"
    assert str(IDset(i * 2 for i in range(3))) == "0,2,4"
    assert str(IDset(range(10, 0, -3))) == "1,4,7,10"
    assert str(IDset(range(4294967295))) == "0-4294967294"
    assert str(IDset(range(5, 5))) == ""
    assert str(IDset({7: "x"})) == "7"
    other = IDset("1-3")
    same = IDset(other)
    same.add(9)
    assert str(other) == "1-3"


@pytest.mark.parametrize(
    "made_of",
    [-1, 4294967295, 2**64, -(2**70), pytest.param(10**5000, id="many digits"), [-1], range(-1, 3)],
)
def test_numbers_out_of_range(made_of: Any) -> None:
    with pytest.raises(IdsetError, match="expected a number from 0 to 4294967294") as caught:
        IDset(made_of)
    assert caught.value.offset is None


@pytest.mark.parametrize(
    "made_of", [1.5, object(), ["1"], [None], [1, 2.0], b"1-3", bytearray(b"1")]
)
def test_invalid_ids_are_rejected(made_of: Any) -> None:
    with pytest.raises(TypeError, match="expected"):
        IDset(made_of)


def test_surrogates_are_rejected_like_any_other_character() -> None:
    with pytest.raises(IdsetError, match="expected a number at byte 0"):
        IDset("\ud800")


def test_an_iterable_that_fails() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise KeyError("gone")

    ids = IDset("5")
    with pytest.raises(KeyError, match="gone"):
        ids.update(broken())
    with pytest.raises(IdsetError):
        ids.update([7], "8", "x")
    assert str(ids) == "5"


def test_operators_take_texts_and_iterables_on_both_sides() -> None:
    ids = IDset("1-5")
    assert str(ids | "7-8") == str("7-8" | ids) == "1-5,7-8"
    assert str(ids & [4, 5, 6]) == str([4, 5, 6] & ids) == "4-5"
    assert str(ids - {1, 2}) == "3-5"
    assert str("0-2" - ids) == "0"
    assert str(ids ^ range(5, 7)) == str(range(5, 7) ^ ids) == "1-4,6"
    assert isinstance({9} | ids, IDset)
    nothing: list[Any] = [5, None, 1.5, b"1"]
    for other in nothing:
        with pytest.raises(TypeError):
            ids | other
        with pytest.raises(TypeError):
            other - ids
    with pytest.raises(IdsetError):
        ids | "x"


def test_operators_in_place_keep_the_object() -> None:
    ids = same = IDset("0-9")
    ids |= "12"
    ids -= [0, 1]
    ids &= range(3, 20)
    ids ^= "3,13"
    assert ids is same
    assert str(ids) == "4-9,12-13"
    ids |= ids
    ids &= ids
    assert str(ids) == "4-9,12-13"
    ids -= ids
    assert not ids
    with pytest.raises(TypeError):
        ids |= cast("Any", 5)
    assert ids is same


def test_methods_take_several() -> None:
    ids = IDset("1")
    assert str(ids.union("2", [3], {4})) == "1-4"
    assert str(IDset("1-9").intersection("2-5", "4-8")) == "4-5"
    assert str(IDset("1-9").difference("2-5", "8")) == "1,6-7,9"
    assert str(IDset("1-3").symmetric_difference("3-4")) == "1-2,4"
    ids.update("5", [7])
    assert str(ids) == "1,5,7"
    ids.difference_update("5", "6")
    ids.symmetric_difference_update([1, 2])
    assert str(ids) == "2,7"
    ids.intersection_update("0-5", "2-9")
    assert str(ids) == "2"
    assert ids.issubset("1-3")
    assert ids.issuperset([2])
    assert ids.isdisjoint("3")
    assert str(ids.union()) == "2"


def test_comparisons_are_those_of_sets() -> None:
    ids = IDset("1-3")
    assert ids == {1, 2, 3}
    assert {1, 2, 3} == ids
    assert ids == frozenset([1, 2, 3])
    assert ids == {1: 0, 2: 0, 3: 0}.keys()
    assert ids != {1, 2}
    assert ids != {1, 2, "3"}
    assert ids != {-1, 1, 2, 3}
    assert ids != "1-3"
    assert ids != [1, 2, 3]
    assert ids < {1, 2, 3, "x"}
    assert not ids >= {1, "x"}
    assert not ids > {"x"}
    assert ids <= IDset("1-3") <= ids
    assert ids < IDset("0-3") > {0}
    assert {1} < ids
    assert {1, 2, 3, 4} > ids
    assert not ids < ids
    with pytest.raises(TypeError):
        ids < cast("Any", "1-9")  # noqa: B015


def test_it_cannot_be_hashed() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(IDset("1"))


def test_membership() -> None:
    ids = IDset("1-3,4294967294")
    assert 2 in ids
    assert True in ids
    assert 4294967294 in ids
    for other in (0, -1, 4294967295, 2**70, -(2**70), "1", "1-3", None, 1.5, ids):
        assert other not in ids


def test_positions_and_slices() -> None:
    ids = IDset("1-3,7,9-10")
    everything = list(ids)
    for n in range(-6, 6):
        assert ids[n] == ids.nth(n) == everything[n]
    for key in (slice(1, 3), slice(None, None, 2), slice(-2, None), slice(4, 1), slice(9)):
        assert list(ids[key]) == everything[key]
    assert list(ids[::-2]) == sorted(everything[::-2])
    assert list(ids[4:0:-3]) == sorted(everything[4:0:-3])
    assert ids[10**30 :] == set()
    for n in (6, -7, 10**30):
        with pytest.raises(IndexError, match="index out of range"):
            ids[n]
    with pytest.raises(TypeError, match="must be integers or slices, not str"):
        ids[cast("Any", "1")]
    with pytest.raises(ValueError, match="zero"):
        ids[::0]
    full = IDset("0-4294967294")
    assert full[-1] == 4294967294
    assert str(full[10:20]) == "10-19"


def test_neighbours_and_positions() -> None:
    ids = IDset("4,9-11")
    assert (ids.first(), ids.last()) == (4, 11)
    assert (IDset().first(), IDset().last()) == (None, None)
    assert [ids.next(i) for i in (0, 4, 9, 11, 4294967294)] == [4, 9, 10, None, None]
    assert [ids.prev(i) for i in (0, 4, 9, 11, 4294967294)] == [None, None, 4, 10, 11]
    assert [ids.index(i) for i in ids] == [0, 1, 2, 3]
    with pytest.raises(NotFoundError, match="id 5 is not in the set") as caught:
        ids.index(5)
    assert isinstance(caught.value, LookupError)
    with pytest.raises(IdsetError):
        ids.next(-1)


def test_changes() -> None:
    ids = IDset("1-3")
    ids.add(5)
    ids.add(5)
    ids.discard(1)
    ids.discard(99)
    ids.discard(-1)
    ids.remove(2)
    assert str(ids) == "3,5"
    for missing in (2, -1, 2**70):
        with pytest.raises(KeyError, match=str(missing)):
            ids.remove(missing)
    with pytest.raises(IdsetError, match="invalid id 4294967295"):
        ids.add(4294967295)
    with pytest.raises(TypeError):
        ids.add(cast("Any", "4"))
    assert [ids.pop(), ids.pop()] == [3, 5]
    with pytest.raises(KeyError, match="empty"):
        ids.pop()
    ids.add(1)
    ids.clear()
    assert not ids


def test_ranges_and_expansion() -> None:
    assert IDset("1-3,5").ranges() == [range(1, 4), range(5, 6)]
    assert IDset("4294967294").ranges() == [range(4294967294, 4294967295)]
    assert IDset().ranges() == []
    assert IDset("1-3,5").expand() == [1, 2, 3, 5]


def test_parts() -> None:
    assert [str(part) for part in IDset("0-9").split(4)] == ["0-2", "3-5", "6-7", "8-9"]
    assert [str(part) for part in IDset("1,2").split(5)] == ["1", "2"]
    assert IDset("1").split(0) == []
    with pytest.raises(ValueError, match="from 0 on, found -"):
        IDset("1").split(-1)


def test_texts() -> None:
    ids = IDset("1-3,5")
    assert repr(ids) == "IDset('1-3,5')"
    assert str(ids) == ids.encode() == "1-3,5"
    assert ids.encode(brackets=True) == "[1-3,5]"
    assert IDset().encode(brackets=True) == "[]"
    assert f"{ids:>8}|{ids}" == "   1-3,5|1-3,5"
    with pytest.raises(ValueError, match="format"):
        f"{ids:d}"


@pytest.mark.parametrize("text", ["", "1-3", "0-4294967294", "5,7,9-1000000"])
def test_copies(text: str) -> None:
    ids = IDset(text)
    copies = [ids.copy(), copy.copy(ids), copy.deepcopy(ids), IDset(ids)]
    copies += [pickle.loads(pickle.dumps(ids, protocol)) for protocol in range(6)]
    for other in copies:
        assert other == ids
        assert other is not ids
        other ^= "77"
        assert other != ids
    assert str(ids) == text


def test_iteration_yields_the_ids_at_its_start() -> None:
    ids = IDset("1-5,100-200,4294967294")
    seen = []
    for member in ids:
        seen.append(member)
        ids.discard(member + 1)
        ids.add(member // 2 + 1000)
    assert seen == [*range(1, 6), *range(100, 201), 4294967294]
    assert str(ids)[:9] == "1,100,100"


def test_iterators_are_well_behaved() -> None:
    ids = IDset("0-4294967294")
    turns = iter(ids)
    assert iter(turns) is turns
    assert [next(turns) for _ in range(100)] == list(range(100))
    assert next(reversed(ids)) == 4294967294
    assert list(reversed(IDset("0-3000"))) == list(range(3000, -1, -1))
    assert list(reversed(IDset("1,3,5-6"))) == [6, 5, 3, 1]
    for count in (63, 64, 65, 10_000):
        even = range(4_294_967_294 - 2 * count, 4_294_967_295, 2)
        assert list(IDset(even)) == list(even)
        assert list(reversed(IDset(even))) == list(reversed(even))
    assert list(iter(IDset())) == list(reversed(IDset())) == []


def test_a_set_is_usable_from_several_threads() -> None:
    ids = IDset("0-100000")
    barrier = threading.Barrier(4)

    def work(number: int) -> None:
        barrier.wait()
        for member in range(number, 4000, 4):
            ids.discard(member * 2)
            ids.add(200_000 + member)
        assert IDset(str(ids)).issubset(ids | "0-300000")

    threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ids == set(range(100_001)) - set(range(0, 8000, 2)) | set(range(200_000, 204_000))


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def penstock(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(["idset", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.mark.parametrize(
    ("arguments", "out"),
    [
        ("expand 1-3 7", "1\n2\n3\n7\n"),
        ("expand -d , 1-3 2-4", "1,2,3,4\n"),
        ("expand []", ""),
        ("expand --json 5-6", '{"position": 0, "id": 5}\n{"position": 1, "id": 6}\n'),
        ("expand --json []", ""),
        ("fold 3 1-2 7", "1-3,7\n"),
        ("fold -b 1-2", "[1-2]\n"),
        ("count 1-5 5-6", "6\n"),
        ("count 0-4294967294", "4294967295\n"),
        ("nth 2 1-5", "3\n"),
        ("nth -1 1-5", "5\n"),
        ("slice 1:3 1-5", "2-3\n"),
        ("slice ::2 1-5", "1,3,5\n"),
        ("slice -- -2: 1-5", "4-5\n"),
        ("find 4 1-5", "3\n"),
        ("split 2 1-5", "1-3\n4-5\n"),
        (
            "split 9 1-2 --json",
            '{"part": 0, "ids": "1", "count": 1}\n{"part": 1, "ids": "2", "count": 1}\n',
        ),
        ("union 1-3 2-5 9", "1-5,9\n"),
        ("intersection 1-5 2-9 4-7", "4-5\n"),
        ("difference 1-9 2-3 5", "1,4,6-9\n"),
        ("symmetric-difference 1-5 4-8", "1-3,6-8\n"),
        ("difference 1-9", "1-9\n"),
    ],
)
def test_verb(penstock: Run, arguments: str, out: str) -> None:
    assert penstock(*arguments.split()) == (0, out, "")


def test_verb_reads_the_standard_input(penstock: Run) -> None:
    assert penstock("fold", stdin=b"9\n7 5\n\n1-3") == (0, "1-3,5,7,9\n", "")
    assert penstock("difference", "0-9", "-", stdin=b"1 2\n3") == (0, "0,4-9\n", "")
    assert penstock("intersection", stdin=b"1-3\n3-5\n") == (0, "3\n", "")
    assert penstock("count") == (0, "0\n", "")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("fold 1-x", 'invalid idset "1-x": expected a number at byte 2'),
        ("union 1 2 3-", 'invalid idset "3-": expected a number at byte 2'),
        ("nth 5 1-3", "no position 5 among 3 ids"),
        ("nth -2 7", "no position -2 among 1 id"),
        ("find 5 1-3", "id `5` is not in it"),
    ],
)
def test_verb_names_bad_input(penstock: Run, arguments: str, error: str) -> None:
    assert penstock(*arguments.split()) == (1, "", f"penstock idset: {error}\n")


def test_verb_reads_bytes_that_are_no_text(penstock: Run) -> None:
    code, _, error = penstock("fold", stdin=b"\xff")
    assert (code, error) == (1, 'penstock idset: invalid idset "�": expected a number at byte 0\n')


@pytest.mark.parametrize(
    "arguments",
    ["", "bogus", "nth x 1", "nth", "slice x 2", "slice 1:2:0 3", "slice a:b 1", "split 0 1"],
)
def test_verb_names_bad_usage(penstock: Run, arguments: str) -> None:
    code, out, error = penstock(*arguments.split())
    assert (code, out) == (2, "")
    assert "penstock idset" in error


def test_ranges_are_added_and_taken_out_at_once() -> None:
    ids = IDset()
    ids.add(range(3, 10))
    ids.discard(range(5, 7))
    assert str(ids) == "3-4,7-9"
    ids.remove(range(7, 9))
    assert str(ids) == "3-4,9"
    with pytest.raises(KeyError, match=r"range\(3, 10\)"):
        ids.remove(range(3, 10))
    assert str(ids) == "3-4,9"
    with pytest.raises(IdsetError, match="invalid id -1"):
        ids.add(range(-1, 3))
    ids.add(range(0))
    assert (ids.pop_first(), ids.pop_last(), ids.pop()) == (3, 9, 4)
    with pytest.raises(KeyError):
        ids.pop_last()


def test_a_pool_allocates_the_lowest_ids_and_frees_them_once() -> None:
    free = IDset("1,3-5,70000")
    assert str(free.allocate()) == "1"
    assert str(free.allocate(3)) == "3-5"
    with pytest.raises(IdsetError, match="cannot allocate 2 ids: there are 1"):
        free.allocate(2)
    assert str(free.allocate(0)) == ""
    free.release(4)
    with pytest.raises(IdsetError, match="cannot release 4: not allocated"):
        free.release("3-5")
    free.release([3, 5])
    assert str(free) == "3-5,70000"
    with pytest.raises(ValueError, match="from 0 on, found -"):
        free.allocate(-1)


def test_intersection_predicates() -> None:
    ids = IDset("1-3,100000")
    assert ids.has_intersection("3-9")
    assert ids.has_intersection([100000])
    assert not ids.has_intersection(IDset("4-99999"))


def test_a_frozen_set_is_a_key_and_equals_a_frozenset() -> None:
    texts = ["", "0", "0-127", "5,70000", "0-99999", "1,3,5,4294967294"]
    for text in texts:
        frozen, plain = FrozenIDset(text), frozenset(IDset(text))
        assert hash(frozen) == hash(plain)
        assert frozen == plain == IDset(text) == frozen
        assert {plain: text}[frozen] == text
        assert (len(frozen), list(frozen), str(frozen)) == (len(plain), sorted(plain), text)
        assert pickle.loads(pickle.dumps(frozen)) == frozen
        assert copy.copy(frozen) is copy.deepcopy(frozen) is frozen.copy() is frozen
    frozen = FrozenIDset("1-5")
    assert isinstance(frozen, AbstractSet)
    assert not isinstance(frozen, MutableSet)
    assert repr(frozen | [9]) == "FrozenIDset('1-5,9')"
    assert repr([9] | frozen) == "FrozenIDset('1-5,9')"
    assert repr(IDset("7") | frozen) == "IDset('1-5,7')"
    assert repr(frozen[1:3]) == "FrozenIDset('2-3')"
    assert [repr(part) for part in frozen.split(2)] == ["FrozenIDset('1-3')", "FrozenIDset('4-5')"]
    ids = IDset(frozen)
    ids.add(0)
    assert str(frozen) == "1-5"
    with pytest.raises(TypeError, match="unhashable"):
        hash(ids)
    with pytest.raises(AttributeError):
        frozen.add(1)  # type: ignore[attr-defined]


@pytest.mark.parametrize("row", VECTORS["lenient"], ids=lambda row: row["text"])
def test_lenient_text(row: dict[str, Any]) -> None:
    ids, mended = IDset.parse_lenient(row["text"])
    assert (str(ids), mended) == (row["canonical"], row["mended"])


@pytest.mark.parametrize("row", VECTORS["lenient_invalid"], ids=lambda row: row["text"])
def test_text_that_cannot_be_mended(row: dict[str, Any]) -> None:
    with pytest.raises(IdsetError) as caught:
        IDset.parse_lenient(row["text"])
    assert (str(caught.value), caught.value.offset) == (row["error"], row["offset"])


def test_nonstandard_text_is_corrected_with_a_warning() -> None:
    with pytest.warns(
        MendedWarning, match=r'mended "5, 1-3": left out blanks at byte 2, put in order'
    ):
        assert str(IDset("5, 1-3", lenient=True)) == "1-3,5"
    with pytest.warns(MendedWarning):
        assert repr(FrozenIDset("01", lenient=True)) == "FrozenIDset('1')"
    assert str(IDset("1-3", lenient=True)) == "1-3"
    assert IDset.parse_lenient("2-2,,1")[1] == [
        "took a range of one id for that id at byte 0",
        "left out an empty item at byte 4",
        "put in order at byte 5",
    ]
    with pytest.raises(IdsetError, match="expected the range to end at 3 or above at byte 2"):
        IDset("3-1", lenient=True)


def test_ids_are_an_array_of_numbers() -> None:
    ids = IDset("1-3,70000,4294967294")
    view = memoryview(ids)
    assert (view.format, view.itemsize, view.ndim, view.shape) == ("I", 4, 1, (5,))
    assert view.readonly
    assert view.tolist() == list(ids)
    ids.clear()
    assert view[3] == 70000
    assert memoryview(FrozenIDset("7")).tolist() == [7]
    assert memoryview(IDset()).tolist() == []
    for code in "bBhHiIlLqQ":
        assert str(IDset(array.array(code, [5, 1, 2, 1]))) == "1-2,5"
    assert str(IDset.from_numpy(array.array("q", [2**32 - 2]))) == "4294967294"
    for code, number in [("q", 2**32 - 1), ("Q", 2**40), ("i", -1)]:
        with pytest.raises(IdsetError, match=f"invalid id {number}: expected a number from 0"):
            IDset.from_numpy(array.array(code, [0, number]))
    for wrong in [array.array("d", [1.0]), memoryview(bytes(4)).cast("B", (2, 2)), "1-3"]:
        with pytest.raises(TypeError, match="expected an array of integers in one dimension"):
            IDset.from_numpy(wrong)  # type: ignore[arg-type]


def test_ranges_are_read_by_their_ends() -> None:
    assert str(IDset(range(10, 0, -3))) == "1,4,7,10"
    assert len(IDset(range(2**32 - 1))) == 2**32 - 1
    assert len(IDset(range(0, 2**22, 2))) == 2**21
    for wrong in [range(2**32), range(0, 2**40, 7), range(-1, 2**33), range(5, 10**40)]:
        with pytest.raises(IdsetError, match="invalid id"):
            IDset(wrong)
    ids = IDset("0-20")
    ids.discard(range(-(2**40) + 1, 2**40, 2))
    assert str(ids) == "0,2,4,6,8,10,12,14,16,18,20"
    ids.discard(range(12, 10**40))
    assert str(ids) == "0,2,4,6,8,10"
    with pytest.raises(KeyError):
        ids.remove(range(2**40))
    assert list(IDset("0-4294967294")[:: 10**9]) == [0, 10**9, 2 * 10**9, 3 * 10**9, 4 * 10**9]
    with pytest.raises(ValueError, match="cannot split into 1000000000 parts"):
        IDset("0-4294967294").split(10**9)


def test_an_exception_of_an_operand_is_propagated() -> None:
    class Broken:
        def __iter__(self) -> Iterator[int]:
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        IDset("1") | Broken()


def test_an_object_with_index_is_an_id() -> None:
    class Five:
        def __index__(self) -> int:
            return 5

    assert str(IDset(Five())) == "5"
    assert Five() in IDset("5")


@pytest.mark.parametrize("kind", [IDset, FrozenIDset])
def test_membership_of_anything(kind: type[IDset | FrozenIDset]) -> None:
    class Broken:
        def __index__(self) -> int:
            raise RuntimeError("broken")

    ids = kind("0-5,100000-100010,4294967294")
    assert all(one in ids for one in (0, 5, 100010, 4294967294, True))
    assert not any(other in ids for other in (-1, 6, 2**32 - 1, 2**63, -(2**70), None, 3.0, "3"))
    with pytest.raises(RuntimeError, match="broken"):
        Broken() in ids  # noqa: B015 - what is tested


def test_numpy_arrays_come_and_go() -> None:
    numpy = pytest.importorskip("numpy", reason="numpy is optional")
    assert str(IDset(numpy.int64(5))) == "5"
    assert str(IDset(numpy.array([1, 2], dtype=">i4"))) == "1-2"
    assert str(numpy.array([7]) | IDset("1")) == "1,7"
    assert str(numpy.array([1, 7]) - IDset("1")) == "7"
    ids = IDset("1-3,70000")
    made = ids.to_numpy()
    assert made.dtype == numpy.uint32
    made[0] = 9
    assert str(IDset(made)) == "2-3,9,70000"
    assert str(IDset(numpy.arange(10)[::3])) == "0,3,6,9"


def test_the_size_of_a_set_is_that_of_its_memory() -> None:
    dense, one = IDset("0-999999"), IDset("2147483647")
    half = IDset(range(0, 1_000_000, 2))
    assert sys.getsizeof(one) < 200
    assert sys.getsizeof(dense) < 300
    assert 125_000 < sys.getsizeof(half) < 135_000
