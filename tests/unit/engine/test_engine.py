"""`Engine` for a program that schedules for itself."""

from __future__ import annotations

import doctest
import importlib
import json
import pickle

import pytest

from penstock import Engine, IDset, ResourceSet
from penstock.engine import Decision, Denial
from penstock.errors import EngineError, IdsetError, JobspecError, ResourceSetError
from penstock.jobspec import from_command

R = {
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


def spec(**options):
    return from_command(["true"], environment={}, cwd="/", **options)


def started(engine, now=0.0, **options):
    return engine.schedule(now, **options).ids.tolist()


def submitted(engine, ids, shape=None, **columns):
    engine.submit(ids, engine.shape() if shape is None else shape, **columns)
    return engine


@pytest.mark.parametrize(
    "source",
    [R, json.dumps(R), json.dumps(R).encode(), ResourceSet(R)],
    ids=lambda source: type(source),
)
def test_it_is_constructed_from_any_r_with_all_nodes_up(source):
    engine = Engine(source)
    assert engine.ranks == engine.up == IDset("0-3")
    assert repr(engine) == "<Engine 4 nodes, 4 up, 0 pending, 0 running>"


def test_targets_may_be_down_at_first():
    engine = submitted(Engine(R, up=False), [1])
    assert not engine.up
    assert started(engine) == []
    engine.mark_up("2")
    assert engine.schedule(0.0).r(0).ranks == IDset("2")


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"policy": "random"}, EngineError, "policy"),
        ({"selection": "best"}, EngineError, "selection"),
        ({"overlong": "kill"}, EngineError, "overlong"),
        ({"policy": print}, TypeError, "hint: give it as `order`"),
        ({"order": print, "score": print}, EngineError, "one of them at most"),
        ({"order": 5}, TypeError, "order: expected a callable, found int"),
    ],
)
def test_invalid_options_are_named(options, error, text):
    with pytest.raises(error, match=text):
        Engine(R, **options)


def test_an_invalid_r_is_rejected():
    with pytest.raises(ResourceSetError, match="version"):
        Engine("{}")
    with pytest.raises(TypeError, match="expected a ResourceSet"):
        Engine(5)


# --- shapes ---


@pytest.mark.parametrize(
    ("shape", "note"),
    [
        ({"slots": 100}, "100 cores requested, 28 exist"),
        ({"cores": 9}, "9 cores per slot requested, no node has more than 8"),
        ({"gpus": 3}, "3 gpus per slot requested, no node has more than 2"),
        ({"slots": 3, "gpus": 1}, "3 gpus requested, 2 exist"),
        ({"nodes": 5, "exclusive": True}, "5 nodes requested, 4 exist"),
        ({"nodes": 1, "slots": 9}, "9 cores per node requested, no node has more than 8"),
        ({"constraint": "nosuch"}, "no node meets the constraint nosuch"),
    ],
)
def test_a_denial_names_the_impossible_part_and_the_maximum(shape, note):
    engine = Engine(R)
    shape = engine.shape(**shape)
    assert engine.infeasible(shape) == note
    decisions = submitted(engine, [7], shape).schedule(0.0)
    assert decisions.denied == [Denial(7, note)]
    assert len(decisions) == 0
    assert decisions
    assert engine.npending == 0
    assert engine.infeasible(engine.shape()) is None


@pytest.mark.parametrize("options", [{}, {"cores": 2}, {"gpus": 1}])
def test_nodes_without_slots_are_whole_as_those_of_a_submission(options):
    engine = Engine(R)
    shape = engine.shape(nodes=2, **options)
    names = {"cores": "cores_per_task", "gpus": "gpus_per_task"}
    assert engine.shape(spec(nodes=2, **{names[key]: n for key, n in options.items()})) == shape
    assert engine.shape_request(shape)["exclusive"]
    with_slots = engine.shape(nodes=2, slots=1, **options)
    assert not engine.shape_request(with_slots)["exclusive"]


def test_equal_requests_share_one_shape():
    engine = Engine(R)
    shape = engine.shape(nodes=2, slots=1, cores=3, constraint={"properties": ["big"]})
    again = engine.shape(spec(nodes=2, ntasks=2, cores_per_task=3, requires="big", duration=77.0))
    assert shape == again
    assert engine.nshapes == 1
    request = engine.shape_request(shape)
    assert request == {
        "nodes": 2,
        "slots": 1,
        "cores": 3,
        "gpus": 0,
        "exclusive": False,
        "constraint": {"properties": ["big"]},
    }
    assert engine.shape(**request) == shape


@pytest.mark.parametrize(
    ("shape", "error", "text"),
    [
        ({"slots": 0}, JobspecError, "slots: expected at least 1, found 0"),
        ({"cores": -1}, JobspecError, "cores: expected 1 to 4294967295, found -1"),
        ({"gpus": 2**32}, JobspecError, "gpus: expected 0 to 4294967295"),
        ({"cores": 1.5}, TypeError, "cores: expected a number or the text of a range, found float"),
        ({"nodes": "4-2"}, JobspecError, "nodes: "),
        ({"exclusive": True}, JobspecError, "exclusive: expected a number of nodes"),
        ({"constraint": {"nosuch": []}}, JobspecError, "unknown operator"),
        ({"jobspec": "{}"}, JobspecError, "expected the key `version`"),
        ({"jobspec": "{}", "cores": 2}, JobspecError, "found both"),
        ({"jobspec": b"\xff"}, JobspecError, "expected UTF-8 at byte 0"),
    ],
)
def test_an_invalid_shape_is_rejected_with_the_argument(shape, error, text):
    engine = Engine(R)
    with pytest.raises(error, match=text):
        engine.shape(**shape)
    assert engine.nshapes == 0


def test_a_range_is_a_shape_of_its_own():
    engine = Engine(R)
    shape = engine.shape(nodes="2-3", exclusive=True)
    assert engine.shape_request(shape)["nodes"] == "2-3"
    assert engine.shape(**engine.shape_request(shape)) == shape
    assert engine.shape(nodes=2, exclusive=True) != shape


# --- jobs and decisions ---


def test_decisions_are_columns_rows_and_resources():
    engine = Engine(R)
    big = engine.shape(nodes=2, slots=2, cores=2)
    gpu = engine.shape(gpus=1)
    engine.submit([5, 6, 7], [big, gpu, engine.shape(cores=9)], durations=[60, 0, 5])
    decisions = engine.schedule(1000.0)
    assert repr(decisions) == "<Decisions 2 started, 1 denied>"
    assert decisions.ids.tolist() == [5, 6]
    assert decisions.starts.tolist() == [1000.0, 1000.0]
    assert decisions.expirations.tolist() == [1060.0, 5000.0]
    assert decisions.nodes.tolist() == [2, 1]
    assert decisions.cores.tolist() == [8, 1]
    assert decisions.gpus.tolist() == [0, 1]
    assert decisions.backfilled.tolist() == [False, False]
    assert [job.id for job in decisions.denied] == [7]
    first = Decision(id=5, start=1000.0, nodes=2, cores=8, gpus=0, backfilled=False)
    assert next(iter(decisions)) == decisions[0] == decisions[-2] == first
    assert decisions[:1] == [first]
    assert decisions[::-1] == [decisions[1], first]
    assert decisions[2:] == []
    with pytest.raises(IndexError):
        decisions[2]
    r = decisions.r(0)
    assert r.summary() == "rank[0-1]/core[0-3]"
    assert (r.starttime, r.expiration, r.nslots) == (1000.0, 1060.0, 4)
    assert r.properties == {"big": IDset("0-1")}
    assert [allocated.summary() for allocated in decisions.rs()] == [
        r.summary(),
        "rank3/core0,gpu0",
    ]
    # Resources are read on access, columns are not.
    engine.free(5)
    with pytest.raises(EngineError, match="job 5 holds no resources"):
        decisions.r(0)
    assert decisions.cores.tolist() == [8, 1]


def test_a_column_is_made_once_and_cannot_be_written():
    engine = submitted(Engine(R), range(3))
    decisions = engine.schedule(0.0)
    assert decisions.ids is decisions.ids
    with pytest.raises(TypeError, match="read-only"):
        decisions.ids[0] = 7


def test_order_is_priority_then_id_and_held_jobs_stay_pending():
    engine = submitted(Engine(R), [1, 2, 3, 4], priorities=[5, 0, 9, 9])
    assert started(engine, limit=2) == [3, 4]
    assert started(engine) == [1]
    assert engine.prioritize([2, 77], 1) == 1
    assert engine.hold(2) == 1
    assert started(engine) == []
    assert engine.prioritize(2, 4294967295) == 1
    assert started(engine) == [2]


def test_jobs_are_freed_whole_or_by_ranks_and_cancelled_while_pending():
    engine = Engine(R, policy="fcfs")
    whole = engine.shape(nodes=3, slots=8)
    engine.submit([1, 2], whole, durations=[100, 100])
    assert started(engine) == [1]
    assert (engine.npending, engine.nrunning) == (1, 1)
    engine.free(1, ranks="0-1")
    assert engine.allocated.ranks == IDset("2")
    engine.free(1, ranks=[2])
    assert engine.nrunning == 0
    assert started(engine) == [2]
    assert engine.cancel([2, 9]) == 0
    submitted(engine, [3])
    assert engine.cancel(range(10)) == 1
    engine.free([2])
    assert engine.allocated.nnodes == 0


def test_an_invalid_row_rejects_the_whole_call():
    engine = submitted(Engine(R), [1, 2])
    engine.schedule(0.0)
    with pytest.raises(EngineError, match=r"ids\[1\]: job 9 holds no resources"):
        engine.free([1, 9])
    with pytest.raises(EngineError, match=r"ids\[2\]: job 1 is in the batch twice"):
        engine.free([1, 2, 1])
    assert engine.nrunning == 2
    with pytest.raises(EngineError, match=r"ids\[1\]: job 2 is known already"):
        submitted(engine, [3, 2])
    with pytest.raises(EngineError, match=r"ids\[3\]: job 4 is in the batch twice"):
        submitted(engine, [3, 4, 5, 4])
    shapes = engine.nshapes
    with pytest.raises(EngineError, match=rf"shapes\[1\]: expected .* 0 to {shapes - 1}, found 9"):
        engine.submit([3, 4], [0, 9])
    assert engine.npending == 0


def test_jobspecs_in_bulk():
    engine = Engine(R)
    specs = [spec(ntasks=2, duration=30.0), json.dumps(spec(gpus_per_task=1)), spec(nodes=1)]
    engine.submit_jobspecs([1, 2, 3], specs, priorities=[1, 2, 3])
    assert started(engine) == [3, 2, 1]
    with pytest.raises(JobspecError, match=r"jobspecs\[1\]: .*expected the key `version`"):
        engine.submit_jobspecs([4, 5], [spec(), {}])
    with pytest.raises(EngineError, match="jobspecs: expected 2 as there are ids, found 1"):
        engine.submit_jobspecs([4, 5], [spec()])
    assert engine.npending == 0


def test_an_invalid_time_is_rejected():
    engine = submitted(Engine(R), [1])
    for now in (float("nan"), float("inf"), -1.0):
        with pytest.raises(EngineError, match="now: expected seconds from 0 on, found"):
            engine.schedule(now)
        with pytest.raises(EngineError, match="now: expected seconds from 0 on, found"):
            submitted(engine, [2], now=now)
    assert engine.npending == 1


def test_pending_and_running_jobs_are_listed():
    engine = Engine(R, policy="fcfs")
    wide = engine.shape(nodes=4, slots=3)
    engine.submit([4, 2], [wide, engine.shape(gpus=1)], durations=[60.5, 0], now=10.0)
    engine.submit([3], wide, priorities=20)
    engine.submit([9], wide, priorities=0)
    pending = engine.pending(now=15.0)
    assert len(pending) == 4
    assert repr(pending) == "<Pending 4 jobs>"
    assert pending.ids.tolist() == [3, 2, 4, 9]
    assert pending.priorities.tolist() == [20, 16, 16, 0]
    assert pending.shapes.tolist() == [0, 1, 0, 0]
    assert pending.durations.tolist() == [0, 0, 60.5, 0]
    assert str(pending.submitted.tolist()) == "[nan, 10.0, 10.0, nan]"
    assert str(pending.waits.tolist()) == "[nan, 5.0, 5.0, nan]"
    assert pending.nodes.tolist() == [4, 0, 4, 4]
    assert pending.cores.tolist() == [12, 1, 12, 12]
    assert pending.gpus.tolist() == [0, 1, 0, 0]
    assert started(engine, 20.0) == [3, 2]
    running = engine.running()
    assert repr(running) == "<Running 2 jobs>"
    assert running.ids.tolist() == [2, 3]
    assert running.starts.tolist() == [20.0, 20.0]
    assert running.expirations.tolist() == [5000.0, 5000.0]
    assert (running.nodes.tolist(), running.cores.tolist()) == ([1, 4], [1, 12])
    assert running.gpus.tolist() == [1, 0]


# --- the machine changes ---


def test_drained_is_one_thing_and_down_another():
    engine = submitted(Engine(R), range(28))
    engine.drain("0-1")
    engine.mark_down("1-2")
    assert (engine.up, engine.drained) == (IDset("3"), IDset("0-1"))
    assert len(engine.schedule(0.0)) == 4
    engine.undrain("0-1")
    assert engine.up == IDset("0,3")
    assert len(engine.schedule(0.0)) == 8
    engine.mark_up("0-3")
    assert len(engine.schedule(0.0)) == 16
    # Jobs on a target that fails are not affected.
    engine.mark_down("0")
    assert engine.nrunning == 28
    with pytest.raises(IdsetError, match="expected a number"):
        engine.mark_up("x")


def test_targets_come_and_go():
    engine = submitted(Engine(R), [1])
    more = ResourceSet.uniform("7-8", "m[7-8]", cores="0-63")
    engine.grow(more, up=False)
    assert (engine.ranks, engine.up) == (IDset("0-3,7-8"), IDset("0-3"))
    engine.mark_up("8")
    wide = engine.shape(cores=64)
    engine.submit(2, wide)
    assert engine.schedule(0.0).r(1).summary() == "rank8/core[0-63]"
    with pytest.raises(EngineError, match="ranks 7-8 are in the inventory already"):
        engine.grow(more)
    engine.submit(3, wide)
    engine.shrink("7-8")
    assert [job.id for job in engine.schedule(0.0).denied] == [3]
    assert engine.ranks == IDset("0-3")


@pytest.mark.parametrize(
    "ask",
    [
        lambda made: made.mark_down("2-3"),
        lambda made: made.mark_up("2-3"),
        lambda made: made.drain("2-3"),
        lambda made: made.undrain("2-3"),
        lambda made: made.shrink("2-3"),
        lambda made: made.free(1, ranks="2-3"),
        lambda made: made.what_if_down(0.0, "2-3"),
        lambda made: made.what_if_up(0.0, "2-3"),
    ],
)
def test_a_rank_that_is_not_there_is_named_and_nothing_changes(ask):
    made = Engine(ResourceSet.uniform("0-2", "n[0-2]", cores="0"))
    made.submit(1, made.shape(nodes=3, exclusive=True))
    started(made)
    with pytest.raises(EngineError, match=r"ranks: .*inventory \(0-2\), found 3$"):
        ask(made)
    assert (str(made.up), str(made.ranks), str(made.r(1).ranks)) == ("0-2", "0-2", "0-2")


def test_properties_come_and_go():
    engine = Engine(R)
    shape = engine.shape(constraint="late")
    engine.add_property("late", "2")
    assert submitted(engine, [1], shape).schedule(0.0).r(0).summary() == "rank2/core0"
    engine.remove_property("late", "2")
    assert engine.infeasible(shape) is not None
    with pytest.raises(EngineError, match="no ranks 9"):
        engine.add_property("late", "9")


def test_existing_allocations_are_registered():
    engine = submitted(Engine(R), [1])
    r = engine.schedule(0.0).r(0)
    with pytest.raises(EngineError, match="core 0 of rank 0 is allocated already"):
        engine.allocate(7, r)
    with pytest.raises(EngineError, match="job 1 is known already"):
        engine.allocate(1, r)
    other = ResourceSet.uniform("3,9", "n3,x9", cores="0-1")
    with pytest.raises(EngineError, match="rank 9 is not in the inventory"):
        engine.allocate(7, other)
    assert engine.adopt(7, other) == IDset("9")
    assert engine.allocated.summary() == "rank0/core0 rank3/core[0-1]"


def test_a_running_job_grows_and_shrinks():
    engine = Engine(R)
    submitted(engine, [1], engine.shape(slots=2), durations=100)
    assert started(engine) == [1]
    added = engine.grow_job(1, engine.shape(cores=4, gpus=1), now=10.0)
    assert str(added) == "rank3/core[0-3],gpu0"
    assert (added.starttime, added.expiration) == (10.0, 100.0)
    assert str(engine.r(1)) == "rank0/core[0-1] rank3/core[0-3],gpu0"
    again = engine.grow_job(1, r=ResourceSet.uniform("0", "n0", cores="7"), now=10.0)
    assert str(again) == "rank0/core7"
    engine.shrink_job(1, added)
    engine.shrink_job(1, ResourceSet.uniform("0", "n0", cores="0").to_dict())
    assert str(engine.r(1)) == "rank0/core[1,7]"
    assert engine.running().cores.tolist() == [2]
    copy = pickle.loads(pickle.dumps(engine))
    assert str(copy.r(1)) == "rank0/core[1,7]"
    engine.shrink_job(1, engine.r(1))
    assert engine.nrunning == 0


def test_an_impossible_change_of_a_running_job_is_rejected():
    engine = Engine(R)
    submitted(engine, [1], engine.shape(slots=20), durations=100)
    assert started(engine) == [1]
    for shape, now, why in (
        (engine.shape(slots=9), 0.0, "job 1 cannot get more: needs 9 cores: 8 are free"),
        (engine.shape(gpus=3), 0.0, "3 gpus per slot requested"),
        (engine.shape(), 100.0, "its time was over at 100"),
        (99, 0.0, "shape"),
    ):
        with pytest.raises(EngineError, match=why):
            engine.grow_job(1, shape, now=now)
    with pytest.raises(EngineError, match="job 2 holds no resources"):
        engine.grow_job(2, engine.shape(), now=0.0)
    taken = ResourceSet.uniform("0", "n0", cores="0")
    with pytest.raises(EngineError, match="core 0 of rank 0 is allocated already"):
        engine.grow_job(1, r=taken, now=0.0)
    for given in ({}, {"shape": engine.shape(), "r": taken}):
        with pytest.raises(EngineError, match="shape, r: expected one of them"):
            engine.grow_job(1, **given, now=0.0)
    with pytest.raises(
        EngineError, match="job 1: rank 3: the job does not have all of these cores and gpus"
    ):
        engine.shrink_job(1, ResourceSet.uniform("3", "n3", cores="0"))
    assert engine.running().cores.tolist() == [20]


def test_ends_move():
    engine = submitted(Engine(R), [1], durations=60)
    engine.schedule(0.0)
    engine.extend(1, 90.0)
    assert engine.r(1).expiration == 90.0
    with pytest.raises(EngineError, match="the resources end at 5000"):
        engine.extend(1, 9000.0)
    engine.set_expiration(9000.0)
    engine.extend(1, 9000.0)
    assert engine.running().expirations.tolist() == [9000.0]
    with pytest.raises(EngineError, match="job 2 holds no resources"):
        engine.extend(2, 10.0)


def test_an_engine_has_nodes():
    with pytest.raises(EngineError, match="r: expected at least one rank, found none"):
        Engine(ResourceSet())


@pytest.mark.parametrize("end", [-5.0, 0.0, float("nan"), float("inf")])
def test_an_end_is_a_time(end):
    made = Engine(R)
    made.submit(1, made.shape())
    made.schedule(0.0)
    with pytest.raises(EngineError, match="expiration: expected a time after 0, or None"):
        made.extend(1, end)


def test_numbers_out_of_range_are_named():
    made = Engine(R)
    made.submit(1, made.shape())
    for name, call in [
        ("max_compared", lambda: made.what_if_cancelled(0.0, 1, max_compared=-1)),
        ("max_compared", lambda: made.what_if_down(0.0, "0", max_compared=-1)),
        ("max_compared", lambda: made.what_if_up(0.0, "0", max_compared=-1)),
        ("max_compared", lambda: made.what_if_submitted(0.0, 0, max_compared=2**70)),
        ("priority", lambda: made.what_if_submitted(0.0, 0, priority=2**32)),
        ("units", lambda: made.what_if_changed(0.0, 1, units=-1)),
        ("max_jobs", lambda: made.set_queue("a", max_jobs=-1)),
        ("max_nodes", lambda: made.set_queue("a", max_nodes=-1)),
        ("max_cores", lambda: made.set_queue("a", max_cores=-1)),
    ]:
        with pytest.raises(EngineError, match=f"{name}: expected 0 to "):
            call()


def test_an_engine_is_not_pickled_by_its_private_parts():
    with pytest.raises(TypeError):
        pickle.dumps(Engine(R)._core)


@pytest.mark.parametrize("name", ["engine", "engine.engine"])
def test_doctest(name):
    done = doctest.testmod(importlib.import_module(f"penstock.{name}"))
    assert done.attempted
    assert done.failed == 0
