"""Counts of a jobspec (RFC 14): a number, or a range of numbers that will do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from penstock._core import IDset, largest_count, parse_count
from penstock.errors import JobspecError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    Count: TypeAlias = int | str | Mapping[str, Any]


def normal(what: str, count: Count, least: int = 1) -> Count:
    """The form of a count in a jobspec: a number if there is only one.

    Args:
        what: its name, for errors.
        count: a number, a text (RFC 45, or an idset), or RFC 14's dictionary.
        least: the least number that is allowed; of a range always 1.

    Raises:
        JobspecError: the count is invalid, or its minimum is too low.
    """
    try:
        if isinstance(count, str):
            count = json.loads(parse_count(count))
        elif not isinstance(count, int):
            largest(count, 0)  # validates it
    except JobspecError as error:
        raise JobspecError(f"{what}: {error}") from None
    first = minimum(count)
    if not isinstance(count, int):
        least = 1
    if first < least:
        raise JobspecError(f"{what}: expected at least {least}, found {first}")
    return count


def minimum(count: Count) -> int:
    """The least number of a count that is valid."""
    if isinstance(count, int):
        return count
    if isinstance(count, str):
        # Text that came with a jobspec may be any of the forms.
        count = json.loads(parse_count(count))
        return minimum(count) if not isinstance(count, str) else next(iter(IDset(count)))
    return int(count["min"])


def largest(count: Count, limit: int) -> int | None:
    """The largest number of a count that is not above the limit; None if all are above."""
    return largest_count(json.dumps(count), min(limit, 2**32 - 1))


def up_to(what: str, count: Count, limit: int) -> Count:
    """A count without the numbers above `limit`, which must not be below its minimum."""
    if isinstance(count, int):
        return count
    if isinstance(count, str):
        return normal(what, str(IDset(count) & IDset(f"0-{limit}")))
    operator, operand = count.get("operator", "+"), count.get("operand", 1)
    most = min(count.get("max", limit), limit)
    return normal(what, f"{count['min']}-{most}:{operand}:{operator}")


def divided(what: str, count: Count, nodes: int) -> Count:
    """The range for each of `nodes` nodes, given the range of their sum.

    Raises:
        JobspecError: the range has numbers that cannot be divided so, and not because it has
            every number.
    """
    if nodes == 1:
        return count
    if not isinstance(count, int | str) and count.get("operator", "+") != "^":
        least, operand = count["min"], count.get("operand", 1)
        operator, most = count.get("operator", "+"), count.get("max")
        if (operator, operand) == ("+", 1):
            # A range of all numbers: only the divisible ones count.
            least, step = -(-least // nodes), 1
        elif operator == "+":
            step = operand // nodes if least % nodes == operand % nodes == 0 else 0
            least //= nodes
        else:
            step = operand if least % nodes == 0 else 0
            least //= nodes
        if step and (most is None or most // nodes >= least):
            end = "+" if most is None else f"-{most // nodes}"
            return normal(what, f"{least}{end}:{step}:{operator}")
    raise JobspecError(f"{what}: expected a range that gives each of {nodes} nodes the same number")
