"""Completion of command lines, as a shell does it."""

from __future__ import annotations

import contextlib
import os
import pty
import shlex
import shutil
import subprocess
import threading

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
# Tells what zsh offers for the line at TAB, and at ^X the line that TAB has made.
ZSH = """
penstock() { %s "$@"; }
exec 3> "$TOLD"
unsetopt beep
autoload -Uz compinit
compinit -u -d "$ZDOTDIR/dump"
eval "$(penstock completion zsh)"
compadd() {
    if [[ ${@[(I)-[OAD]]} -eq 0 ]]; then
        local -a offered
        builtin compadd -O offered "$@"
        print -rl -- $offered >&3
    fi
    builtin compadd "$@"
}
tell-line() { print -r -- "line $BUFFER" >&3; BUFFER= }
zle -N tell-line
bindkey '^X' tell-line
"""
FISH = """
function penstock; %s $argv; end
penstock completion fish | source
complete -C %s
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


def offered_by_zsh(instance, folder, line):
    """The values that zsh offers at the end of the line, and the line that it has then."""
    (folder / ".zshrc").write_text(ZSH % shlex.join(PENSTOCK))
    told = folder / "told"
    os.mkfifo(told)
    master, slave = pty.openpty()
    shell = subprocess.Popen(
        ["zsh", "-d", "-i"],
        env={
            **os.environ,
            "PENSTOCK_URI": instance.uri,
            "ZDOTDIR": str(folder),
            "TOLD": str(told),
            "TERM": "xterm",
        },
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)

    def discard_screen():
        # EIO: the shell has ended.
        with contextlib.suppress(OSError):
            while os.read(master, 65536):
                pass

    screen = threading.Thread(target=discard_screen)
    screen.start()
    try:
        os.write(master, line.encode() + b"\t\x18")
        values = []
        with told.open() as answers:
            for answer in answers:
                if answer.startswith("line "):
                    return sorted(filter(None, values)), answer.removeprefix("line ").rstrip("\n")
                values.append(answer.rstrip("\n"))
        raise AssertionError(f"zsh has ended, and told {values}")
    finally:
        shell.kill()
        shell.wait()
        screen.join()
        os.close(master)
        told.unlink()


def offered_by_fish(instance, line):
    """The values that fish offers at the end of the line, without their descriptions."""
    done = subprocess.run(
        ["fish", "--no-config", "-c", FISH % (shlex.join(PENSTOCK), shlex.quote(line))],
        env={**os.environ, "PENSTOCK_URI": instance.uri},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stderr == ""
    return sorted(row.partition("\t")[0] for row in done.stdout.splitlines())


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


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completes_verbs_options_and_live_values(sim, tmp_path):
    first, second = sim.lines("submit", "--urgency=hold", "--cc=1-2", "true")
    folder = tmp_path / "zsh"
    folder.mkdir()

    def offered(line):
        return offered_by_zsh(sim, folder, line)

    assert offered("penstock pk") == (["pkill"], "penstock pkill ")
    values, line = offered("penstock cancel ")
    assert values == sorted([first, second])
    # zsh inserts what the values have in common.
    assert first.startswith(line.removeprefix("penstock cancel "))
    assert second.startswith(line.removeprefix("penstock cancel "))
    assert line != "penstock cancel "
    assert offered("penstock cancel --sta") == (["--states"], "penstock cancel --states ")
    assert offered("penstock submit -q ")[0] == ["batch", "debug"]
    assert offered("penstock submit --queue=de")[1] == "penstock submit --queue=debug "
    assert offered("penstock submit --requires f")[0] == ["fast"]
    assert offered("penstock resource drain n")[0] == ["node0", "node1", "node2"]
    # zsh completes files itself.
    assert offered("penstock submit -n 2 -- /et")[1] == "penstock submit -n 2 -- /etc/"


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_verbs_options_and_live_values(sim):
    first, second = sim.lines("submit", "--urgency=hold", "--cc=1-2", "true")
    assert offered_by_fish(sim, "penstock pk") == ["pkill"]
    assert offered_by_fish(sim, "penstock cancel ") == sorted([first, second])
    assert offered_by_fish(sim, "penstock cancel --sta") == ["--states"]
    assert offered_by_fish(sim, "penstock submit -q ") == ["batch", "debug"]
    assert offered_by_fish(sim, "penstock submit --queue=de") == ["--queue=debug"]
    assert offered_by_fish(sim, "penstock submit --requires f") == ["fast"]
    assert offered_by_fish(sim, "penstock resource drain n") == ["node0", "node1", "node2"]
    # fish completes files itself.
    assert offered_by_fish(sim, "penstock submit -n 2 -- /et") == ["/etc/"]


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
