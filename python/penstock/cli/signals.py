"""Handlers of signals while a verb waits."""

from __future__ import annotations

import signal
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.client import Client


@contextmanager
def handling_signals(
    handler: Callable[[int, Any], None], numbers: Iterable[int], *, client: Client | None = None
) -> Iterator[None]:
    """Calls a handler as soon as a signal arrives, also while a client waits for a message.

    Ignored signals stay ignored, as under nohup. Only the main thread may use this.
    """
    before = {number: signal.getsignal(number) for number in numbers}
    handled = {number: old for number, old in before.items() if old is not signal.SIG_IGN}
    with client.waking_on_signals() if client else nullcontext():
        for number in handled:
            signal.signal(number, handler)
        try:
            yield
        finally:
            for number, old in handled.items():
                signal.signal(number, old)
