"""`penstock batch`: a script in an instance of its own."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli import feasibility, joboptions
from penstock.cli.submit import check_following, follow, register_following, submit
from penstock.cli.text import json_text
from penstock.client import Client
from penstock.directives import parse
from penstock.errors import DirectiveError, ScriptError, UsageError
from penstock.jobspec import file_object

if TYPE_CHECKING:
    from typing import NoReturn

SUMMARY = """Submit a script that runs in an instance of its own, and print the job's id.

The script is read at submission and stored with the job; without SCRIPT it is read from standard
input. In it, `penstock submit`, `penstock run` and the other verbs use the job's resources. Its
output goes to `penstock-{{id}}.out` in the working directory, or to --output and --error.

The script's comments may contain options, as `#FLUX: -N4` or `#PENSTOCK: -N4` (RFC 36); options on
the command line override them. With --cc `{cc}` stands for the id in the options, in the script's
arguments, and in the line of --wrap; the script itself is not changed."""

OUTPUT = "penstock-{{id}}.out"
SCRIPT_PERMISSIONS = 0o700


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    register_following(parser)
    parser.add_argument(
        "--wrap", action="store_true", help="SCRIPT and its arguments are a line for /bin/sh"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the jobspecs (RFC 25), submit nothing"
    )
    _register_input(parser)
    feasibility.register(parser)
    joboptions.register(
        parser, words="SCRIPT …", words_help="a file and its arguments; default: standard input"
    )
    parser.set_defaults(defaults=_take_defaults(parser))


def _register_input(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input", metavar="FILE", help="file for stdin of the script; default: it is empty"
    )


def _take_defaults(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """Removes and returns the options' defaults: then the arguments have only the given options."""
    actions = [action for action in parser._actions if action.dest != "help"]
    defaults = {action.dest: action.default for action in actions}
    for action in actions:
        action.default = argparse.SUPPRESS
    return defaults


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    words = args.command if "command" in args else []
    words = words[1:] if words[:1] == ["--"] else words
    wrap = "wrap" in args
    name, script = _script(words, wrap=wrap)
    args = _with_directives(args, name, script)
    check_following(args)
    args.output = args.output or OUTPUT
    args.job_name = args.job_name or Path(name).name
    specs = joboptions.instance_jobspecs(args, ["--script", "--", *([] if wrap else words[1:])])
    ids = joboptions.copy_ids(args)
    for spec, copy in zip(specs, [None] if ids is None else ids, strict=True):
        text = script
        if wrap and words and copy is not None:
            text = script.replace(b"{cc}", str(copy).encode())
        files = spec["attributes"]["system"].setdefault("files", {})
        if "script" in files:
            raise UsageError("--add-file: the name `script` is reserved for the script")
        files["script"] = file_object(text, SCRIPT_PERMISSIONS)
    if args.dry_run:
        for spec in specs:
            print(json_text(spec))
        return 0
    with Client() as client:
        feasibility.check(client, args, specs)
        jobs = submit(client, specs, args.urgency)
        return follow(client, "batch", args, jobs)


def _script(words: list[str], *, wrap: bool) -> tuple[str, bytes]:
    """The script's name and text."""
    if wrap and words:
        return words[0].split()[0] if words[0].split() else "sh", _wrapped(" ".join(words))
    if words:
        name, script = words[0], Path(words[0]).read_bytes()
    else:
        name, script = "batch", sys.stdin.buffer.read()
    if not script.strip():
        source = f"`{name}`" if words else "standard input"
        raise ScriptError(f"{source} is empty: expected a script")
    if wrap:
        script = b"#!/bin/sh\n" + script
    if not script.startswith(b"#!"):
        source = f"`{name}`" if words else "standard input"
        raise ScriptError(
            f"{source}: expected a script that begins with `#!`\n"
            "hint: `--wrap` runs a command, or a script without that line, by /bin/sh"
        )
    return name, script


def _wrapped(line: str) -> bytes:
    return f"#!/bin/sh\n{line}\n".encode(errors="surrogateescape")


class _Parser(argparse.ArgumentParser):
    """Parses directives; raises an exception on an error."""

    def error(self, message: str) -> NoReturn:
        raise ScriptError(message)


def _with_directives(args: argparse.Namespace, name: str, script: bytes) -> argparse.Namespace:
    """The options: the command line's, those in the script, and for the rest the defaults.

    Where an option may be repeated, the script's come first.
    """
    parser = _Parser(prog=name, add_help=False, allow_abbrev=False)
    _register_input(parser)
    joboptions.register(parser)
    _take_defaults(parser)
    found: dict[str, Any] = {}
    try:
        for directive in parse(script.decode(errors="replace")):
            try:
                given = vars(parser.parse_args(list(directive.words)))
            except ScriptError as error:
                raise ScriptError(f"line {directive.line}: {error}") from None
            if given.pop("command", None):
                words = " ".join(directive.words)
                raise ScriptError(f"line {directive.line}: expected options, found `{words}`")
            found = _merged(found, given)
    except DirectiveError as error:
        raise ScriptError(f"`{name}`: {error}") from None
    return argparse.Namespace(**args.defaults | _merged(found, vars(args)))


def _merged(first: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    repeated = {
        key: first[key] + value
        for key, value in then.items()
        if isinstance(value, list) and key in first
    }
    return first | then | repeated
