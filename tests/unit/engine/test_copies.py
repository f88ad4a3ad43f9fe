"""Snapshots, saved engines and pickles: equal decisions, independent state."""

from __future__ import annotations

import copy
import io
import json
import pickle

import pytest

from penstock import Engine, IDset, ResourceSet
from penstock.errors import EngineError


def longest_first(pending):
    return sorted(range(len(pending)), key=lambda at: -pending.durations[at])


def engine(**options):
    """One with something of everything."""
    r = ResourceSet.uniform("0-5", "n[0-5]", cores="0-3", gpus="0")
    r.add_property("fast", "2-3")
    r.expiration = 9000.0
    made = Engine(r, **{"policy": "easy", **options})
    made.mark_down("4")
    made.drain("5")
    whole = made.shape(nodes=2, exclusive=True)
    fast = made.shape(slots="1-2", gpus=1, constraint="fast")
    made.submit([7, 8], [whole, fast], durations=[100.0, 50.5], priorities=30)
    made.schedule(10.0)
    made.submit([1, 2**64 - 1], [whole, whole], durations=[100.0, 5], now=11.0)
    made.submit([3], fast, priorities=0, queues="debug")
    made.submit([4], made.shape(cores=4), durations=3.25)
    return made


def saved(made):
    file = io.BytesIO()
    made.save(file)
    return file.getvalue()


def loaded(content):
    return Engine.load(io.BytesIO(content))


COPIES = {
    "snapshot": lambda made: made.snapshot(),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda made: pickle.loads(pickle.dumps(made)),
    "save": lambda made: loaded(saved(made)),
}
copies = pytest.mark.parametrize("made_by", COPIES.values(), ids=COPIES)


def future(made):
    """The starts of an engine, step by step, as its running jobs end one by one."""
    story = []
    for now in range(20, 40):
        decisions = made.schedule(float(now))
        story += [(job.id, r.to_json()) for job, r in zip(decisions, decisions.rs(), strict=True)]
        if made.nrunning:
            made.free(made.running().ids[0])
    return story


@copies
def test_a_copy_has_the_same_state_and_the_same_future(made_by):
    made = engine()
    copied = made_by(made)
    assert saved(copied) == saved(made)
    assert repr(copied) == repr(made)
    assert future(copied) == future(made)
    assert future(made) == []


@copies
def test_copies_are_independent(made_by):
    made = engine()
    before = saved(made)
    copied = made_by(made)
    copied.free([7, 8])
    copied.cancel([1, 3])
    copied.prioritize(4, 99)
    copied.submit(50, copied.shape(cores=3))
    copied.undrain("5")
    copied.mark_down("0")
    copied.add_property("slow", "1")
    copied.grow(ResourceSet.uniform("9", "m9", cores="0"))
    copied.shrink("2")
    copied.set_expiration(None)
    copied.schedule(20.0)
    assert saved(made) == before
    changed = saved(copied)
    future(made)
    assert saved(copied) == changed
    assert loaded(changed).ranks == IDset("0-1,3-5,9")


def test_callables_are_pickled_by_name_and_not_saved():
    made = engine(order=longest_first)
    assert pickle.loads(pickle.dumps(made))._order is longest_first
    assert made.snapshot()._order is longest_first
    assert loaded(saved(made))._order is None
    assert Engine.load(io.BytesIO(saved(made)), score=len)._score is len


def test_a_callable_s_order_is_not_saved_but_priorities_are():
    made = engine()
    made.schedule(12.0, order=longest_first)
    assert loaded(saved(made)).pending().priorities.tolist() == made.pending().priorities.tolist()


def test_a_file_may_be_a_path(tmp_path):
    made = engine()
    made.save(tmp_path / "engine.json")
    assert saved(Engine.load(tmp_path / "engine.json")) == saved(made)
    assert saved(Engine.load(str(tmp_path / "engine.json"))) == saved(made)
    with pytest.raises(FileNotFoundError):
        Engine.load(tmp_path / "nosuch")


def test_a_saved_engine_is_json_with_a_version():
    document = json.loads(saved(engine()))
    assert (document["format"], document["version"]) == ("penstock-engine", 1)
    assert document["policy"] == "easy"
    assert document["pending"]["ids"] == [1, 4, 2**64 - 1, 3]
    assert document["pending"]["queues"] == [None, None, None, "debug"]
    assert document["pending"]["submitted"] == [11.0, None, 11.0, None]
    assert ResourceSet(document["r"]).properties == {"fast": IDset("2-3")}


def test_an_engine_on_which_nothing_is_left_is_saved():
    made = engine()
    made.free([7, 8])
    made.shrink("0-5")
    made.schedule(20.0)
    copied = loaded(saved(made))
    assert (copied.npending, copied.ranks) == (made.npending, IDset())


@pytest.mark.parametrize("gone", ["1", "0-1"])
def test_allocations_on_removed_ranks_are_saved(gone):
    made = Engine(ResourceSet.uniform("0-3", "n[0-3]", cores="0-3"))
    made.submit(1, made.shape(nodes=2, exclusive=True))
    made.schedule(0.0)
    made.shrink(gone)
    copied = loaded(saved(made))
    assert saved(copied) == saved(made)
    copied.free(1, ranks="0")
    assert copied.nrunning == 1
    copied.free(1, ranks="1")
    assert copied.nrunning == 0


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            lambda document: document.update(version=2),
            r"version: expected 1, found 2 \(saved by penstock ",
        ),
        (
            lambda document: document.update(format="tar"),
            "format: expected `penstock-engine`, found 'tar'",
        ),
        (lambda document: document.clear(), "format: expected `penstock-engine`, found None"),
        (lambda document: document.pop("pending"), "expected the key 'pending'"),
        (lambda document: document["pending"].pop("queues"), "expected the key 'queues'"),
        (lambda document: document["pending"]["ids"].append(1), "shapes: expected one value, or 5"),
        (
            lambda document: document["pending"]["durations"].__setitem__(0, -1),
            r"durations\[0\]: expected",
        ),
        (
            lambda document: document["pending"]["shapes"].__setitem__(0, 99),
            r"shapes\[0\]: expected",
        ),
        (lambda document: document["running"]["rs"].pop(), "shorter"),
        (lambda document: document["running"]["ids"].__setitem__(0, 8), "job 8 is known already"),
        (lambda document: document["running"]["rs"].__setitem__(0, {}), "invalid R"),
        (
            lambda document: document["shapes"].append(document["shapes"][0]),
            r"shapes\[3\]: the same as an earlier one",
        ),
        (lambda document: document["shapes"][0].update(cores=0), "cores: expected at least 1"),
        (lambda document: document["shapes"][0].pop("gpus"), "expected the key 'gpus'"),
        (lambda document: document.update(queues=[]), "items"),
        (
            lambda document: document["queues"].update(q={"group": None, "max_jobs": -1}),
            r"queues\.q\.max_jobs: expected 0 to ",
        ),
        (
            lambda document: document["running"].update(outside=[[[0, "0", ""]]]),
            "rank 0 is in the inventory",
        ),
        (lambda document: document["running"].update(outside=[[[99, "x", ""]]]), "invalid idset"),
        (lambda document: document.update(policy="random"), "policy"),
        (lambda document: document.update(down="x"), "invalid idset"),
        (lambda document: document.update(r=5), "expected a ResourceSet"),
    ],
)
def test_an_invalid_saved_engine_is_rejected_with_the_place(change, text):
    document = json.loads(saved(engine()))
    change(document)
    with pytest.raises(EngineError, match=f"invalid saved engine: .*{text}"):
        loaded(json.dumps(document).encode())


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b"null"])
def test_a_saved_engine_must_be_a_json_object(content):
    with pytest.raises(EngineError, match="invalid saved engine: "):
        loaded(content)
