"""The address of the repository: `make address` names it wherever one is needed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from build_backend.repository import write_address

ROOT = Path(__file__).parents[2]
FILES = ["Cargo.toml", "pyproject.toml", "CITATION.cff", "mkdocs.yml", "README.md"]
FIRST_ADDRESS = "https://first.example/penstock"
SECOND_ADDRESS = "https://second.example/group/penstock"


def addresses(root: Path) -> dict[str, str | None]:
    """The address in each place, None without one."""

    def line(name: str, pattern: str) -> str | None:
        found = re.search(pattern, (root / name).read_text(), re.MULTILINE)
        return found[1] if found else None

    cargo = tomllib.loads((root / "Cargo.toml").read_text())
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    return {
        "Cargo.toml": cargo["workspace"]["package"].get("repository"),
        "pyproject.toml": project.get("urls", {}).get("Repository"),
        "CITATION.cff": line("CITATION.cff", r'^repository-code: "(.+)"$'),
        "mkdocs.yml": line("mkdocs.yml", r"^repo_url: (.+)$"),
        "README.md": line("README.md", r"\]\((https://[^)]+)/blob/main/docs/c.md\)"),
    }


@pytest.fixture
def tree(tmp_path):
    for name in [*FILES, *(str(path.relative_to(ROOT)) for path in ROOT.glob("rust/*/Cargo.toml"))]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_the_tree_names_one_address_or_none():
    assert len(set(addresses(ROOT).values())) == 1


def test_one_command_names_the_address_everywhere(tree):
    for address in (FIRST_ADDRESS, SECOND_ADDRESS):
        write_address(tree, address)
        assert set(addresses(tree).values()) == {address}
    assert "first.example" not in "".join((tree / name).read_text() for name in FILES)
    urls = tomllib.loads((tree / "pyproject.toml").read_text())["project"]["urls"]
    assert urls["Issues"] == f"{SECOND_ADDRESS}/issues"
    manifests = [tomllib.loads(path.read_text()) for path in tree.glob("rust/*/Cargo.toml")]
    published = [each for each in manifests if "documentation" in each["package"]]
    assert len(published) == 7
    for manifest in published:
        assert manifest["package"]["repository"] == {"workspace": True}
    # All else is as it was.
    text = (tree / "README.md").read_text()
    assert f"]({SECOND_ADDRESS}/raw/main/docs/images/web-overview.png)" in text
    assert not re.search(r"\]\((?!https://)", text)
    plain = re.sub(rf"{SECOND_ADDRESS}/(blob|raw)/main/", "", text)
    original = re.sub(r"https://[^\s()]+/(blob|raw)/main/", "", (ROOT / "README.md").read_text())
    assert plain == original


def test_an_invalid_address_is_rejected():
    command = [sys.executable, ROOT / "build_backend" / "repository.py", "example.org/"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        "`example.org/`: expected https://… without a `/` at the end\n",
    )
