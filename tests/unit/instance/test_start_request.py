"""The start request of a job."""

from __future__ import annotations

import pytest

from penstock._core import Message, StartRequest
from penstock.errors import RequestError, ResourceSetError

R = {
    "version": 1,
    "execution": {"R_lite": [{"rank": "0", "children": {"core": "0"}}], "nodelist": ["n0"]},
}


def read(**keys):
    return StartRequest.read(Message.request("job-exec.start", {"id": 7, "userid": 0, **keys}))


def test_r_is_parsed_when_it_is_used():
    assert read(jobspec={}).r is None
    start = read(jobspec={}, R={"version": 2})
    with pytest.raises(ResourceSetError, match="version: expected 1, found 2"):
        _ = start.r


def test_a_changed_r_leaves_the_request_as_it_is():
    start = read(jobspec={}, R=R)
    changed = start.r
    changed.expiration = 99.0
    assert start.r.expiration != changed.expiration


def test_a_jobspec_that_is_no_object_is_rejected():
    with pytest.raises(RequestError, match="jobspec"):
        read(jobspec=[])
