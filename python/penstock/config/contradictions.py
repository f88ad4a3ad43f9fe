"""What no single key of the configuration can tell: names, texts, and what contradicts itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from penstock._core import Hostlist, IDset, ResourceSet, Scheduler, validate_constraint
from penstock.errors import Error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.config.config import Config, Policy


def contradictions(config: Config, settings: dict[str, Any]) -> list[str]:
    """What is wrong with a configuration whose keys are all of the right kind.

    Args:
        config: the configuration.
        settings: what a scheduler would get to know of it.
    """
    problems: list[str] = []
    _check_queues(config, problems)
    for name in ("prolog", "epilog"):
        command = getattr(config.job_manager, name).command
        if command and not command[0]:
            problems.append(f'job-manager.{name}.command[0]: expected a command, found ""')
    for place, entry in enumerate(config.resource.config):
        path = f"resource.config[{place}]"
        if not entry.hosts:
            problems.append(f"{path}: expected the key `hosts`")
        _check_text(Hostlist, entry.hosts, f"{path}.hosts", problems)
        _check_text(IDset, entry.cores, f"{path}.cores", problems)
        _check_text(IDset, entry.gpus, f"{path}.gpus", problems)
        for number, name in enumerate(entry.properties):
            _check_property(name, f"{path}.properties[{number}]", problems)
    targets = {"resource.exclude": config.resource.exclude or ""}
    for name, text in config.resource.properties.items():
        targets[f"resource.properties.{name}"] = text
        _check_property(name, "resource.properties", problems)
    for path, text in targets.items():
        try:
            IDset(text)
        except Error:
            _check_text(Hostlist, text, path, problems)
    _check_policy(config.policy, None, "policy", problems)
    if not 0 <= config.penstock.scheduler.limit <= 0x7FFFFFFF:
        problems.append("penstock.scheduler.limit: expected 0 to 2147483647")
    unknown = config.penstock.scheduler.queues.keys() - config.queues.keys()
    problems += [
        f"penstock.scheduler.queues.{name}: there is no queue of that name"
        for name in sorted(unknown)
    ]
    try:
        Scheduler(settings=json.dumps(settings))
    except Error as error:
        problems.append(f"penstock.scheduler.{error}")
    return problems


def _check_queues(config: Config, problems: list[str]) -> None:
    default = config.policy.jobspec.defaults.system.queue
    known = ", ".join(config.queues) or "none"
    key = "policy.jobspec.defaults.system.queue"
    if default is not None and default not in config.queues:
        problems.append(f"{key}: unknown queue `{default}` (known: {known})")
    if default is None and len(config.queues) > 1:
        problems.append(
            f"{key}: expected a default queue where there are several (RFC 33; known: {known})"
        )
    for name, queue in config.queues.items():
        if not name:
            problems.append('queues: expected queues with a name, found one named ""')
        if queue.policy.jobspec.defaults.system.queue is not None:
            problems.append(f"queues.{name}.{key}: a default queue is named in `{key}` only")
        try:
            validate_constraint(json.dumps({"properties": queue.requires}))
        except Error as error:
            problems.append(f"queues.{name}.requires: {error}")
        _check_policy(queue.policy, config.policy, f"queues.{name}.policy", problems)


def _check_text(kind: type[Any], text: str, path: str, problems: list[str]) -> None:
    try:
        kind(text)
    except Error as error:
        problems.append(f"{path}: {error}")


def _check_property(name: str, path: str, problems: list[str]) -> None:
    try:
        ResourceSet.uniform("0", "node0", cores="0").add_property(name, "0")
    except Error as error:
        problems.append(f"{path}: {error}")


def _check_policy(own: Policy, general: Policy | None, path: str, problems: list[str]) -> None:
    """Whether what holds in a queue, its own or else the general, contradicts itself.

    What is of the general policy alone is told there.
    """
    both = [own] if general is None else [own, general]
    for name in ("nnodes", "ncores", "ngpus"):
        least, mine = _first(getattr(policy.limits.job_size.min, name) for policy in both)
        most, mine_too = _first(getattr(policy.limits.job_size.max, name) for policy in both)
        if (mine or mine_too) and least is not None and most is not None and least > most >= 0:
            text = f"min.{name} ({least}) exceeds max ({most})"
            problems.append(f"{path}.limits.job-size: {text}")
    default, mine = _first(policy.jobspec.defaults.system.duration for policy in both)
    limit, mine_too = _first(policy.limits.duration for policy in both)
    if (mine or mine_too) and default and limit and default > limit:
        text = f"the default ({default:g} s) exceeds the limit ({limit:g} s)"
        problems.append(f"{path}.jobspec.defaults.system.duration: {text}")


def _first(values: Iterable[Any]) -> tuple[Any, bool]:
    """The first value that is set, and whether that is the very first."""
    for place, value in enumerate(values):
        if value is not None:
            return value, place == 0
    return None, False
