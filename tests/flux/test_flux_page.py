"""The table of Flux's commands and options, against those of the installed Flux."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "flux.md"
OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")
# A program that is there for Flux's own tests.
UNLISTED = {"job-frobnicator"}


def rows() -> list[tuple[list[str], list[str]]]:
    """The commands of each row without `flux`, and the cells."""
    found = []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and cells[0].startswith("`flux "):
            first, *others = re.findall(r"`(?:flux )?([^`]+)`", cells[0])
            group = first.rpartition(" ")[0]
            # `flux queue enable`, `disable`: the second is of the same group.
            others = [name if " " in name else f"{group} {name}".strip() for name in others]
            found.append(([first, *others], cells))
    return found


def named(cells: list[str]) -> set[str]:
    """The options that a row names, in any column; those that it shares with `submit`."""
    text = " ".join(re.findall(r"`([^`]*)`", " ".join(cells[2:])))
    options = set(OPTION.findall(text))
    if "as `submit`" in " ".join(cells) or "those of `submit`" in " ".join(cells):
        (submit,) = [cells for names, cells in rows() if names == ["submit"]]
        options |= named(submit)
    return options


def run(*words: str) -> str:
    done = subprocess.run(
        ["flux", *words], capture_output=True, text=True, check=False, timeout=120
    )
    return done.stdout + done.stderr


def options_of(command: str) -> list[list[str]]:
    """The names of each option in the help of a command of Flux."""
    found = []
    for line in run(*command.split(), "--help").splitlines():
        option = re.match(r" {1,8}(-[\w-].*)", line)
        if option:
            names = OPTION.findall(re.split(r" {2,}", option[1])[0])
            if names and not {"-h", "--help"} & set(names):
                found.append(names)
    return found


@pytest.mark.parametrize(("commands", "cells"), rows(), ids=lambda value: str(value[0]))
def test_every_option_is_in_the_row_of_its_command(commands, cells):
    if cells[1] == "none" or "the options of their programs" in cells[4]:
        return
    here = named(cells)
    for command in commands:
        for names in options_of(command):
            # `--test-…` stands for all that begin so.
            is_test = "--test-" in cells[4] and names[0].startswith("--test-")
            assert is_test or here & set(names), (command, names)


def test_every_command_is_on_the_page():
    (folder,) = {
        path
        for path in run("env", "printenv", "FLUX_EXEC_PATH").strip().split(":")
        if path and Path(path).is_dir()
    }
    programs = {
        re.sub(r"^flux-|\.(py|lua|sh)$", "", path.name)
        for path in Path(folder).iterdir()
        if os.access(path, os.X_OK)
    }
    on_page = {name for commands, _ in rows() for name in commands} | {
        name.split()[0] for commands, _ in rows() for name in commands
    }
    # A program may be named after a version of Python.
    programs = {name for name in programs if not name.startswith("python3")}
    assert programs - on_page - UNLISTED == set()
    assert shutil.which("flux")


def test_every_operation_of_job_queue_and_resource_is_on_the_page():
    on_page = {name for commands, _ in rows() for name in commands}
    for verb in ("job", "queue", "resource"):
        text = run(verb, "--help")
        operations = set(re.findall(r"^ {3,4}([a-z][\w-]*)(?= {2,}|$)", text, re.MULTILINE))
        for names in re.findall(r"^ *{([\w,-]+)}", text, re.MULTILINE):
            operations |= set(names.split(","))
        assert operations, text
        assert {f"{verb} {name}" for name in operations} - on_page == set()
