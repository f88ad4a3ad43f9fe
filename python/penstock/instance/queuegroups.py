"""Which queues are to share an order: those that compete for nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock._core import ResourceSet
    from penstock.config import Queue


def groups(queues: Mapping[str, Queue], resources: ResourceSet) -> dict[str, str]:
    """Puts queues that have a node in common, if only by way of a third, into one group.

    Where a job waits, later ones of its group have to leave it its turn; those of another group
    cannot take anything from it.

    Args:
        queues: the queues that are configured.
        resources: the nodes and their properties.

    Returns:
        For each queue the name of its group, which is that of the group's first queue.
    """
    found: dict[str, str] = {}
    nodes: dict[str, Any] = {}
    for name, queue in queues.items():
        parts: list[dict[str, Any]] = [{"properties": list(queue.requires)}]
        if queue.constraint is not None:
            parts.append(queue.constraint)
        own = resources.restrict(constraint={"and": parts}).ranks
        found[name] = name
        for group in [group for group, ranks in nodes.items() if not ranks.isdisjoint(own)]:
            own |= nodes.pop(group)
            first = found[name] if found[name] != name else group
            for other, its in found.items():
                if its == group or other == name:
                    found[other] = first
        nodes[found[name]] = own
    return found
