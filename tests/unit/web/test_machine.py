"""The map of nodes, the cores of a node by job, stages and events of a job."""

from __future__ import annotations

import pytest

from penstock import IDset
from penstock.cli.topdata import Amounts, NodeRow
from penstock.web import machine, timeline
from penstock.web.machine import Unit


def node(rank: int, state: str) -> NodeRow:
    return NodeRow(rank, f"node{rank}", state, Amounts(), Amounts(1, 4))


@pytest.mark.parametrize("count", [1, 3, 200, 1000, 4000, 10_000, 100_000])
def test_each_node_has_a_place_of_its_own_on_the_map(count):
    states = list(machine.STATES)
    nodes = [node(rank, states[rank % len(states)]) for rank in range(count)]
    drawn = machine.node_map(nodes)
    assert sum(shape.count for shape in drawn.shapes) == count
    assert drawn.width <= machine.MAX_MAP_WIDTH
    assert drawn.columns * (drawn.height // drawn.pitch) >= count
    corners = {
        corner for shape in drawn.shapes for corner in shape.path.split("M")[1:] if shape.state
    }
    assert len(corners) >= count
    # Few elements, whatever the number of nodes.
    assert len(drawn.shapes) == len(states)


def test_ten_thousand_nodes_are_some_hundred_kilobytes():
    drawn = machine.node_map([node(rank, "free") for rank in range(10_000)])
    assert sum(len(shape.path) for shape in drawn.shapes) < 300_000


def children(cores: str, gpus: str = "") -> dict[str, IDset]:
    return {"core": IDset(cores), "gpu": IDset(gpus)}


def test_cores_are_divided_by_jobs():
    total = children("0-7,16-19", "0-1")
    jobs = {7: children("0-1,4"), 8: children("2-3", "1")}
    found = machine.units(total, children("0-5", "1"), jobs)
    assert found == [
        Unit("core", 0, 2, 7, is_allocated=True),
        Unit("core", 2, 2, 8, is_allocated=True),
        Unit("core", 4, 1, 7, is_allocated=True),
        # Of a job that may not be shown.
        Unit("core", 5, 1, None, is_allocated=True),
        Unit("core", 6, 2, None, is_allocated=False),
        # The numbers have a gap.
        Unit("core", 16, 4, None, is_allocated=False),
        Unit("gpu", 0, 1, None, is_allocated=False),
        Unit("gpu", 1, 1, 8, is_allocated=True),
    ]
    assert found[5].last == 19


def test_the_ranks_of_an_r_are_read_as_far_as_they_are_wanted():
    lite = [
        {"rank": "0-9999", "children": {"core": "0-3"}},
        {"rank": "10000", "children": {"core": "0", "gpu": "0-1"}},
    ]
    found = machine.children_by_rank({"execution": {"R_lite": lite}}, IDset("7,10000"))
    assert found == {7: children("0-3"), 10000: children("0", "0-1")}


def test_a_job_keeps_its_colour_and_its_neighbours_have_others():
    colours = machine.Colours()
    first = [colours.of(job) for job in range(machine.COLOUR_COUNT)]
    assert len(set(first)) == machine.COLOUR_COUNT
    assert [colours.of(job) for job in range(machine.COLOUR_COUNT)] == first


def test_stages_fill_the_time_of_a_job():
    row = {"t_submit": 100.0, "t_run": 150.0, "t_cleanup": 190.0, "t_inactive": 200.0}
    found = timeline.stages(row, 999.0)
    assert [(each.name, each.seconds, each.x, each.width) for each in found] == [
        ("pending", 50.0, 0.0, 500.0),
        ("run", 40.0, 500.0, 400.0),
        ("cleanup", 10.0, 900.0, 100.0),
    ]
    (pending,) = timeline.stages({"t_submit": 100.0}, 160.0)
    assert (pending.name, pending.seconds, pending.width) == ("pending", 60.0, 1000.0)
    # A job of no length, and a clock that was set back.
    assert timeline.stages({"t_submit": 100.0}, 50.0)[0].seconds == 0.0


def test_of_contexts_known_keys_are_shown():
    events = [
        {"timestamp": 5.0, "name": "submit", "context": {"urgency": 16, "userid": 1}},
        {"timestamp": 6.5, "name": "x", "context": {"environment": "A=1", "note": {"a": 1}}},
        {"timestamp": 7.0, "name": "start"},
    ]
    found = [(each.name, each.offset, each.text) for each in timeline.entries(events)]
    assert found == [("submit", 0.0, "urgency 16, userid 1"), ("x", 1.5, ""), ("start", 2.0, "")]
