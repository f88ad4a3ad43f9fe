"""The reference for nodes with gpus and properties, on examples worked out by hand."""

from __future__ import annotations

import pytest
from tests.reference.events import Job, Request, simulate
from tests.reference.shapes import Node, empty, place, scheduler, units


def run(policy, machine, rows):
    """Rows are (submit, run, request); estimates are exact."""
    jobs = [
        Job(index, submit, time, time, request=request)
        for index, (submit, time, request) in enumerate(rows, 1)
    ]
    return list(simulate(jobs, scheduler(policy, machine)).values())


def starts(policy, machine, rows):
    return [outcome.start for outcome in run(policy, machine, rows)]


GPU_NODE = Node(4, 2, frozenset({"gpu"}))
NODE = Node(4, 0)


def test_slots_fill_the_lowest_ranks():
    machine = empty([NODE, GPU_NODE, NODE])
    # Slots of 3 cores: one on each node.
    assert place(machine, Request(None, 2, 3, 0)) == [(0, [0, 1, 2], []), (1, [0, 1, 2], [])]
    # Slots of 2 cores: two on each node.
    assert place(machine, Request(None, 3, 2, 0)) == [(0, [0, 1, 2, 3], []), (1, [0, 1], [])]
    # Only rank 1 has gpus; ranks without the property; more than there is.
    assert place(machine, Request(None, 2, 1, 1)) == [(1, [0, 1], [0, 1])]
    assert place(machine, Request(None, 5, 1, 0, property="^gpu")) == [
        (0, [0, 1, 2, 3], []),
        (2, [0], []),
    ]
    assert place(machine, Request(None, 4, 3, 0)) is None


def test_nodes_hold_all_their_slots():
    machine = empty([NODE, GPU_NODE, NODE])
    assert place(machine, Request(2, 2, 1, 0)) == [(0, [0, 1], []), (1, [0, 1], [])]
    assert place(machine, Request(1, 2, 1, 1)) == [(1, [0, 1], [0, 1])]
    assert place(machine, Request(2, 1, 1, 1)) is None
    # A whole node is all of it, and only if nothing of it is in use.
    machine[0].free_cores.remove(3)
    assert place(machine, Request(1, 1, 1, 0, exclusive=True)) == [(1, [0, 1, 2, 3], [0, 1])]


def test_units_are_slots_or_nodes():
    machine = empty([NODE, GPU_NODE, NODE])
    assert units(machine, Request(None, 9, 3, 0)) == 3  # one slot of 3 cores a node
    assert units(machine, Request(None, 9, 1, 0)) == 12
    assert units(machine, Request(None, 9, 3, 1)) == 1  # cores for one slot, gpus for two
    assert units(machine, Request(9, 2, 2, 0)) == 3  # nodes
    assert units(machine, Request(9, 2, 2, 1)) == 1
    assert units(machine, Request(9, 1, 1, 0, property="^gpu")) == 2


def test_fcfs_waits_for_fragments():
    # 2 nodes of 4 cores. 1 and 2 each take 3 cores, one a node: a core is free on each. 3 asks
    # for a slot of 2 cores: 2 are free, but on two nodes. It starts when 1 ends, at 5.
    rows = [
        (0, 5, Request(1, 1, 3, 0)),
        (0, 9, Request(None, 1, 3, 0)),
        (1, 1, Request(None, 1, 2, 0)),
    ]
    assert starts("fcfs", [NODE, NODE], rows) == [0, 0, 5]


@pytest.mark.parametrize(("run_time", "expected"), [(9, 1), (10, 15)])
def test_easy_reserves_whole_nodes_for_the_blocked_head(run_time, expected):
    # 2 nodes of 4 cores. 1 holds node 0 until 10. 2 wants both nodes whole: shadow time 10,
    # nothing to spare. 3 (1 core of node 1) may start at 1 if it ends by 10, else after 2 (15).
    rows = [
        (0, 10, Request(1, 4, 1, 0)),
        (1, 5, Request(2, 1, 1, 0, exclusive=True)),
        (1, run_time, Request(None, 1, 1, 0)),
    ]
    assert starts("easy", [NODE, NODE], rows) == [0, 10, expected]


def test_easy_places_a_candidate_where_it_does_no_harm():
    # Rank 0 has gpus, rank 1 has none. 1 holds both gpus and one core of rank 0 until 10. 2 wants
    # a gpu node with 3 cores for its slot: shadow time 10, one such node, none to spare.
    # 3 (2 cores, 100 s) would by default go to rank 0, and leave 2 of 4 cores there: 2 would be
    # delayed. It goes to rank 1 instead. So does 4; 5 (1 core) may go to rank 0: 3 are left.
    rows = [
        (0, 10, Request(None, 2, 1, 1)),
        (1, 5, Request(1, 1, 3, 1)),
        (1, 100, Request(None, 1, 2, 0)),
        (1, 100, Request(None, 2, 1, 0)),
        (1, 100, Request(None, 1, 1, 0)),
    ]
    outcome = run("easy", [GPU_NODE, NODE], rows)
    assert [result.start for result in outcome] == [0, 10, 1, 1, 1]
    # Rank 0 has cores 2 and 3 free at 1 (1 holds cores 0 and 1).
    assert [result.holds for result in outcome[2:]] == [
        [(1, 0), (1, 1)],
        [(1, 2), (1, 3)],
        [(0, 2)],
    ]
    # 1, 2, 5 on rank 0: at 10, cores 0, 1 and 3 are free: 2 has them.
    assert outcome[1].holds == [(0, 0), (0, 1), (0, 3)]


def test_a_node_is_skipped_whole_if_a_part_of_it_is_needed():
    # 3 nodes of 4 cores. 1 holds 3 cores of rank 0 until 10, 2 one core of each node until 20:
    # free are 0, 3 and 3. 3 wants 3 slots of 2 cores, of which rank 1 and 2 hold one each; at 10
    # rank 0 (3 free) holds the third: shadow time 10, none to spare.
    # 4 (2 slots of one core, 100 s): both on rank 1 would leave one core there, both on rank 2
    # likewise. That one on each would do no harm is not tried: it waits until 3 has started.
    # 5 (1 slot): on rank 1, 2 cores are left, no harm.
    rows = [
        (0, 10, Request(1, 3, 1, 0)),
        (0, 20, Request(3, 1, 1, 0)),
        (1, 5, Request(None, 3, 2, 0)),
        (1, 100, Request(None, 2, 1, 0)),
        (1, 100, Request(None, 1, 1, 0)),
    ]
    outcome = run("easy", [NODE, NODE, NODE], rows)
    assert [result.start for result in outcome] == [0, 0, 10, 10, 1]
    # 1 has cores 0 to 2 of rank 0; 2 core 3 there, and core 0 of ranks 1 and 2; 5 core 1 of rank 1.
    # So at 10, 3 starts on cores 0 and 1 of rank 0, 2 and 3 of rank 1, 1 and 2 of rank 2; then 4
    # is not blocked, and has core 2 of rank 0 and core 3 of rank 2.
    assert outcome[2].holds == [(0, 0), (0, 1), (1, 2), (1, 3), (2, 1), (2, 2)]
    assert outcome[3].holds == [(0, 2), (2, 3)]


def test_an_impossible_job_blocks_no_other():
    requests = [Request(1, 1, 5, 0), Request(None, 1, 1, 1), Request(2, 4, 1, 0)]
    rows = [(0, 5, request) for request in requests]
    assert starts("easy", [NODE, NODE], rows) == [None, None, 0]
