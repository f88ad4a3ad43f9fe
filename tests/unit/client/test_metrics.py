"""The statistics of services as OpenMetrics text."""

from __future__ import annotations

import math

import openmetrics
import pytest
from openmetrics import InvalidTextError

from penstock import metrics
from penstock._core import Histogram

BROKER = {"connections": 2, "failed": 0, "build": {"version": '1 "x"'}}


def histogram(*durations: float) -> dict[str, object]:
    made = Histogram()
    for seconds in durations:
        made.observe(seconds)
    return made.stats()


def parsed(**stats: object) -> dict[str, openmetrics.MetricFamily]:
    named = {name.replace("_", "-"): value for name, value in stats.items()}
    return openmetrics.parse(metrics.openmetrics(named))  # type: ignore[arg-type]


def test_values_of_each_kind_are_read_back():
    found = parsed(
        broker={**BROKER, "commits": histogram(0.0015, 0.0015, 60.0), "received": 9},
        job_manager={
            "states": {"sched": 3, "run": 4},
            "queues": {'a"\\b\n': {"pending": 5, "running": 6}},
            "stages": {"run": histogram(0.5), "start": histogram()},
        },
        resource={"ranks": "0-9", "up": "", "drained": 1},
        sched=None,
    )
    assert found["penstock_connections"].value() == 2
    assert found["penstock_messages_received"].value("_total") == 9
    assert found["penstock_build"].value("_info", version=r"1 \"x\"") == 1
    assert found["penstock_jobs"].value(state="sched") == 3
    assert found["penstock_queue_jobs"].value(queue=r"a\"\\b\n", state="running") == 6
    assert found["penstock_nodes"].value() == 10
    assert found["penstock_nodes_up"].value() == 0
    assert found["penstock_service_up"].value(service="sched") == 0
    assert found["penstock_service_up"].value(service="broker") == 1
    commits = found["penstock_commit_seconds"]
    assert commits.unit == "seconds"
    assert (commits.value("_count"), commits.value("_sum")) == (3, 60.003)
    assert commits.value("_bucket", le="0.001") == 0
    assert commits.value("_bucket", le="0.002") == 2
    assert commits.value("_bucket", le="+Inf") == 3
    assert found["penstock_job_stage_seconds"].value("_count", stage="start") == 0
    assert "penstock_sched_jobs_pending" not in found


@pytest.mark.parametrize(
    "value",
    [
        *(None, "x", [], {}, math.nan, -1, True, {"a": {}}),
        {"count": 1, "sum": 1, "le": [1], "buckets": []},
        {"count": 2, "sum": 1, "le": [1, 2], "buckets": [2, 1]},
        {"count": 2, "sum": 1, "le": [2, 1], "buckets": [1, 2]},
        {"count": 2, "sum": 1, "le": [1], "buckets": [3]},
    ],
)
def test_what_a_service_of_others_answers_does_not_spoil_the_text(value):
    found = parsed(
        broker={"connections": value, "commits": value, "guests": value, "build": value},
        job_manager={"submitted": value, "queues": {"a": None}, "stages": {"run": value}},
        sched={"queued": value, "passes": value},
        resource={"up": value},
    )
    services = found.pop("penstock_service_up").samples
    assert sum(services.values()) == 4
    assert set(found) <= {"penstock_build"}


def test_the_names_follow_the_conventions():
    names = [family.name for family in metrics.FAMILIES]
    assert len(names) == len(set(names))
    for family in metrics.FAMILIES:
        assert family.name.startswith(("penstock_", "process_")), family
        assert not family.name.endswith(("_total", "_count", "_sum", "_bucket", "_info")), family
        assert family.doc.endswith("."), family
        assert family.kind != "histogram" or family.unit == "seconds", family


def test_the_share_of_durations_has_a_bound():
    made = histogram(*[0.0015] * 98, 0.4, 60.0)
    bounds = [metrics.quantile_bound(made, share) for share in (0.5, 0.99, 1.0)]
    assert bounds == [0.002, 0.5, math.inf]


GAUGE = "# TYPE a gauge\na 1\n"
HISTOGRAM = "# TYPE a histogram\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# EOF",
        GAUGE,
        f"{GAUGE}\n# EOF\n",
        "a 1\n# EOF\n",
        f"{GAUGE}a 2\n# EOF\n",
        "# TYPE a gauge\na  1\n# EOF\n",
        "# TYPE a gauge\na one\n# EOF\n",
        "# TYPE a gauge\na_total 1\n# EOF\n",
        "# TYPE a counter\na 1\n# EOF\n",
        "# TYPE a counter\na_total -1\n# EOF\n",
        "# TYPE a gauge\n# EOF\n",
        f"{GAUGE}# TYPE b gauge\nb 1\n# TYPE a gauge\na 2\n# EOF\n",
        f"{GAUGE}# HELP a Late.\n# EOF\n",
        "# TYPE a_seconds gauge\n# UNIT a_seconds bytes\na_seconds 1\n# EOF\n",
        '# TYPE a gauge\na{b="1",b="2"} 1\n# EOF\n',
        '# TYPE a gauge\na{b="1",} 1\n# EOF\n',
        '# TYPE a gauge\na{b="\\x"} 1\n# EOF\n',
        '# TYPE a gauge\na{__b="1"} 1\n# EOF\n',
        "# TYPE a counter\na_total 1\n# TYPE a_total gauge\na_total 1\n# EOF\n",
        "# TYPE a info\na_info 2\n# EOF\n",
        '# TYPE a histogram\na_bucket{le="1.0"} 1\na_count 1\na_sum 1\n# EOF\n',
        '# TYPE a histogram\na_bucket{le="+Inf"} 1\na_count 2\na_sum 1\n# EOF\n',
        '# TYPE a histogram\na_bucket{le="+Inf"} 1\na_count 1\n# EOF\n',
        f'{HISTOGRAM}a_bucket{{le="1"}} 1\na_bucket{{le="+Inf"}} 1\na_count 1\na_sum 1\n# EOF\n',
        f'{HISTOGRAM}a_bucket{{le="1.0"}} 2\na_bucket{{le="+Inf"}} 1\na_count 1\na_sum 1\n# EOF\n',
    ],
)
def test_the_reader_of_the_tests_is_strict(text):
    assert openmetrics.parse(f"{GAUGE}# EOF\n")["a"].value() == 1
    with pytest.raises(InvalidTextError):
        openmetrics.parse(text)
