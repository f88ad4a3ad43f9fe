"""The command line's reference, from its parsers: pages for man(1), and a page in Markdown.

python build_backend/command_reference.py DIRECTORY    # writes penstock.1, penstock-VERB.1
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import __version__
from penstock.cli import GROUPS, SHORT_FORMS, VERBS
from penstock.cli.parser import Parser
from penstock.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Iterator

INTRODUCTION = "Resource sets and a scheduler for clusters."
EXIT_CODES = [
    ("0", "success"),
    ("1", "an error, which is described in a line"),
    ("2", "the command line is invalid"),
    ("69", "there is no instance at the address"),
    ("other", "that of a job or command, for the verbs that say so"),
]
VARIABLES = [
    ("PENSTOCK_URI", "the address of the instance; by default it is at the default socket"),
    ("FLUX_F58_FORCE_ASCII", "if set, job ids begin with f"),
    ("NO_COLOR", "if set, there are no colours"),
]


@dataclass
class Command:
    """A verb or one of its operations.

    Attributes:
        name: the words before the arguments, such as `penstock resource drain`.
        short: one line.
        usage: the arguments.
        description: paragraphs; lines that begin with blanks keep their layout.
        arguments: each as it is written, and its help.
        notes: text whose layout is kept.
        operations: of a verb.
    """

    name: str
    short: str
    usage: str
    description: str
    arguments: list[tuple[str, str]]
    notes: str
    operations: list[Command] = field(default_factory=list)


def commands() -> Iterator[Command]:
    """The verbs, in the order of `penstock --help`."""
    for verb, (name, short) in VERBS.items():
        module = importlib.import_module(f"penstock.cli.{name}")
        parser = Parser.of_verb(verb, module.SUMMARY)
        parser.set_defaults(clock=SYSTEM_CLOCK)
        module.register(parser)
        yield _command(parser, short)


def _command(parser: argparse.ArgumentParser, short: str) -> Command:
    # Wide: the reader's pager breaks lines.
    parser.formatter_class = lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=100_000)
    formatter = parser._get_formatter()
    usage = parser.format_usage().strip().removeprefix(f"usage: {parser.prog}").strip()
    command = Command(
        name=parser.prog,
        short=short,
        usage=usage,
        description=(parser.description or "").strip(),
        arguments=[],
        notes=(parser.epilog or "").rstrip(),
    )
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            command.operations += [_command(action.choices[name], helps[name]) for name in helps]
        elif action.help != argparse.SUPPRESS:
            invocation = formatter._format_action_invocation(action)
            command.arguments.append(
                (invocation, formatter._expand_help(action) if action.help else "")
            )
    return command


# --- man(7)


def man_pages() -> dict[str, str]:
    """The text of each page, by its file name."""
    found = list(commands())
    pages = {"penstock.1": _overview(found)}
    for command in found:
        pages[f"{_page_name(command.name)}.1"] = _page(command)
    return pages


def _page_name(command: str) -> str:
    return command.replace(" ", "-")


def _head(name: str, short: str) -> list[str]:
    return [
        f'.TH {_roff(name.upper())} 1 "" "penstock {__version__}" "Penstock"',
        ".SH NAME",
        f"{_roff(name)} \\- {_roff(short)}",
        ".SH SYNOPSIS",
    ]


def _overview(found: list[Command]) -> str:
    lines = [*_head("penstock", INTRODUCTION.rstrip(".").lower())]
    lines += [r".B penstock", r"VERB [ARGUMENT ...]", ".SH DESCRIPTION", INTRODUCTION]
    by_name = {command.name.removeprefix("penstock "): command for command in found}
    elsewhere = {name for names in GROUPS.values() for name in names}
    for title, names in GROUPS.items():
        lines += [f".SS {_roff(title.capitalize())}"]
        for name in names or [name for name in by_name if name not in elsewhere]:
            lines += [".TP", rf"\fBpenstock\-{_roff(name)}\fR(1)", _roff(by_name[name].short)]
    lines.append(".SS Short forms")
    for name, form in SHORT_FORMS.items():
        lines += [".TP", rf"\fB{_roff(name)}\fR", rf"\fBpenstock {_roff(' '.join(form))}\fR"]
    for title, rows in (("EXIT STATUS", EXIT_CODES), ("ENVIRONMENT", VARIABLES)):
        lines.append(f".SH {title}")
        for name, text in rows:
            lines += [".TP", rf"\fB{_roff(name)}\fR", _roff(text)]
    return "\n".join([*lines, ""])


def _page(command: Command) -> str:
    lines = [*_head(_page_name(command.name), command.short)]
    lines += [rf"\fB{_roff(command.name)}\fR {_roff(command.usage)}", ".SH DESCRIPTION"]
    lines += _text(command.description)
    if command.arguments:
        lines.append(".SH OPTIONS")
        lines += _arguments(command)
    if command.operations:
        lines.append(".SH OPERATIONS")
    for operation in command.operations:
        lines += [f".SS {_roff(operation.name)} {_roff(operation.usage)}", _roff(operation.short)]
        if operation.description != operation.short:
            lines += [".PP", *_text(operation.description)]
        lines += _arguments(operation)
        lines += _text(operation.notes)
    if command.notes:
        lines += [".SH NOTES", *_text(command.notes)]
    lines += [".SH SEE ALSO", r"\fBpenstock\fR(1)"]
    return "\n".join([*lines, ""])


def _arguments(command: Command) -> list[str]:
    lines = []
    for name, text in command.arguments:
        lines += [".TP", rf"\fB{_roff(name)}\fR", _roff(text)]
    return lines


def _text(text: str) -> list[str]:
    """Paragraphs; one with a line that begins with blanks keeps its layout."""
    lines: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        if not paragraph:
            continue
        rows = [_roff(row) for row in paragraph.split("\n")]
        if _has_layout(paragraph):
            rows = [".nf", *rows, ".fi"]
        lines += [".PP", *rows] if lines else rows
    return lines


def _has_layout(paragraph: str) -> bool:
    return re.search(r"^ ", paragraph, re.MULTILINE) is not None


def _roff(text: str) -> str:
    """Text without meaning to roff: escapes, hyphens, and lines that would be requests."""
    text = text.replace("\\", r"\e").replace("-", r"\-")
    return re.sub(r"^(?=[.'])", r"\\&", text, flags=re.MULTILINE)


# --- Markdown


def markdown() -> str:
    """One page, with a section for each verb."""
    lines = ["# Command line", "", INTRODUCTION, ""]
    lines += ["`penstock VERB --help` and `man penstock-VERB` show the same.", ""]
    for command in commands():
        lines += [f"## {command.name}", "", f"{command.short[0].upper()}{command.short[1:]}.", ""]
        lines += _markdown(command)
        for operation in command.operations:
            lines += [f"### {operation.name}", ""]
            lines += _markdown(operation)
    return "\n".join(lines)


def _markdown(command: Command) -> list[str]:
    lines = ["```", f"{command.name} {command.usage}", "```", ""]
    for paragraph in re.split(r"\n\s*\n", command.description):
        lines += [*_fenced(paragraph), ""]
    if command.arguments:
        lines += ["| argument | what |", "|---|---|"]
        lines += [
            f"| `{_cell(name)}` | {_prose(_cell(text))} |" for name, text in command.arguments
        ]
        lines.append("")
    for paragraph in re.split(r"\n\s*\n", command.notes):
        lines += [*_fenced(paragraph), ""]
    return lines


def _fenced(paragraph: str) -> list[str]:
    text = paragraph.strip("\n")
    return ["```", text, "```"] if _has_layout(text) else [_prose(text)]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _prose(text: str) -> str:
    """Text outside of code: no HTML, no link, no emphasis."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([<\[*_{])", r"\\\1", part) for part in parts
    )


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for file, page in man_pages().items():
        (directory / file).write_text(page, encoding="utf-8")
