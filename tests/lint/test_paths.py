"""The files and folders that pages name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("CONTRIBUTING.md", "DESIGN.md", "README.md", "docs/architecture.md")
NAMED = re.compile(r"`((?:rust|python|tests|docs|bench|examples)/[\w./-]+)`")


@pytest.mark.parametrize("page", PAGES)
def test_named_paths_exist(page: str) -> None:
    named = NAMED.findall((ROOT / page).read_text())
    assert [path for path in named if not (ROOT / path).exists()] == []
