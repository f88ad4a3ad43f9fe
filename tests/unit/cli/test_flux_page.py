"""The table of Flux's commands: the options that it calls the same are those of the parsers."""

from __future__ import annotations

import argparse
import importlib
import re
from pathlib import Path

import pytest

from penstock.cli import VERBS
from penstock.cli.parser import Parser
from penstock.clock import SYSTEM_CLOCK

PAGE = Path(__file__).parents[3] / "docs" / "flux.md"
OPTION = re.compile(r"-{1,2}[A-Za-z][\w-]*")


def rows() -> list[tuple[str, list[str], str]]:
    """The command of Penstock, its options with the same meaning, and the absent ones."""
    found = []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        command = re.fullmatch(r"`penstock ([\w -]+)`", cells[1]) if len(cells) == 5 else None
        if command:
            words = [word for text in re.findall(r"`([^`]+)`", cells[2]) for word in text.split()]
            found.append((command[1], [word for word in words if word.startswith("-")], cells[4]))
    return found


def options(command: str) -> set[str]:
    verb, *operation = command.split()
    module = importlib.import_module(f"penstock.cli.{VERBS[verb][0]}")
    parser = Parser.of_verb(verb, module.SUMMARY)
    parser.set_defaults(clock=SYSTEM_CLOCK)
    module.register(parser)
    for word in operation:
        (choices,) = [
            action.choices
            for action in parser._actions
            if isinstance(action, argparse._SubParsersAction)
        ]
        parser = choices[word]
    return set(parser._option_string_actions)


@pytest.mark.parametrize(("command", "same", "_absent"), rows(), ids=lambda value: str(value)[:40])
def test_options_with_the_same_meaning_exist(command, same, _absent):
    assert set(same) <= options(command)


def test_the_page_is_read():
    found = {command: same for command, same, _ in rows()}
    assert len(found) > 35
    assert "--env-remove" in found["submit"]


@pytest.mark.parametrize("verb", ["submit", "run", "batch", "alloc"])
def test_absent_options_of_submissions_are_rejected_by_name(verb):
    absent = {"--taskmap", "--cores", "--tasks-per-core", "--wait-event"}
    assert not absent & options(verb)
