"""`penstock update`: the time limit of jobs."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from typing import TYPE_CHECKING, NamedTuple

from penstock._core import parse_duration
from penstock.cli.ids import JobIds
from penstock.cli.rows import tell
from penstock.client import Client
from penstock.errors import Error, RpcError

if TYPE_CHECKING:
    import argparse

SUMMARY = """Change the time limit of pending or running jobs.

`duration=2h` sets it, `duration=+30m` and `duration=-30m` change it, `duration=inf` removes it.
A plain number is in seconds (RFC 23)."""


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
    with Client() as client:
        for job in args.id:
            try:
                duration = client.job_row(job)["duration"] if args.change.sign else 0.0
                client.update(job, duration=args.change.applied(duration))
            except RpcError as error:
                errors[job] = error.strerror or str(error)
            except ConnectionError:
                raise
            except Error as error:
                errors[job] = str(error)
    return tell("update", errors)
