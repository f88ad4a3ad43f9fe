"""Tokens that name submissions: the only module of the clients that draws random numbers."""

from __future__ import annotations

import os
import random

# Not the generator of the module, which programs seed; a child process gets numbers of its own.
_random = random.Random()
os.register_at_fork(after_in_child=_random.seed)


def new_token() -> str:
    """A token that no other submission has."""
    return f"{_random.getrandbits(128):032x}"
