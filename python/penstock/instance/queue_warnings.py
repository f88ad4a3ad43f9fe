"""Warnings about queues for the log of an instance that starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.config import Config
    from penstock.rows import QueueStatus


def queues_lost(config: Config, stats: dict[str, Any]) -> list[str]:
    """Warnings about queues that have pending jobs and are no longer configured."""
    return [
        f"queue `{name}` is no longer configured, {jobs} pending: without its constraints"
        for name, jobs in pending_by_queue(stats).items()
        if name not in config.queues
    ]


def pending_by_queue(stats: dict[str, Any]) -> dict[str, str]:
    """The number of pending jobs as text, `2 jobs are`, by queue."""
    found = {}
    for row in stats["queues"]:
        states = row["job_states"]
        count = sum(states[name] for name in ("new", "depend", "priority", "sched"))
        if count:
            found[row["name"]] = "1 job is" if count == 1 else f"{count} jobs are"
    return found


def queue_restricted(name: str | None, status: QueueStatus) -> list[str]:
    """Warnings about a queue that was disabled or stopped before the start, with the reasons.

    Args:
        name: of the queue; None for the anonymous one.
        status: requests `job-manager.queue-status`.
    """
    queue, argument = (f"queue `{name}`", f" {name}") if name else ("the queue", "")
    warnings = []
    if not status["enable"]:
        reason = status.get("disable_reason", "")
        text = f"{queue} is disabled and takes no jobs: `penstock queue enable{argument}`"
        warnings.append(_with_reason(text, reason))
    if not status["start"]:
        reason = status.get("stop_reason", "")
        text = f"{queue} is stopped and starts no jobs: `penstock queue start{argument}`"
        warnings.append(_with_reason(text, reason))
    return warnings


def _with_reason(text: str, reason: str) -> str:
    return f"{text} ({reason})" if reason else text
