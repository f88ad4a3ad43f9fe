"""Checks of single values; each raises `penstock.Error` with the reason."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from penstock._core import Hostlist, IDset, ResourceSet, validate_constraint
from penstock.config.listen_address import parse_address
from penstock.errors import Error
from penstock.limits import MAX_HOSTS, MAX_IDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def hosts(text: str) -> None:
    """A hostlist (RFC 29)."""
    found = len(Hostlist(text))
    if found > MAX_HOSTS:
        raise Error(f"expected at most {MAX_HOSTS} hosts, found {found}")


def ids(text: str) -> None:
    """An idset (RFC 22)."""
    found = len(IDset(text))
    if found > MAX_IDS:
        raise Error(f"expected at most {MAX_IDS} ids, found {found}")


def targets(text: str) -> None:
    """An idset of ranks, or a hostlist."""
    try:
        IDset(text)
    except Error:
        Hostlist(text)


def property_name(name: str) -> None:
    """The name of a property (RFC 20)."""
    ResourceSet.uniform("0", "node0", cores="0").add_property(name, "0")


def required_properties(names: tuple[str, ...]) -> None:
    """Properties that a constraint (RFC 31) can require."""
    validate_constraint(json.dumps({"properties": names}))


def cgroup_place(text: str) -> None:
    """Checks the parent of cgroups: `auto`, `none`, or a path."""
    if text not in ("auto", "none") and not text.startswith("/"):
        raise Error(f"expected auto, none or an absolute path, found `{text}`")


def absolute_path(path: Path | None) -> None:
    """Checks that a path does not depend on the working directory."""
    if path is not None and not path.is_absolute():
        raise Error(f"expected an absolute path, found `{path}`")


def listen_address(text: str) -> None:
    """A loopback address with a port, or the path of a socket."""
    parse_address(text)


def at_most(largest: int) -> Callable[[int], None]:
    """A check of a number's upper bound."""

    def check(number: int) -> None:
        if number > largest:
            raise Error(f"expected 0 to {largest}, found {number}")

    return check
