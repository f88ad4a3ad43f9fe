"""R (RFC 20): the shared vectors, what Python adds to them, and the verb `penstock R`."""

from __future__ import annotations

import copy
import doctest
import io
import json
import pickle
import socket
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
from penstock.cli import main
from penstock.resource import Node

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parent.parent
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


def test_documentation() -> None:
    runner = doctest.DocTestRunner()
    for test in doctest.DocTestFinder().find(ResourceSet, "ResourceSet", module=False):
        runner.run(test)
    assert runner.summarize(verbose=False) == (0, 4)
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
    with pytest.raises(NotFoundError, match="unknown hosts `x,y`"):
        r.restrict(hosts="x,node1,y")
    with pytest.raises(TypeError, match="expected ranks, hosts or both"):
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


# --- penstock R


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    texts = {"r1": json.dumps(R1), "r2": json.dumps(R2), "bad": '{"version":2}'}
    paths = {name: tmp_path / name for name in texts}
    for name, path in paths.items():
        path.write_text(texts[name])
    return {name: str(path) for name, path in paths.items()}


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = main(["R", *args])
    return code, *capsys.readouterr()


def output(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    code, out, err = run(capsys, *args)
    assert (code, err) == (0, "")
    return out


def feed_stdin(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_cli_encode(capsys: pytest.CaptureFixture[str]) -> None:
    out = output(
        capsys, "encode", "-r", "0-3", "-H", "node[0-3]", "-c", "0-7", "-g", "0-1",
        "-p", "batch:0-1", "-p", "debug:2-3", "-s", "100", "-e", "200",
    )  # fmt: skip
    assert json.loads(out) == R1
    assert ResourceSet(output(capsys, "encode", "-H", "a,b")) == ResourceSet.uniform(
        "0-1", "a,b", "0"
    )
    alone = ResourceSet(output(capsys, "encode", "-r", "5-6"))
    assert list(alone.nodelist) == [socket.gethostname()] * 2
    code, _, err = run(capsys, "encode", "-p", "batch")
    assert (code, err) == (2, "penstock R encode: expected NAME:IDSET as property, found `batch`\n")
    code, _, err = run(capsys, "encode", "-r", "0-x")
    assert (code, err) == (1, 'penstock R: invalid idset "0-x": expected a number at byte 2\n')


def test_cli_decode(capsys: pytest.CaptureFixture[str], files: dict[str, str]) -> None:
    r1 = files["r1"]
    assert json.loads(output(capsys, "decode", r1)) == R1
    part = ResourceSet(R1).restrict(ranks="1-2").to_dict()
    assert json.loads(output(capsys, "decode", "-i", "1-3", "-x", "3", r1)) == part
    assert output(capsys, "decode", "-s", r1) == "rank[0-3]/core[0-7],gpu[0-1]\n"
    assert output(capsys, "decode", "-r", "-x", "1", r1) == "0,2-3\n"
    assert output(capsys, "decode", "-n", r1) == "node[0-3]\n"
    assert json.loads(output(capsys, "decode", "-p", r1)) == {"batch": "0-1", "debug": "2-3"}
    counts = [output(capsys, "decode", "-c", what, r1) for what in ("node", "core", "gpu")]
    assert counts == ["4\n", "32\n", "8\n"]


def test_cli_show(capsys: pytest.CaptureFixture[str], files: dict[str, str]) -> None:
    assert output(capsys, "show", files["r1"]).splitlines() == [
        "RANKS  HOSTS      CORES  GPUS  PROPERTIES",
        "0-1    node[0-1]  0-7    0-1   batch",
        "2-3    node[2-3]  0-7    0-1   debug",
        "4 nodes, 32 cores, 8 gpus",
    ]
    out = output(capsys, "show", "--json", "-i", "0", files["r1"])
    assert json.loads(out) == {
        "rank": 0,
        "host": "node0",
        "cores": "0-7",
        "gpus": "0-1",
        "properties": ["batch"],
    }


def test_cli_show_of_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    feed_stdin(monkeypatch, SCHEDULING_ALONE)
    assert output(capsys, "show").splitlines()[-1] == "0 nodes, 0 cores, 0 gpus"


def test_cli_verify(capsys: pytest.CaptureFixture[str], files: dict[str, str]) -> None:
    assert (
        output(capsys, "verify", files["r1"])
        == f"`{files['r1']}`: valid: 4 nodes, 32 cores, 8 gpus\n"
    )
    code, out, err = run(capsys, "verify", files["bad"], files["r2"])
    assert (code, err) == (1, "")
    assert out.splitlines() == [
        f"`{files['bad']}`: invalid R: version: expected 1, found 2",
        f"`{files['r2']}`: valid: 4 nodes, 32 cores, 0 gpus",
    ]


@pytest.mark.parametrize("operation", ["union", "intersection", "difference", "append"])
def test_cli_combinations(
    capsys: pytest.CaptureFixture[str], files: dict[str, str], operation: str
) -> None:
    expected = getattr(ResourceSet(R1), operation)(ResourceSet(R2))
    assert ResourceSet(output(capsys, operation, files["r1"], files["r2"])) == expected


def test_cli_parts(capsys: pytest.CaptureFixture[str], files: dict[str, str]) -> None:
    assert output(capsys, "summary", files["r1"], files["r2"]).splitlines() == [
        "rank[0-3]/core[0-7],gpu[0-1]",
        "rank[2-5]/core[4-11]",
    ]
    assert ResourceSet(output(capsys, "rerank", files["r2"])) == ResourceSet(R2).rerank()
    out = output(capsys, "restrict", "-H", "node[1-2]", "-r", "2-3", files["r1"])
    assert ResourceSet(out) == ResourceSet(R1).restrict(ranks="2")
    code, _, err = run(capsys, "restrict", files["r1"])
    assert (code, err) == (2, "penstock R restrict: expected --ranks, --hosts or both\n")


def test_cli_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    feed_stdin(monkeypatch, json.dumps(R1))
    assert output(capsys, "decode", "-r") == "0-3\n"
    feed_stdin(monkeypatch, '{"version":1}')
    code, out, _ = run(capsys, "verify", "-")
    assert (code, out) == (
        1,
        "standard input: invalid R: expected `execution` or `scheduling`, found neither\n",
    )
    code, _, err = run(capsys, "union", "-", "-")
    assert (code, err) == (2, "penstock R union: the standard input can be read only once\n")


def test_cli_errors(capsys: pytest.CaptureFixture[str], files: dict[str, str]) -> None:
    code, _, err = run(capsys, "summary", files["bad"])
    assert (code, err) == (
        1,
        f"penstock R: `{files['bad']}`: invalid R: version: expected 1, found 2\n",
    )
    code, _, err = run(capsys, "summary", files["bad"] + "x")
    assert (code, err) == (1, f"penstock R: `{files['bad']}x`: No such file or directory\n")
    assert run(capsys, "nonsense")[0] == 2
    assert run(capsys)[0] == 2
