"""R (RFC 20): the shared vectors, the Python interface, and the verb `penstock R`."""

from __future__ import annotations

import copy
import doctest
import json
import pickle
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock import (
    Hostlist,
    HostlistError,
    IDset,
    IdsetError,
    NotFoundError,
    ResourceSet,
    ResourceSetError,
)
from penstock.resource import Node

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parents[2]
VECTORS = json.loads((TESTS / "vectors" / "rset.json").read_text())
R1 = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "0-3", "children": {"core": "0-7", "gpu": "0-1"}}],
        "nodelist": ["node[0-3]"],
        "properties": {"batch": "0-1", "debug": "2-3"},
        "starttime": 100.0,
        "expiration": 200.0,
    },
}
R2 = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "2-5", "children": {"core": "4-11"}}],
        "nodelist": ["node[2-5]"],
    },
}
SCHEDULING_ALONE = '{"version":1,"scheduling":{"graph":{"nodes":[]}}}'


def test_good_vectors() -> None:
    for vector in VECTORS["good"]:
        r = ResourceSet(vector["R"])
        name = vector["name"]
        assert r.summary() == str(r) == vector["summary"], name
        assert str(r.ranks) == vector["ranks"], name
        assert str(r.nodelist) == vector["nodelist"], name
        counts = (r.nnodes, r.ncores, r.ngpus)
        assert counts == (vector["nnodes"], vector["ncores"], vector["ngpus"]), name
        if vector["encoded"] is not None:
            assert r.to_dict() == vector["encoded"], name
        if "scheduling" in vector:
            assert r.scheduling == json.loads(vector["scheduling"]), name
        if "attributes" in vector:
            assert r.attributes == json.loads(vector["attributes"]), name
        for again in (ResourceSet(r.to_json()), ResourceSet(vector["R"].encode())):
            assert again == r, name
            assert again.to_json() == r.to_json(), name


def documents(value: object) -> Iterator[dict[str, Any]]:
    """Every R within a JSON value."""
    if isinstance(value, dict):
        if "execution" in value:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from documents(inner)


def test_every_r_that_a_real_broker_took_or_sent() -> None:
    seen = 0
    for path in sorted((TESTS / "vectors" / "flux-wire").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            for document in documents(json.loads(line)["message"]["payload"]):
                r = ResourceSet(document)
                execution, ours = document["execution"], r.to_dict()["execution"]
                assert r.nodelist == Hostlist(",".join(execution["nodelist"]))
                for key in ("starttime", "expiration", "nslots", "properties"):
                    assert ours.get(key) == execution.get(key), line
                for entry in execution["R_lite"]:
                    for rank in IDset(entry["rank"]):
                        node = r.node(rank)
                        assert node.cores == IDset(entry["children"]["core"])
                        assert node.gpus == IDset(entry["children"].get("gpu", ""))
                assert ResourceSet(r.to_json()) == r
                seen += 1
    assert seen == 22


def test_bad_vectors() -> None:
    for vector in VECTORS["bad"]:
        with pytest.raises(ResourceSetError) as raised:
            ResourceSet(vector["R"])
        assert str(raised.value) == vector["error"], vector["R"]
        assert (raised.value.path, raised.value.offset) == (vector["path"], vector["offset"])


def test_problem_vectors() -> None:
    for vector in VECTORS["problems"]:
        name = vector["name"]
        assert ResourceSet.verify(vector["R"], jgf=True) == vector["problems"], name
        of_format = ResourceSet.verify(vector["R"])
        if of_format:
            with pytest.raises(ResourceSetError) as raised:
                ResourceSet(vector["R"])
            assert str(raised.value) == of_format[0], name
            continue
        r = ResourceSet(vector["R"])
        assert ResourceSet.verify(r, jgf=True) == vector["problems"], name
        if not vector["problems"]:
            r.validate_scheduling()
            continue
        with pytest.raises(ResourceSetError) as raised:
            r.validate_scheduling()
        notes = getattr(raised.value, "__notes__", [])
        assert [str(raised.value), *notes] == vector["problems"], name
        assert (raised.value.path or "").startswith("scheduling.graph"), name


def test_verify_accepts_the_arguments_of_the_constructor() -> None:
    assert ResourceSet.verify(R1) == ResourceSet.verify(json.dumps(R1).encode()) == []
    assert ResourceSet.verify(ResourceSet(R1)) == []
    assert ResourceSet.verify(b"{\xff}") == ["invalid R: expected UTF-8 at byte 1"]
    assert ResourceSet.verify('{"\ud800":1}') == ["invalid R: the text holds a lone surrogate"]
    with pytest.raises(TypeError, match="not int"):
        ResourceSet.verify(5)  # type: ignore[arg-type]


def test_documentation() -> None:
    runner = doctest.DocTestRunner()
    for test in doctest.DocTestFinder().find(ResourceSet, "ResourceSet", module=False):
        runner.run(test)
    assert runner.summarize(verbose=False) == (0, 14)
    members = {name: member for name, member in vars(ResourceSet).items() if name[0] != "_"}
    undocumented = [name for name, member in members.items() if not member.__doc__]
    assert undocumented == []


def test_sources() -> None:
    empty = ResourceSet()
    assert (len(empty), repr(empty), empty == ResourceSet(None)) == (0, "<ResourceSet empty>", True)
    r = ResourceSet(R1)
    assert r == ResourceSet(json.dumps(R1)) == ResourceSet(json.dumps(R1, indent=2).encode())
    assert r == ResourceSet(bytearray(json.dumps(R1).encode())) == ResourceSet(r)
    assert repr(r) == "<ResourceSet rank[0-3]/core[0-7],gpu[0-1]>"
    for source in (5, [R1], {1}):
        with pytest.raises(TypeError, match="expected a ResourceSet, or R as str, bytes or dict"):
            ResourceSet(source)  # type: ignore[arg-type]
    with pytest.raises(ResourceSetError, match="invalid R: expected UTF-8 at byte 1") as raised:
        ResourceSet(b"{\xff}")
    assert raised.value.offset == 1
    with pytest.raises(ResourceSetError, match="lone surrogate"):
        ResourceSet('{"\ud800":1}')
    with pytest.raises(ResourceSetError, match="lone surrogate"):
        ResourceSet({"version": 1, "scheduling": {"a": "\ud800"}})
    with pytest.raises(ResourceSetError, match="Out of range float"):
        ResourceSet({"version": 1, "scheduling": {"a": float("inf")}})


def test_facts() -> None:
    r = ResourceSet(R1)
    assert (r.version, r.nnodes, r.ncores, r.ngpus, len(r)) == (1, 4, 32, 8, 4)
    assert (r.ranks, r.nodelist) == (IDset("0-3"), Hostlist("node[0-3]"))
    assert (r.starttime, r.expiration, r.nslots) == (100.0, 200.0, None)
    assert r.properties == {"batch": IDset("0-1"), "debug": IDset("2-3")}
    assert (r.scheduling, r.attributes) == (None, None)
    assert ResourceSet(R2).starttime is None


def test_nodes() -> None:
    r = ResourceSet(R1) | ResourceSet(R2)
    nodes = list(r.nodes())
    assert nodes[0] == Node(0, "node0", IDset("0-7"), IDset("0-1"))
    assert nodes[3] == Node(3, "node3", IDset("0-11"), IDset("0-1"))
    assert nodes[5] == Node(5, "node5", IDset("4-11"), IDset())
    assert [node.rank for node in nodes] == list(range(6))
    rank, host, cores, gpus = r.node(4)
    assert (rank, host, str(cores), len(gpus)) == (4, "node4", "4-11", 0)
    for rank in (6, -1, 2**40):
        with pytest.raises(NotFoundError, match=f"rank {rank} is not in the set"):
            r.node(rank)


def test_nodes_of_many_and_while_changing() -> None:
    r = ResourceSet.uniform(range(0, 2000, 2), "n[0-999]", "0")
    nodes = r.nodes()
    first = next(nodes)
    r.remove_ranks("0-1999")
    rest = list(nodes)
    assert [first.rank, *(node.rank for node in rest)] == list(range(0, 2000, 2))
    assert rest[-1].host == "n999"
    assert list(r.nodes()) == []


def test_uniform() -> None:
    r = ResourceSet.uniform("0-99999", "node[0-99999]", cores="0-63", gpus=range(4))
    assert (r.nnodes, r.ncores, r.ngpus) == (100_000, 6_400_000, 400_000)
    assert len(r.to_json()) < 200
    assert ResourceSet.uniform([3, 1], ["b", "a"], [0]).node(3).host == "a"
    with pytest.raises(ResourceSetError, match="expected 2 hosts for ranks 0-1, found 1"):
        ResourceSet.uniform("0-1", "a", "0")
    with pytest.raises(IdsetError, match='invalid idset "x"'):
        ResourceSet.uniform("x", "a", "0")
    with pytest.raises(HostlistError):
        ResourceSet.uniform("0", "a[", "0")


def test_operators_and_methods() -> None:
    one, other = ResourceSet(R1), ResourceSet(R2)
    union = one | other
    assert union == one.union(other)
    assert (
        str(union)
        == "rank[0-1]/core[0-7],gpu[0-1] rank[2-3]/core[0-11],gpu[0-1] rank[4-5]/core[4-11]"
    )
    assert str(union.nodelist) == "node[0-5]"
    assert str(one - other) == "rank[0-1]/core[0-7],gpu[0-1] rank[2-3]/core[0-3],gpu[0-1]"
    assert one - other == one.difference(other)
    shared = one & other
    assert str(shared) == "rank[2-3]/core[4-7]"
    assert shared == one.intersection(other)
    assert (shared.starttime, shared.expiration, shared.properties) == (
        100,
        200,
        {"debug": IDset("2-3")},
    )
    appended = one + other
    assert appended == one.append(other)
    assert str(appended.ranks) == "0-7"
    assert str(appended.nodelist) == "node[0-3,2-5]"
    assert shared.issubset(one)
    assert not one.issubset(other)
    assert (one - other).isdisjoint(other)
    assert not one.isdisjoint(other)
    for operation in ("__or__", "__and__", "__sub__", "__add__"):
        assert getattr(one, operation)(5) is NotImplemented
    with pytest.raises(TypeError):
        one | 5  # type: ignore[operator]
    with pytest.raises(TypeError):
        one.union("x")  # type: ignore[arg-type]


def test_differing_scheduling() -> None:
    one = ResourceSet({**R1, "scheduling": {"graph": 1}, "attributes": {"system": 1}})
    other = ResourceSet({**R2, "scheduling": {"graph": 2}, "attributes": {"system": 1}})
    for name in ("union", "intersection", "difference", "append"):
        operation = getattr(ResourceSet, name)
        with pytest.raises(ResourceSetError, match="different values of `scheduling`"):
            operation(one, other)
        plain = operation(ResourceSet(R1), ResourceSet(R2))
        left = operation(one, other, scheduling="left")
        assert (left.scheduling, left.attributes) == ({"graph": 1}, {"system": 1})
        assert operation(ResourceSet(R1), other, scheduling="left").scheduling == {"graph": 2}
        dropped = operation(one, other, scheduling="drop")
        assert (dropped.scheduling, dropped.attributes) == (None, None)
        assert dropped == plain
        with pytest.raises(ValueError, match="expected scheduling to be None, 'left' or 'drop'"):
            operation(one, other, scheduling="right")
    assert one.union(ResourceSet(R2)).scheduling == {"graph": 1}


def test_carried_values_keep_every_byte() -> None:
    scheduling = '{ "n" : 1.10,\n\t"e": "\\u00fc", "n": 12345678901234567890123 }'
    r = ResourceSet(
        f'{{"version":1,"execution":{{"R_lite":[],"nodelist":[]}},"scheduling":{scheduling}}}'
    )
    assert f'"scheduling":{scheduling}' in r.to_json()
    assert f'"scheduling":{scheduling}' in (r | ResourceSet()).rerank().to_json()


def test_texts() -> None:
    r = ResourceSet(R1)
    assert r.encode() == r.to_json() == bytes(r).decode()
    assert ResourceSet(bytes(r)) == ResourceSet(r.encode()) == ResourceSet(r.to_dict()) == r


def test_different_hosts() -> None:
    other = ResourceSet.uniform("3", "elsewhere", "0")
    with pytest.raises(
        ResourceSetError, match="rank 3 is on host `node3` in one set, and on `elsewhere` in the"
    ):
        ResourceSet(R1) | other


def test_restrict_and_remove() -> None:
    r = ResourceSet(R1)
    part = r.restrict(ranks="1-2,9")
    assert (str(part.ranks), str(part.nodelist)) == ("1-2", "node[1-2]")
    assert part.properties == {"batch": IDset("1"), "debug": IDset("2")}
    assert r.restrict(hosts="node[1-2]") == part
    assert str(r.restrict(ranks=[2, 3], hosts=["node1", "node2"]).ranks) == "2"
    # Unknown hosts are ignored, as unknown ranks are.
    assert r.restrict(hosts="x,node1,y") == r.restrict(ranks="1,9")
    assert not r.restrict(hosts="x")
    with pytest.raises(TypeError, match="expected ranks, hosts, a constraint or several of them"):
        r.restrict()
    r.remove_ranks("0,3,7")
    assert r == part
    assert str(part.rerank().ranks) == "0-1"
    assert part.rerank().properties == {"batch": IDset("0"), "debug": IDset("1")}


def test_host_ranks() -> None:
    r = ResourceSet(R1)
    assert r.host_ranks("node[1-2]") == [1, 2]
    assert r.host_ranks(Hostlist("node3,node0")) == [3, 0]
    with pytest.raises(LookupError, match="unknown host `x`"):
        r.host_ranks("node1,x")
    assert ResourceSet.uniform("0-2", "vm,vm,other", "0").host_ranks("vm") == [0, 1]


def test_insert() -> None:
    r = ResourceSet()
    r.insert(3, "c", "0-3", "0")
    r.insert(1, "a", [0])
    r.insert(3, "c", "8", [1])
    assert str(r) == "rank1/core0 rank3/core[0-3,8],gpu[0-1]"
    assert str(r.nodelist) == "a,c"
    with pytest.raises(ResourceSetError, match="rank 3 is on host `c`, not on `d`"):
        r.insert(3, "d", "0")
    for rank in (-1, 2**32 - 1, 2**32):
        with pytest.raises(
            ResourceSetError, match=f"expected a rank from 0 to 4294967294, found {rank}"
        ):
            r.insert(rank, "d", "0")
    with pytest.raises(ResourceSetError):
        r.insert(4, "d[1-2]", "0")


def test_properties() -> None:
    r = ResourceSet(R1)
    r.add_property("+here", "3")
    r.add_property("batch", [2])
    assert r.properties == {"+here": IDset("3"), "batch": IDset("0-2"), "debug": IDset("2-3")}
    assert list(r.without_local_properties().properties) == ["batch", "debug"]
    r.remove_property("batch", "0,9")
    r.remove_property("debug")
    r.remove_property("unknown")
    assert r.properties == {"+here": IDset("3"), "batch": IDset("1-2")}
    r.properties.clear()
    assert len(r.properties) == 2
    with pytest.raises(
        ResourceSetError, match="property `new` is on ranks 99, but the set has ranks 0-3"
    ):
        r.add_property("new", "99")
    with pytest.raises(ResourceSetError, match='invalid property name "a&b"'):
        r.add_property("a&b", "0")


def test_times_and_slots() -> None:
    r = ResourceSet(R1)
    r.starttime = None
    r.expiration = 50
    r.starttime = 0
    assert [r.starttime, r.expiration] == [None, 50.0]
    r.starttime = 49.5
    with pytest.raises(
        ResourceSetError, match=r"expected an expiration after starttime 49\.5, found 40"
    ):
        r.expiration = 40
    with pytest.raises(ResourceSetError, match="expected starttime of at least 0, found -1"):
        r.starttime = -1
    r.nslots = 4
    assert r.to_dict()["execution"]["nslots"] == 4
    with pytest.raises(ResourceSetError, match="expected nslots of at least 0, found -1"):
        r.nslots = -1
    r.nslots = None
    assert "nslots" not in r.to_dict()["execution"]


def test_scheduling_alone() -> None:
    r = ResourceSet(SCHEDULING_ALONE)
    assert (r.to_json(), len(r), repr(r)) == (
        SCHEDULING_ALONE,
        0,
        "<ResourceSet with scheduling alone>",
    )
    assert r.scheduling == {"graph": {"nodes": []}}
    assert r == r.copy() == pickle.loads(pickle.dumps(r))
    assert list(r.nodes()) == []
    match = "expected an R with `execution`, found one with `scheduling` alone"
    with pytest.raises(ResourceSetError, match=match):
        r.restrict(ranks="0")
    with pytest.raises(ResourceSetError, match=match):
        r.rerank()
    with pytest.raises(ResourceSetError, match=match):
        r.remove_ranks("0")
    with pytest.raises(ResourceSetError, match=match):
        r | ResourceSet()
    with pytest.raises(ResourceSetError, match=match):
        r.nslots = 1
    with pytest.raises(ResourceSetError, match=match):
        r.insert(0, "a", "0")


def test_values_not_identities() -> None:
    r = ResourceSet(R1)
    for other in (r.copy(), copy.copy(r), copy.deepcopy(r), pickle.loads(pickle.dumps(r))):
        assert other == r
        other.nslots = 7
        assert other != r
    assert r.nslots is None
    assert r != R1
    with pytest.raises(TypeError, match="unhashable"):
        hash(r)
    with pytest.raises(TypeError):
        r < r  # type: ignore[operator]  # noqa: B015


def test_deep_scheduling_is_carried_but_not_read() -> None:
    text = '{"version":1,"scheduling":{"a":' + "[" * 50_000 + "]" * 50_000 + "}}"
    r = ResourceSet(text)
    assert r.to_json() == text
    with pytest.raises(ResourceSetError, match="nested too deeply"):
        _ = r.scheduling


def test_page() -> None:
    page = TESTS.parent / "docs" / "resource.md"
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page.name, str(page), 0)
    runner = doctest.DocTestRunner()
    runner.run(test)
    assert runner.summarize(verbose=False).failed == 0
    assert len(test.examples) > 20
