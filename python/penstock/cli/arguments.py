"""Kinds of arguments that several verbs take. An invalid one is bad usage."""

from __future__ import annotations

import json
import pwd
import signal
from argparse import ArgumentTypeError
from typing import Any

from penstock._core import (
    URGENCY_DEFAULT,
    URGENCY_EXPEDITE,
    URGENCY_HOLD,
    Scheduler,
    parse_duration,
)
from penstock.errors import Error
from penstock.suggestion import suggestion

URGENCIES = {"hold": URGENCY_HOLD, "default": URGENCY_DEFAULT, "expedite": URGENCY_EXPEDITE}


def urgency(text: str) -> int:
    """0 to 31, or a name (RFC 30)."""
    if text in URGENCIES:
        return URGENCIES[text]
    if text.isdecimal() and int(text) <= URGENCY_EXPEDITE:
        return int(text)
    names = ", ".join(URGENCIES)
    raise ArgumentTypeError(f"expected 0 to 31 or {names}, found `{text}`")


def attribute(text: str) -> tuple[str, Any]:
    """`KEY=VALUE`, the value JSON or else a string; a key alone has the value 1."""
    path, separator, value = text.partition("=")
    if not separator:
        return path, 1
    try:
        return path, json.loads(value)
    except ValueError:
        return path, value


def key_value(text: str) -> tuple[str, str]:
    """`KEY=VALUE`."""
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise ArgumentTypeError(f"expected KEY=VALUE, found `{text}`")
    return key, value


def whole(text: str) -> int:
    """A whole number from 0 on."""
    if not text.isdecimal() or not text.isascii():
        raise ArgumentTypeError(f"expected a whole number, found `{text}`")
    return int(text)


def seconds(text: str) -> float:
    """A Flux Standard Duration (RFC 23) in seconds; it is not infinite."""
    try:
        duration = parse_duration(text)
    except Error as error:
        raise ArgumentTypeError(str(error)) from None
    if duration == float("inf"):
        raise ArgumentTypeError(f"expected a finite duration, found `{text}`")
    return duration


def userid(text: str) -> int:
    """A user by name or number."""
    if text.isdecimal():
        return int(text)
    try:
        return pwd.getpwnam(text).pw_uid
    except KeyError:
        raise ArgumentTypeError(f"unknown user `{text}`") from None


def signum(text: str) -> int:
    """A signal by number or name, such as `9`, `KILL` or `SIGKILL`."""
    if text.isdecimal() and 0 < int(text) < signal.NSIG:
        return int(text)
    name = text.upper()
    try:
        return signal.Signals[name if name.startswith("SIG") else f"SIG{name}"].value
    except KeyError:
        expected = f"1 to {signal.NSIG - 1} or a name such as TERM"
        names = [each.name.removeprefix("SIG") for each in signal.Signals]
        close = suggestion(name.removeprefix("SIG"), names)
        raise ArgumentTypeError(f"unknown signal `{text}`: expected {expected}{close}") from None


def warning(text: str) -> dict[str, float]:
    """`SIGNAL@TIME`, either of which may be left out: the shell option `signal`."""
    name, _, time = text.partition("@")
    option: dict[str, float] = {"signum": signum(name) if name else int(signal.SIGUSR1)}
    option["timeleft"] = seconds(time) if time else 60.0
    return option


def queue_policy(text: str) -> str:
    """A queue policy: fcfs, easy, conservative, or hybrid:N."""
    try:
        Scheduler(settings=json.dumps({"policy": text}))
    except Error as error:
        _, _, problem = str(error).rpartition("policy: ")  # the option is named already
        close = suggestion(text, ("fcfs", "easy", "conservative", "hybrid:1"))
        raise ArgumentTypeError(problem + close) from None
    return text
