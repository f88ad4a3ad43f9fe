"""Guarantees of every queue policy and selection policy, on random machines.

The machine of the test is the reference's (tests/reference/shapes.py), which tries placements core
by core; it knows which nodes are up. Nothing here knows how the engine decides.
"""

from __future__ import annotations

import json
import math
from copy import deepcopy
from dataclasses import dataclass
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference import shapes
from tests.reference.events import Request, planned_end
from tests.reference.shapes import Node
from tests.reference.workloads import Workload

from penstock import Engine

POLICIES = ["fcfs", "easy", "hybrid:1", "hybrid:2", "hybrid:9", "conservative"]
SELECTIONS = ["first", "pack", "spread", "thrifty", "contiguous"]
# 50; with `--hypothesis-profile=thorough` (make compare) 1,500.
EXAMPLES = settings.default.max_examples // 2


@dataclass(frozen=True)
class Job:
    id: int
    priority: int
    request: Request
    limit: float  # 0 for none

    @property
    def order(self):
        return (-self.priority, self.id)

    @property
    def estimate(self):
        return self.limit or math.inf


class Model:
    """The test's own state, independent of the engine that it drives."""

    def __init__(self, nodes, policy, selection="first"):
        self.machine = shapes.empty(nodes)
        self.up = [True] * len(nodes)
        self.policy = policy
        self.engine = Engine(inventory(nodes), policy=policy, selection=selection)
        self.now = 0.0
        self.waiting = {}
        self.running = {}
        self.next_id = 1

    def submit(self, request, limit, priority=16):
        job = Job(self.next_id, priority, request, limit)
        self.next_id += 1
        self.engine.submit([job.id], self.shape(request), [limit], [priority], now=self.now)
        self.waiting[job.id] = job
        return job

    def shape(self, request):
        constraint = None
        if request.property is not None:
            constraint = {"properties": [request.property]}
        return self.engine.shape(
            nodes=request.nodes,
            slots=request.slots,
            cores=request.cores,
            gpus=request.gpus,
            exclusive=request.exclusive,
            constraint=constraint,
        )

    def usable(self, machine=None):
        """A machine, by default the current one, without free resources on nodes that are down."""
        usable = deepcopy(self.machine if machine is None else machine)
        for node, up in zip(usable, self.up, strict=True):
            if not up:
                node.free_cores, node.free_gpus = [], []
        return usable

    def fits(self, job):
        return shapes.place(self.usable(), job.request) is not None

    def ready(self):
        """Pending jobs that are not held, in queue order."""
        jobs = [job for job in self.waiting.values() if job.priority > 0]
        return sorted(jobs, key=lambda job: job.order)

    def earliest(self, first):
        """The earliest start on nodes that are up, if running jobs end as planned."""
        if self.fits(first):
            return self.now
        ends = {
            job: planned_end(start, request.estimate, self.now)
            for job, (request, start, _) in self.running.items()
        }
        for time in sorted(ends.values()):
            later = deepcopy(self.machine)
            for job, end in ends.items():
                if end <= time:
                    shapes.give(later, self.running[job][2])
            if shapes.place(self.usable(later), first.request) is not None:
                return time
        return math.inf

    def schedule(self):
        """Runs a pass and checks its decisions; returns the backfilled jobs."""
        decisions = self.engine.schedule(self.now)
        for denial in decisions.denied:
            job = self.waiting.pop(denial.id)
            empty = shapes.empty(self.machine)
            assert shapes.place(empty, job.request) is None, denial.note
        backfilled = []
        for index, decision in enumerate(decisions):
            job = self.waiting[decision.id]
            assert job.priority > 0, "a held job has started"
            earlier = any(other.order < job.order for other in self.ready())
            assert decision.backfilled == earlier
            if self.policy == "fcfs":
                assert not earlier, "not the first in order"
            r = decisions.r(index)
            parts = [(node.rank, list(node.cores), list(node.gpus)) for node in r.nodes()]
            self.check(job.request, parts)
            shapes.take(self.machine, parts)  # fails if it is not free
            del self.waiting[job.id]
            self.running[job.id] = (job, self.now, parts)
            if earlier:
                backfilled.append(job.id)
        return decisions, backfilled

    def check(self, request, parts):
        """Checks that the allocation meets the request on suitable nodes that are up."""
        count = 0
        for rank, cores, gpus in parts:
            node = self.machine[rank]
            assert self.up[rank]
            assert shapes.allowed(node, request)
            if request.exclusive:
                assert node.whole()
                assert cores == list(range(node.cores))
                assert gpus == list(range(node.gpus))
                count += request.slots
            else:
                slots, rest = divmod(len(cores), request.cores)
                assert (rest, len(gpus)) == (0, slots * request.gpus)
                assert request.nodes is None or slots == request.slots
                count += slots
        if request.nodes is None:
            assert count == request.slots
        else:
            assert len(parts) == request.nodes

    def settle(self):
        """Runs passes until no job starts, and checks the invariants."""
        while True:
            decisions, backfilled = self.schedule()
            self.check_reservation(backfilled)
            if not decisions:
                break
        ready = self.ready()
        # Under conservative backfill, others may have been promised what the first needs.
        if ready and (self.policy != "conservative" or len(ready) == 1):
            assert not self.fits(ready[0]), "the first can run and waits"

    def check_reservation(self, backfilled):
        """Checks that backfilled jobs have not delayed the blocked head."""
        ready = self.ready()
        if not ready or not backfilled or self.policy == "conservative":
            return
        delayed = self.earliest(ready[0])
        without = deepcopy(self)
        for job in backfilled:
            shapes.give(without.machine, without.running.pop(job)[2])
        assert delayed <= without.earliest(ready[0]), "backfill has delayed the first"

    def __deepcopy__(self, memo):
        copy = object.__new__(Model)
        copy.__dict__ = {
            name: value if name == "engine" else deepcopy(value, memo)
            for name, value in self.__dict__.items()
        }
        return copy

    def finish(self, job):
        self.engine.free([job])
        shapes.give(self.machine, self.running.pop(job)[2])

    def mark(self, rank, up):
        (self.engine.mark_up if up else self.engine.mark_down)(str(rank))
        self.up[rank] = up


def inventory(nodes):
    return json.loads(Workload("shapes", tuple(nodes), ()).inventory())


node_strategy = st.builds(
    Node,
    st.sampled_from([1, 2, 4, 5]),
    st.sampled_from([0, 0, 1, 2]),
    st.frozensets(st.sampled_from("ab")),
)
nodes_strategy = st.lists(node_strategy, min_size=1, max_size=6)
constraint_strategy = st.none() | st.sampled_from(["a", "^a", "b"])
request_strategy = st.one_of(
    st.builds(
        Request,
        st.none(),
        st.integers(1, 6),
        st.integers(1, 3),
        st.sampled_from([0, 0, 1]),
        st.just(False),
        constraint_strategy,
    ),
    st.builds(
        Request,
        st.integers(1, 4),
        st.integers(1, 2),
        st.integers(1, 3),
        st.sampled_from([0, 0, 1]),
        st.booleans(),
        constraint_strategy,
    ),
)
limit_strategy = st.sampled_from([0, 1, 2, 3, 5, 8, 13, 100])
submit_strategy = st.tuples(
    st.just("submit"), request_strategy, limit_strategy, st.sampled_from([0, 15, 16, 16, 16, 17])
)
operation_strategy = st.one_of(
    submit_strategy,
    submit_strategy,
    submit_strategy,
    st.tuples(st.just("settle")),
    st.tuples(st.just("settle")),
    st.tuples(st.just("finish"), st.integers(0, 9)),
    st.tuples(st.just("advance"), st.integers(1, 9)),
    st.tuples(st.just("mark"), st.integers(0, 5), st.booleans()),
    st.tuples(st.just("cancel"), st.integers(0, 9)),
    st.tuples(st.just("prioritize"), st.integers(0, 9), st.sampled_from([0, 1, 16, 99])),
)


def perform(model, operation, *args):
    if operation == "submit":
        model.submit(*args)
    elif operation == "settle":
        model.settle()
    elif operation == "finish" and model.running:
        model.finish(sorted(model.running)[args[0] % len(model.running)])
    elif operation == "advance":
        model.now += args[0]
    elif operation == "mark" and args[0] < len(model.machine):
        model.mark(*args)
    elif operation == "cancel" and model.waiting:
        job = sorted(model.waiting)[args[0] % len(model.waiting)]
        assert model.engine.cancel([job]) == 1
        del model.waiting[job]
    elif operation == "prioritize" and model.waiting:
        job = model.waiting[sorted(model.waiting)[args[0] % len(model.waiting)]]
        assert model.engine.prioritize([job.id], [args[1]]) == 1
        model.waiting[job.id] = Job(job.id, args[1], job.request, job.limit)
    assert model.engine.npending == len(model.waiting)
    assert model.engine.nrunning == len(model.running)


@pytest.mark.parametrize("policy", POLICIES)
@given(
    nodes_strategy,
    st.sampled_from(SELECTIONS),
    st.lists(operation_strategy, min_size=5, max_size=40),
)
@settings(max_examples=EXAMPLES)
def test_policies_keep_their_guarantees(policy, nodes, selection, operations):
    """No double allocation; a head that fits starts; backfill delays no reservation."""
    model = Model(nodes, policy, selection)
    for operation in operations:
        perform(model, *operation)
    model.settle()
    parts = [part for _, _, parts in model.running.values() for part in parts]
    assert model.engine.allocated.ncores == sum(len(cores) for _, cores, _ in parts)


@pytest.mark.parametrize("policy", POLICIES)
@given(
    nodes_strategy,
    st.sampled_from(SELECTIONS),
    st.lists(operation_strategy, min_size=5, max_size=25),
)
@settings(max_examples=EXAMPLES // 3)
def test_policies_are_deterministic_and_snapshots_agree(policy, nodes, selection, operations):
    one, other = Model(nodes, policy, selection), Model(nodes, policy, selection)
    for operation in operations:
        perform(one, *operation)
        perform(other, *operation)
        assert one.running == other.running
    snapshot = one.engine.snapshot()
    decisions, again = one.engine.schedule(one.now), snapshot.schedule(one.now)
    assert list(decisions) == list(again)
    assert [str(r) for r in decisions.rs()] == [str(r) for r in again.rs()]


@given(
    nodes_strategy,
    st.lists(
        st.one_of(
            submit_strategy,
            submit_strategy,
            st.tuples(st.just("advance"), st.integers(0, 5)),
            st.tuples(st.just("finish"), st.integers(0, 9)),
            st.tuples(st.just("cancel"), st.integers(0, 9)),
        ),
        min_size=5,
        max_size=30,
    ),
)
@settings(max_examples=EXAMPLES)
def test_conservative_never_moves_a_reservation_later(nodes, operations):
    """Jobs are submitted, cancelled, and end as planned or earlier; all nodes stay up."""
    model = Model(nodes, "conservative")
    promised = {}

    def look():
        model.settle()
        estimates = model.engine.estimate(model.now)
        for job, start in zip(estimates.ids, estimates.starts, strict=True):
            start = math.inf if math.isnan(start) else start
            assert start <= promised.get(job, math.inf), f"job {job} was promised {promised[job]}"
            promised[job] = start
        for job, (_, start, _) in model.running.items():
            assert start <= promised.setdefault(job, start)

    for operation, *args in operations:
        if operation == "submit":
            request, limit, _ = args
            model.submit(request, limit)
        elif operation == "advance":
            # To then, and through every planned end on the way.
            until = model.now + args[0]
            while True:
                ends = {
                    job: start + entry.estimate for job, (entry, start, _) in model.running.items()
                }
                due = min(ends.values(), default=math.inf)
                if due > until:
                    break
                model.now = due
                for job, end in ends.items():
                    if end == due:
                        model.finish(job)
                look()
            model.now = until
        else:
            perform(model, operation, *args)
        look()


@pytest.mark.parametrize("selection", SELECTIONS)
@given(nodes_strategy, st.lists(request_strategy, min_size=1, max_size=8), request_strategy)
@settings(max_examples=EXAMPLES)
def test_a_selection_policy_chooses_as_it_says(selection, nodes, before, request):
    """Against every possible choice of nodes on a partly allocated machine."""
    model = Model(nodes, "easy", selection)
    for held in before:
        model.submit(held, 100)
    model.settle()
    for job in list(model.waiting):
        model.engine.cancel([job])
        del model.waiting[job]
    usable = model.usable()
    job = model.submit(request, 10)
    possible = shapes.place(usable, request) is not None
    model.schedule()
    assert (job.id in model.running) == possible
    if not possible or request.nodes is None:
        return
    one = shapes.with_units(request, 1)
    able = [
        rank
        for rank, node in enumerate(usable)
        if any(part[0] == 0 for part in shapes.place([node], one) or [])
    ]
    chosen = [rank for rank, _, _ in model.running[job.id][2]]
    assert set(chosen) <= set(able)
    rest = [rank for rank in able if rank not in chosen]

    def free(rank):
        return len(usable[rank].free_cores)

    if selection == "first":
        assert chosen == able[: len(chosen)]
    elif selection == "pack":
        assert all(free(rank) <= free(other) for rank in chosen for other in rest)
    elif selection == "spread":
        assert all(free(rank) >= free(other) for rank in chosen for other in rest)
    elif selection == "thrifty" and request.gpus == 0 and request.property is None:
        # A node with gpus is not taken while one without would do.
        assert not any(nodes[rank].gpus for rank in chosen) or all(
            nodes[rank].gpus for rank in rest
        )
    elif selection == "contiguous":
        spans = [max(them) - min(them) for them in combinations(able, request.nodes)]
        assert max(chosen) - min(chosen) == min(spans)
