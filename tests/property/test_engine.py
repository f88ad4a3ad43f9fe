"""The engine against an independent brute-force allocator.

The oracle tries every way of placing slots on nodes. An allocation of the engine must be legal,
a denied job must be impossible on the empty machine, and the first job in the queue never waits
while the oracle finds a place for it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Engine, IDset, ResourceSet
from penstock.errors import EngineError


@dataclass
class Node:
    cores: set[int]
    gpus: set[int]
    properties: set[str]
    up: bool = True
    free_cores: set[int] = field(default_factory=set)
    free_gpus: set[int] = field(default_factory=set)
    there: bool = True


@dataclass(frozen=True)
class Request:
    nnodes: int | None
    exclusive: bool
    slots: int
    cores: int
    gpus: int
    prop: str | None

    def jobspec(self) -> str:
        children = [{"type": "core", "count": self.cores}]
        if self.gpus:
            children.append({"type": "gpu", "count": self.gpus})
        vertex = {"type": "slot", "count": self.slots, "label": "t", "with": children}
        if self.nnodes:
            vertex = {"type": "node", "count": self.nnodes, "with": [vertex]}
            if self.exclusive:
                vertex["exclusive"] = True
        system = {"duration": 0}
        if self.prop:
            system["constraints"] = {"properties": [self.prop]}
        task = {"command": ["x"], "slot": "t", "count": {"per_slot": 1}}
        return json.dumps(
            {
                "version": 1,
                "resources": [vertex],
                "tasks": [task],
                "attributes": {"system": system},
            }
        )


@cache
def slots_fit(free: tuple[tuple[int, int], ...], slots: int, cores: int, gpus: int) -> bool:
    """Whether slots can be placed on nodes, given their free cores and gpus: tries every node."""
    if slots == 0:
        return True
    for index, (have_cores, have_gpus) in enumerate(free):
        if have_cores >= cores and have_gpus >= gpus:
            left = (have_cores - cores, have_gpus - gpus)
            if slots_fit((*free[:index], left, *free[index + 1 :]), slots - 1, cores, gpus):
                return True
    return False


def meets(node: Node, request: Request) -> bool:
    if request.prop is None:
        return True
    absent = request.prop.startswith("^")
    return (request.prop.lstrip("^") in node.properties) != absent


def possible(nodes: list[Node], request: Request, *, empty: bool) -> bool:
    """Whether the request fits: now, or on the empty machine with everything up."""
    usable = [node for node in nodes if node.there and meets(node, request) and (empty or node.up)]
    if request.nnodes is None:
        free = tuple(
            (len(node.cores), len(node.gpus))
            if empty
            else (len(node.free_cores), len(node.free_gpus))
            for node in usable
        )
        return slots_fit(free, request.slots, request.cores, request.gpus)
    for chosen in combinations(usable, request.nnodes):
        for node in chosen:
            cores = node.cores if empty else node.free_cores
            gpus = node.gpus if empty else node.free_gpus
            if request.exclusive and (cores != node.cores or gpus != node.gpus):
                break
            if not slots_fit(
                ((len(cores), len(gpus)),), request.slots, request.cores, request.gpus
            ):
                break
        else:
            return True
    return False


def take(nodes: list[Node], request: Request, r: str) -> dict[int, tuple[set[int], set[int]]]:
    """Checks an allocation, and removes it from the free resources of the model."""
    held = {}
    slots = 0
    for node in ResourceSet(r).nodes():
        model = nodes[node.rank]
        cores, gpus = set(node.cores), set(node.gpus)
        assert model.there
        assert model.up
        assert meets(model, request)
        assert cores <= model.free_cores
        assert gpus <= model.free_gpus
        if request.nnodes is not None:
            here = request.slots
            if request.exclusive:
                assert (cores, gpus) == (model.cores, model.gpus)
                assert model.free_cores == model.cores
                assert model.free_gpus == model.gpus
                assert len(cores) >= here * request.cores
                assert len(gpus) >= here * request.gpus
            else:
                assert (len(cores), len(gpus)) == (here * request.cores, here * request.gpus)
        else:
            here, rest = divmod(len(cores), request.cores)
            assert rest == 0
            assert len(gpus) == here * request.gpus
        slots += here
        model.free_cores -= cores
        model.free_gpus -= gpus
        held[node.rank] = (cores, gpus)
    expected = request.slots * (request.nnodes or 1)
    assert slots == expected
    assert json.loads(r)["execution"]["nslots"] == expected
    if request.nnodes is not None:
        assert len(held) == request.nnodes
    return held


SELECTIONS = st.sampled_from(["first", "pack", "spread", "thrifty", "contiguous"])


def give(
    nodes: list[Node],
    running: dict[int, dict[int, tuple[set[int], set[int]]]],
    job: int,
    ranks: list[int],
) -> None:
    """Frees the resources of a job on these ranks."""
    held = running[job]
    for rank in ranks:
        cores, gpus = held.pop(rank)
        nodes[rank].free_cores |= cores
        nodes[rank].free_gpus |= gpus
    if not held:
        del running[job]


def decided(engine: Engine, limit: int | None = None) -> list[tuple[int, str | None, str]]:
    """The decisions of a pass: allocated jobs with R, and others with their reason."""
    decisions = engine.schedule(0.0, limit=limit)
    denied = [(job, None, note) for job, note in decisions.denied]
    allocated = zip(decisions.ids, decisions.rs(), strict=True)
    return denied + [(job, r.to_json(), "") for job, r in allocated]


def matching(inventory: str, selection: str = "first") -> Engine:
    return Engine(inventory, policy="fcfs", selection=selection)


nodes_strategy = st.lists(
    st.builds(
        lambda cores, gpus, properties: Node(
            set(range(cores)),
            set(range(gpus)),
            properties,
            free_cores=set(range(cores)),
            free_gpus=set(range(gpus)),
        ),
        st.integers(1, 4),
        st.integers(0, 2),
        st.sets(st.sampled_from(["a", "b"])),
    ),
    min_size=1,
    max_size=4,
)
request_strategy = st.builds(
    Request,
    st.none() | st.integers(1, 3),
    st.booleans(),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 2),
    st.none() | st.sampled_from(["a", "b", "^a", "nosuch"]),
)
operation_strategy = st.one_of(
    st.tuples(st.just("submit"), request_strategy, st.integers(0, 3)),
    st.tuples(st.just("submit"), request_strategy, st.integers(0, 3)),
    st.tuples(st.just("schedule"), st.integers(1, 3)),
    st.tuples(st.just("free"), st.integers(0, 9), st.booleans()),
    st.tuples(st.just("cancel"), st.integers(0, 9)),
    st.tuples(st.just("prioritize"), st.integers(0, 9), st.integers(0, 3)),
    st.tuples(st.just("mark"), st.integers(0, 3), st.booleans()),
)
change_strategy = st.one_of(
    operation_strategy,
    operation_strategy,
    st.tuples(st.just("shrink"), st.integers(0, 5)),
    st.tuples(st.just("grow"), st.integers(0, 5), st.integers(1, 4), st.booleans()),
    st.tuples(st.just("property"), st.integers(0, 5), st.sampled_from("ab"), st.booleans()),
)


def inventory(nodes: list[Node], only: int | None = None) -> str:
    """R of the current nodes, or of one of them."""
    nodes_there = {
        rank: node
        for rank, node in enumerate(nodes)
        if node.there and (only is None or rank == only)
    }
    lite = []
    for rank, node in nodes_there.items():
        children = {"core": str(IDset(node.cores))}
        if node.gpus:
            children["gpu"] = str(IDset(node.gpus))
        lite.append({"rank": str(rank), "children": children})
    properties: dict[str, list[int]] = {}
    for rank, node in nodes_there.items():
        for name in node.properties:
            properties.setdefault(name, []).append(rank)
    execution = {
        "R_lite": lite,
        "nodelist": [f"n{rank}" for rank in nodes_there],
        "properties": {name: str(IDset(ranks)) for name, ranks in properties.items()},
    }
    return json.dumps({"version": 1, "execution": execution})


@given(nodes_strategy, SELECTIONS, st.lists(operation_strategy, max_size=25))
@settings(max_examples=300, deadline=None)
def test_the_oracle_agrees_after_any_change(nodes, selection, operations):
    engine = matching(inventory(nodes), selection)
    queue: dict[int, tuple[Request, int]] = {}
    running: dict[int, dict[int, tuple[set[int], set[int]]]] = {}
    next_id = 1

    def first():
        ready = [(-priority, job) for job, (_, priority) in queue.items() if priority > 0]
        return min(ready)[1] if ready else None

    for operation, *args in operations:
        if operation == "submit":
            request, priority = args
            engine.submit_jobspecs(next_id, [request.jobspec()], priority)
            impossible = not possible(nodes, request, empty=True)
            shape = engine.shape(request.jobspec())
            assert (engine.infeasible(shape) is not None) == impossible
            queue[next_id] = (request, priority)
            next_id += 1
        elif operation == "schedule":
            for job, r, note in decided(engine, args[0]):
                if r is None:
                    request, _ = queue.pop(job)
                    assert not possible(nodes, request, empty=True), note
                    assert note
                else:
                    assert job == first(), "not the first in order"
                    request, _ = queue.pop(job)
                    running[job] = take(nodes, request, r)
            # A full pass ends only where the first job does not fit.
            for job, r, _ in decided(engine):
                request, _ = queue.pop(job)
                if r is not None:
                    running[job] = take(nodes, request, r)
            waiting = first()
            assert waiting is None or not possible(nodes, queue[waiting][0], empty=False)
        elif operation == "free" and running:
            job = sorted(running)[args[0] % len(running)]
            ranks = sorted(running[job])[: 1 if args[1] else None]
            engine.free(job, ranks=ranks)
            give(nodes, running, job, ranks)
        elif operation == "cancel":
            job = args[0]
            assert engine.cancel(job) == (queue.pop(job, None) is not None)
        elif operation == "prioritize":
            job, priority = args
            assert engine.prioritize(job, priority) == (job in queue)
            if job in queue:
                queue[job] = (queue[job][0], priority)
        elif operation == "mark" and args[0] < len(nodes):
            rank, up = args
            (engine.mark_up if up else engine.mark_down)(str(rank))
            nodes[rank].up = up
        assert engine.npending == len(queue)
        assert engine.nrunning == len(running)
        allocated = engine.allocated
        held_cores = sum(len(cores) for held in running.values() for cores, _ in held.values())
        held_gpus = sum(len(gpus) for held in running.values() for _, gpus in held.values())
        assert (allocated.ncores, allocated.ngpus) == (held_cores, held_gpus)
        assert engine.up == IDset(r for r, node in enumerate(nodes) if node.up)


@given(nodes_strategy, SELECTIONS, st.lists(change_strategy, max_size=30))
@settings(max_examples=300, deadline=None)
def test_a_changed_inventory_equals_a_new_one(nodes, selection, operations):
    """After growth, shrinkage and changes of properties the oracle still agrees.

    Ranks that have gone keep their number and may come back; what a job holds there stays held.
    """
    engine = matching(inventory(nodes), selection)
    queue: dict[int, Request] = {}
    running: dict[int, dict[int, tuple[set[int], set[int]]]] = {}
    next_id = 1

    def decide(limit):
        recheck = {
            job for job, pending in queue.items() if not possible(nodes, pending, empty=True)
        }
        denied = set()
        for job, r, note in decided(engine, limit):
            request = queue.pop(job)
            if r is None:
                assert not possible(nodes, request, empty=True), note
                denied.add(job)
            else:
                running[job] = take(nodes, request, r)
        return recheck - denied

    for operation, *args in operations:
        if operation == "submit":
            engine.submit_jobspecs(next_id, [args[0].jobspec()], 1)
            queue[next_id] = args[0]
            next_id += 1
        elif operation == "free" and running:
            job = sorted(running)[args[0] % len(running)]
            ranks = sorted(running[job])[: 1 if args[1] else None]
            engine.free(job, ranks=ranks)
            give(nodes, running, job, ranks)
        elif operation == "mark" and args[0] < len(nodes) and nodes[args[0]].there:
            rank, up = args
            (engine.mark_up if up else engine.mark_down)(str(rank))
            nodes[rank].up = up
        elif operation == "shrink":
            if args[0] < len(nodes) and nodes[args[0]].there:
                engine.shrink(str(args[0]))
                nodes[args[0]].there = nodes[args[0]].up = False
            else:
                with pytest.raises(EngineError, match="expected ranks of the inventory"):
                    engine.shrink(str(args[0]))
        elif operation == "grow":
            rank, cores, up = args
            if rank < len(nodes) and nodes[rank].there:
                try:
                    engine.grow(inventory(nodes, rank), up=False)
                except EngineError:
                    continue
                raise AssertionError("grown twice")
            if rank >= len(nodes):
                rank = len(nodes)
                free = set(range(cores))
                nodes.append(Node(set(range(cores)), set(), {"a"}, up, free, set()))
            nodes[rank].there = True
            engine.grow(inventory(nodes, rank), up=False)
            nodes[rank].up = up
            if up:
                engine.mark_up(str(rank))
        elif operation == "property" and args[0] < len(nodes) and nodes[args[0]].there:
            rank, name, add = args
            (engine.add_property if add else engine.remove_property)(name, str(rank))
            (nodes[rank].properties.add if add else nodes[rank].properties.discard)(name)
            # A job that has become impossible is denied, whatever its position.
            assert not decide(1_000_000)
        elif operation == "schedule":
            decide(args[0])
            decide(1_000_000)
            waiting = min(queue, default=None)
            assert waiting is None or not possible(nodes, queue[waiting], empty=False)
        assert engine.npending == len(queue)
        assert engine.nrunning == len(running)
        allocated = engine.allocated
        on_nodes = [
            part for held in running.values() for rank, part in held.items() if nodes[rank].there
        ]
        assert allocated.ncores == sum(len(cores) for cores, _ in on_nodes)
        assert allocated.ngpus == sum(len(gpus) for _, gpus in on_nodes)
        up = (rank for rank, node in enumerate(nodes) if node.there and node.up)
        assert engine.up == IDset(up)
    # A scheduler that starts now and receives the same jobs has the same books.
    if any(node.there for node in nodes):
        later = matching(inventory(nodes))
        for job, held in running.items():
            r = ResourceSet()
            for rank, (cores, gpus) in held.items():
                r.insert(rank, f"n{rank}", IDset(cores), IDset(gpus))
            strange = {rank for rank in held if not nodes[rank].there}
            assert later.adopt(job, r) == IDset(strange)
        ours, theirs = later.allocated, engine.allocated
        assert (ours.ranks, ours.ncores) == (theirs.ranks, theirs.ncores)
        assert later.nrunning == engine.nrunning


@given(nodes_strategy, st.lists(st.tuples(request_strategy, st.integers(0, 3)), max_size=10))
@settings(max_examples=50, deadline=None)
def test_the_engine_is_deterministic_and_restored_by_hello(nodes, jobs):
    def decide():
        engine = matching(inventory(nodes))
        specs = [request.jobspec() for request, _ in jobs]
        engine.submit_jobspecs(range(len(jobs)), specs, [priority for _, priority in jobs])
        return engine, decided(engine)

    engine, decisions = decide()
    assert decide()[1] == decisions
    # An engine that is given the same allocations later has the same free resources.
    later = matching(inventory(nodes))
    for job, r, _ in decisions:
        if r is not None:
            later.allocate(job, r)
            try:
                later.allocate(job + 1000, r)
            except EngineError:
                continue
            raise AssertionError("allocated twice")
    assert later.allocated == engine.allocated
