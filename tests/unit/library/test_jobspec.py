"""Jobspecs, constraints, job ids and durations against the shared vectors, and from options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock import jobspec
from penstock._core import (
    fluid_dothex,
    fluid_f58,
    fluid_parse,
    parse_duration,
    validate_constraint,
    validate_jobspec,
)
from penstock.errors import JobspecError

VECTORS = Path(__file__).parents[2] / "vectors"


def vectors(name):
    return json.loads((VECTORS / name).read_text())


@pytest.mark.parametrize(
    "case", vectors("jobspec.json")["good"], ids=lambda case: case["name"].replace(" ", "-")
)
def test_a_good_jobspec_is_summed_up(case):
    summary = validate_jobspec(json.dumps(case["jobspec"]))
    assert {key: summary[key] for key in case["summary"]} == case["summary"]


def test_an_invalid_jobspec_names_the_place_and_the_expectation():
    for case in vectors("jobspec.json")["bad"]:
        with pytest.raises(JobspecError) as caught:
            validate_jobspec(json.dumps(case["jobspec"]))
        assert str(caught.value) == case["error"]


def test_constraints():
    for case in vectors("constraint.json")["good"]:
        normal = json.loads(validate_constraint(json.dumps(case["constraint"])))
        assert normal == case["normal"]
    for case in vectors("constraint.json")["bad"]:
        with pytest.raises(JobspecError) as caught:
            validate_constraint(json.dumps(case["constraint"]))
        assert str(caught.value) == case["error"]


def test_job_ids():
    for case in vectors("fluid.json")["forms"]:
        assert fluid_f58(case["id"]) == case["f58"]
        assert fluid_dothex(case["id"]) == case["dothex"]
        for text in [case["f58"], case["dothex"], *case["also"]]:
            assert fluid_parse(text) == case["id"]
    for text in vectors("fluid.json")["bad"]:
        with pytest.raises(JobspecError, match="invalid job id"):
            fluid_parse(text)


def test_durations():
    for text, seconds in vectors("duration.json")["good"]:
        assert parse_duration(text) == pytest.approx(seconds)
    for text in vectors("duration.json")["infinite"]:
        assert parse_duration(text) == float("inf")
    for text in vectors("duration.json")["bad"]:
        with pytest.raises(JobspecError, match="invalid duration"):
            parse_duration(text)


def made(**options):
    spec = jobspec.from_command(["app"], environment={}, cwd="/", **options)
    summary = validate_jobspec(json.dumps(spec))
    return spec, {key: summary[key] for key in ("ntasks", "nnodes", "ncores", "ngpus", "exclusive")}


@pytest.mark.parametrize(
    ("options", "summary"),
    [
        ({}, (1, None, 1, 0, False)),
        ({"ntasks": 10, "cores_per_task": 2}, (10, None, 20, 0, False)),
        ({"ntasks": 10, "cores_per_task": 2, "gpus_per_task": 1}, (10, None, 20, 10, False)),
        # Nodes alone: one task a node, and the nodes whole.
        ({"nodes": 4}, (4, 4, 4, 0, True)),
        ({"nodes": 4, "ntasks": 4}, (4, 4, 4, 0, False)),
        ({"nodes": 4, "ntasks": 4, "exclusive": True}, (4, 4, 4, 0, True)),
        # Tasks not divisible by the nodes: enough slots on each node, as many tasks as requested.
        ({"nodes": 4, "ntasks": 5}, (5, 4, 8, 0, False)),
    ],
)
def test_options_become_resources(options, summary):
    keys = ("ntasks", "nnodes", "ncores", "ngpus", "exclusive")
    assert made(**options)[1] == dict(zip(keys, summary, strict=True))


def counts(**options):
    """The counts of nodes, slots, cores and gpus, and of tasks."""
    spec, _ = made(**options)
    top = spec["resources"][0]
    node, slot = (top["count"], top["with"][0]) if top["type"] == "node" else (None, top)
    each = [child["count"] for child in slot["with"]]
    return node, slot["count"], *each, spec["tasks"][0]["count"]


def ranged(least, most=None, operand=1, operator="+"):
    has_max = {} if most is None else {"max": most}
    return {"min": least, **has_max, "operator": operator, "operand": operand}


PER_SLOT_ONE = {"per_slot": 1}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"ntasks": "2-4"}, (None, ranged(2, 4), 1, PER_SLOT_ONE)),
        ({"ntasks": {"min": 2}}, (None, {"min": 2}, 1, PER_SLOT_ONE)),
        ({"ntasks": "3-3"}, (None, 3, 1, PER_SLOT_ONE)),
        ({"ntasks": "2,4,8"}, (None, "2,4,8", 1, PER_SLOT_ONE)),
        (
            {"cores_per_task": "2+:2:*", "gpus_per_task": "[1-2]"},
            (None, 1, ranged(2, None, 2, "*"), ranged(1, 2), PER_SLOT_ONE),
        ),
        # Nodes alone: one task on each that the job gets.
        ({"nodes": "2-4"}, (ranged(2, 4), 1, 1, PER_SLOT_ONE)),
        ({"nodes": "1-9:4"}, (ranged(1, 9, 4), 1, 1, PER_SLOT_ONE)),
        # A fixed number of tasks: room for all on the fewest nodes, no node without a task.
        ({"nodes": "2-4", "ntasks": 8}, (ranged(2, 4), 4, 1, {"total": 8})),
        ({"nodes": "2+", "ntasks": 5}, (ranged(2, 5), 3, 1, {"total": 5})),
        ({"nodes": "4,9,16", "ntasks": 10}, ("4,9", 3, 1, {"total": 10})),
        ({"nodes": "3+", "ntasks": 3}, (3, 1, 1, PER_SLOT_ONE)),
        # A range of tasks: the same on each node.
        ({"nodes": 2, "ntasks": "3-9"}, (2, ranged(2, 4), 1, PER_SLOT_ONE)),
        ({"nodes": 2, "ntasks": "3+"}, (2, ranged(2), 1, PER_SLOT_ONE)),
        ({"nodes": 2, "ntasks": "4-12:4"}, (2, ranged(2, 6, 2), 1, PER_SLOT_ONE)),
        ({"nodes": 2, "ntasks": "4+:2:*"}, (2, ranged(2, None, 2, "*"), 1, PER_SLOT_ONE)),
        ({"nodes": 1, "ntasks": "2+:2:^"}, (1, ranged(2, None, 2, "^"), 1, PER_SLOT_ONE)),
    ],
)
def test_ranges_become_counts(options, expected):
    assert counts(**options) == expected


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ntasks": 0}, "ntasks: expected at least 1, found 0"),
        ({"nodes": 3, "ntasks": 2}, "nodes: expected at most 2 (the number of tasks), found 3"),
        ({"exclusive": True}, "exclusive: expected a number of nodes as well"),
        ({"ntasks": "0-2"}, "ntasks: expected at least 1, found 0"),
        ({"gpus_per_task": "0-2"}, "gpus per task: expected at least 1, found 0"),
        (
            {"nodes": "4-2"},
            "nodes: invalid count: `4-2`: max: expected at least 4, found 2",
        ),
        (
            {"nodes": {"min": 4, "max": 2}},
            "nodes: invalid jobspec: count.max: expected at least 4, found 2",
        ),
        (
            {"nodes": "3-4", "ntasks": 2},
            "nodes: expected at most 2 (the number of tasks), found 3",
        ),
        (
            {"nodes": "1-2", "ntasks": "2-4"},
            "ntasks: expected a number, not a range, with a range of nodes",
        ),
        (
            {"nodes": 4, "ntasks": "5-7"},
            "ntasks: expected a range that gives each of 4 nodes the same number",
        ),
        ({"dependencies": ["afterok"]}, "dependency `afterok`: expected scheme:value"),
        ({"setattr": {"a..b": 1}}, "attribute `a..b`: expected names between the periods"),
        ({"setattr": {"duration.x": 1}}, "attribute `duration.x`: `duration` is not an object"),
    ],
)
def test_contradicting_options_are_an_error(options, text):
    with pytest.raises(JobspecError) as caught:
        made(**options)
    assert str(caught.value) == text


def test_other_options_go_where_rfc_14_has_them():
    spec, _ = made(
        duration=60.0,
        queue="q",
        requires="gpu",
        dependencies=["afterok:ƒ2", "begin-time:5?x=y"],
        name="n",
        output="o-{{id}}",
        error="e",
        setattr={"a.b": 1, "system.c": 2, "attributes.user.d": 3},
    )
    assert spec["attributes"] == {
        "system": {
            "duration": 60.0,
            "cwd": "/",
            "environment": {},
            "queue": "q",
            "constraints": {"properties": ["gpu"]},
            "dependencies": [
                {"scheme": "afterok", "value": "ƒ2"},
                {"scheme": "begin-time", "value": "5", "x": "y"},
            ],
            "job": {"name": "n"},
            "shell": {
                "options": {
                    "output": {
                        "stdout": {"type": "file", "path": "o-{{id}}"},
                        "stderr": {"type": "file", "path": "e"},
                    }
                }
            },
            "a": {"b": 1},
            "c": 2,
        },
        "user": {"d": 3},
    }


def test_environment_rules_apply_in_order(monkeypatch):
    for name in ("QQA", "QQB", "B"):
        monkeypatch.setenv(name, name.lower())
    rules = jobspec.environment_from_rules
    assert rules(["-*"]) == {}
    assert rules(["-*", "QQ*"]) == {"QQA": "qqa", "QQB": "qqb"}
    assert rules(["-*", "QQ*", "-QQB", "C=${QQA}/$QQA"]) == {"QQA": "qqa", "C": "qqa/qqa"}
    assert rules([])["B"] == "b"
