"""An instance under faults drawn from seeds violates no invariant: `make dst-daemon` runs more."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest
from tests.simulation import plants
from tests.simulation.plants import PLANTS, planted
from tests.simulation.run import Run, run, shorten
from tests.simulation.script import Script, Step
from tests.simulation.world import Violation

# 500 runs take a minute of one processor: some 8 runs a second.
RUNS, RUNS_PER_TEST = 500, 10
# Each script has shown a defect that is no longer there.
SCRIPTS = sorted(Path(__file__).with_name("scripts").glob("*.txt"))


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setattr(logging.getLogger("penstock"), "propagate", False)


@pytest.mark.parametrize("first", range(1, RUNS + 1, RUNS_PER_TEST))
def test_no_invariant_is_violated(first):
    for seed in range(first, first + RUNS_PER_TEST):
        found = run(Script.draw(seed))
        hint = f"`make dst-daemon SEED={seed} N=1` shortens it"
        assert found.violation is None, "\n".join([hint, *found.log[-30:], str(found.violation)])


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_script_of_an_earlier_defect_violates_nothing(path):
    found = run(Script.parse(path.read_text()))
    assert found.violation is None, "\n".join([*found.log[-30:], str(found.violation)])


def test_a_run_is_replayed_exactly():
    for seed in range(1, 6):
        script = Script.draw(seed)
        assert Script.parse(str(script)) == script
        first, second = run(script), run(script)
        assert (first.digest, first.log) == (second.digest, second.log)


def test_an_invalid_line_is_named():
    with pytest.raises(ValueError, match="line 2: expected a step, found `jump 1`"):
        Script.parse("settle\njump 1")


def test_a_planted_bug_is_found_and_its_script_shortened():
    submit = Step("submit", (0, 0, 2, 0))
    steps = [Step("advance", (1,)), submit, Step("ping", (1, 1)), Step("settle", ())]
    with planted("response-sent-twice"):
        short = shorten(Script(1, tuple(steps * 3)))
        found = run(short)
    assert found.violation is not None
    assert found.violation.invariant == "answered-twice"
    assert len(short.steps) < len(steps)
    assert run(short).violation is None


def test_a_planted_bug_is_found_by_its_seed_alone(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["plants", "--plant", "response-sent-twice", "--seeds", "20"])
    assert plants.main() == 0
    row = capsys.readouterr().out.splitlines()[2]
    seed = row.split("|")[2].strip()
    monkeypatch.setattr(sys, "argv", ["plants", "--plant", "response-sent-twice", "--seed", seed])
    assert plants.main() == 0
    assert "answered-twice" in capsys.readouterr().out


def test_a_violation_that_a_run_has_without_the_bug_is_no_find(capsys, monkeypatch):
    violation = Violation("an-invariant", "always")
    monkeypatch.setattr(plants, "run", lambda script: Run(0, violation, "", []))
    monkeypatch.setattr(plants, "executed", {"response-sent-twice"})
    monkeypatch.setattr(sys, "argv", ["plants", "--plant", "response-sent-twice"])
    assert plants.main() == 1
    assert "without the bug, too" in capsys.readouterr().out


def test_plants_have_names():
    assert len(PLANTS) >= 12
