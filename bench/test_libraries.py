"""The set libraries, on the sizes of a large system. Run by `make bench`."""

from __future__ import annotations

import json
import random

from penstock import Hostlist, IDset, ResourceSet


def test_idset_parse_10000_ranges(benchmark):
    rng = random.Random(2)
    text = str(IDset(rng.sample(range(1_000_000), 20_000)))
    assert len(benchmark(IDset, text)) == 20_000


def test_idset_union_of_random_halves(benchmark):
    rng = random.Random(3)
    left = IDset(rng.sample(range(1_000_000), 500_000))
    right = IDset(rng.sample(range(1_000_000), 500_000))
    assert len(benchmark(lambda: left | right)) >= 500_000


def test_hostlist_parse_a_range(benchmark):
    assert len(benchmark(Hostlist, "node[0-99999]")) == 100_000


def test_hostlist_fold_shuffled_names(benchmark, hosts):
    assert len(benchmark(Hostlist, hosts)) == 100_000


def test_hostlist_sort_shuffled_names(benchmark, hosts):
    def sort():
        made = Hostlist(hosts)
        made.sort()
        return made

    assert str(benchmark(sort)) == "node[0-99999]"


def test_r_load_10000_equal_nodes(benchmark):
    text = ResourceSet.uniform("0-9999", "node[0-9999]", cores="0-63").to_json()
    assert benchmark(ResourceSet, text).ncores == 640_000


def test_r_load_10000_different_nodes(benchmark):
    lite = [
        {"rank": str(rank), "children": {"core": f"0-{rank % 62 + 1},64"}} for rank in range(10_000)
    ]
    execution = {"R_lite": lite, "nodelist": ["node[0-9999]"]}
    text = json.dumps({"version": 1, "execution": execution})
    assert benchmark(ResourceSet, text).nnodes == 10_000
