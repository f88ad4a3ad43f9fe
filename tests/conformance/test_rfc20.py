"""RFC 20, resource sets: the reader, the writer, and R of the scheduler."""

from __future__ import annotations

import copy
import json

import pytest
from tests.conformance.harness import Sched, granted, inventory, jobspec
from tests.conformance.requirements import requirement

from penstock import ResourceSet
from penstock._core import lay_out
from penstock.errors import ResourceSetError
from penstock.inventory import from_file

EXAMPLE = {
    "version": 1,
    "execution": {
        "R_lite": [{"rank": "19-22", "children": {"core": "0-47", "gpu": "0-7"}}],
        "nodelist": ["node[186-189]"],
        "starttime": 1676560542,
        "expiration": 1676562342,
    },
}


def vertex(number, **metadata):
    """A vertex of a resource graph."""
    data = {
        "type": "core",
        "uuid": f"u{number}",
        "basename": "core",
        "name": f"core{number}",
        "id": number,
        "properties": {},
        "size": 1,
        "unit": "",
    }
    return {"id": str(number), "metadata": {**data, **metadata}}


def edge(source, target, **metadata):
    """An edge of a resource graph."""
    data = {"subsystem": "containment", "relationship": "contains"}
    return {"source": source, "target": target, "metadata": {**data, **metadata}}


GRAPH = {
    "nodes": [vertex(0, type="node"), vertex(1, rank=19), vertex(2)],
    "edges": [edge("0", "1"), edge("0", "2")],
}
FULL_R = {
    **EXAMPLE,
    "scheduling": {"graph": GRAPH},
    "attributes": {"system": {"scheduler": {"queue": "batch"}}},
}


def changed(document, path, value=None):
    """The document with the value at a path replaced, or removed if `value` is None."""
    document = copy.deepcopy(document)
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place = document
    for key in way:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return document


def error_of(path, value=None, document=EXAMPLE):
    """The reader's error for a changed document."""
    with pytest.raises(ResourceSetError) as error:
        ResourceSet(changed(document, path, value))
    return str(error.value)


def written(document):
    """The document after reading and writing it."""
    return json.loads(ResourceSet(document).to_json())


def allocated(**spec):
    """R of an allocation by the scheduler."""
    return granted(Sched.running(inventory(4, 2)).alloc(7, **spec))[7]


# --- the document


@requirement("rfc20.use.allocation", "rfc20.use.inventory", "rfc20.document.execution")
def test_an_allocation_suffices_for_execution_and_for_a_child_instance(tmp_path):
    r = allocated(nodes=2, cores=2)
    places = lay_out(json.dumps(jobspec(nodes=2, cores=2)), r)
    assert [(task.target, sorted(task.cores)) for task in places] == [(0, [0, 1]), (1, [0, 1])]
    file = tmp_path / "R"
    file.write_text(r.to_json())
    child = Sched.running(from_file(file))
    assert granted(child.alloc(1, nodes=2, cores=2))[1].nodelist == r.nodelist


@requirement("rfc20.document.keys", "rfc20.document.valid")
def test_the_keys_make_a_document_an_r():
    assert set(written(FULL_R)) == {"version", "execution", "scheduling", "attributes"}
    assert set(written(EXAMPLE)) == {"version", "execution"}
    bare = {"version": 1, "scheduling": {"graph": GRAPH}}
    assert written(bare) == bare
    assert ResourceSet.verify(FULL_R) == ResourceSet.verify(bare) == []
    for document in ({"version": 1}, {"version": 1, "attributes": {}}, {"execution": {}}, {}, []):
        with pytest.raises(ResourceSetError, match="invalid R"):
            ResourceSet(json.dumps(document))
    assert "version" in error_of("version")


@requirement(
    "rfc20.document.scheduling",
    "rfc20.document.attributes",
    "rfc20.attributes.scheduler",
    "rfc20.attributes.system",
)
def test_scheduling_and_attributes_are_carried_unchanged():
    assert written(FULL_R)["scheduling"] == {"graph": GRAPH}
    assert written(FULL_R)["attributes"] == FULL_R["attributes"]
    assert ResourceSet(FULL_R).attributes["system"]["scheduler"] == {"queue": "batch"}
    # A part of the set keeps them, too.
    part = ResourceSet(FULL_R).restrict(ranks="19")
    assert part.attributes == FULL_R["attributes"]
    for key in ("scheduling", "attributes"):
        assert key in error_of(key, [1], FULL_R)
    # Other keys of `attributes` are reserved, and carried.
    future = {"system": {}, "user": {"x": 1}}
    assert written({**EXAMPLE, "attributes": future})["attributes"] == future


@requirement("rfc20.version.one")
def test_the_version_is_1():
    assert written(EXAMPLE)["version"] == 1
    assert written(changed(EXAMPLE, "version", 1.0)) == EXAMPLE
    for version in (2, 0, "1", 1.5, True):
        assert "version" in error_of("version", version)


# --- execution


@requirement("rfc20.execution.keys")
def test_execution_has_ranks_and_hosts():
    assert {"R_lite", "nodelist"} <= set(written(EXAMPLE)["execution"])
    assert {"R_lite", "nodelist"} <= set(allocated().to_dict()["execution"])
    for key in ("R_lite", "nodelist"):
        assert f"execution.{key}" in error_of(f"execution.{key}")
    for key in ("starttime", "expiration"):
        ResourceSet(changed(EXAMPLE, f"execution.{key}"))
    more = changed(EXAMPLE, "execution.future", {"x": 1})
    assert written(more)["execution"]["future"] == {"x": 1}


@requirement("rfc20.execution.entries", "rfc20.execution.rank", "rfc20.execution.rank-scope")
def test_an_entry_names_ranks_and_their_resources():
    entries = [
        {"rank": "0,3-4", "children": {"core": "0-1"}},
        {"rank": "2", "children": {"core": "5"}},
    ]
    document = changed(EXAMPLE, "execution.R_lite", entries)
    r = ResourceSet(changed(document, "execution.nodelist", ["a[0-3]"]))
    cores = {node.rank: str(node.cores) for node in r.nodes()}
    assert cores == {0: "0-1", 2: "5", 3: "0-1", 4: "0-1"}
    # Equal entries are merged in writing.
    assert [entry["rank"] for entry in written(r)["execution"]["R_lite"]] == ["0,3-4", "2"]
    for key in ("rank", "children"):
        assert f"R_lite[0].{key}" in error_of(f"execution.R_lite.0.{key}")
    for rank in ("3-1", "x", 19, ["19"], "-1"):
        assert "R_lite[0].rank" in error_of("execution.R_lite.0.rank", rank)
    assert "R_lite" in error_of("execution.R_lite", {"rank": "0"})
    # An entry may have more keys: sets are split and merged by rank, so these are dropped.
    more = changed(EXAMPLE, "execution.R_lite.0.future", {"x": 1})
    assert ResourceSet(more) == ResourceSet(EXAMPLE)
    assert written(more)["execution"]["R_lite"] == EXAMPLE["execution"]["R_lite"]


@requirement("rfc20.execution.children", "rfc20.execution.core", "rfc20.execution.gpu")
def test_children_are_cores_and_optional_gpus():
    assert written(EXAMPLE)["execution"]["R_lite"] == EXAMPLE["execution"]["R_lite"]
    children = "execution.R_lite.0.children"
    without = changed(EXAMPLE, f"{children}.gpu")
    assert ResourceSet(without).ngpus == 0
    assert written(without)["execution"]["R_lite"][0]["children"] == {"core": "0-47"}
    assert "children.core" in error_of(f"{children}.core")
    for key in ("core", "gpu"):
        for wrong in ("0-", 3, "a", [0]):
            assert f"children.{key}" in error_of(f"{children}.{key}", wrong)
    assert "children" in error_of(children, "0-47")
    nics = changed(EXAMPLE, f"{children}.nic", {"ports": [1, 2]})
    assert written(nics)["execution"]["R_lite"] == nics["execution"]["R_lite"]


@requirement("rfc20.execution.nodelist", "rfc20.execution.nodelist-hostlists")
def test_hosts_match_ranks_in_order():
    hosts = {node.rank: node.host for node in ResourceSet(EXAMPLE).nodes()}
    assert hosts == {19: "node186", 20: "node187", 21: "node188", 22: "node189"}
    several = changed(EXAMPLE, "execution.nodelist", ["b[1-2]", "a", "c0"])
    assert [node.host for node in ResourceSet(several).nodes()] == ["b1", "b2", "a", "c0"]
    for wrong in ("node[186-189]", ["node[186-188]"], ["node[186-190]"], [186], ["n[1"]):
        assert "nodelist" in error_of("execution.nodelist", wrong)


PROPERTIES = "execution.properties"


@requirement("rfc20.execution.properties", "rfc20.execution.properties-overlap")
def test_properties_map_names_to_targets():
    document = changed(EXAMPLE, PROPERTIES, {"big": "19-20", "amd": "20,22"})
    r = ResourceSet(document)
    assert {name: str(ranks) for name, ranks in r.properties.items()} == {
        "big": "19-20",
        "amd": "20,22",
    }
    assert written(document)["execution"]["properties"] == {"big": "19-20", "amd": "20,22"}
    for wrong in (["big"], {"big": 19}, {"big": "x"}, {"big": "19-23"}):
        assert PROPERTIES in error_of(PROPERTIES, wrong)
    assert str(r.restrict(constraint={"properties": ["amd"]}).ranks) == "20,22"


@requirement("rfc20.execution.property-names")
def test_property_names_are_utf8_without_operators():
    for name in ("größe", "amd.mi-50", "a b", "x@y", "+local"):
        assert name in ResourceSet(changed(EXAMPLE, PROPERTIES, {name: "19"})).properties
    for sign in "!&'\"^`|()":
        assert PROPERTIES in error_of(PROPERTIES, {f"a{sign}b": "19"})
        with pytest.raises(ResourceSetError, match="invalid property name"):
            ResourceSet(EXAMPLE).add_property(sign, "19")
    text = json.dumps(EXAMPLE)[:-2] + ', "properties": {"x\\ud800": "19"}}}'
    with pytest.raises(ResourceSetError, match=PROPERTIES):
        ResourceSet(text)
    raw = json.dumps(changed(EXAMPLE, PROPERTIES, {"NAME": "19"})).encode()
    with pytest.raises(ValueError, match=r"UTF-8|utf-8"):
        ResourceSet(raw.replace(b"NAME", b"\xff\xfe"))


@requirement("rfc20.execution.property-at")
def test_a_property_with_an_at_sign_is_used_literally():
    r = inventory(4, 2)
    r.add_property("amd-mi50@gpu", "1,3")
    wanted = {"constraints": {"properties": ["amd-mi50@gpu"]}}
    assert str(r.restrict(constraint=wanted["constraints"]).ranks) == "1,3"
    assert str(granted(Sched.running(r).alloc(1, **wanted))[1].ranks) == "1"


@requirement("rfc20.execution.starttime", "rfc20.execution.expiration")
def test_times_are_seconds_since_the_epoch_to_the_microsecond():
    document = changed(EXAMPLE, "execution.starttime", 1676560542.123456)
    document = changed(document, "execution.expiration", 1676562342.654321)
    r = ResourceSet(document)
    assert (r.starttime, r.expiration) == (1676560542.123456, 1676562342.654321)
    execution = written(document)["execution"]
    assert (execution["starttime"], execution["expiration"]) == (r.starttime, r.expiration)
    for key in ("starttime", "expiration"):
        for wrong in ("now", -1, [0]):
            assert f"execution.{key}" in error_of(f"execution.{key}", wrong)
    r = allocated(duration=60)
    assert r.expiration == r.starttime + 60
    assert r.starttime > 1000
    # Whole seconds have no fraction.
    assert ResourceSet(EXAMPLE).starttime == 1676560542


@requirement("rfc20.execution.starttime-unset", "rfc20.execution.expiration-unset")
def test_a_time_may_be_missing():
    for key in ("starttime", "expiration"):
        r = ResourceSet(changed(EXAMPLE, f"execution.{key}"))
        assert getattr(r, key) is None
        # Zero is how a missing time is written.
        assert written(r)["execution"][key] == 0
    # A scheduler allocates from resources without a start time or an expiration.
    resources = inventory(1, 1)
    assert (resources.starttime, resources.expiration) == (None, None)
    assert granted(Sched.running(resources).alloc(1))[1].expiration is None


@requirement("rfc20.execution.order")
def test_an_r_expires_after_it_starts():
    for end in (1676560542, 1676560541.9, 1):
        assert "execution.expiration" in error_of("execution.expiration", end)
    r = ResourceSet(EXAMPLE)
    with pytest.raises(ResourceSetError):
        r.expiration = r.starttime
    assert ResourceSet(changed(EXAMPLE, "execution.expiration", 1676560542.5)).expiration


# --- scheduling


def problems(path, value=None):
    """The problems of the graph after a change, as one text."""
    return "\n".join(ResourceSet.verify(changed(FULL_R, f"scheduling.{path}", value), jgf=True))


@requirement("rfc20.scheduling.graph")
def test_the_graph_is_checked_on_request():
    assert ResourceSet.verify(FULL_R, jgf=True) == []
    ResourceSet(FULL_R).validate_scheduling()
    assert "graph" in problems("graph")
    assert "graph.nodes" in problems("graph.nodes")
    broken = changed(FULL_R, "scheduling.graph.nodes")
    with pytest.raises(ResourceSetError, match=r"scheduling\.graph\.nodes"):
        ResourceSet(broken).validate_scheduling()
    # Without a check it is carried: the scheduler that wrote it understands it.
    assert written(broken)["scheduling"] == broken["scheduling"]


@requirement(
    "rfc20.vertices.list",
    "rfc20.vertices.id",
    "rfc20.vertices.metadata",
    "rfc20.vertices.more",
)
def test_a_vertex_has_a_unique_id_and_metadata():
    assert "nodes[2].id" in problems("graph.nodes.2.id", "1")
    assert "nodes[2].id" in problems("graph.nodes.2.id", 2)
    assert "nodes[2].id" in problems("graph.nodes.2.id")
    assert "nodes[1].metadata" in problems("graph.nodes.1.metadata")
    keys = "type uuid basename name id properties size unit".split()
    for key in keys:
        assert f"nodes[1].metadata.{key}" in problems(f"graph.nodes.1.metadata.{key}")
    assert problems("graph.nodes.1.metadata.paths", {"containment": "/node0"}) == ""


@requirement("rfc20.edges.list", "rfc20.edges.keys", "rfc20.edges.source", "rfc20.edges.target")
def test_an_edge_connects_two_vertices_that_are_there():
    assert "graph.edges" in problems("graph.edges")
    assert "graph.edges" in problems("graph.edges", {"0": "1"})
    assert "graph.edges[1]" in problems("graph.edges.1", "0-2")
    for key in ("source", "target"):
        assert f"edges[1].{key}" in problems(f"graph.edges.1.{key}")
        assert f"edges[1].{key}" in problems(f"graph.edges.1.{key}", "77")
    assert "edges[1].metadata" in problems("graph.edges.1.metadata")


@requirement(
    "rfc20.edges.metadata",
    "rfc20.edges.subsystem",
    "rfc20.edges.relationship",
    "rfc20.edges.relationship-scope",
)
def test_an_edge_names_its_subsystem_and_relationship():
    assert "edges[0].metadata" in problems("graph.edges.0.metadata", "containment")
    for key in ("subsystem", "relationship"):
        assert f"edges[0].metadata.{key}" in problems(f"graph.edges.0.metadata.{key}")
        assert f"edges[0].metadata.{key}" in problems(f"graph.edges.0.metadata.{key}", ["x"])
    # A relationship requires a subsystem.
    assert "subsystem" in problems("graph.edges.0.metadata", {"relationship": "contains"})
    assert problems("graph.edges.0.metadata", {"subsystem": "power", "relationship": "feeds"}) == ""
