"""Tokens that name submissions: the only module of the clients that draws random numbers."""

from __future__ import annotations

import itertools
import os

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
