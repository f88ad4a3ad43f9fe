"""The interface of the clients: equal methods, arguments and results."""

from __future__ import annotations

import inspect

import pytest

from penstock import aclient, aioclient, client, rows
from penstock.client.methods import Methods

# Methods of the blocking client only: the others are closed by their block, and leave signals to
# Trio or asyncio; and of the others only: the blocking one has no services.
BLOCKING_ONLY = {"close", "waking_on_signals"}
ASYNC_ONLY = {"send", "add_service", "remove_service", "subscribe", "unsubscribe", "wait_lost"}


def methods(kind):
    return {
        name: method
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


BLOCKING, TRIO = methods(client.Client), methods(aclient.Client)
ASYNCIO = methods(aioclient.Client)


def test_there_are_the_same_methods():
    assert set(BLOCKING) - BLOCKING_ONLY == set(TRIO) - ASYNC_ONLY
    # The same functions, so that signatures and texts are the same, too.
    assert ASYNCIO == TRIO


@pytest.mark.parametrize("name", sorted(set(BLOCKING) - BLOCKING_ONLY))
def test_methods_have_equal_signatures(name):
    blocking, trio = inspect.signature(BLOCKING[name]), inspect.signature(TRIO[name])
    assert blocking.parameters == trio.parameters
    assert BLOCKING[name].__doc__
    assert TRIO[name].__doc__
    assert blocking.return_annotation == trio.return_annotation


def test_the_requests_by_name_are_defined_once():
    shared = {name for name in BLOCKING if vars(Methods).get(name) is BLOCKING[name] is TRIO[name]}
    assert set(BLOCKING) - shared == BLOCKING_ONLY


def test_methods_annotate_their_results():
    assert str(inspect.signature(Methods.job_row)) == "(self, job: 'int') -> 'JobRow'"
    assert inspect.signature(Methods.wait_rows).return_annotation == "Stream[JobRow]"
    assert inspect.signature(Methods.job_rows).return_annotation == "list[JobRow]"


def test_a_call_is_built_without_a_client():
    call = Methods.job_row.call(7)
    assert (call.topic, call.payload) == ("job-list.list-id", {"id": 7, "attrs": ["all"]})
    assert call.read({"job": {"id": 7}}) == {"id": 7}


def test_rows_are_typed():
    untyped = {
        name
        for name, method in BLOCKING.items()
        if "Any" in inspect.signature(method).return_annotation
    }
    # Payloads of any service, and the site's configuration.
    assert untyped == {"rpc", "call_many", "stream", "merge", "stats", "config"}
    assert set(rows.__all__) <= set(vars(rows))
