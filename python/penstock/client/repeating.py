"""Submissions that are sent again after their connection was lost: their tokens, and when."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

REPEAT_TIME_S = 30.0
"""The time, from the loss of the connection on, in which a submission is sent again."""

MIN_PAUSE_S = 0.05
MAX_PAUSE_S = 2.0

TOKEN_MASK = (1 << 128) - 1

_numbers: itertools.count[int]


def _draw() -> None:
    """Draws the first number of this process."""
    global _numbers
    # Not by `random`, whose import would take a tenth of the time of `penstock submit`.
    _numbers = itertools.count(int.from_bytes(os.urandom(16), "big"))


_draw()
# A child process gets numbers of its own.
os.register_at_fork(after_in_child=_draw)


def new_token() -> str:
    """A token that no other submission has: consecutive numbers from a random one on."""
    return f"{next(_numbers) & TOKEN_MASK:032x}"


def pauses() -> Iterator[float]:
    """The pauses before the attempts, in seconds: growing, `REPEAT_TIME_S` in sum."""
    pause, left = MIN_PAUSE_S, REPEAT_TIME_S
    while left > 0:
        yield min(pause, left)
        left -= pause
        pause = min(2 * pause, MAX_PAUSE_S)
