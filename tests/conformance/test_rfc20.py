"""RFC 20, resource sets: sentence by sentence, with our reader, writer and scheduler."""

from __future__ import annotations

import copy
import json

import pytest
from tests.conformance.ends import Sched, granted, inventory, jobspec

from penstock import ResourceSet
from penstock.errors import ResourceSetError
from penstock.instance.inventory import from_file
from penstock.instance.layout import lay_out


def rfc(beginning):
    """Marks a test as one that shows this sentence of RFC 20."""
    return pytest.mark.rfc("20", beginning)


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
WHOLE = {
    **EXAMPLE,
    "scheduling": {"graph": GRAPH},
    "attributes": {"system": {"scheduler": {"queue": "batch"}}},
}


def changed(document, path, value=None):
    """The document with the value at a path replaced, or taken out where there is none."""
    document = copy.deepcopy(document)
    *way, last = [int(it) if it.isdigit() else it for it in path.split(".")]
    place = document
    for key in way:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return document


def refused(path, value=None, document=EXAMPLE):
    """Where the reader finds fault with a changed document; it must find one."""
    with pytest.raises(ResourceSetError) as error:
        ResourceSet(changed(document, path, value))
    return str(error.value)


def written(document):
    """What our writer makes of what our reader took."""
    return json.loads(ResourceSet(document).to_json())


def allocated(**spec):
    """R as our scheduler makes it."""
    return granted(Sched.running(inventory(4, 2)).alloc(7, **spec))[7]


# --- the document


@rfc("The scheduler for a Flux instance (or instance scheduler) uses this format")
@rfc("The value of the execution key SHALL contain sufficient data for the execution system")
def test_an_allocation_is_enough_for_execution_and_for_a_child_instance(tmp_path):
    r = allocated(nodes=2, cores=2)
    places = lay_out(jobspec(nodes=2, cores=2), r)
    assert [(it.target, sorted(it.cores)) for it in places] == [(0, [0, 1]), (1, [0, 1])]
    file = tmp_path / "R"
    file.write_text(r.to_json())
    child = Sched.running(from_file(file))
    assert granted(child.alloc(1, nodes=2, cores=2))[1].nodelist == r.nodelist


@rfc("The JSON documents that conform to the R format SHALL be referred to as R")
@rfc("An R JSON document SHALL consist of a dictionary with four keys")
@rfc("It SHALL be valid if and only if it contains the version key and either or both")
def test_a_document_is_an_r_by_its_keys():
    assert set(written(WHOLE)) == {"version", "execution", "scheduling", "attributes"}
    assert set(written(EXAMPLE)) == {"version", "execution"}
    bare = {"version": 1, "scheduling": {"graph": GRAPH}}
    assert written(bare) == bare
    assert ResourceSet.verify(WHOLE) == ResourceSet.verify(bare) == []
    for document in ({"version": 1}, {"version": 1, "attributes": {}}, {"execution": {}}, {}, []):
        with pytest.raises(ResourceSetError, match="invalid R"):
            ResourceSet(json.dumps(document))
    assert "version" in refused("version")


@rfc("The value of scheduling SHALL contain sufficient data for schedulers")
@rfc("Finally, the value of attributes SHALL provide optional information")
@rfc("The attributes key SHALL be a dictionary of one key: system")
def test_what_schedulers_and_others_add_is_carried_whole():
    assert written(WHOLE)["scheduling"] == {"graph": GRAPH}
    assert written(WHOLE)["attributes"] == WHOLE["attributes"]
    assert ResourceSet(WHOLE).attributes["system"]["scheduler"] == {"queue": "batch"}
    # It goes with the set when that is cut and re-ranked, too.
    part = ResourceSet(WHOLE).restrict(ranks="19")
    assert part.attributes == WHOLE["attributes"]
    for key in ("scheduling", "attributes"):
        assert key in refused(key, [1], WHOLE)
    # Other keys of `attributes` are reserved: what a future version has there stays.
    future = {"system": {}, "user": {"x": 1}}
    assert written({**EXAMPLE, "attributes": future})["attributes"] == future


@rfc("The value of the version key SHALL contain 1")
def test_the_version_is_1():
    assert written(EXAMPLE)["version"] == 1
    for version in (2, 0, "1", 1.5, True):
        assert "version" in refused("version", version)


# --- execution


@rfc("The value of the execution key SHALL contain at least the keys R_lite, and nodelist")
def test_execution_has_ranks_and_hosts():
    assert {"R_lite", "nodelist"} <= set(written(EXAMPLE)["execution"])
    assert {"R_lite", "nodelist"} <= set(allocated().to_dict()["execution"])
    for key in ("R_lite", "nodelist"):
        assert f"execution.{key}" in refused(f"execution.{key}")
    for key in ("starttime", "expiration"):
        ResourceSet(changed(EXAMPLE, f"execution.{key}"))
    more = changed(EXAMPLE, "execution.future", {"x": 1})
    assert written(more)["execution"]["future"] == {"x": 1}


@rfc("R_lite is a strict list of dictionaries each of which SHALL contain")
@rfc("The value of the rank key SHALL be a string list of broker rank identifiers in idset format")
@rfc("This list SHALL indicate the broker ranks to which other information")
def test_an_entry_names_its_ranks_and_what_they_have():
    entries = [
        {"rank": "0,3-4", "children": {"core": "0-1"}},
        {"rank": "2", "children": {"core": "5"}},
    ]
    document = changed(EXAMPLE, "execution.R_lite", entries)
    r = ResourceSet(changed(document, "execution.nodelist", ["a[0-3]"]))
    cores = {node.rank: str(node.cores) for node in r.nodes()}
    assert cores == {0: "0-1", 2: "5", 3: "0-1", 4: "0-1"}
    # Equal entries are one when they are written.
    assert [it["rank"] for it in written(r)["execution"]["R_lite"]] == ["0,3-4", "2"]
    for key in ("rank", "children"):
        assert f"R_lite[0].{key}" in refused(f"execution.R_lite.0.{key}")
    for rank in ("3-1", "x", 19, ["19"], "-1"):
        assert "R_lite[0].rank" in refused("execution.R_lite.0.rank", rank)
    assert "R_lite" in refused("execution.R_lite", {"rank": "0"})


@rfc("The value of this key SHALL contain a dictionary with two keys: core and gpu")
@rfc("The core key SHALL contain a logical compute core IDs string in RFC 22 idset format")
@rfc("The OPTIONAL gpu key SHALL contain a logical GPU IDs string in RFC 22 idset format")
def test_children_are_cores_and_perhaps_gpus():
    assert written(EXAMPLE)["execution"]["R_lite"] == EXAMPLE["execution"]["R_lite"]
    children = "execution.R_lite.0.children"
    without = changed(EXAMPLE, f"{children}.gpu")
    assert ResourceSet(without).ngpus == 0
    assert written(without)["execution"]["R_lite"][0]["children"] == {"core": "0-47"}
    assert "children.core" in refused(f"{children}.core")
    for key in ("core", "gpu"):
        for wrong in ("0-", 3, "a", [0]):
            assert f"children.{key}" in refused(f"{children}.{key}", wrong)
    assert "children" in refused(children, "0-47")
    assert "fpga" in refused(f"{children}.fpga", "0")


@rfc("The nodelist key SHALL be an array of hostnames which correspond to the rank entries")
def test_hosts_go_with_ranks_in_order():
    hosts = {node.rank: node.host for node in ResourceSet(EXAMPLE).nodes()}
    assert hosts == {19: "node186", 20: "node187", 21: "node188", 22: "node189"}
    several = changed(EXAMPLE, "execution.nodelist", ["b[1-2]", "a", "c0"])
    assert [node.host for node in ResourceSet(several).nodes()] == ["b1", "b2", "a", "c0"]
    for wrong in ("node[186-189]", ["node[186-188]"], ["node[186-190]"], [186], ["n[1"]):
        assert "nodelist" in refused("execution.nodelist", wrong)


PROPERTIES = "execution.properties"


@rfc("The optional properties key SHALL be a dictionary where each key maps")
@rfc("The idset string SHALL represent a set of execution target ranks")
def test_properties_map_names_to_targets():
    document = changed(EXAMPLE, PROPERTIES, {"big": "19-20", "amd": "20,22"})
    r = ResourceSet(document)
    assert {name: str(ranks) for name, ranks in r.properties.items()} == {
        "big": "19-20",
        "amd": "20,22",
    }
    assert written(document)["execution"]["properties"] == {"big": "19-20", "amd": "20,22"}
    for wrong in (["big"], {"big": 19}, {"big": "x"}, {"big": "19-23"}):
        assert PROPERTIES in refused(PROPERTIES, wrong)
    assert str(r.restrict(constraint={"properties": ["amd"]}).ranks) == "20,22"


@rfc("Property names SHALL be valid UTF-8, and MUST NOT contain the following")
def test_property_names_are_text_without_signs_of_constraints():
    for name in ("größe", "amd.mi-50", "a b", "x@y", "+local"):
        assert name in ResourceSet(changed(EXAMPLE, PROPERTIES, {name: "19"})).properties
    for sign in "!&'\"^`|()":
        assert PROPERTIES in refused(PROPERTIES, {f"a{sign}b": "19"})
        with pytest.raises(ResourceSetError, match="invalid property name"):
            ResourceSet(EXAMPLE).add_property(sign, "19")
    text = json.dumps(EXAMPLE)[:-2] + ', "properties": {"x\\ud800": "19"}}}'
    with pytest.raises(ResourceSetError, match=PROPERTIES):
        ResourceSet(text)
    raw = json.dumps(changed(EXAMPLE, PROPERTIES, {"NAME": "19"})).encode()
    with pytest.raises(ValueError, match=r"UTF-8|utf-8"):
        ResourceSet(raw.replace(b"NAME", b"\xff\xfe"))


@rfc("In this case, the literal property SHALL still apply to the defined execution target")
@rfc("For example, the property amd-mi50@gpu SHALL apply to the defined execution target ranks")
def test_a_property_with_an_at_sign_applies_as_it_stands():
    r = inventory(4, 2)
    r.add_property("amd-mi50@gpu", "1,3")
    wanted = {"constraints": {"properties": ["amd-mi50@gpu"]}}
    assert str(r.restrict(constraint=wanted["constraints"]).ranks) == "1,3"
    assert str(granted(Sched.running(r).alloc(1, **wanted))[1].ranks) == "1"


@rfc("The value of the starttime key, if present, SHALL encode the start time")
@rfc("The value SHALL be the number of seconds elapsed since the Unix Epoch")
@rfc("The value of the expiration key, if present, SHALL encode the end or expiration time")
def test_times_are_seconds_since_the_epoch_to_the_microsecond():
    document = changed(EXAMPLE, "execution.starttime", 1676560542.123456)
    document = changed(document, "execution.expiration", 1676562342.654321)
    r = ResourceSet(document)
    assert (r.starttime, r.expiration) == (1676560542.123456, 1676562342.654321)
    execution = written(document)["execution"]
    assert (execution["starttime"], execution["expiration"]) == (r.starttime, r.expiration)
    for key in ("starttime", "expiration"):
        for wrong in ("now", -1, [0]):
            assert f"execution.{key}" in refused(f"execution.{key}", wrong)
    r = allocated(duration=60)
    assert (r.starttime, r.expiration) == (r.starttime, r.starttime + 60)
    assert r.starttime > 1000


@rfc("If starttime is also set, expiration MUST be greater than starttime")
def test_an_r_ends_after_it_begins():
    for end in (1676560542, 1676560541.9, 1):
        assert "execution.expiration" in refused("execution.expiration", end)
    r = ResourceSet(EXAMPLE)
    with pytest.raises(ResourceSetError):
        r.expiration = r.starttime
    assert ResourceSet(changed(EXAMPLE, "execution.expiration", 1676560542.5)).expiration


# --- scheduling


def problems(path, value=None):
    """What is wrong with the graph after a change, as one text."""
    return "\n".join(ResourceSet.verify(changed(WHOLE, f"scheduling.{path}", value), jgf=True))


@rfc("The graph key SHALL conform to the latest version of the JSON Graph Format")
def test_the_graph_is_looked_at_when_that_is_asked():
    assert ResourceSet.verify(WHOLE, jgf=True) == []
    ResourceSet(WHOLE).validate_scheduling()
    assert "graph" in problems("graph")
    assert "graph.nodes" in problems("graph.nodes")
    broken = changed(WHOLE, "scheduling.graph.nodes")
    with pytest.raises(ResourceSetError, match=r"scheduling\.graph\.nodes"):
        ResourceSet(broken).validate_scheduling()
    # Who does not ask gets it carried: it is for the scheduler that wrote it.
    assert written(broken)["scheduling"] == broken["scheduling"]


@rfc("The id key SHALL contain a unique string ID for the containing vertex")
@rfc("Thus, this dictionary SHALL contain the following keys to describe the base data")
@rfc("It MAY contain other OPTIONAL resource vertex data")
def test_a_vertex_has_an_id_of_its_own_and_its_data():
    assert "nodes[2].id" in problems("graph.nodes.2.id", "1")
    assert "nodes[2].id" in problems("graph.nodes.2.id", 2)
    assert "nodes[2].id" in problems("graph.nodes.2.id")
    assert "nodes[1].metadata" in problems("graph.nodes.1.metadata")
    keys = "type uuid basename name id properties size unit".split()
    for key in keys:
        assert f"nodes[1].metadata.{key}" in problems(f"graph.nodes.1.metadata.{key}")
    assert problems("graph.nodes.1.metadata.paths", {"containment": "/node0"}) == ""


@rfc("The value of the edges key defined in JGF SHALL be a strict list of graph edges")
@rfc("Each list element SHALL be an edge that connects two graph vertices")
@rfc("The value of the source key SHALL contain the ID of the source graph vertex")
@rfc("The value of the target key SHALL contain the ID of the target graph vertex")
def test_an_edge_connects_two_vertices_that_are_there():
    assert "graph.edges" in problems("graph.edges")
    assert "graph.edges" in problems("graph.edges", {"0": "1"})
    assert "graph.edges[1]" in problems("graph.edges.1", "0-2")
    for key in ("source", "target"):
        assert f"edges[1].{key}" in problems(f"graph.edges.1.{key}")
        assert f"edges[1].{key}" in problems(f"graph.edges.1.{key}", "77")
    assert "edges[1].metadata" in problems("graph.edges.1.metadata")


@rfc("The value of this metadata key SHALL contain a dictionary that encodes the resource")
@rfc("It SHALL contain two keys: subsystem")
@rfc("The value of the subsystem key SHALL be a string")
@rfc("The value of the relationship key SHALL be a string")
@rfc("The relationship SHALL only be defined within the subsystem")
def test_an_edge_names_its_subsystem_and_relationship():
    assert "edges[0].metadata" in problems("graph.edges.0.metadata", "containment")
    for key in ("subsystem", "relationship"):
        assert f"edges[0].metadata.{key}" in problems(f"graph.edges.0.metadata.{key}")
        assert f"edges[0].metadata.{key}" in problems(f"graph.edges.0.metadata.{key}", ["x"])
    # A relationship stands with its subsystem, in one dictionary: never without.
    assert "subsystem" in problems("graph.edges.0.metadata", {"relationship": "contains"})
    assert problems("graph.edges.0.metadata", {"subsystem": "power", "relationship": "feeds"}) == ""
