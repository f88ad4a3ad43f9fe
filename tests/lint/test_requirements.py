"""The Python packages that `make` installs are pinned by version and hashes; the sets agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETS = sorted((ROOT / "requirements").glob("*.in"))
PIN = re.compile(r"(?P<name>[a-z0-9-]+)==(?P<version>[^ ;]+)(?P<marker> ; .*)?")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def pins(path: Path) -> dict[str, str]:
    """The versions by name; each pin has a hash at least."""
    found = {}
    text = re.sub(r"#.*\n", "", path.read_text()).replace("\\\n", "")
    for line in text.splitlines():
        pin, *hashes = re.split(r" +(?=--hash)", line.strip())
        match = PIN.fullmatch(pin.strip())
        assert match, f"{path.name}: `{pin}` is not a pin"
        assert hashes, f"{path.name}: `{pin}` has no hash"
        for each in hashes:
            assert HASH.fullmatch(each), f"{path.name}: `{pin}` has `{each}`"
        found[match["name"]] = match["version"]
    return found


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("source", SETS, ids=lambda path: path.stem)
def test_each_package_of_a_set_is_pinned_with_hashes(source):
    found = pins(source.with_suffix(".txt"))
    named = [re.sub(r"\[.*", "", line) for line in source.read_text().split()]
    missing = [name for name in named if normal(name) not in found]
    assert named
    assert missing == [], "`make requirements` writes the pins"


def test_the_sets_agree_in_versions():
    versions: dict[str, dict[str, str]] = {}
    for source in SETS:
        for name, version in pins(source.with_suffix(".txt")).items():
            versions.setdefault(name, {})[source.stem] = version
    differing = {name: found for name, found in versions.items() if len(set(found.values())) > 1}
    assert differing == {}


def test_every_installation_of_the_makefile_demands_hashes():
    text = (ROOT / "Makefile").read_text()
    lines = [line for line in text.splitlines() if " -m pip install " in line]
    # Only the program that writes the pins is installed by its version alone.
    others = [line for line in lines if "--require-hashes" not in line]
    assert others == ["\ttarget/uv/bin/python -m pip install --quiet uv==$(UV)"]
    used = re.findall(r"\$\(INSTALL\) (requirements/[a-z]+\.txt)", text)
    assert set(used) == {f"requirements/{source.stem}.txt" for source in SETS}
