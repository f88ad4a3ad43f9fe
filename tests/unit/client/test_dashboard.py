"""The queries of `examples/grafana.json` are about metrics that the instance has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from penstock.metrics import FAMILIES

DASHBOARD = json.loads((Path(__file__).parents[3] / "examples" / "grafana.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
FUNCTIONS = {"sum", "min", "rate", "histogram_quantile"}
# The metric with its selector, a list of labels, or a function.
METRIC = re.compile(r"(\w+)\{([^}]*)\}")
MATCHER = re.compile(r"(\w+)(?:=~|!=|=)\"[^\"]*\"")


def samples():
    """For each name in queries, the labels that it has, and its kind."""
    for family in FAMILIES:
        labels = {*family.labels, "instance"}
        if family.kind == "histogram":
            yield f"{family.name}_bucket", ({*labels, "le"}, "counter")
            yield from ((f"{family.name}_{part}", (labels, "counter")) for part in ("sum", "count"))
        else:
            yield family.sample, (labels, family.kind)


SAMPLES = dict(samples())


def problems(query: str) -> list[str]:
    """The problems of a query."""
    found = []
    metrics = METRIC.findall(query)
    if len(metrics) != 1:
        return [f"expected one metric, found {len(metrics)}"]
    ((name, matchers),) = metrics
    if name not in SAMPLES:
        return [f"unknown metric `{name}`"]
    labels, kind = SAMPLES[name]
    used = {label for part in re.findall(r"by \(([^)]*)\)", query) for label in part.split(", ")}
    used |= {MATCHER.fullmatch(each)[1] for each in matchers.split(",")}
    if used - labels:
        found.append(f"`{name}` has no label {used - labels}")
    if ("rate(" in query) != (kind == "counter"):
        found.append(f"`{name}` is a {kind}")
    if ("histogram_quantile(" in query) != name.endswith("_bucket"):
        found.append("a quantile is that of buckets")
    rest = METRIC.sub("", query)
    functions = set(re.findall(r"(\w+)\(", re.sub(r" by \([^)]*\) \(", "(", rest)))
    if functions - FUNCTIONS:
        found.append(f"unknown functions {functions - FUNCTIONS}")
    if query.count("(") != query.count(")"):
        found.append("the parentheses do not match")
    return found


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_is_about_a_metric_of_the_instance(query):
    assert problems(query) == []


def test_the_legends_and_variables_are_those_of_the_queries():
    assert len(PANELS) > 10
    for panel in PANELS:
        for target in panel["targets"]:
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                assert re.search(rf"by \([^)]*\b{label}\b", target["expr"]), target
    (instance,) = (v for v in DASHBOARD["templating"]["list"] if v["name"] == "instance")
    name = re.fullmatch(r"label_values\((\w+), instance\)", instance["query"]["query"])[1]
    assert name in SAMPLES
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    "query",
    [
        'sum(penstock_job{instance=~"x"})',
        'sum(penstock_jobs_submitted{instance=~"x"})',
        'sum(penstock_jobs_submitted_total{instance=~"x"})',
        'sum(rate(penstock_jobs{instance=~"x"}[1m]))',
        'sum by (queue) (penstock_jobs{instance=~"x"})',
        'sum(penstock_jobs{queue="x"})',
        'histogram_quantile(0.5, sum by (le) (rate(penstock_round_seconds_sum{instance="x"}[1m])))',
        'average(penstock_jobs{instance=~"x"})',
        'sum(penstock_jobs{instance=~"x"}',
        "sum(1)",
    ],
)
def test_a_query_that_is_wrong_is_found(query):
    assert problems(query)
