"""`penstock what-if`: its requests, and usage errors before any request."""

from __future__ import annotations

import pytest

from penstock.cli.whatif import _complete
from penstock.errors import Error


@pytest.mark.parametrize(
    ("queues", "text"),
    [
        ({}, "queue `nosuch`: no queues are configured"),
        ({"debug": {}, "batch": {}}, "unknown queue `nosuch`: expected batch, debug"),
    ],
)
def test_an_invalid_queue_is_an_error(queues, text):
    spec = {"attributes": {"system": {"queue": "nosuch"}}}
    with pytest.raises(Error, match=text):
        _complete(spec, {"queues": queues})


def test_a_job_without_a_queue_gets_the_default_one():
    spec = {"attributes": {"system": {}}}
    defaults = {"jobspec": {"defaults": {"system": {"queue": "batch", "duration": 60.0}}}}
    _complete(spec, {"queues": {"batch": {"requires": ["big"]}}, "policy": defaults})
    assert spec["attributes"]["system"] == {
        "queue": "batch",
        "duration": 60.0,
        "constraints": {"properties": ["big"]},
    }
