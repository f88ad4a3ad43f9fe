"""Constraint queries: RFC 35 by its examples and against the shared vectors, then our operators."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.constraint import parse_query, parse_requires
from penstock.errors import JobspecError

VECTORS = json.loads((Path(__file__).parents[2] / "vectors/query.json").read_text())
OPERATORS = {"name": "name", "state": "state"}


@pytest.mark.parametrize("case", VECTORS["rfc35"] + VECTORS["good"], ids=lambda case: case["query"])
def test_queries_become_objects(case):
    assert parse_query(case["query"], OPERATORS, "name") == case["constraint"]


@pytest.mark.parametrize("case", VECTORS["bad"], ids=lambda case: case["query"])
def test_an_invalid_query_names_the_place_and_the_expectation(case):
    expected = f"invalid constraint `{case['query']}`: {case['error']}"
    with pytest.raises(JobspecError, match=f"^{re.escape(expected)}$"):
        parse_query(case["query"], OPERATORS, "name")


@pytest.mark.parametrize(
    ("text", "constraint"),
    [
        ("gpu", {"properties": ["gpu"]}),
        ("gpu,big", {"properties": ["gpu", "big"]}),
        ("'gpu,big'", {"properties": ["gpu,big"]}),
        ("^gpu", {"properties": ["^gpu"]}),
        ("property:gpu", {"properties": ["gpu"]}),
        ("host:node[0-3,7]", {"hostlist": ["node[0-3,7]"]}),
        ("-hosts:a,b", {"not": [{"hostlist": ["a,b"]}]}),
        ("rank:0-3,5", {"ranks": ["0-3,5"]}),
    ],
)
def test_operators_and_their_operands(text, constraint):
    assert parse_requires(text) == constraint


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a,,b", "expected a value at byte 0"),
        ("host:", "expected a value at byte 5"),
        # No operator of RFC 35, and no character of a property's name in RFC 31.
        ("!a", "invalid property `!a`"),
        ("!(a)", "invalid property `!`"),
        ("rank:x", "ranks[0]"),
        ("(" * 100, "nested too deeply"),
        ("not " * 100 + "a", "nested too deeply"),
    ],
)
def test_a_value_that_is_not_a_constraint_is_an_error(text, error):
    with pytest.raises(JobspecError) as caught:
        parse_requires(text)
    assert error in str(caught.value)


@given(st.text(alphabet="ab:|&()-,'\" \tnotdr!ƒ", max_size=12))
def test_any_text_is_read_or_rejected(text):
    try:
        constraint = parse_query(text, OPERATORS, "name")
    except JobspecError as error:
        place = re.search(r" at byte (\d+)$", str(error))
        is_valid = place is not None and int(place[1]) <= len(text.encode())
    else:
        is_valid = len(constraint) == 1
    assert is_valid, text
