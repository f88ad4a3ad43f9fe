"""Queue order by a Python callable."""

from __future__ import annotations

import pickle
from array import array
from math import isnan

import pytest

from penstock import Engine, ResourceSet
from penstock.errors import EngineError


def engine(cores=1, **options):
    made = Engine(ResourceSet.uniform("0", "n", cores=range(cores)), policy="fcfs", **options)
    made.shape()
    return made


def shortest_first(pending):
    return sorted(range(len(pending)), key=lambda at: pending.durations[at])


def run(made, **options):
    """The order in which jobs start on a machine of one core."""
    order = []
    while decisions := made.schedule(float(len(order)), **options):
        order += decisions.ids
        made.free(decisions.ids)
    return order


def test_a_callable_orders_by_positions():
    made = engine(order=shortest_first)
    made.submit(range(4), 0, durations=[30, 10, 40, 20])
    assert run(made) == [1, 3, 0, 2]


def test_a_callable_orders_by_scores_and_ties_keep_the_queue_order():
    made = engine(score=lambda pending: [seconds // 20 for seconds in pending.durations])
    made.submit(range(4), 0, durations=[30, 10, 25, 45], priorities=[1, 1, 2, 1])
    assert run(made) == [3, 2, 0, 1]


def test_a_callable_for_one_pass_leaves_priorities_unchanged():
    made = engine()
    made.submit(range(4), 0, durations=[30, 10, 40, 20], priorities=[1, 2, 3, 4])
    assert made.schedule(0.0, order=shortest_first).ids.tolist() == [1]
    made.free(1)
    pending = made.pending()
    assert (pending.ids.tolist(), pending.priorities.tolist()) == ([3, 2, 0], [4, 3, 1])
    assert made.prioritize(0, 9) == 1
    assert run(made) == [0, 3, 2]


def test_omitted_jobs_do_not_start_and_held_ones_are_not_passed():
    made = engine(cores=8)
    made.submit(range(4), 0, priorities=[1, 0, 1, 1])
    seen = []

    def odd(pending):
        seen.append(pending.ids.tolist())
        return [at for at, job in enumerate(pending.ids) if job % 2]

    assert made.schedule(0.0, order=odd).ids.tolist() == [3]
    assert made.schedule(0.0, order=odd).ids.tolist() == []
    assert seen == [[0, 2, 3], [0, 2]]
    assert made.pending().priorities.tolist() == [1, 1, 0]
    assert made.schedule(0.0).ids.tolist() == [0, 2]


def test_jobs_left_out_are_not_held_and_all_answers_name_them():
    made = Engine(ResourceSet.uniform("0-2", "n[0-2]", cores="0-3"))
    made.submit([1, 2, 4, 5], made.shape(nodes=1), durations=10, priorities=[1, 1, 1, 0])
    assert made.schedule(0.0, order=lambda _: [1]).ids.tolist() == [2]
    why = made.explain(1, 0.0)
    assert (why.reason, why.facts) == ("left-out", {})
    assert str(why) == "left out: the order of the last pass does not have it"
    assert made.explain(5, 0.0).reason == "held"
    assert [(explanation.id, explanation.reason) for explanation in made.explain_all(0.0)] == [
        (1, "left-out"),
        (4, "left-out"),
    ]
    assert [explanation.id for explanation in made.explain_all(0.0, limit=1)] == [1]
    estimates = made.estimate(0.0)
    assert estimates.ids.tolist() == [1, 4]
    assert all(isnan(start) for start in estimates.starts)
    # The next pass looks at them again.
    assert made.schedule(0.0).ids.tolist() == [1, 4]


def test_the_callable_sees_times_and_sizes():
    made = engine()
    made.submit([1, 2], made.shape(slots=3, cores=2), durations=5, now=2.0)
    seen = []

    def score(pending):
        row = (pending.now, pending.waits, pending.submitted, pending.cores, pending.shapes)
        seen.append([row[0], *(column.tolist() for column in row[1:])])
        return array("f", [0.5, 0.25])

    made.schedule(7.0, score=score)
    assert seen == [[7.0, [5.0, 5.0], [2.0, 2.0], [6, 6], [1, 1]]]


def test_new_jobs_are_put_between_the_others():
    made = engine()
    made.submit(range(10), 0, durations=range(100, 110))
    waiting = set(range(10))
    for new in range(10, 200):
        made.submit(new, 0, durations=(new * 37) % 89 + 1)
        waiting.add(new)
        (first,) = made.schedule(float(new), order=shortest_first).ids
        durations = {job: (job * 37) % 89 + 1 if job >= 10 else 100 + job for job in waiting}
        least = min(durations.values())
        assert first == min(job for job, seconds in durations.items() if seconds == least)
        waiting.remove(first)
        made.free(first)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"order": lambda _: [0, 3]}, EngineError, r"order\[1\]: .* below 3, found 3"),
        ({"order": lambda _: [0, -1]}, EngineError, r"order\[1\]: expected a position .*, found"),
        ({"order": lambda _: [1, 2, 1]}, EngineError, r"order\[2\]: position 1 occurs twice"),
        ({"order": lambda _: None}, TypeError, "order: expected integers .*, found NoneType"),
        ({"order": lambda _: 0}, TypeError, "order: expected integers .*, found int"),
        ({"order": lambda _: [0.5]}, TypeError, r"order\[0\]: expected an integer, found float"),
        ({"score": lambda _: [1, 2]}, EngineError, "score: expected 3 numbers, .*, found 2"),
        ({"score": lambda _: [1, 2, float("nan")]}, EngineError, r"score\[2\]: .*, found nan"),
        ({"score": lambda _: "abc"}, TypeError, "score: expected numbers .*, found str"),
        ({"score": lambda _: [], "order": lambda _: []}, EngineError, "one of them at most"),
    ],
)
def test_an_invalid_order_starts_no_job(options, error, text):
    made = engine(cores=8)
    made.submit(range(3), 0)
    with pytest.raises(error, match=text):
        made.schedule(0.0, **options)
    assert (made.npending, made.nrunning) == (3, 0)


def test_an_error_of_the_callable_comes_out_and_starts_nothing():
    def fails(pending):
        raise ZeroDivisionError(len(pending))

    made = engine(score=fails)
    made.submit(range(3), 0)
    with pytest.raises(ZeroDivisionError, match="3"):
        made.schedule(0.0)
    assert made.npending == 3


def test_a_callable_that_changes_the_queue_gets_an_error():
    made = engine(cores=8)
    made.submit(range(3), 0)

    def cancels(pending):
        made.cancel(1)
        return range(len(pending))

    with pytest.raises(EngineError, match="job 1 has left the queue while it was put in order"):
        made.schedule(0.0, order=cancels)
    assert made.nrunning == 0
    assert made.schedule(0.0).ids.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("priority", [7, 5, 1, 2, 3, 4]),
        ("fifo", [7, 1, 2, 3, 4, 5]),
        ("shortest", [7, 3, 5, 2, 1, 4]),
        ("smallest", [7, 2, 4, 1, 5, 3]),
        ("largest", [7, 3, 5, 1, 2, 4]),
    ],
)
def test_a_queue_has_an_order(order, expected):
    made = Engine(ResourceSet.uniform("0", "n0", cores="0-7"), queues={"it": {"order": order}})
    sizes = [made.shape(slots=slots) for slots in (2, 1, 4, 1, 3, 1, 8)]
    limits = [60, 50, 10, 0, 20, 1, 3600]
    # The sixth is held, the seventh is expedited.
    priorities = [16, 16, 16, 16, 20, 0, 2**32 - 1]
    made.submit(range(1, 8), sizes, limits, priorities, queues="it")
    assert [*made.pending().ids] == [*expected, 6]
    assert pickle.loads(pickle.dumps(made)).pending().ids.tolist() == [*expected, 6]
    assert made.schedule(0.0).ids.tolist() == [7]
    made.free(7)
    # Another order applies to pending jobs.
    made.set_queue("it", order="largest")
    assert [*made.pending().ids] == [3, 5, 1, 2, 4, 6]
    assert made.schedule(0.0).ids.tolist() == [3, 5, 2]


def test_an_unknown_order_is_rejected():
    with pytest.raises(EngineError, match="order `random`: expected `priority`, `fifo`"):
        Engine(ResourceSet.uniform("0", "n0", cores="0"), queues={"a": {"order": "random"}})


def test_a_callable_overrides_the_order_of_the_queue():
    made = engine(queues={"it": {"order": "shortest"}})
    made.submit(range(4), 0, durations=[30, 10, 40, 20], queues="it")

    def longest_first(pending):
        return pending.durations

    copy = made.snapshot()
    assert run(copy, score=longest_first) == [2, 0, 3, 1]
    made.schedule(0.0, limit=0, score=longest_first)
    assert run(made) == [1, 3, 0, 2]
