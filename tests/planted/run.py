"""Plants bugs in a copy of the source, and shows that the simulation finds each of them.

All are planted in one copy, which is built once; the environment variable `PENSTOCK_PLANT` says
which of them is active. So no build of the source itself has any of them.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PLANTS = Path(__file__).with_name("plants.toml")
TREE = ROOT / "target" / "planted"
VARIABLE = "PENSTOCK_PLANT"
# The program says on standard error that it has come to a planted bug.
SWITCH = """({{ static ON: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *ON.get_or_init(|| {{
        let on = std::env::var("{variable}").is_ok_and(|plant| plant == "{name}");
        if on {{ eprintln!("planted {name}"); }}
        on
    }}) }})"""
VIOLATION = re.compile(r"^seed (\d+): ([a-z-]+): (.*)$", re.MULTILINE)
REPLAYED = re.compile(r"^after (\d+) steps: ([a-z-]+): ", re.MULTILINE)
# The lines of a script that are no steps.
OPTIONS = ("scheduler ", "hooks ", "inactive-num-limit ", "guests ", "syncs ")


@dataclass(frozen=True)
class Plant:
    """A bug: the replacement of a text in a source file."""

    name: str
    file: str
    old: str
    new: str

    def apply(self, source: str) -> str:
        """The source with the bug.

        Raises:
            ValueError: the text does not occur exactly once.
        """
        if (count := source.count(self.old)) != 1:
            raise ValueError(f"{self.name}: the text occurs {count} times in {self.file}")
        switch = SWITCH.format(variable=VARIABLE, name=self.name)
        return source.replace(self.old, self.new.replace("PLANT", switch))


def read_plants() -> list[Plant]:
    """The bugs."""
    tables: list[dict[str, Any]] = tomllib.loads(PLANTS.read_text())["plant"]
    return [Plant(**table) for table in tables]


def build(plants: list[Plant]) -> Path:
    """Builds the simulation from a copy of the source with all bugs. Returns the program."""
    for name in ("rust", "Cargo.toml", "Cargo.lock", ".cargo", "clippy.toml"):
        source, copy = ROOT / name, TREE / name
        if source.is_dir():
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(source, copy)
        else:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)
    for plant in plants:
        path = TREE / plant.file
        path.write_text(plant.apply(path.read_text()))
    target = TREE / "target"
    command = ["cargo", "build", "--profile", "checked", "--locked", "--package", "penstock-dst"]
    # Not the directory that `CARGO_TARGET_DIR` names: it is the source's own.
    command += ["--target-dir", str(target)]
    done = subprocess.run(command, cwd=TREE, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return target / "checked" / "penstock-dst"


def execute(program: Path, plant: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs the simulation with a bug."""
    environment = {**os.environ, VARIABLE: plant}
    command = [str(program), *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def search(program: Path, plant: str, seeds: int) -> tuple[re.Match[str] | None, str]:
    """Runs the seeds with a bug. Returns the first violation, and standard error."""
    done = execute(program, plant, "--whole", "--seed", "1", "--seeds", str(seeds))
    return VIOLATION.search(done.stdout), done.stderr


def shorten(program: Path, plant: str, seed: str, invariant: str) -> str:
    """Shortens the script of a seed, and replays it: its number of steps, or what is wrong."""
    done = execute(program, plant, "--seed", seed, "--seeds", "1")
    found = VIOLATION.search(done.stdout)
    if found is None or found[2] != invariant:
        return "not repeated"
    # The text of a panic has several lines.
    text = "scheduler " + done.stdout.partition("\nscheduler ")[2].partition("\n\n")[0]
    path = TREE / "script.txt"
    path.write_text(text + "\n")
    # The first line: the state that a panic shows has maps, whose order differs.
    outputs = [execute(program, plant, "--script", str(path)).stdout for _ in range(2)]
    first, second = (output.partition("\n")[0] for output in outputs)
    replayed = REPLAYED.search(first)
    if replayed is None or replayed[2] != invariant or first != second:
        return "not replayed"
    return str(sum(not line.startswith(OPTIONS) for line in text.splitlines()))


def main() -> int:
    """Prints a table.

    Returns 1 if a bug is not found, was never executed, or its shortened script is not replayed.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="seeds for each bug")
    parser.add_argument("--plant", action="append", help="a bug; all by default")
    options = parser.parse_args()
    plants = read_plants()
    program = build(plants)
    names = options.plant or [plant.name for plant in plants]
    failures = 0
    head = f"| {'planted bug':34} | {'seed':>5} | {'invariant':22} | {'s':>5} | {'steps':>5} |"
    print(head, f"|{'-' * 36}|{'-' * 6}:|{'-' * 24}|{'-' * 6}:|{'-' * 6}:|", sep="\n")
    # Without a bug, the same seeds violate nothing.
    for name in ["", *names]:
        began = time.monotonic()
        found, errors = search(program, name, options.seeds)
        seconds = time.monotonic() - began
        seed, invariant = (found[1], found[2]) if found else ("", "none")
        if name and f"planted {name}" not in errors:
            invariant = "never executed"
        is_expected = bool(found) == bool(name) and invariant != "never executed"
        steps = shorten(program, name, seed, invariant) if found else ""
        is_expected &= not steps.startswith("not")
        failures += not is_expected
        row = f"| {name or 'none':34} | {seed:>5} | {invariant:22} | {seconds:5.1f} | {steps:>5} |"
        print(row, flush=True)
    print(f"{len(names)} bugs, {failures} unexpected results")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
