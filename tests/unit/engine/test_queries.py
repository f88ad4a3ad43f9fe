"""Explanations, estimates and what-if queries of the engine: as data and in words."""

from __future__ import annotations

import dataclasses
import io
import math

import pytest

from penstock import Engine, IDset, ResourceSet
from penstock.engine import Denial, Explanation, Fit, Moved, Start
from penstock.errors import EngineError, NotFoundError

CLUSTER = ResourceSet.uniform("0-3", "n[0-3]", cores="0-7", gpus="0")


def saved(engine):
    file = io.BytesIO()
    engine.save(file)
    return file.getvalue()


def engine(**options):
    """Job 1 has three nodes for an hour; 2 wants two, 3 all four, 4 a core for two hours."""
    made = Engine(CLUSTER, **{"policy": "easy", **options})
    three, two, four = (made.shape(nodes=nodes, exclusive=True) for nodes in (3, 2, 4))
    made.submit([1, 2, 3], [three, two, four], durations=[3600, 600, 60])
    made.schedule(0.0)
    made.submit(4, made.shape(), 7200.0)
    return made


def test_an_explanation_is_a_reason_with_counts_and_a_sentence():
    why = engine().explain(2, 0.0)
    assert isinstance(why, Explanation)
    assert (why.id, why.reason) == (2, "reserved")
    facts = why.facts
    # The next pass starts job 4 on the last node.
    assert (facts["at"], facts["unit"], facts["need"], facts["free"]) == (3600.0, "node", 2, 0)
    assert str(why) == why.sentence
    assert "1 h" in str(why)
    with pytest.raises(dataclasses.FrozenInstanceError):
        why.reason = "held"


def reason(made, job, now=0.0):
    return made.explain(job, now).reason


def test_every_kind_of_reason():
    made = engine()
    made.hold(3)
    assert reason(made, 3) == "held"
    made.submit(5, made.shape(cores=9))
    assert reason(made, 5) == "impossible"
    assert made.explain(5, 0.0).facts["note"] == (
        "9 cores per slot requested, no node has more than 8"
    )
    assert reason(made, 4) == "unconsidered"
    assert made.schedule(0.0).ids.tolist() == [4]
    made.submit(6, made.shape(constraint={"ranks": ["3"]}))
    made.drain("3")
    assert reason(made, 6) == "down"
    assert made.explain(6, 0.0).facts["nodes"] == 1

    made = engine(policy="fcfs")
    assert reason(made, 2) == "insufficient"
    assert reason(made, 4) == "behind"
    assert made.explain(4, 0.0).facts == {"behind": 2}

    made = engine(queues={"small": {"max_cores": 2}})
    made.submit([6, 7], made.shape(slots=2), 60.0, priorities=[99, 16], queues="small")
    made.submit(8, made.shape(slots=3), 60.0, queues="small")
    note = "3 cores requested, queue `small` is limited to 2 cores at a time"
    assert list(made.schedule(0.0).denied) == [Denial(8, note)]
    why = made.explain(7, 0.0)
    assert (why.reason, why.facts["queue"]) == ("queue-limit", "small")

    made = engine(overlong="deny")
    made.set_expiration(1000.0)
    assert reason(made, 4) == "outlives"

    made = Engine(CLUSTER)
    made.submit(1, made.shape(slots=24), 3600)
    made.submit(2, made.shape(nodes=4, exclusive=True), 60)
    made.submit(3, made.shape(), 7200)
    assert made.schedule(0.0).ids.tolist() == [1]
    why = made.explain(3, 0.0)
    assert why.reason == "behind-reservation"
    assert why.facts == {"behind": 2, "at": 3600.0, "takes": 1, "spare": 0}


GPUS = ResourceSet(
    {
        "version": 1,
        "execution": {
            "R_lite": [
                {"rank": "0-3", "children": {"core": "0-3", "gpu": "0"}},
                {"rank": "4-5", "children": {"core": "0-3"}},
            ],
            "nodelist": ["n[0-5]"],
            "properties": {"big": "4-5"},
        },
    }
)


def test_too_few_cores_are_a_number_and_the_nearest_miss_a_node():
    made = Engine(GPUS)
    made.submit([1, 2], made.shape(slots=22), 60)
    made.submit(3, made.shape(slots=2, cores=2), 60)
    assert made.schedule(0.0).ids.tolist() == [1]
    why = made.explain(2, 0.0)
    assert str(why) == "can start in 1 min, as planned: needs 22 cores: 2 are free"
    why = made.explain(3, 0.0)
    assert str(why) == (
        "needs 2 slots of 2 cores: 1 is free; nearest is n0, with no core free; job 2 is before it"
    )
    assert (why.facts["nearest_host"], why.facts["nearest_has"]) == ("n0", 0)
    assert (why.facts["need"], why.facts["free"], why.facts["used"]) == (2, 1, 11)


def test_the_reason_of_a_job_for_four_gpu_nodes_names_two_down_nodes():
    made = Engine(GPUS)
    made.mark_down("2-3")
    made.submit(1, made.shape(nodes=4, slots=1, gpus=1))
    made.schedule(0.0)
    why = made.explain(1, 0.0)
    assert str(why) == (
        "needs 4 nodes with 1 core and 1 gpu: 2 are free, 2 are down; gpus are short"
    )
    assert (why.reason, why.facts["need"], why.facts["down"]) == ("insufficient", 4, 2)


def test_a_job_for_more_gpu_nodes_than_there_are_is_denied_with_the_most():
    made = Engine(GPUS)
    shape = made.shape(nodes=5, slots=1, gpus=1)
    note = "5 nodes with 1 core and 1 gpu requested, only 4 have that"
    assert made.infeasible(shape) == note
    made.submit(1, shape)
    assert str(made.explain(1, 0.0)) == f"can never run here: {note}"
    assert made.schedule(0.0).denied == [(1, note)]


def test_a_constraint_that_no_node_meets_and_one_that_no_node_that_is_up_meets():
    made = Engine(GPUS)
    none = made.shape(constraint={"properties": ["huge"]})
    assert made.infeasible(none) == "no node meets the constraint huge"
    made.mark_down("4-5")
    made.submit(1, made.shape(constraint={"properties": ["big"]}))
    made.schedule(0.0)
    assert str(made.explain(1, 0.0)) == (
        "no node that is up meets the constraint big: 2 nodes do, but are down"
    )


def test_reasons_of_a_held_job_and_of_one_behind_a_reservation():
    made = Engine(GPUS, policy="easy")
    made.submit(1, made.shape(nodes=5, exclusive=True), 3600)
    made.submit(2, made.shape(nodes=6, exclusive=True), 60)
    made.submit(3, made.shape(), 7200)
    made.submit(4, made.shape(), 60, priorities=0)
    assert made.schedule(0.0).ids.tolist() == [1]
    assert str(made.explain(4, 0.0)) == "held: its priority is 0"
    assert str(made.explain(3, 0.0)) == (
        "fits, but would not end before job 2 can start, in 1 h, and would take 1 unit of"
        " the reservation of job 2 (spare: 0)"
    )
    assert str(made.explain(2, 0.0)) == (
        "can start in 1 h, as planned: needs 6 whole nodes: 1 is free; nearest is n4, with 0 of 4"
        " cores free"
    )


def test_only_pending_jobs_are_explained():
    made = engine()
    for job in (1, 99):
        with pytest.raises(NotFoundError, match=f"job {job} is not pending"):
            made.explain(job, 0.0)
    with pytest.raises(EngineError, match="now: expected seconds"):
        made.explain(2, math.nan)


def test_the_first_of_the_queue_are_explained_at_once():
    made = engine()
    made.schedule(0.0)
    assert [explanation.id for explanation in made.explain_all(0.0)] == [2, 3]
    assert [explanation.id for explanation in made.explain_all(0.0, limit=1)] == [2]
    assert made.explain_all(0.0)[0] == made.explain(2, 0.0)


def test_what_if_submits_a_job():
    made = engine()
    made.schedule(0.0)
    outcome = made.what_if_submitted(0.0, made.shape(nodes=1, slots=1), duration=60)
    assert outcome.before is None
    assert outcome.after == Start(0.0, IDset("3"), None)
    assert outcome.moved == ()
    assert str(outcome) == outcome.sentence == "would start now"
    first = made.what_if_submitted(0.0, made.shape(nodes=4, slots=1), duration=60, priority=99)
    assert first.after.time > 0.0
    assert [moved.id for moved in first.moved] == [2]
    never = made.what_if_submitted(0.0, made.shape(cores=9))
    assert never.after == Start(None, None, "9 cores per slot requested, no node has more than 8")
    with pytest.raises(EngineError, match="shape: expected a shape from 0 to"):
        made.what_if_submitted(0.0, 99)
    with pytest.raises(EngineError, match="duration: expected seconds"):
        made.what_if_submitted(0.0, 0, duration=-1)


def test_what_if_changes_the_size_of_a_job():
    made = engine()
    outcome = made.what_if_changed(0.0, 2, units=1)
    assert (outcome.before.time, outcome.after.time) == (3600.0, 0.0)
    outcome = made.what_if_changed(0.0, 3, units=1, duration=30)
    assert outcome.after.time == 0.0
    assert made.fit_now(2, 0.0) == Fit(requested=2, largest=1)
    for call in (
        lambda: made.what_if_changed(0.0, 1, units=1),
        lambda: made.what_if_changed(0.0, 2, units=0),
        lambda: made.what_if_changed(0.0, 2, duration=math.inf),
        lambda: made.fit_now(1, 0.0),
        lambda: made.what_if_cancelled(0.0, 99),
    ):
        with pytest.raises(EngineError, match=r"is not pending|is neither pending|expected"):
            call()


def test_what_if_cancels_a_job():
    outcome = engine().what_if_cancelled(0.0, 1)
    assert (outcome.before, outcome.after) == (None, None)
    first = outcome.moved[0]
    assert isinstance(first, Moved)
    assert (first.id, first.before.time, first.after.time) == (2, 3600.0, 0.0)
    assert "earlier" in str(outcome)


def test_what_if_marks_nodes_up_and_down():
    made = engine()
    made.mark_down("3")
    made.schedule(0.0)
    assert [moved.id for moved in made.what_if_up(0.0, "3").moved] == [3, 4]
    down = made.what_if_down(0.0, [0, 1]).moved
    assert {moved.id: moved.after.time for moved in down}[2] is None


def test_questions_change_nothing():
    made = engine()
    made.schedule(0.0)
    before = saved(made)
    made.explain(2, 0.0)
    made.explain_all(0.0)
    made.estimate(0.0)
    made.what_if_submitted(0.0, 0, duration=60, queue="new")
    made.what_if_cancelled(0.0, 1)
    made.what_if_changed(0.0, 2, units=1)
    made.what_if_up(0.0, "0-3")
    made.what_if_down(0.0, "0-3")
    made.fit_now(2, 0.0)
    assert saved(made) == before
    assert made.schedule(3600.0).ids.tolist() == []


def test_estimates_are_columns_in_the_order_of_the_queue():
    made = engine()
    made.schedule(0.0)
    made.submit(10, made.shape(cores=9))
    made.submit(11, made.shape(), priorities=0)
    estimates = made.estimate(0.0)
    assert repr(estimates) == "<Estimates of 3 jobs>"
    assert estimates.ids.tolist() == [2, 3, 10]
    assert estimates.starts[0] == 3600.0
    assert math.isnan(estimates.starts[2])
    assert estimates.earliest.tolist()[:2] == estimates.latest.tolist()[:2]
    some = made.estimate(0.0, ids=[3, 2])
    assert some.ids.tolist() == [3, 2]
    assert some.starts.tolist() == estimates.starts.tolist()[1::-1]
    assert str(made.estimate(0.0, ids=[1]).starts.tolist()) == "[nan]"
    with pytest.raises(EngineError, match="job 99 is neither pending nor running"):
        made.what_if_cancelled(0.0, 99)
    with pytest.raises(NotFoundError, match="job 99 is neither pending nor running"):
        made.estimate(0.0, ids=[1, 99])


def test_a_number_of_decisions_or_answers_is_not_negative():
    made = engine()
    for ask in (made.schedule, made.explain_all):
        with pytest.raises(EngineError, match=r"limit: expected 0 to \d+, found -1"):
            ask(0.0, limit=-1)
    assert made.npending == 3


def test_the_band_is_the_error_of_past_estimates():
    """Jobs end at half of their limits, so that waits are half of the estimates."""
    made = Engine(ResourceSet.uniform("0", "n", cores="0"), policy="fcfs")
    made.submit(range(41), made.shape(), durations=100.0)
    made.schedule(0.0)
    estimates = made.estimate(0.0)
    assert estimates.starts.tolist() == [100.0 * job for job in range(1, 41)]
    for job in range(20):
        made.free(job)
        assert made.schedule(50.0 * (job + 1)).ids.tolist() == [job + 1]
    estimates = made.estimate(1000.0)
    (start, earliest, latest) = (
        column[-1] for column in (estimates.starts, estimates.earliest, estimates.latest)
    )
    assert start == 1000.0 + 100.0 * 20
    assert (earliest, latest) == (2000.0, 2000.0)
