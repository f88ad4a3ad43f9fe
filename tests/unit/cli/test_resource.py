"""The verb `penstock R`."""

from __future__ import annotations

import io
import json
import socket
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from penstock import ResourceSet
from penstock.cli import main

if TYPE_CHECKING:
    from pathlib import Path

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
        f"`{files['bad']}`: invalid R: expected `execution` or `scheduling`, found neither",
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
    assert (code, err) == (
        2,
        "penstock R restrict: expected --ranks, --hosts, --constraint or --no-local\n",
    )


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


def test_cli_arguments(
    capsys: pytest.CaptureFixture[str], files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert output(capsys, "summary", json.dumps(R2), files["r1"]).splitlines() == [
        "rank[2-5]/core[4-11]",
        "rank[0-3]/core[0-7],gpu[0-1]",
    ]
    lines = f"{json.dumps(R1)}\n\n {json.dumps(R2)} \n"
    feed_stdin(monkeypatch, lines)
    assert len(output(capsys, "summary").splitlines()) == 2
    feed_stdin(monkeypatch, lines)
    union = ResourceSet(R1) | ResourceSet(R2)
    assert ResourceSet(output(capsys, "union")) == union
    feed_stdin(monkeypatch, lines)
    code, _, err = run(capsys, "decode")
    assert (code, err) == (2, "penstock R decode: expected one R, found 2\n")
    feed_stdin(monkeypatch, json.dumps(R1, indent=2))
    assert output(capsys, "decode", "-r") == "0-3\n"
    feed_stdin(monkeypatch, '{"version":1}\n{"version":2}\n')
    code, out, _ = run(capsys, "verify")
    assert code == 1
    assert [line.partition(": invalid")[0] for line in out.splitlines()] == [
        "standard input: R 1",
        "standard input: R 2",
        "standard input: R 2",
    ]
    code, _, err = run(capsys, "summary", '{"version":2,"execution":{"R_lite":[],"nodelist":[]}}')
    assert (code, err) == (1, "penstock R: argument: invalid R: version: expected 1, found 2\n")


def test_cli_expand_and_count(capsys: pytest.CaptureFixture[str], files: dict[str, str]) -> None:
    assert output(capsys, "expand", "-i", "1-2", files["r1"]).splitlines() == [
        "1 node1 0-7 0-1 batch",
        "2 node2 0-7 0-1 debug",
    ]
    assert output(capsys, "expand", "-i", "5", files["r2"]) == "5 node5 4-11 - -\n"
    assert output(capsys, "list", "-i", "5", files["r2"]) == "5 node5 4-11 - -\n"
    rows = [json.loads(row) for row in output(capsys, "expand", "--json", files["r2"]).splitlines()]
    assert rows[-1] == {"rank": 5, "host": "node5", "cores": "4-11", "gpus": "", "properties": []}
    assert output(capsys, "count", files["r1"]) == "4 nodes, 32 cores, 8 gpus\n"
    assert output(capsys, "count", "-w", "core", files["r1"]) == "32\n"
    one = ResourceSet.uniform("0", "a", "0").to_json()
    assert output(capsys, "count", one) == "1 node, 1 core, 0 gpus\n"


def test_cli_verify_lists_every_problem(capsys: pytest.CaptureFixture[str]) -> None:
    bad = {
        "version": 1,
        "execution": {"R_lite": [{"rank": "x", "children": {"core": "1-"}}], "nodelist": ["a["]},
    }
    code, out, err = run(capsys, "verify", json.dumps(bad))
    assert (code, err) == (1, "")
    prefix = "argument: invalid R: execution."
    assert [line.removeprefix(prefix) for line in out.splitlines()] == [
        'R_lite[0].rank: invalid idset "x": expected a number at byte 0',
        'R_lite[0].children.core: invalid idset "1-": expected a number at byte 2',
        'nodelist[0]: invalid hostlist "a[": expected a number at byte 2',
    ]
    code, out, _ = run(capsys, "verify", "--jgf", SCHEDULING_ALONE)
    assert (code, out) == (
        1,
        "argument: invalid R: scheduling.graph.edges: expected an array, found nothing\n",
    )
    assert output(capsys, "verify", SCHEDULING_ALONE).endswith("valid: 0 nodes, 0 cores, 0 gpus\n")
    code, out, _ = run(capsys, "verify", "--json", "--jgf", SCHEDULING_ALONE, json.dumps(R1))
    assert code == 1
    assert [json.loads(row) for row in out.splitlines()] == [
        {
            "name": "argument 1",
            "problems": ["invalid R: scheduling.graph.edges: expected an array, found nothing"],
        },
        {"name": "argument 2", "problems": []},
    ]


def test_cli_restrict_by_constraint(
    capsys: pytest.CaptureFixture[str], files: dict[str, str]
) -> None:
    for query in ("batch host:node[1-3]", '{"and":[{"properties":["batch"]},{"ranks":["1-3"]}]}'):
        out = output(capsys, "restrict", "-c", query, files["r1"])
        assert ResourceSet(out) == ResourceSet(R1).restrict(ranks="1")
    out = output(capsys, "restrict", "-c", "batch", "-r", "1-9", files["r1"])
    assert ResourceSet(out).ranks == ResourceSet(R1).restrict(ranks="1").ranks
    code, _, err = run(capsys, "restrict", "-c", "batch |", files["r1"])
    assert (code, err) == (
        1,
        "penstock R: invalid constraint `batch |`: expected a term at byte 7\n",
    )


def test_cli_local_properties(capsys: pytest.CaptureFixture[str]) -> None:
    r = ResourceSet(R1)
    r.add_property("+here", "0")
    out = output(capsys, "restrict", "--no-local", r.to_json())
    assert ResourceSet(out) == ResourceSet(R1)


def test_cli_differing_scheduling(capsys: pytest.CaptureFixture[str]) -> None:
    one = json.dumps({**R1, "scheduling": {"graph": 1}})
    other = json.dumps({**R2, "scheduling": {"graph": 2}})
    code, _, err = run(capsys, "union", one, other)
    assert (code, err) == (
        1,
        "penstock R: the sets have different values of `scheduling`, which cannot be combined\n",
    )
    left = ResourceSet(output(capsys, "union", "--scheduling", "left", one, other))
    assert left.scheduling == {"graph": 1}
    dropped = ResourceSet(output(capsys, "union", "--scheduling", "drop", one, other))
    assert dropped == ResourceSet(R1) | ResourceSet(R2)


def test_cli_help_names_every_operation(capsys: pytest.CaptureFixture[str]) -> None:
    out = output(capsys, "--help")
    for operation in ("encode", "expand", "count", "verify", "restrict", "rerank", "append"):
        assert operation in out
        assert output(capsys, operation, "--help").startswith(f"usage: penstock R {operation}")


def test_cli_positions(capsys: pytest.CaptureFixture[str], files: dict[str, str]) -> None:
    r1 = files["r1"]

    def summary(*args: str) -> list[str]:
        return [ResourceSet(line).summary() for line in output(capsys, *args).splitlines()]

    node = "core[0-7],gpu[0-1]"
    assert summary("nth", "-n", "-1", r1) == [f"rank3/{node}"]
    assert summary("slice", "-s", "1:3", r1) == [f"rank[1-2]/{node}"]
    assert summary("split", "-n", "2", r1) == [f"rank[0-1]/{node}", f"rank[2-3]/{node}"]
    assert output(capsys, "find", "-H", "node[1,3]", r1) == "1,3\n"
    both = summary("symmetric-difference", r1, files["r2"])
    assert both == [
        f"rank[0-1]/{node} rank[2-3]/core[0-3,8-11],gpu[0-1] rank[4-5]/core[4-11]",
    ]
    code, _, err = run(capsys, "split", "-n", "0", r1)
    assert (code, err) == (2, "penstock R split: expected at least 1 part, found 0\n")
    code, _, err = run(capsys, "nth", "-n", "9", r1)
    assert (code, err) == (1, "penstock R: no position 9 among 4 nodes\n")


def test_cli_sort_and_uniq(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "r"
    lite = [{"rank": str(rank), "children": {"core": str(rank)}} for rank in range(4)]
    execution = {
        "R_lite": lite,
        "nodelist": ["n10", "n9", "n10", "n1"],
        "properties": {"a": "0", "b": "2-3"},
        "expiration": 7.0,
    }
    file.write_text(json.dumps({"version": 1, "execution": execution}))
    sorted_ = ResourceSet(output(capsys, "sort", str(file)))
    assert list(sorted_.nodelist) == ["n1", "n9", "n10", "n10"]
    assert sorted_.summary() == "rank0/core3 rank1/core1 rank2/core0 rank3/core2"
    assert sorted_.properties == {"a": {2}, "b": {0, 3}}
    assert sorted_.expiration == 7
    once = ResourceSet(output(capsys, "uniq", str(file)))
    assert list(once.nodelist) == ["n10", "n9", "n1"]
    assert once.summary() == "rank0/core[0,2] rank1/core1 rank2/core3"
    assert once.properties == {"a": {0}, "b": {0, 2}}
    file.write_text(json.dumps({"version": 1, "execution": execution, "scheduling": {}}))
    code, _, err = run(capsys, "sort", str(file))
    assert (code, err[:36]) == (1, "penstock R: `scheduling` names ranks")


def test_a_set_is_iterated_by_rank() -> None:
    r = ResourceSet(R1)
    assert [node.host for node in r] == ["node0", "node1", "node2", "node3"]
    assert (r ^ ResourceSet(R2)) == (r - ResourceSet(R2)) | (ResourceSet(R2) - r)


@pytest.mark.parametrize(
    ("before", "after"), [("{", ""), ("{", "\n"), ("\n  {", "\n\n"), ("{\n", "\n")]
)
def test_a_file_is_in_memory_once(capsys, tmp_path, before, after):
    """The text of the file; the set itself is not in Python's memory."""
    entries = ",".join(
        f'{{"rank":"{n}","children":{{"core":"0-{1 + n % 97}"}}}}' for n in range(10**5)
    )
    text = f'"version":1,"execution":{{"R_lite":[{entries}],"nodelist":["n[0-99999]"]}}}}'
    path = tmp_path / "R"
    path.write_text(f"{before}{text}{after}")
    tracemalloc.start()
    try:
        assert main(["R", "count", str(path)]) == 0
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert capsys.readouterr().out.startswith("100000 nodes, ")
    assert path.stat().st_size < peak < 1.2 * path.stat().st_size
