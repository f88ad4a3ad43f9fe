"""The modules in place of Flux's against recorded calls of Flux's own.

`flux-python.jsonl` holds calls of flux 0.88 with what came of them. Each is made again here, and
must come to the same result, or the same exception with the same message. `DIFFERENCES` are those
that do not, what comes of them instead, and why.
"""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import pytest

from penstock.compat.flux import hostlist as fh
from penstock.compat.flux import idset as fi
from penstock.compat.flux.hostlist import Hostlist
from penstock.compat.flux.idset import IDset
from penstock.compat.flux.resource import ResourceSet

VECTORS = Path(__file__).parents[2] / "vectors"
ABOUT, *CALLS = map(json.loads, (VECTORS / "flux-python.jsonl").read_text().splitlines())
NAMES = {
    "IDset": IDset,
    "Hostlist": Hostlist,
    "ResourceSet": ResourceSet,
    "R1": json.dumps(ABOUT["R1"]),
    "R2": json.dumps(ABOUT["R2"]),
    "copy": copy,
    "fh": fh,
    "fi": fi,
    "json": json,
    "pickle": pickle,
}
DIFFERENCES = json.loads((VECTORS / "compat-differences.json").read_text())["flux"]


def plain(value):
    """A result as the recording writes it."""
    match value:
        case IDset():
            return {"IDset": str(value)}
        case Hostlist():
            return {"Hostlist": str(value)}
        case ResourceSet():
            return {"ResourceSet": value.to_dict() if value.nnodes else "empty"}
        case bytes():
            return {"pickled": plain(pickle.loads(value))}
    return value


def outcome(call):
    """The result or error of a recorded expression; evaluates only expressions of the file."""
    try:
        return {"result": plain(eval(call, dict(NAMES)))}
    except Exception as error:
        return {"raises": type(error).__name__, "message": str(error)}


@pytest.mark.parametrize("record", CALLS, ids=[record["call"] for record in CALLS])
def test_a_recorded_call_comes_to_the_same_or_to_the_listed_difference(record):
    record = dict(record)
    call = record.pop("call")
    different = DIFFERENCES.get(call)
    if different is None:
        assert outcome(call) == record
    else:
        listed = {key: value for key, value in different.items() if key != "why"}
        assert listed != record
        assert outcome(call) == listed


def test_every_listed_difference_is_one_of_a_recorded_call_and_says_why():
    assert DIFFERENCES.keys() <= {record["call"] for record in CALLS}
    assert all(different["why"] for different in DIFFERENCES.values())
