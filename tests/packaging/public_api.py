"""Compares the public interface of each published library with its snapshot, `public-api.txt`.

    make api            fails with the differences
    make api UPDATE=1   writes the snapshots

The text comes from cargo-public-api, which reads what rustdoc says of a crate. Both are of pinned
versions, since the format is not stable.
"""

from __future__ import annotations

import argparse
import difflib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TARGET = ROOT / "target" / "api"
TOOL = ROOT / "target" / "tools" / "bin" / "cargo-public-api"
CRATES = ["idset", "hostlist", "rset", "jobspec", "engine", "wire"]


def public_api(crate: str, toolchain: str) -> str:
    """The items of a crate, one a line, without those that every type has."""
    name = f"penstock-{crate}"
    document = ["cargo", f"+{toolchain}", "rustdoc", "--quiet", "--package", name, "--lib"]
    document += ["--locked", "--all-features", "--target-dir", str(TARGET)]
    document += ["--", "-Zunstable-options", "--output-format=json"]
    # rustdoc of a stable release writes JSON only if it may use what is unstable.
    environment = {**os.environ, "RUSTC_BOOTSTRAP": "1"}
    subprocess.run(document, cwd=ROOT, env=environment, check=True)
    described = TARGET / "doc" / f"{name.replace('-', '_')}.json"
    command = [TOOL, "public-api", "--simplified", "--simplified", "--rustdoc-json", described]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def main() -> int:
    """Compares or writes the snapshots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--toolchain", required=True, help="the version of rustdoc")
    parser.add_argument("--update", action="store_true", help="write the snapshots")
    arguments = parser.parse_args()
    differences: list[str] = []
    for crate in CRATES:
        snapshot = ROOT / "rust" / crate / "public-api.txt"
        found = public_api(crate, arguments.toolchain)
        if arguments.update:
            snapshot.write_text(found)
            continue
        expected = snapshot.read_text()
        differences += difflib.unified_diff(
            expected.splitlines(keepends=True),
            found.splitlines(keepends=True),
            str(snapshot.relative_to(ROOT)),
            f"penstock-{crate}",
            n=0,
        )
    sys.stdout.writelines(differences)
    if differences:
        print("`make api UPDATE=1` writes the snapshots", file=sys.stderr)
    return int(bool(differences))


if __name__ == "__main__":
    sys.exit(main())
