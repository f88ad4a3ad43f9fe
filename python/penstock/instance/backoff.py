"""How long to wait before something that has ended is started again."""

from __future__ import annotations

import trio

SHORTEST, LONGEST = 0.1, 30.0
# Whatever has lived this long (seconds) did not end as soon as it was started.
QUICK = 5.0


class Backoff:
    """Pauses between starts: none after a life of some length, longer ones after short lives."""

    def __init__(self) -> None:
        self._pause = 0.0
        self._began = trio.current_time()

    def began(self) -> None:
        """It has been started."""
        self._began = trio.current_time()

    async def ended(self) -> None:
        """It has ended; returns when it may be started again."""
        quick = trio.current_time() - self._began < QUICK
        self._pause = min(self._pause * 2 or SHORTEST, LONGEST) if quick else 0.0
        await trio.sleep(self._pause)
