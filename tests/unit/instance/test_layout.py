"""The layout of tasks on nodes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Engine
from penstock._core import lay_out
from penstock.errors import InventoryError, LayoutError
from penstock.inventory import from_config, from_file, simulated
from penstock.jobspec import from_command


def allocate(count, ncores, ngpus=0, /, **options):
    """The layout of a job on what the engine gives it."""
    spec = from_command(["app"], environment={}, cwd="/", **options)
    resources = simulated(count, ncores, ngpus)
    engine = Engine(resources)
    engine.submit_jobspecs(1, [spec])
    decisions = engine.schedule(0.0)
    assert not decisions.denied
    return lay_out(json.dumps(spec), decisions.r(0))


def shown(places):
    return [
        (task.task_rank, task.local_rank, task.host, str(task.cores), str(task.gpus))
        for task in places
    ]


def test_slots_fill_the_lowest_ranks():
    assert shown(allocate(2, 4, 2, ntasks=3, cores_per_task=2, gpus_per_task=1)) == [
        (0, 0, "node0", "0-1", "0"),
        (1, 1, "node0", "2-3", "1"),
        (2, 0, "node1", "0-1", "0"),
    ]


def test_tasks_that_do_not_divide_go_in_blocks():
    places = allocate(4, 4, nodes=4, ntasks=6)
    assert [task.target for task in places] == [0, 0, 1, 1, 2, 3]


def test_an_exclusive_node_s_cores_are_shared_out():
    assert shown(allocate(1, 8, 2, nodes=1, ntasks=2, exclusive=True)) == [
        (0, 0, "node0", "0-3", "0"),
        (1, 1, "node0", "4-7", "1"),
    ]


def test_tasks_may_share_all_that_the_job_has_on_their_node():
    spec = from_command(["app"], ntasks=6, gpus_per_task=1, environment={}, cwd="/")
    resources = simulated(2, 4, 4)
    options = spec["attributes"]["system"]["shell"] = {"options": {"cpu-affinity": "off"}}
    assert shown(lay_out(json.dumps(spec), resources))[4:] == [
        (4, 0, "node1", "0-3", "0-1"),
        (5, 1, "node1", "0-3", "2-3"),
    ]
    options["options"] = {"gpu-affinity": "off"}
    assert shown(lay_out(json.dumps(spec), resources))[5] == (5, 1, "node1", "2-3", "0-3")


def test_one_task_starts_an_instance_with_all_that_its_node_has():
    spec = from_command(["app"], ntasks=6, gpus_per_task=1, environment={}, cwd="/")
    spec["attributes"]["system"]["shell"] = {"options": {"instance": True}}
    assert shown(lay_out(json.dumps(spec), simulated(2, 4, 4))) == [(0, 0, "node0", "0-3", "0-3")]
    spec = from_command(["app"], ntasks=3, nodes=3, environment={}, cwd="/")
    spec["attributes"]["system"]["shell"] = {"options": {"instance": True}}
    assert shown(lay_out(json.dumps(spec), simulated(3, 2))) == [(0, 0, "node0", "0-1", "")]


def test_too_small_an_r_is_an_error():
    spec = from_command(["app"], ntasks=3, environment={}, cwd="/")
    with pytest.raises(LayoutError, match="R has 2 slots, the jobspec asks for 3"):
        lay_out(json.dumps(spec), simulated(1, 2))


def granted(count, ncores, ngpus=0, /, nslots=None, **options):
    """The layout on all of a simulated R, with its number of slots or without."""
    spec = from_command(["app"], environment={}, cwd="/", **options)
    resources = simulated(count, ncores, ngpus)
    resources.nslots = nslots
    return shown(lay_out(json.dumps(spec), resources))


def test_a_job_of_ranges_has_as_many_tasks_as_slots_were_granted():
    # R holds the slot count; its resources are divided evenly among the slots.
    assert len(granted(2, 4, nslots=7, ntasks="1+")) == 7
    assert granted(2, 4, nslots=2, ntasks="1+", cores_per_task="1-8") == [
        (0, 0, "node0", "0-3", ""),
        (1, 0, "node1", "0-3", ""),
    ]
    assert len(granted(3, 4, nslots=12, nodes=3, ntasks="3+")) == 12
    assert len(granted(3, 4, nslots=3, nodes="2-4")) == 3
    # If R does not say, there are as many as it has room for and the range admits.
    assert len(granted(2, 4, ntasks="1+")) == 8
    assert len(granted(2, 5, ntasks="1+:2:*", cores_per_task=2)) == 4
    assert len(granted(2, 5, 3, ntasks="1-5", gpus_per_task=1)) == 5
    assert len(granted(2, 5, nodes=2, ntasks="2-6")) == 6
    assert len(granted(3, 2, nodes="2-4", ntasks=4)) == 4


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        # The most that two nodes with four cores and two gpus have room for.
        ({"ntasks": "1+"}, [(1, 0)] * 8),
        ({"ntasks": "3-5"}, [(1, 0)] * 5),
        ({"ntasks": "1+:2:*", "cores_per_task": 2, "gpus_per_task": 1}, [(2, 1)] * 4),
        ({"ntasks": 2, "cores_per_task": "1-3"}, [(2, 0)] * 2),
        ({"nodes": "1+"}, [(4, 2)] * 2),
        ({"nodes": "2-3", "ntasks": 6}, [(1, 0)] * 6),
        ({"nodes": 2, "ntasks": "2-6", "gpus_per_task": "1-2"}, [(1, 1)] * 4),
    ],
)
def test_the_engine_grants_ranges_that_can_be_laid_out(options, tasks):
    places = allocate(2, 4, 2, **options)
    assert [(len(task.cores), len(task.gpus)) for task in places] == tasks


def test_slots_that_differ_from_node_to_node_are_an_error():
    with pytest.raises(LayoutError, match="R has 5 slots on 2 nodes: expected the same on each"):
        granted(2, 4, nslots=5, nodes=2, ntasks="2-6")


@given(st.integers(1, 4), st.integers(1, 9), st.integers(1, 3), st.integers(0, 1))
@settings(deadline=None)
def test_every_task_has_its_own_cores(nodes, ntasks, cores, gpus):
    ntasks = max(ntasks, nodes)
    places = allocate(
        nodes, 32, 16, nodes=nodes, ntasks=ntasks, cores_per_task=cores, gpus_per_task=gpus
    )
    assert [task.task_rank for task in places] == list(range(ntasks))
    used = [(task.target, core) for task in places for core in task.cores]
    assert len(used) == len(set(used))
    assert all(len(task.cores) == cores and len(task.gpus) == gpus for task in places)
    per_node = [sum(task.target == target for task in places) for target in range(nodes)]
    assert max(per_node) - min(per_node) <= 1


def test_inventories_from_files_and_configuration(tmp_path):
    from penstock.config import parse

    config = parse(
        '[[resource.config]]\nhosts = "a[0-1],b"\ncores = "0-3"\n'
        '[[resource.config]]\nhosts = "b"\ngpus = "0-1"\nproperties = ["gpu"]\n'
    )
    resources = from_config(config.resource.config)
    assert resources.summary() == "rank[0-1]/core[0-3] rank2/core[0-3],gpu[0-1]"
    assert str(resources.nodelist) == "a[0-1],b"
    assert {name: str(ranks) for name, ranks in resources.properties.items()} == {"gpu": "2"}
    path = tmp_path / "R"
    path.write_text(resources.to_json())
    assert from_file(path) == resources
    path.write_text("{}")
    with pytest.raises(InventoryError, match="R"):
        from_file(path)
    with pytest.raises(InventoryError, match=r"no cores are given for c\[0-1\]"):
        from_config(parse('[[resource.config]]\nhosts = "c[0-1]"\n').resource.config)
    with pytest.raises(InventoryError, match="0 nodes: expected 1 to"):
        simulated(0, 1)
