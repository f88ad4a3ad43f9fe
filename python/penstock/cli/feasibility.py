"""The check before a submission whether a job can ever run."""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from penstock.errors import JobspecError, RpcError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from penstock.client import Client

# Time limit of the check: a scheduler that does not answer must not prevent a submission.
TIMEOUT_S = 5.0


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the option to omit the check."""
    parser.add_argument(
        "--no-check",
        action="store_true",
        help="submit even if the present resources can never run the job",
    )


def check(client: Client, args: argparse.Namespace, specs: list[dict[str, Any]]) -> None:
    """Sends the jobspecs to the scheduler for a check, one of those with equal requests.

    Raises:
        JobspecError: one of them can never run here.
    """
    if args.no_check:
        return
    distinct = {json.dumps(_request(spec)): spec for spec in specs}
    reason = None
    # No scheduler can tell: the instance accepts the job and holds it for the next one.
    with suppress(RpcError, TimeoutError), _waiting(client, TIMEOUT_S):
        reason = next(filter(None, map(client.feasible, distinct.values())), None)
        if reason is not None:
            reason += _unknown_properties(client, specs)
    if reason is not None:
        raise JobspecError(f"the job can never run (see --no-check): {reason}")


@contextmanager
def _waiting(client: Client, seconds: float) -> Iterator[None]:
    """Limits the wait for each message within the block."""
    before, client.timeout = client.timeout, seconds
    try:
        yield
    finally:
        client.timeout = before


def _unknown_properties(client: Client, specs: list[dict[str, Any]]) -> str:
    """The end of the reason, if a constraint requires a property that no node has."""
    wanted = {name for spec in specs for name in _properties(_system(spec).get("constraints"))}
    if not wanted:
        return ""
    known = client.resource_status()["R"]["execution"].get("properties", {})
    unknown = sorted(wanted - known.keys())
    expected = ", ".join(known) or "none, as no node has properties"
    return f"; unknown property `{unknown[0]}`: expected {expected}" if unknown else ""


def _properties(constraint: Any) -> Iterator[str]:
    """The names of the properties that a constraint (RFC 31) requires, in any of its terms."""
    for operator, values in (constraint or {}).items():
        if operator == "properties":
            yield from (name for name in values if not name.startswith("^"))
        elif operator in ("and", "or"):
            for value in values:
                yield from _properties(value)


def _system(spec: dict[str, Any]) -> dict[str, Any]:
    system: dict[str, Any] = spec["attributes"]["system"]
    return system


def _request(spec: dict[str, Any]) -> list[Any]:
    system = _system(spec)
    return [spec["resources"], system.get("constraints"), system.get("queue")]
