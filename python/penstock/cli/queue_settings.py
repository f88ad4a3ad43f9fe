"""Queues of a configuration (RFC 33), as the verbs about resources and predictions need them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping


def check_queue(name: str, queues: Mapping[str, Any]) -> None:
    """Rejects a queue that does not exist.

    Raises:
        NotFoundError: there is no such queue.
    """
    if not queues:
        raise NotFoundError(f"queue `{name}`: no queues are configured")
    if name not in queues:
        raise NotFoundError(f"unknown queue `{name}`: expected {', '.join(sorted(queues))}")


def queue_constraint(queue: Mapping[str, Any]) -> dict[str, Any]:
    """The constraint (RFC 31) on the nodes of a queue; an empty one for all nodes."""
    parts = [queue["constraint"]] if queue.get("constraint") else []
    if queue.get("requires"):
        parts.append({"properties": queue["requires"]})
    return {"and": parts} if len(parts) > 1 else next(iter(parts), {})
