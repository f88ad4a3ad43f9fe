"""The engine through Python, a batch a call. Run by `make bench`."""

from __future__ import annotations

import json

import pytest

from penstock import ResourceSet
from penstock._core import Engine
from penstock.jobspec import from_command

BATCH = 1000


@pytest.mark.parametrize("nodes", [1_000, 10_000, 100_000])
@pytest.mark.parametrize("shape", ["core", "node"])
def test_match_1000_jobs(benchmark, nodes, shape):
    ranks = f"0-{nodes - 1}"
    engine = Engine(ResourceSet.uniform(ranks, f"node[{ranks}]", cores="0-63").to_json())
    engine.mark_up(ranks)
    options = {} if shape == "core" else {"nodes": 1}
    spec = json.dumps(from_command(["x"], environment={}, cwd="/", **options))

    def queue():
        for job in range(BATCH):
            if engine.running:
                engine.free(job)
            engine.submit(job, 16, spec)

    def match():
        return engine.schedule(1.0)

    assert len(benchmark.pedantic(match, setup=queue, rounds=20)) == BATCH
