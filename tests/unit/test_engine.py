"""What the engine says, in the words that a user gets to read."""

from __future__ import annotations

import json

import pytest

from penstock._core import Engine, ResourceSet
from penstock.errors import EngineError, JobspecError, ResourceSetError
from penstock.jobspec import from_command

R = json.dumps(
    {
        "version": 1,
        "execution": {
            "R_lite": [
                {"rank": "0-2", "children": {"core": "0-7"}},
                {"rank": "3", "children": {"core": "0-3", "gpu": "0-1"}},
            ],
            "nodelist": ["n[0-3]"],
            "properties": {"big": "0-1", "amd@gpu": "3", "+local": "0-3"},
            "expiration": 5000.0,
        },
    }
)


def engine():
    made = Engine(R)
    made.mark_up("0-3")
    return made


def spec(**options):
    return json.dumps(from_command(["true"], environment={}, cwd="/", **options))


@pytest.mark.parametrize(
    ("options", "note"),
    [
        ({"ntasks": 100}, "100 cores requested, 28 exist"),
        ({"cores_per_task": 9}, "9 cores per slot requested, no node has more than 8"),
        ({"gpus_per_task": 3}, "3 gpus per slot requested, no node has more than 2"),
        ({"ntasks": 3, "gpus_per_task": 1}, "3 gpus requested, 2 exist"),
        (
            {"ntasks": 4, "cores_per_task": 7},
            "4 slots of 7 cores requested, only 3 fit on the nodes",
        ),
        ({"nodes": 5}, "5 nodes requested, 4 exist"),
        (
            {"nodes": 4, "ntasks": 4, "cores_per_task": 8},
            "4 nodes with 8 cores requested, only 3 have that",
        ),
        ({"nodes": 1, "ntasks": 9}, "9 cores per node requested, no node has more than 8"),
        ({"requires": "nosuch"}, 'no node meets the constraint {"properties":["nosuch"]}'),
        (
            {"requires": "big", "gpus_per_task": 1},
            (
                "1 gpu per slot requested, no node has gpus among the nodes that meet the "
                'constraint {"properties":["big"]}'
            ),
        ),
    ],
)
def test_a_denial_names_what_is_impossible_and_the_most_there_is(options, note):
    made = engine()
    assert made.infeasible(spec(**options)) == note
    made.submit(1, 16, spec(**options))
    (decided,) = made.schedule(0.0)
    assert (decided.r, decided.note) == (None, note)
    assert made.queue_len == 0


def test_what_is_down_is_waited_for_not_denied():
    made = engine()
    made.mark_down("3")
    made.submit(1, 16, spec(gpus_per_task=1))
    assert made.schedule(0.0) == []
    made.mark_up("3")
    (decided,) = made.schedule(0.0)
    assert ResourceSet(decided.r).summary() == "rank3/core0,gpu0"


def test_r_has_times_slots_and_the_properties_that_are_not_local():
    made = engine()
    made.submit(1, 16, spec(ntasks=2, nodes=2, duration=60.0))
    made.submit(2, 16, spec(requires="amd"))
    made.submit(3, 16, spec(duration=100_000.0))
    made.submit(4, 16, spec())
    rs = [json.loads(decided.r)["execution"] for decided in made.schedule(1000.0)]
    assert rs[0]["nodelist"] == ["n[0-1]"]
    assert (rs[0]["starttime"], rs[0]["expiration"], rs[0]["nslots"]) == (1000.0, 1060.0, 2)
    assert rs[0]["properties"] == {"big": "0-1"}
    # `amd@gpu` counts as `amd`.
    assert rs[1]["R_lite"][0]["rank"] == "3"
    # Never later than the resources themselves.
    assert rs[2]["expiration"] == rs[3]["expiration"] == 5000.0


def test_held_jobs_wait_and_order_is_priority_then_id():
    made = engine()
    for job, priority in [(1, 5), (2, 0), (3, 9), (4, 9)]:
        made.submit(job, priority, spec())
    assert [decided.id for decided in made.schedule(0.0, limit=2)] == [3, 4]
    assert [decided.id for decided in made.schedule(0.0)] == [1]
    assert made.prioritize(2, 1)
    assert [decided.id for decided in made.schedule(0.0)] == [2]


def test_what_contradicts_the_books_is_an_error_and_changes_nothing():
    made = engine()
    made.submit(1, 16, spec())
    with pytest.raises(EngineError, match="job 1 is known already"):
        made.submit(1, 16, spec())
    (decided,) = made.schedule(0.0)
    with pytest.raises(EngineError, match="core 0 of rank 0 is allocated already"):
        made.allocate(7, decided.r)
    outside = decided.r.replace('"rank":"0"', '"rank":"9"').replace('"big":"0"', '"big":"9"')
    with pytest.raises(EngineError, match="rank 9 is not in the inventory"):
        made.allocate(7, outside)
    with pytest.raises(EngineError, match="job 7 holds no resources"):
        made.free(7)
    with pytest.raises(JobspecError, match="expected the key `version`"):
        made.submit(8, 16, "{}")
    with pytest.raises((EngineError, ResourceSetError)):
        Engine("{}")
    assert (made.queue_len, made.running) == (0, 1)


def test_properties_come_and_go():
    made = engine()
    made.submit(1, 16, spec(requires="late"))
    made.add_property("late", "2")
    (decided,) = made.schedule(0.0)
    assert ResourceSet(decided.r).summary() == "rank2/core0"
    made.remove_property("late", "2")
    assert made.infeasible(spec(requires="late")) is not None
    with pytest.raises(EngineError, match="no ranks 9"):
        made.add_property("late", "9")
