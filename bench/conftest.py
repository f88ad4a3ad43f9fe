"""Inputs for the benchmarks."""

from __future__ import annotations

import random

import pytest


@pytest.fixture(scope="session")
def hosts():
    """100,000 host names in a shuffled, repeatable order."""
    names = [f"node{number}" for number in range(100_000)]
    random.Random(1).shuffle(names)
    return names
