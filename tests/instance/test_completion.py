"""Completion of command lines, as a shell does it."""

from __future__ import annotations

import os
import shlex
import subprocess

import pytest
from tests.instance.conftest import PENSTOCK

from penstock.cli import SHORT_FORMS, VERBS, main
from penstock.cli.completion import SCRIPTS, completions

CONFIG = """
[queues.batch]
[queues.debug]
[policy.jobspec.defaults.system]
queue = "batch"
[resource.properties]
fast = "node[0-2]"
"""
# Shows what TAB offers after the words of the command line.
BASH = """
penstock() { "${COMMAND[@]}" "$@"; }
eval "$(penstock completion bash)"
complete -p penstock
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_penstock
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def sim(start, tmp_path):
    (tmp_path / "c.toml").write_text(CONFIG)
    with start("--nodes=3", "--cores=4", "--config", str(tmp_path / "c.toml")) as instance:
        yield instance


def offered(instance, *words):
    """The values that bash offers for the last word."""
    command = f"COMMAND=({shlex.join(PENSTOCK)}); COMP_WORDS=(penstock {shlex.join(words)})"
    done = subprocess.run(
        ["bash", "--norc", "-c", command + BASH],
        env={**os.environ, "PENSTOCK_URI": instance.uri},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stderr == ""
    rule, *values = done.stdout.split("\n")
    assert rule == "complete -o default -F _penstock penstock"
    return [value for value in values if value]


def test_bash_completes_verbs_options_and_live_values(sim):
    first, second = sim.lines("submit", "--urgency=hold", "--cc=1-2", "true")
    assert offered(sim, "pk") == ["pkill"]
    assert offered(sim, "cancel", "--sta") == ["--states"]
    assert sorted(offered(sim, "cancel", "")) == sorted([first, second])
    assert offered(sim, "cancel", "-m", "note", first[:-1]) != []
    sim.lines("cancel", first)
    sim.penstock("wait", first)
    assert offered(sim, "cancel", "") == [second]
    assert sorted(offered(sim, "info", "")) == sorted([first, second])
    assert offered(sim, "submit", "-q", "") == ["batch", "debug"]
    assert offered(sim, "submit", "--queue", "=", "de") == ["debug"]
    assert offered(sim, "queue", "stop", "b") == ["batch"]
    assert offered(sim, "submit", "--requires", "f") == ["fast"]
    assert offered(sim, "resource", "dr") == ["drain"]
    assert offered(sim, "resource", "drain", "node") == ["node0", "node1", "node2"]
    assert offered(sim, "resource", "list", "--no") == ["--no-header"]
    assert offered(sim, "taskmap", "--to", "p") == ["pmi"]
    assert offered(sim, "taskmap", "") == [second]
    # The shell completes files of another command, and of options with files.
    assert offered(sim, "submit", "-n", "2", "--", "/bi") == []
    assert offered(sim, "submit", "cat", "--") == []
    assert offered(sim, "submit", "--output", "") == []


def test_without_an_instance_there_are_no_values(monkeypatch):
    monkeypatch.setenv("PENSTOCK_URI", "local:///nowhere")
    assert completions(["cancel", ""]) == []
    assert completions(["nosuch", ""]) == []
    found = dict(completions([""]))
    assert set(found) == {*VERBS, *SHORT_FORMS}
    assert found["cancel"] == "cancel jobs"
    assert found["last"] == "penstock job last"
    # A shell that does not take `=` for a word gets all of the word.
    assert completions(["taskmap", "--to=p"]) == [("--to=pmi", "")]


@pytest.mark.parametrize("verb", VERBS)
def test_the_options_of_every_verb_are_offered(verb, capsys):
    offered = [name for name, _ in completions([verb, "--"])]
    assert "--help" in offered
    assert main([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in offered)


@pytest.mark.parametrize("shell", SCRIPTS)
def test_scripts_ask_penstock_for_words(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "penstock completion words -- " in script
    assert main(["completion", "tcsh"]) == 2
    assert "unknown value `tcsh`: expected bash, zsh, fish" in capsys.readouterr().err
