"""Queue groups: queues that compete for nodes share an order."""

from __future__ import annotations

import pytest

from penstock._core import ResourceSet
from penstock.config import parse
from penstock.instance.settings import queue_groups


@pytest.fixture
def resources():
    r = ResourceSet.uniform("0-9", "n[0-9]", cores="0-3")
    for name, ranks in (("debug", "0-1"), ("gpu", "1-3"), ("big", "8-9")):
        r.add_property(name, ranks)
    return r


@pytest.mark.parametrize(
    ("queues", "expected"),
    [
        ({}, {}),
        ({"a": "", "b": ""}, {"a": "a", "b": "a"}),
        ({"a": 'requires=["debug"]', "b": 'requires=["^debug"]'}, {"a": "a", "b": "b"}),
        ({"a": 'requires=["debug"]', "b": 'requires=["gpu"]'}, {"a": "a", "b": "a"}),
        # By way of a third.
        (
            {"a": 'requires=["debug"]', "b": 'requires=["big"]', "c": 'constraint={ranks=["1-8"]}'},
            {"a": "a", "b": "a", "c": "a"},
        ),
        (
            {"a": 'requires=["big"]', "b": 'requires=["gpu"]', "c": 'requires=["debug"]'},
            {"a": "a", "b": "b", "c": "b"},
        ),
        # One without nodes takes nothing from anybody.
        ({"a": "", "b": 'requires=["none"]'}, {"a": "a", "b": "b"}),
        (
            {"a": 'requires=["gpu"]\nconstraint={hostlist=["n3"]}', "b": 'requires=["debug"]'},
            {"a": "a", "b": "b"},
        ),
    ],
    ids=str,
)
def test_queues_with_a_node_in_common_are_in_one_group(resources, queues, expected):
    text = "".join(f"[queues.{name}]\n{table}\n" for name, table in queues.items())
    if queues:
        text += "[policy.jobspec.defaults.system]\nqueue = 'a'\n"
    assert queue_groups(parse(text).queues, resources) == expected
