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

VECTORS = Path(__file__).parent.parent / "vectors"


def vectors(name):
    return json.loads((VECTORS / name).read_text())


@pytest.mark.parametrize(
    "case", vectors("jobspec.json")["good"], ids=lambda case: case["name"].replace(" ", "-")
)
def test_a_good_jobspec_is_summed_up(case):
    summary = validate_jobspec(json.dumps(case["jobspec"]))
    assert {key: summary[key] for key in case["summary"]} == case["summary"]


def test_a_bad_jobspec_is_refused_with_the_place_and_what_was_expected():
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
        # Tasks that do not divide: enough slots on each node, as many tasks as asked for.
        ({"nodes": 4, "ntasks": 5}, (5, 4, 8, 0, False)),
    ],
)
def test_options_become_resources(options, summary):
    keys = ("ntasks", "nnodes", "ncores", "ngpus", "exclusive")
    assert made(**options)[1] == dict(zip(keys, summary, strict=True))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ntasks": 0}, "ntasks: expected at least 1, found 0"),
        ({"nodes": 3, "ntasks": 2}, "nodes: expected at most 2 (the number of tasks), found 3"),
        ({"exclusive": True}, "exclusive: expected a number of nodes as well"),
        ({"dependencies": ["afterok"]}, "dependency `afterok`: expected scheme:value"),
        ({"setattr": {"a..b": 1}}, "attribute `a..b`: expected names between the periods"),
        ({"setattr": {"duration.x": 1}}, "attribute `duration.x`: `duration` is not an object"),
    ],
)
def test_options_that_contradict_each_other_are_told(options, text):
    with pytest.raises(JobspecError) as caught:
        made(**options)
    assert str(caught.value) == text


def test_everything_else_goes_where_rfc_14_has_it():
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
