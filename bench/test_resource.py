"""R on 10,000 nodes of 64 cores, all equal and all different. Run by `make bench`.

`json.loads` of the same text is the yardstick.
"""

from __future__ import annotations

import json

import pytest

from penstock import ResourceSet

NODES = 10_000


def cores(rank, gone):
    """Cores 0-62 without up to three, different for each rank."""
    return ",".join(str(core) for core in range(63) if core not in gone(rank))


def different(gone):
    r_lite = [{"rank": str(rank), "children": {"core": cores(rank, gone)}} for rank in range(NODES)]
    execution = {"R_lite": r_lite, "nodelist": [f"node[0-{NODES - 1}]"]}
    return ResourceSet({"version": 1, "execution": execution}).to_json()


@pytest.fixture(scope="module", params=["equal", "different"])
def texts(request):
    if request.param == "equal":
        hosts = f"node[0-{NODES - 1}]"
        return [
            ResourceSet.uniform(range(NODES), hosts, cores=some).to_json()
            for some in ("0-63", "32-95")
        ]
    return [
        different(lambda rank: (rank % 63, rank // 63 % 63, rank // 3969)),
        different(lambda rank: ((rank + 7) % 63, rank // 63 % 62, rank // 3969 + 9)),
    ]


def test_json_loads(benchmark, texts):
    assert benchmark(json.loads, texts[0])["version"] == 1


def test_load(benchmark, texts):
    assert benchmark(ResourceSet, texts[0]).nnodes == NODES


def test_encode(benchmark, texts):
    assert benchmark(ResourceSet(texts[0]).to_json) == texts[0]


@pytest.mark.parametrize("operation", ["union", "intersection", "difference"])
def test_combine(benchmark, texts, operation):
    one, other = map(ResourceSet, texts)
    assert benchmark(getattr(one, operation), other).nnodes > 0


@pytest.mark.parametrize(
    "part",
    [
        {"hosts": "node[2500-4999]"},
        {"constraint": {"hostlist": ["node[2500-4999]"]}},
        {"constraint": {"ranks": ["2500-4999"]}},
    ],
    ids=["hosts", "hostlist", "ranks"],
)
def test_restrict(benchmark, texts, part):
    r = ResourceSet(texts[0])
    assert benchmark(lambda: r.restrict(**part)).nnodes == 2500
