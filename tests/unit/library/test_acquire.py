"""`Acquired`: the inventory of a scheduler, by the responses to `resource.acquire`."""

from __future__ import annotations

import pytest

from penstock.errors import WireError
from penstock.protocol.acquire import Acquired


def inventory():
    r = {
        "version": 1,
        "execution": {
            "R_lite": [{"rank": "0-1", "children": {"core": "0-1"}}],
            "nodelist": ["n[0-1]"],
            "starttime": 0,
            "expiration": 0,
        },
    }
    return {"resources": r, "up": "0-1"}


def test_absent_keys_change_nothing_and_unknown_ones_are_ignored():
    acquired = Acquired(inventory())
    acquired.take({"later": [1]})
    assert (str(acquired.up), str(acquired.resources.ranks)) == ("0-1", "0-1")


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"up": "0"}, "missing key `resources`"),
        ({"resources": {}, "up": "0"}, "resource.acquire: "),
        (inventory() | {"up": 3}, "up"),
    ],
)
def test_a_malformed_inventory_is_an_error(payload, expected):
    with pytest.raises(WireError, match=expected):
        Acquired(payload)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"down": "0", "up": 3}, "up"),
        ({"down": "0", "grow": {"version": 9}}, "resource.acquire"),
        ({"down": "0", "property-add": []}, "property-add"),
        ({"down": "0", "expiration": "soon"}, "expiration"),
    ],
)
def test_a_malformed_change_is_an_error_and_changes_nothing(change, key):
    acquired = Acquired(inventory())
    with pytest.raises(WireError, match=key):
        acquired.take(change)
    assert str(acquired.up) == "0-1"
