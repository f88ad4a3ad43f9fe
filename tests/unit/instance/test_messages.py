"""The messages that services in Python read and write by classes of `penstock._core`."""

from __future__ import annotations

import errno
import json

import pytest

from penstock._core import HookRequest, HookResponse, Message, StartRequest
from penstock.errors import RequestError, ResourceSetError

R = {
    "version": 1,
    "execution": {"R_lite": [{"rank": "3", "children": {"core": "0"}}], "nodelist": ["n3"]},
}


def start_request(**keys):
    return StartRequest.read(Message.request("job-exec.start", {"id": 7, "userid": 0, **keys}))


def hook_request(**keys):
    return HookRequest.read(Message.request("hooks.prolog", {"id": 7, "userid": 5, **keys}))


def test_r_of_a_start_request_is_parsed_when_it_is_used():
    assert start_request(jobspec={}).r is None
    start = start_request(jobspec={}, R={"version": 2})
    with pytest.raises(ResourceSetError, match="version: expected 1, found 2"):
        _ = start.r


def test_a_changed_r_leaves_the_start_request_as_it_is():
    start = start_request(jobspec={}, R=R)
    changed = start.r
    changed.expiration = 99.0
    assert start.r.expiration != changed.expiration


def test_a_jobspec_that_is_no_object_is_rejected():
    with pytest.raises(RequestError, match="jobspec"):
        start_request(jobspec=[])


def test_r_of_a_hook_request_is_a_resource_set():
    request = hook_request(R=R, status=256)
    assert (request.id, request.userid, request.status) == (7, 5, 256)
    assert (str(request.r.ranks), str(request.r.nodelist)) == ("3", "n3")
    assert hook_request(R=None).r is hook_request().r is None


def test_a_hook_request_with_an_invalid_r_is_rejected_with_the_place():
    text = "hooks.prolog: invalid R: version: expected 1, found 2"
    with pytest.raises(RequestError, match=text) as raised:
        hook_request(R={"version": 2})
    assert raised.value.errnum == errno.EINVAL


def test_the_response_of_a_hook_is_a_payload():
    payload = HookResponse.ended(7, 256, 'a "note"')
    assert json.loads(payload.removesuffix(b"\0")) == {"id": 7, "status": 256, "note": 'a "note"'}
