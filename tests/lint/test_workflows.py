"""The workflows of GitHub Actions: the targets and files that they name exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))


def commands(workflow: Path) -> list[str]:
    return re.findall(r"^\s*(?:- )?run: (.+)$", workflow.read_text(), re.MULTILINE)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_targets_and_files_exist(workflow):
    for command in commands(workflow):
        for target in re.findall(r"\bmake ([\w-]+)", command):
            assert target in TARGETS, command
        for path in re.findall(r"(?<!\S)((?:tests|\.ci|build_backend)/[\w./-]+)", command):
            assert (ROOT / path).exists(), command
    for path in re.findall(r"uses: \./(\S+)", workflow.read_text()):
        assert (ROOT / path).exists()


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_no_more_permissions_than_it_needs(workflow):
    text = workflow.read_text()
    assert "\npermissions:\n  contents: read\n" in text
    # Every action has a version.
    uses = re.findall(r"uses: (\S+)", text)
    assert all("@" in action or action.startswith("./") for action in uses)


def test_there_are_workflows_for_tests_wheels_and_releases():
    assert [path.stem for path in WORKFLOWS] == ["release", "test", "wheels"]
    assert commands(WORKFLOWS[1]) == [
        "rustup toolchain install stable --profile minimal --component clippy,rustfmt",
        ".ci/run",
        "make docs",
        "make msrv api test-crates",
    ]


def test_every_file_has_the_same_version():
    """The notes of a release, the crates and the citation; wheels take it from the crates."""
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]
    version = manifest["package"]["version"]
    crates = [crate for crate in manifest["dependencies"].values() if "path" in crate]
    assert {crate["version"] for crate in crates if "version" in crate} == {version}
    notes = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1]
    cited = re.search(r"^version: (.+)", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)[1]
    # Between two releases the notes are of the next one.
    assert notes in (version, "Unreleased")
    assert cited == version
