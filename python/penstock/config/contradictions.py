"""Checks between keys: names that refer to others, and limits that contradict each other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from penstock._core import Scheduler
from penstock.config.tables import scheduler_settings
from penstock.errors import ConfigError
from penstock.suggestion import with_suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.config.tables import Config, Policy

DEFAULT_QUEUE = "policy.jobspec.defaults.system.queue"


def contradictions(config: Config) -> list[str]:
    """The problems of a configuration whose keys are valid by themselves."""
    problems: list[str] = []
    _check_queues(config, problems)
    for name in ("prolog", "epilog"):
        command = getattr(config.job_manager, name).command
        if command and not command[0]:
            problems.append(f'job-manager.{name}.command[0]: expected a command, found ""')
    _check_policy(config.policy, None, "policy", problems)
    unknown = config.penstock.scheduler.queues.keys() - config.queues.keys()
    problems += [
        f"penstock.scheduler.queues.{name}: {_unknown_queue(name, config)}"
        for name in sorted(unknown)
    ]
    try:
        Scheduler(settings=json.dumps(scheduler_settings(config)))
    except ConfigError as error:
        problems += [f"penstock.scheduler.{problem}" for problem in error.problems]
    return problems


def _check_queues(config: Config, problems: list[str]) -> None:
    default = config.policy.jobspec.defaults.system.queue
    if default is not None and default not in config.queues:
        problems.append(f"{DEFAULT_QUEUE}: {_unknown_queue(default, config)}")
    for name, queue in config.queues.items():
        if not name:
            problems.append('queues: expected a name for each queue, found ""')
        if queue.policy.jobspec.defaults.system.queue is not None:
            problems.append(
                f"queues.{name}.{DEFAULT_QUEUE}: the default queue is set by `{DEFAULT_QUEUE}` only"
            )
        _check_policy(queue.policy, config.policy, f"queues.{name}.policy", problems)


def _unknown_queue(name: str, config: Config) -> str:
    known = ", ".join(config.queues)
    return with_suggestion(f"unknown queue `{name}`: expected {known or 'a table `queues`'}")


def _check_policy(own: Policy, general: Policy | None, path: str, problems: list[str]) -> None:
    """Checks the policy in effect, a queue's own with the general one behind it.

    A contradiction within the general policy is reported for the general policy only.
    """
    policies = [own] if general is None else [own, general]
    for name in ("nnodes", "ncores", "ngpus"):
        least, own_least = _effective(
            getattr(policy.limits.job_size.min, name) for policy in policies
        )
        most, own_most = _effective(
            getattr(policy.limits.job_size.max, name) for policy in policies
        )
        if not own_least and not own_most:
            continue
        if least is not None and most is not None and least > most >= 0:
            text = f"min.{name} ({least}) exceeds max ({most})"
            problems.append(f"{path}.limits.job-size: {text}")
    default, own_default = _effective(
        policy.jobspec.defaults.system.duration for policy in policies
    )
    limit, own_limit = _effective(policy.limits.duration for policy in policies)
    if (own_default or own_limit) and default and limit and default > limit:
        text = f"the default ({default:g} s) exceeds the limit ({limit:g} s)"
        problems.append(f"{path}.jobspec.defaults.system.duration: {text}")


def _effective(values: Iterable[Any]) -> tuple[Any, bool]:
    """The first value that is set, and whether it is the first of all."""
    for position, value in enumerate(values):
        if value is not None:
            return value, position == 0
    return None, False
