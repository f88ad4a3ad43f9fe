"""The check before a submission that a job could ever run."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.client import Client
from penstock.errors import JobspecError, RpcError

if TYPE_CHECKING:
    import argparse

# A scheduler that does not answer delays a submission this long: it does not prevent it.
TIMEOUT_S = 5.0


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the option to omit the check."""
    parser.add_argument(
        "--no-check",
        action="store_true",
        help="submit a job that the present resources can never run, too",
    )


def check(args: argparse.Namespace, specs: list[dict[str, Any]]) -> None:
    """Asks the scheduler about the jobspecs, once about those with equal requests.

    Raises:
        JobspecError: one of them can never run here.
        NoInstanceError: no instance listens at the address.
    """
    if args.no_check:
        return
    distinct = {json.dumps(_request(spec)): spec for spec in specs}
    reason = None
    # No scheduler can tell: the instance accepts the job and holds it for the next one.
    with suppress(RpcError, TimeoutError), Client(timeout=TIMEOUT_S) as client:
        reason = next(filter(None, map(client.feasible, distinct.values())), None)
    if reason is not None:
        raise JobspecError(f"it can never run: {reason} (`--no-check` submits it)")


def _request(spec: dict[str, Any]) -> list[Any]:
    system = spec["attributes"]["system"]
    return [spec["resources"], system.get("constraints"), system.get("queue")]
