"""Engines and threads: several engines at once, each used by one thread at a time."""

from __future__ import annotations

import threading

from penstock import Engine, ResourceSet
from penstock.errors import EngineError


def simulated(seed):
    """The ends of all jobs of a small simulation."""
    engine = Engine(ResourceSet.uniform("0-63", "n[0-63]", cores="0-7"))
    shapes = [engine.shape(cores=cores) for cores in range(1, 9)]
    ids = range(3000)
    durations = [(job * seed) % 97 + 1 for job in ids]
    engine.submit(ids, [shapes[(job * seed) % 8] for job in ids], durations)
    ends, now = {}, 0.0
    while engine.npending or engine.nrunning:
        decisions = engine.schedule(now)
        ends.update((job, now + durations[job]) for job in decisions.ids)
        running = engine.running().ids.tolist()
        now = min(ends[job] for job in running)
        engine.free([job for job in running if ends[job] <= now])
    return ends


def test_engines_in_several_threads_decide_as_in_one():
    expected = {seed: simulated(seed) for seed in (3, 5)}
    found = {}
    threads = [
        threading.Thread(target=lambda seed=seed: found.update({seed: simulated(seed)}))
        for seed in expected
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected


def looked_at_while_it_works():
    """The errors that another thread gets from an engine during a pass."""
    engine = Engine(ResourceSet.uniform("0-999", "n[0-999]", cores="0-63"))
    engine.submit(range(50_000), engine.shape())
    begun, over, errors = threading.Event(), threading.Event(), set()

    def work():
        begun.set()
        engine.schedule(0.0)
        over.set()

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    while not over.is_set():
        try:
            assert engine.npending in (0, 50_000)
        except EngineError as error:
            errors.add(str(error).partition(":")[0])
    thread.join()
    assert engine.nrunning == 50_000
    return errors


def test_a_busy_engine_rejects_calls_of_other_threads():
    # The system decides whether the other thread runs during the pass: try many times.
    errors = next(filter(None, (looked_at_while_it_works() for _ in range(100))))
    assert errors == {"the engine is at work in another thread"}


def test_an_engine_can_be_used_within_its_own_callable():
    engine = Engine(ResourceSet.uniform("0", "n", cores="0-7"))
    engine.submit(range(4), engine.shape())
    seen = []

    def order(pending):
        seen.append((engine.npending, engine.snapshot().schedule(0.0).ids.tolist()))
        return range(len(pending))

    assert engine.schedule(0.0, order=order).ids.tolist() == [0, 1, 2, 3]
    assert seen == [(4, [0, 1, 2, 3])]
