"""Resource limits of jobs from the rules of `--rlimit`, as flux submit documents them."""

from __future__ import annotations

import fnmatch
import resource
from typing import TYPE_CHECKING

from penstock.errors import JobspecError

if TYPE_CHECKING:
    from collections.abc import Iterable

RESOURCES = {
    name.removeprefix("RLIMIT_").lower(): getattr(resource, name)
    for name in sorted(dir(resource))
    if name.startswith("RLIMIT_")
}
DEFAULTS = ("as", "core", "cpu", "data", "fsize", "nofile", "nproc", "rss", "stack")
UNLIMITED = ("unlimited", "infinity", "inf")


def limits_from_rules(rules: Iterable[str]) -> dict[str, int]:
    """The soft limits of a job's tasks, -1 for none, from rules and the limits of this process.

    They begin with those of `DEFAULTS`. Rules apply in order; one text may have several, with
    commas between them:

    - `-PATTERN` removes limits; `PATTERN` is a glob;
    - `NAME=VALUE` sets one, to a number or `unlimited`;
    - `PATTERN` copies limits of this process.

    Raises:
        JobspecError: a limit is unknown, or a value is neither.
    """
    limits = {name: _current(name) for name in DEFAULTS}
    for rule in (rule for text in rules for rule in text.split(",")):
        if rule.startswith("-"):
            for name in fnmatch.filter(limits, rule[1:].lower()):
                del limits[name]
        elif "=" in rule:
            name, _, value = rule.partition("=")
            limits[_known(rule, name)] = _value(rule, value)
        else:
            names = fnmatch.filter(RESOURCES, rule.lower()) or [_known(rule, rule)]
            limits |= {name: _current(name) for name in names}
    return limits


def _current(name: str) -> int:
    soft, _ = resource.getrlimit(RESOURCES[name])
    return -1 if soft == resource.RLIM_INFINITY else soft


def _known(rule: str, name: str) -> str:
    if name.lower() not in RESOURCES:
        known = ", ".join(RESOURCES)
        raise JobspecError(f"resource limit `{rule}`: unknown limit `{name}`: expected {known}")
    return name.lower()


def _value(rule: str, value: str) -> int:
    if value in UNLIMITED:
        return -1
    if not value.isdecimal() or not value.isascii() or int(value) >= 2**63:
        raise JobspecError(f"resource limit `{rule}`: expected a number or `unlimited`")
    return int(value)
