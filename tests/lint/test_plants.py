"""The bugs of `make planted` can be planted, and are nowhere but in a copy of the source."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

from tests.planted import run
from tests.planted.run import VARIABLE, read_plants

ROOT = Path(__file__).parents[2]


def test_each_bug_can_be_planted() -> None:
    plants = read_plants()
    assert len(plants) >= 20
    assert max(Counter(plant.name for plant in plants).values()) == 1
    sources: dict[str, str] = {}
    for plant in plants:
        source = sources.get(plant.file) or (ROOT / plant.file).read_text()
        assert "PLANT" in plant.new
        sources[plant.file] = plant.apply(source)


def test_no_source_has_a_planted_bug() -> None:
    paths = [*ROOT.glob("rust/**/*.rs"), *ROOT.glob("python/**/*.py"), *ROOT.glob("*/*.toml")]
    assert len(paths) > 100
    assert [path for path in paths if VARIABLE in path.read_text()] == []


def test_the_program_is_built_where_it_is_executed(monkeypatch, tmp_path) -> None:
    """`CARGO_TARGET_DIR` names another place, with another program."""
    commands: list[list[str]] = []

    def execute(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", execute)
    monkeypatch.setattr(run, "TREE", tmp_path)
    program = run.build([])
    (command,) = commands
    target = Path(command[command.index("--target-dir") + 1])
    assert program.is_relative_to(target)
