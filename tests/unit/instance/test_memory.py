"""The extension returns freed memory to the system."""

from __future__ import annotations

import random
from pathlib import Path

from penstock._core import IDset, return_memory


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def test_freed_memory_is_returned_to_the_system() -> None:
    rng = random.Random(1)
    sparse = [rng.sample(range(10**6), 2000) for _ in range(20)]
    # Some 50 MiB.
    sets = [IDset(ids) for ids in sparse for _ in range(500)]
    in_use = resident_bytes()
    del sets
    return_memory()
    assert resident_bytes() < in_use - 2**25
