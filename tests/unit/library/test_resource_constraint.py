"""`ResourceSet.restrict(constraint=…)`: RFC 31 as dict or JSON, RFC 35 as text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock import JobspecError, ResourceSet, ResourceSetError
from penstock.constraint import parse_requires


@pytest.fixture
def r() -> ResourceSet:
    r = ResourceSet.uniform("0-4,10-14", "node[0-9]", cores="0-3", gpus="0")
    r.add_property("fast", "0-2,10")
    r.add_property("amd@gpu", "3-4")
    r.add_property("amd", "14")
    r.add_property("+here", "0")
    return r


CASES: list[tuple[dict[str, Any], str]] = [
    ({}, "0-4,10-14"),
    ({"and": []}, "0-4,10-14"),
    ({"or": []}, "0-4,10-14"),
    ({"not": []}, ""),
    ({"properties": []}, "0-4,10-14"),
    ({"hostlist": []}, ""),
    ({"ranks": []}, ""),
    ({"ranks": [""]}, ""),
    ({"properties": ["fast"]}, "0-2,10"),
    ({"properties": ["^fast"]}, "3-4,11-14"),
    ({"properties": ["fast", "^+here"]}, "1-2,10"),
    ({"properties": ["unknown"]}, ""),
    ({"properties": ["^unknown"]}, "0-4,10-14"),
    ({"properties": ["amd"]}, "3-4,14"),
    ({"properties": ["amd@gpu"]}, "3-4"),
    ({"properties": ["^amd"]}, "0-2,10-13"),
    ({"hostlist": ["node[4-5]"]}, "4,10"),
    ({"hostlist": ["node1", "elsewhere", "node[8-99]"]}, "1,13-14"),
    ({"ranks": ["3-10", "99"]}, "3-4,10"),
    ({"not": [{"ranks": ["0-4"]}]}, "10-14"),
    ({"not": [{"ranks": ["0-4"]}, {"properties": ["fast"]}]}, "3-4,10-14"),
    ({"or": [{"ranks": ["0"]}, {"hostlist": ["node9"]}]}, "0,14"),
    ({"and": [{"properties": ["fast"]}, {"not": [{"ranks": ["0-1"]}]}]}, "2,10"),
    (
        {"or": [{"and": [{"or": []}, {"ranks": ["1"]}]}, {"not": [{"not": [{"ranks": ["2"]}]}]}]},
        "1-2",
    ),
]


@pytest.mark.parametrize(("constraint", "ranks"), CASES)
def test_operators(r: ResourceSet, constraint: dict[str, Any], ranks: str) -> None:
    part = r.restrict(constraint=constraint)
    assert str(part.ranks) == ranks
    assert part == r.restrict(ranks=ranks)
    assert r.restrict(constraint=json.dumps(constraint)) == part
    assert r.restrict(constraint=f" \n{json.dumps(constraint)}") == part


@pytest.mark.parametrize(
    ("query", "ranks"),
    [
        ("fast", "0-2,10"),
        ("^fast", "3-4,11-14"),
        ("-fast rank:0-10", "3-4"),
        ("fast & host:node[2-5] | rank:14", "2,10,14"),
        ("not (fast or amd)", "11-13"),
        ("fast,^+here", "1-2,10"),
    ],
)
def test_queries(r: ResourceSet, query: str, ranks: str) -> None:
    assert str(r.restrict(constraint=query).ranks) == ranks
    assert r.restrict(constraint=parse_requires(query)) == r.restrict(ranks=ranks)


def test_with_ranks_and_hosts(r: ResourceSet) -> None:
    part = r.restrict(ranks="1-10", hosts="node[0-5]", constraint="fast")
    assert str(part.ranks) == "1-2,10"
    assert part.properties["fast"] == part.ranks


@pytest.mark.parametrize(
    ("constraint", "error"),
    [
        ("", "invalid constraint ``: expected a term at byte 0"),
        ("fast |", "invalid constraint `fast |`: expected a term at byte 6"),
        ("{", "invalid constraint: EOF while parsing an object at line 1 column 1"),
        ('{"ranks": [1]}', "invalid constraint: ranks[0]: expected a string, found a number"),
        ({"ranks": ["1-"]}, 'ranks[0]: invalid idset "1-": expected a number at byte 2'),
        ({"hostlist": ["a["]}, "hostlist[0]: invalid hostlist"),
        ({"properties": ["a&b"]}, "properties[0]: invalid property `a&b`"),
        ({"and": [{"nor": []}]}, "and[0].nor: unknown operator: expected and, or, not, properties"),
        ({"and": [], "or": []}, "expected one operator, found and, or"),
        ({"and": {}}, "and: expected a list, found an object"),
        ({"ranks": [float("nan")]}, "Out of range float"),
    ],
)
def test_errors(r: ResourceSet, constraint: dict[str, Any] | str, error: str) -> None:
    with pytest.raises(JobspecError) as raised:
        r.restrict(constraint=constraint)
    assert error in str(raised.value)


def test_other_types_and_other_sets(r: ResourceSet) -> None:
    with pytest.raises(TypeError, match="expected a constraint as dict or str, not list"):
        r.restrict(constraint=["fast"])  # type: ignore[arg-type]
    alone = ResourceSet({"version": 1, "scheduling": {}})
    with pytest.raises(ResourceSetError, match="expected an R with `execution`"):
        alone.restrict(constraint="fast")
    assert r.restrict(constraint={"not": []}).nnodes == 0
    deep: dict[str, Any] = {"ranks": ["0"]}
    for _ in range(65):
        deep = {"not": [deep]}
    with pytest.raises(JobspecError, match="recursion limit exceeded"):
        r.restrict(constraint=deep)
