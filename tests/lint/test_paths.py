"""The files and folders that pages name exist."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GENERATED = "bench/curves/*.svg"
PAGES = [
    page.relative_to(ROOT).as_posix() for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
]
FOLDERS = "bench|build_backend|docs|examples|python|rust|tests"
NAMED = re.compile(rf"`((?:{FOLDERS})(?:/[\w.*/{{}},-]*)?)`")


def named(text: str) -> list[str]:
    """The paths in the code spans of a page, one for each choice of `{a,b}`."""
    paths = []
    for path in NAMED.findall(text):
        parts = re.split(r"\{([^}]*)\}", path)
        choices = [part.split(",") if n % 2 else [part] for n, part in enumerate(parts)]
        paths += ["".join(chosen) for chosen in product(*choices)]
    return paths


@pytest.mark.parametrize("page", PAGES)
def test_named_paths_exist(page: str) -> None:
    paths = named((ROOT / page).read_text())
    assert [path for path in paths if path != GENERATED and not any(ROOT.glob(path))] == []


def test_the_picture_names_files_that_exist() -> None:
    picture = (ROOT / "docs" / "architecture.svg").read_text()
    paths = re.findall(r'<text class="f"[^>]*>([^<]+)</text>', picture)
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_paths_are_found() -> None:
    text = (
        "`rust/exec/tests/{core,formats}.rs`, `tests/*/test_a.py`, `docs`, `python -m x`, rust/no"
    )
    assert named(text) == [
        "rust/exec/tests/core.rs",
        "rust/exec/tests/formats.rs",
        "tests/*/test_a.py",
        "docs",
    ]


# Folders of many subjects: the table names each of their files.
MIXED = [
    ROOT / "tests" / folder
    for folder in ["instance", "lint", "protocol", "unit/client", "unit/instance"]
]


def test_the_table_names_each_test() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    table = page.partition("## Where behaviour is tested")[2].partition("\n\n| ")[2]
    table = table.partition("\n\n")[0]
    listed = {found for path in named(table) for found in ROOT.glob(path)}
    assert not listed & set(MIXED)
    tests = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("rust/**/tests/*.rs")]
    lost = [
        test.relative_to(ROOT).as_posix()
        for test in tests
        if "src" not in test.parts and not listed & {test, *test.parents}
    ]
    assert lost == []
