"""When a request that can be sent twice is sent again after its connection was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

REPEAT_TIME_S = 30.0
"""The time, from the loss of the connection on, in which a submission is sent again."""

MIN_PAUSE_S = 0.05
MAX_PAUSE_S = 2.0


def pauses() -> Iterator[float]:
    """The pauses before the attempts, in seconds: growing, `REPEAT_TIME_S` in sum."""
    pause, left = MIN_PAUSE_S, REPEAT_TIME_S
    while left > 0:
        yield min(pause, left)
        left -= pause
        pause = min(2 * pause, MAX_PAUSE_S)
