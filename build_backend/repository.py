"""Names the address of the repository wherever one is needed.

    python build_backend/repository.py https://example.org/penstock/penstock

The metadata of the distribution and the crates, the citation, the site and the links of the README,
which package registries show, get it. A second run replaces the address of the first.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BRANCH = "main"
ADDRESS = re.compile(r"https://[^\s\"'()<>]+[^\s\"'()<>/]")


def write_address(root: Path, address: str) -> None:
    """Names the address in the files of a source tree."""
    _set_line(root / "Cargo.toml", "license = ", "repository = ", f'repository = "{address}"')
    for crate in sorted(root.glob("rust/*/Cargo.toml")):
        # Only crates that are published have a description for a registry.
        if "\ndocumentation = " in crate.read_text():
            _set_line(crate, "license.workspace", "repository.", "repository.workspace = true")
    _set_line(root / "CITATION.cff", "type: ", "repository-code: ", f'repository-code: "{address}"')
    _set_line(root / "mkdocs.yml", "site_name: ", "repo_url: ", f"repo_url: {address}")
    _set_urls(root / "pyproject.toml", address)
    _set_links(root / "README.md", address)


def _set_line(path: Path, before: str, start: str, line: str) -> None:
    """Puts a line after the one that starts with `before`; one with `start` is replaced."""
    lines = [each for each in path.read_text().splitlines() if not each.startswith(start)]
    place = next(number for number, each in enumerate(lines) if each.startswith(before)) + 1
    path.write_text("\n".join([*lines[:place], line, *lines[place:]]) + "\n")


def _set_urls(path: Path, address: str) -> None:
    """Puts the table `[project.urls]` before that of the scripts."""
    text = re.sub(r"\[project\.urls\]\n(?:.+\n)*\n", "", path.read_text())
    table = (
        f'[project.urls]\nRepository = "{address}"\nIssues = "{address}/issues"\n'
        f'Changelog = "{address}/blob/{BRANCH}/CHANGELOG.md"\n\n'
    )
    path.write_text(text.replace("[project.scripts]", f"{table}[project.scripts]", 1))


def _set_links(path: Path, address: str) -> None:
    """Makes the links to files of the tree absolute, also those of an earlier run."""
    text = re.sub(rf"\]\(https://[^\s()]+/(?:blob|raw)/{BRANCH}/", "](", path.read_text())
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:)", rf"\1{address}/raw/{BRANCH}/", text)
    path.write_text(re.sub(r"\]\((?!https?:|#)", f"]({address}/blob/{BRANCH}/", text))


def main() -> int:
    """Writes the address that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("address", help="such as https://example.org/penstock/penstock")
    address = parser.parse_args().address
    if not ADDRESS.fullmatch(address):
        print(f"`{address}`: expected https://… without a `/` at the end", file=sys.stderr)
        return 2
    write_address(ROOT, address)
    return 0


if __name__ == "__main__":
    sys.exit(main())
