"""`penstock update`: the time limit of jobs."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock._core import parse_duration
from penstock._core import topic as topics
from penstock.cli.ids import JobIds
from penstock.cli.rows import show_count, tell
from penstock.client import Client
from penstock.client.methods import Methods
from penstock.client.responses import expect
from penstock.errors import Error, RpcError

if TYPE_CHECKING:
    import argparse

SUMMARY = """Change the time limit of pending or running jobs.

`duration=2h` sets it, `duration=+30m` and `duration=-30m` change it, `duration=inf` removes it.
A plain number is in seconds (RFC 23)."""


# Jobs whose requests are sent together: others are served between two such parts.
JOBS_PER_PART = 250


class Change(NamedTuple):
    """A new duration in seconds (0: none), or with a sign a change of the present one."""

    sign: int
    seconds: float

    def applied(self, duration: float) -> float:
        """The new duration of a job that has this one.

        Raises:
            Error: the job has no time limit to change, or the result is not positive.
        """
        if not self.sign:
            return self.seconds
        if not duration:
            raise Error("it has no time limit to change: set one with `duration=FSD`")
        if duration + self.sign * self.seconds <= 0:
            raise Error(f"its time limit is {duration:g}s: the result would not be positive")
        return duration + self.sign * self.seconds


def change(text: str) -> Change:
    """`duration=[+-]FSD`.

    Raises:
        ArgumentTypeError: the text has another form; this is a usage error.
    """
    key, separator, value = text.partition("=")
    if not separator or key not in ("duration", "attributes.system.duration"):
        raise ArgumentTypeError(f"expected `duration=[+-]FSD`, found `{text}`")
    sign = {"+": 1, "-": -1}.get(value[:1], 0)
    try:
        seconds = parse_duration(value[1:] if sign else value)
    except Error as error:
        raise ArgumentTypeError(str(error)) from None
    if math.isinf(seconds):
        if sign:
            raise ArgumentTypeError(f"expected a finite change, found `{value}`")
        seconds = 0.0
    elif not seconds:
        raise ArgumentTypeError("expected more than 0s: `inf` is for no limit")
    return Change(sign, seconds)


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("id", nargs="+", action=JobIds, metavar="ID")
    parser.add_argument("change", type=change, metavar="duration=[+-]FSD")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    errors: dict[int, str] = {}
    jobs = list(dict.fromkeys(args.id))
    with Client() as client:
        for first in range(0, len(jobs), JOBS_PER_PART):
            errors |= _update(client, jobs[first : first + JOBS_PER_PART], args.change)
    show_count(jobs, len(jobs) - len(errors), "updated")
    return tell("update", errors)


def _update(client: Client, jobs: list[int], change: Change) -> dict[int, str]:
    """Updates jobs by requests that are sent together; returns the errors."""
    errors: dict[int, str] = {}
    durations = dict.fromkeys(jobs, 0.0)
    if change.sign:
        requests = [{"id": job, "attrs": ["duration"]} for job in jobs]
        rows = client.call_many(topics.job_list.LIST_ID, requests)
        for job, response in zip(jobs, rows, strict=True):
            if isinstance(response, RpcError):
                errors[job] = response.strerror or str(response)
            else:
                durations[job] = expect(expect(response, "job", dict), "duration", float)
    changes: dict[int, Any] = {}
    for job in jobs:
        if job not in errors:
            try:
                duration = change.applied(durations[job])
            except Error as error:
                errors[job] = str(error)
            else:
                changes[job] = Methods.update.call(job, duration=duration).payload
    responses = client.call_many(topics.job_manager.UPDATE, changes.values())
    for job, response in zip(changes, responses, strict=True):
        if isinstance(response, RpcError):
            errors[job] = response.strerror or str(response)
    return errors
