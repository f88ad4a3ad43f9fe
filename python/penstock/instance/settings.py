"""The settings of each service, from the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock import config as configuration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock._core import ResourceSet
    from penstock.config import Config, Queue
    from penstock.instance.startup import StartOptions


def manager_settings(options: StartOptions, owner: int) -> dict[str, Any]:
    """The job manager's settings, in the form that `JobManager` takes as JSON.

    Args:
        options: the instance's options.
        owner: user id of the instance owner.
    """
    config = options.config
    return {
        "owner": owner,
        # Without the privilege of root, another user's job would run as the owner.
        "guests": config.access.allow_guest_user
        and (options.exec == "sim" or (options.exec == "local" and owner == 0)),
        "prolog": bool(config.job_manager.prolog.command),
        "epilog": bool(config.job_manager.epilog.command),
        **configuration.manager_settings(config),
    }


def scheduler_settings(config: Config, resources: ResourceSet) -> dict[str, Any]:
    """The scheduler's settings, in the form that `Scheduler` takes as JSON.

    Args:
        config: the configuration.
        resources: the inventory; queues with nodes in common share an order.
    """
    settings = configuration.scheduler_settings(config)
    for name, group in queue_groups(config.queues, resources).items():
        settings["queues"].setdefault(name, {}).setdefault("group", group)
    return settings


def queue_groups(queues: Mapping[str, Queue], resources: ResourceSet) -> dict[str, str]:
    """Groups the queues that have a node in common, directly or through other queues.

    A blocked job holds back later jobs of its own group only; jobs of other groups cannot take
    its nodes.

    Args:
        queues: the configured queues.
        resources: the nodes and their properties.

    Returns:
        The name of each queue's group, which is the name of the first queue in the group.
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
            for other, current in found.items():
                if current == group or other == name:
                    found[other] = first
        nodes[found[name]] = own
    return found
