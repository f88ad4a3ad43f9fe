"""A fake instance, for tests of the clients and the command line."""

from __future__ import annotations

import errno

import pytest

from penstock.testing import FakeBroker


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A fake instance, which PENSTOCK_URI names."""
    with FakeBroker(tmp_path / "fake") as broker:
        monkeypatch.setenv("PENSTOCK_URI", broker.uri)
        yield broker


@pytest.fixture
def rejecting(tmp_path):
    """An instance that rejects every connection."""
    with FakeBroker(tmp_path / "rejecting", status=errno.EPERM) as broker:
        yield broker


@pytest.fixture
def listing():
    """Returns a `job-list.list` of these rows."""

    def make(*rows):
        def method(request):
            limit = request.object()["max_entries"] or None
            if rows:
                yield request.respond({"jobs": rows[:limit]})
            yield request.respond(errnum=errno.ENODATA)

        return method

    return make


@pytest.fixture
def answers():
    """Returns a method that responds with a stream of payloads, then ENODATA."""

    def make(*payloads, errnum=errno.ENODATA, errtext=None):
        def method(request):
            yield from (request.respond(payload) for payload in payloads)
            yield request.respond(errnum=errnum, errtext=errtext)

        return method

    return make
