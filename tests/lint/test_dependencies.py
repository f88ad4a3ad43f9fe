"""The crates that Penstock uses: licences, versions and sources are those that `deny.toml` allows.

`make deny` has cargo-deny check the same lists, which takes minutes to install; this needs nothing
but cargo's own data.
"""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DENY = tomllib.loads((ROOT / "deny.toml").read_text())
WORD = re.compile(r"[()]|[A-Za-z0-9.+-]+(?: WITH [A-Za-z0-9.-]+)?")


def is_allowed(expression: str, allowed: set[str]) -> bool:
    """Whether a licence expression (SPDX) can be satisfied with allowed licences.

    `/` between licences is the `OR` of older manifests.
    """
    words = WORD.findall(expression.replace("/", " OR "))

    def choices() -> bool:
        satisfied = terms()
        while words and words[0] == "OR":
            words.pop(0)
            satisfied = terms() or satisfied
        return satisfied

    def terms() -> bool:
        satisfied = term()
        while words and words[0] == "AND":
            words.pop(0)
            satisfied = term() and satisfied
        return satisfied

    def term() -> bool:
        word = words.pop(0)
        if word != "(":
            return word in allowed
        satisfied = choices()
        assert words.pop(0) == ")"
        return satisfied

    satisfied = choices()
    assert not words, expression
    return satisfied


@pytest.fixture(scope="module")
def packages() -> list[dict[str, Any]]:
    """The packages that a build for Linux uses, as cargo describes them."""
    command = ["cargo", "metadata", "--format-version=1", "--locked"]
    command += [f"--filter-platform={target}" for target in DENY["graph"]["targets"][:1]]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    metadata = json.loads(done.stdout)
    used = reachable(metadata)
    return [package for package in metadata["packages"] if package["id"] in used]


def reachable(metadata: dict[str, Any]) -> set[str]:
    """The ids of the packages that a member of the workspace is built with."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    used: set[str] = set()
    found = list(metadata["workspace_members"])
    while found:
        package = found.pop()
        if package not in used:
            used.add(package)
            # A dependency for no platform ties versions together, and is not built; those of tests
            # are in no program.
            found += [
                each["pkg"]
                for each in nodes[package]["deps"]
                if any(
                    kind["kind"] != "dev" and kind["target"] != "cfg(any())"
                    for kind in each["dep_kinds"]
                )
            ]
    return used


def test_licences_are_allowed(packages):
    allowed = set(DENY["licenses"]["allow"])
    assert [
        (package["name"], package["license"])
        for package in packages
        if not is_allowed(package["license"] or "none", allowed)
    ] == []


def test_sources_are_allowed(packages):
    allowed = {f"registry+{registry}" for registry in DENY["sources"]["allow-registry"]}
    assert {package["source"] for package in packages} == {None, *allowed}


def test_a_crate_has_one_version(packages):
    assert DENY["bans"]["multiple-versions"] == "deny"
    versions = defaultdict(set)
    for package in packages:
        versions[package["name"]].add(package["version"])
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


def test_no_dependency_has_any_version(packages):
    own = [package for package in packages if package["source"] is None]
    found = [
        (package["name"], each["name"])
        for package in own
        for each in package["dependencies"]
        if each["req"] == "*" and not each.get("path")
    ]
    assert found == []


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("MIT", True),
        ("GPL-3.0", False),
        ("GPL-3.0 OR MIT", True),
        ("MIT/Apache-2.0", True),
        ("MIT AND GPL-3.0", False),
        ("(MIT OR GPL-3.0) AND Zlib", True),
        ("(GPL-3.0 OR LGPL-2.1) AND MIT OR Apache-2.0 WITH LLVM-exception", True),
        ("none", False),
    ],
)
def test_expressions_are_read(expression, expected):
    allowed = {"MIT", "Apache-2.0", "Zlib", "Apache-2.0 WITH LLVM-exception"}
    assert is_allowed(expression, allowed) is expected
