"""R's algebra against a plain model: rank to host, cores and gpus."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from penstock import IDset, ResourceSet, ResourceSetError


class Model(NamedTuple):
    host: str
    cores: frozenset[int]
    gpus: frozenset[int]

    @property
    def bare(self) -> bool:
        return not self.cores and not self.gpus


Nodes = dict[int, Model]


def ids(most: int) -> st.SearchStrategy[frozenset[int]]:
    return st.frozensets(st.integers(0, most), max_size=5)


# Few ranks and ids, so that sets overlap and neighbours are often equal.
children = st.just((frozenset({0, 1}), frozenset({0}))) | st.tuples(ids(5), ids(2))
ranks = st.integers(0, 11) | st.sampled_from([100, 4294967294])


@st.composite
def nodes(draw: st.DrawFn) -> Nodes:
    drawn = draw(st.dictionaries(ranks, children, max_size=10))
    return {rank: Model(f"node{rank:03}", *drawn[rank]) for rank in sorted(drawn)}


def document(model: Nodes) -> str:
    """R with an entry per node in random order, which the reader must group and sort."""
    r_lite = [
        {
            "rank": str(rank),
            "children": {"core": str(IDset(node.cores)), "gpu": str(IDset(node.gpus))},
        }
        for rank, node in sorted(model.items(), key=lambda item: item[0] * 7 % 13)
    ]
    nodelist = [node.host for node in model.values()]
    return json.dumps({"version": 1, "execution": {"R_lite": r_lite, "nodelist": nodelist}})


def build(model: Nodes) -> ResourceSet:
    return ResourceSet(document(model))


def read(r: ResourceSet) -> Nodes:
    model = {
        node.rank: Model(node.host, frozenset(node.cores), frozenset(node.gpus))
        for node in r.nodes()
    }
    assert list(model) == sorted(model) == list(r.ranks)
    assert [node.host for node in model.values()] == list(r.nodelist)
    assert r.nnodes == len(r) == len(model)
    assert r.ncores == sum(len(node.cores) for node in model.values())
    assert r.ngpus == sum(len(node.gpus) for node in model.values())
    return model


def union(left: Nodes, right: Nodes) -> Nodes:
    both = dict(left)
    for rank, node in right.items():
        ours = both.get(rank, node)
        both[rank] = Model(node.host, ours.cores | node.cores, ours.gpus | node.gpus)
    return both


def intersection(left: Nodes, right: Nodes) -> Nodes:
    shared = {
        rank: Model(node.host, node.cores & right[rank].cores, node.gpus & right[rank].gpus)
        for rank, node in left.items()
        if rank in right
    }
    return {
        rank: node
        for rank, node in shared.items()
        if not node.bare or (left[rank].bare and right[rank].bare)
    }


def difference(left: Nodes, right: Nodes) -> Nodes:
    rest = {}
    for rank, node in left.items():
        if rank not in right:
            rest[rank] = node
            continue
        kept = Model(node.host, node.cores - right[rank].cores, node.gpus - right[rank].gpus)
        if not kept.bare or (node.bare and not right[rank].bare):
            rest[rank] = kept
    return rest


@given(nodes())
def test_documents_are_read_and_written(model: Nodes) -> None:
    r = build(model)
    assert read(r) == model
    assert ResourceSet(r.to_json()) == r
    r_lite = r.to_dict()["execution"]["R_lite"]
    distinct = [(entry["children"]["core"], entry["children"].get("gpu")) for entry in r_lite]
    assert len(set(distinct)) == len(distinct), "equal nodes share an entry"


@given(nodes(), st.randoms(use_true_random=False))
def test_insertion_in_any_order(model: Nodes, random: object) -> None:
    r = ResourceSet()
    order = list(model.items())
    random.shuffle(order)  # type: ignore[attr-defined]
    for rank, node in order:
        # In two steps: the second unites.
        r.insert(rank, node.host, sorted(node.cores)[:1])
        r.insert(rank, node.host, node.cores, node.gpus)
    assert read(r) == model
    assert r == build(model)


@given(nodes(), nodes())
def test_algebra(left: Nodes, right: Nodes) -> None:
    one, other = build(left), build(right)
    assert read(one | other) == union(left, right)
    assert read(one & other) == intersection(left, right)
    assert read(one - other) == difference(left, right)
    assert one.isdisjoint(other) == (not intersection(left, right))
    assert one.issubset(other) == all(
        rank in right and node.cores <= right[rank].cores and node.gpus <= right[rank].gpus
        for rank, node in left.items()
    )
    assert (one == other) == (left == right)
    assert read(one) == left, "operands stay as they are"
    assert one | other == other | one
    assert one & other == other & one


@given(nodes(), nodes())
def test_append(left: Nodes, right: Nodes) -> None:
    first = max(left, default=-1) + 1
    last = first + len(right) - 1
    if last > 4294967294:
        try:
            build(left) + build(right)
        except ResourceSetError as error:
            assert "expected ranks of at most 4294967294" in str(error)  # noqa: PT017
        else:
            raise AssertionError("there are not enough ranks")
        return
    appended = build(left) + build(right)
    assert read(appended) == {**left, **dict(enumerate(right.values(), first))}


@given(nodes(), st.frozensets(ranks), st.frozensets(ranks))
def test_parts_keep_their_properties(
    model: Nodes, some: frozenset[int], fast: frozenset[int]
) -> None:
    r = build(model)
    r.add_property("fast", fast & set(model))
    part = r.restrict(ranks=some)
    assert read(part) == {rank: node for rank, node in model.items() if rank in some}
    assert set(part.properties.get("fast", ())) == fast & some & set(model)
    assert r.restrict(hosts=[node.host for node in model.values()]) == r
    some_hosts = [model[rank].host for rank in sorted(some & set(model), reverse=True)]
    assert r.restrict(hosts=some_hosts) == part
    assert r.host_ranks(some_hosts) == sorted(some & set(model), reverse=True)
    rest = r.copy()
    rest.remove_ranks(some)
    assert read(rest) == {rank: node for rank, node in model.items() if rank not in some}
    assert part | rest == r
    reranked = r.rerank()
    assert read(reranked) == dict(enumerate(model.values()))
    order = list(model)
    renamed = {order[rank] for rank in reranked.properties.get("fast", ())}
    assert renamed == fast & set(model)


def constraints() -> st.SearchStrategy[dict[str, Any]]:
    names = st.sampled_from(["fast", "big", "none"])
    leaves: st.SearchStrategy[dict[str, Any]] = st.one_of(
        st.lists(names | names.map("^{}".format), max_size=2).map(
            lambda required: {"properties": required}
        ),
        st.frozensets(ranks, max_size=5).map(lambda chosen: {"ranks": [str(IDset(chosen))]}),
        st.frozensets(st.integers(0, 12), max_size=5).map(
            lambda chosen: {"hostlist": [f"node{rank:03}" for rank in chosen]}
        ),
    )
    return st.recursive(
        leaves,
        lambda inner: st.builds(
            lambda operator, parts: {operator: parts},
            st.sampled_from(["and", "or", "not"]),
            st.lists(inner, max_size=3),
        ),
        max_leaves=6,
    )


def meets(rank: int, host: str, properties: dict[str, frozenset[int]], constraint: Any) -> bool:
    """RFC 31, for one rank."""
    ((operator, values),) = constraint.items()
    if operator == "properties":
        return all(
            (rank not in properties.get(name[1:], ()))
            if name[0] == "^"
            else (rank in properties.get(name, ()))
            for name in values
        )
    if operator == "hostlist":
        return host in values
    if operator == "ranks":
        return any(rank in IDset(text) for text in values)
    met = [meets(rank, host, properties, value) for value in values]
    return {"and": all(met), "or": not met or any(met), "not": not all(met)}[operator]


@given(nodes(), st.frozensets(ranks), st.frozensets(ranks), constraints())
def test_constraints(
    model: Nodes, fast: frozenset[int], big: frozenset[int], constraint: dict[str, Any]
) -> None:
    r = build(model)
    properties = {"fast": fast & set(model), "big": big & set(model)}
    for name, targets in properties.items():
        r.add_property(name, targets)
    wanted = [
        rank for rank, node in model.items() if meets(rank, node.host, properties, constraint)
    ]
    assert list(r.restrict(constraint=constraint).ranks) == wanted
    assert r.restrict(constraint=json.dumps(constraint)) == r.restrict(ranks=wanted)
