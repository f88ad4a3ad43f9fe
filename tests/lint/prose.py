"""Rejects words that `tests/lint/prose.toml` names: `python -m tests.lint.prose`.

Reads the comments, strings and function names of Rust and Python, and Markdown without its code.
A rule that still has occurrences has a baseline, their number per folder, which may only fall;
`--tighten` lowers it to what is left. Text in backticks is code and never matches.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROOT = Path(__file__).parents[2]
RULES = Path(__file__).with_name("prose.toml")
BASELINE = Path(__file__).with_name("prose-baseline.toml")


@dataclass(frozen=True)
class Rule:
    """A pattern that prose must not match, and what to write instead."""

    name: str
    pattern: str
    instead: str
    reason: str
    # Files (globs) in which the pattern may occur, with the reason.
    allow: Mapping[str, str]

    def compiled(self) -> re.Pattern[str]:
        """The pattern, in which a blank stands for any space between words."""
        return re.compile(self.pattern.replace(" ", r"\s+"))

    def allows(self, file: str) -> bool:
        """Whether the pattern may occur in a file."""
        return any(fnmatch(file, glob) for glob in self.allow)


@dataclass(frozen=True)
class Finding:
    """An occurrence of a rule's pattern."""

    file: str
    line: int
    rule: Rule
    text: str

    @property
    def folder(self) -> str:
        """The folder by which the baseline counts, at most two deep: `rust/sim`, `docs`, `.`."""
        parts = self.file.split("/")
        return "/".join(parts[:2]) if len(parts) > 2 else "/".join(parts[:-1]) or "."

    def __str__(self) -> str:
        """The place, the words that were found, and what to write."""
        found = " ".join(self.text.split())
        rule = self.rule
        return f"{self.file}:{self.line}: `{found}`: write {rule.instead} ({rule.reason})"


def rules(text: str) -> list[Rule]:
    """Reads rules from TOML.

    Raises:
        TypeError: a rule lacks a key or has an unknown one.
    """
    document = tomllib.loads(text)
    everywhere = document.get("allow", {})
    return [
        Rule(**{**table, "name": name, "allow": {**everywhere, **table.get("allow", {})}})
        for name, table in document["rule"].items()
    ]


# --- prose in files: each piece is its first line and its text


RUST = re.compile(
    r"""
      (?P<comment>(?:[^\S\n]*//[^\n]*\n?)+ | /\*.*?\*/)
    | (?P<raw>b?r(?P<hashes>\#*)".*?"(?P=hashes))
    | (?P<string>b?"(?:[^"\\]|\\.)*")
    | (?P<char>b?'(?:[^'\\\n]|\\[^\n]{1,8}?)')
    | \bfn[ ](?P<name>\w+)
    """,
    re.DOTALL | re.VERBOSE,
)
SLASHES = re.compile(r"^([^\S\n]*)//[/!]?", re.MULTILINE)


def rust(text: str) -> Iterator[tuple[int, str]]:
    """Yields the comments, strings and function names of Rust."""
    for match in RUST.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if comment := match["comment"]:
            yield line, SLASHES.sub("", comment)
        elif string := match["string"] or match["raw"]:
            # A backslash at the end of a line joins it with the next.
            yield line, string.replace("\\\n", " \n").replace("\\n", "  ")
        elif name := match["name"]:
            yield line, name.replace("_", " ")


def python(text: str) -> Iterator[tuple[int, str]]:
    """Yields the comments, strings and function names of Python."""
    comment: list[str] = []
    first, before = 0, ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = tokenize.tok_name[token.type]
        if kind == "COMMENT":
            first = first or token.start[0]
            comment.append(token.string.lstrip("#"))
        elif kind not in ("NL", "NEWLINE") and comment:
            yield first, "\n".join(comment)
            first, comment = 0, []
        if kind in ("STRING", "FSTRING_MIDDLE"):
            yield token.start[0], token.string
        elif kind == "NAME":
            if before == "def":
                yield token.start[0], token.string.replace("_", " ")
            before = token.string


FENCE = re.compile(r"^[ \t]*(```+|~~~+).*?^[ \t]*\1[ \t]*$", re.DOTALL | re.MULTILINE)


def markdown(text: str) -> Iterator[tuple[int, str]]:
    """Yields Markdown without its code blocks."""
    yield 1, FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)


READERS = {".rs": rust, ".py": python, ".pyi": python, ".md": markdown}
CODE = re.compile(r"`[^`]*`")


def _without_code(text: str) -> str:
    return CODE.sub(lambda match: "`" + "\n" * match[0].count("\n") + "`", text)


def findings(file: str, text: str, known: Iterable[Rule]) -> Iterator[Finding]:
    """Yields the occurrences of rules in a file's prose."""
    pieces = [(line, _without_code(piece)) for line, piece in READERS[Path(file).suffix](text)]
    for rule in known:
        if rule.allows(file):
            continue
        pattern = rule.compiled()
        for line, piece in pieces:
            for match in pattern.finditer(piece):
                yield Finding(file, line + piece.count("\n", 0, match.start()), rule, match[0])


def files(root: Path) -> list[str]:
    """The files with prose that are tracked, or new and not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return sorted(
        file
        for file in set(listed.stdout.splitlines())
        if Path(file).suffix in READERS and (root / file).is_file()
    )


# --- the baseline


Counts = dict[str, dict[str, int]]


def counts(found: Iterable[Finding]) -> Counts:
    """How often each rule occurs, by rule and folder."""
    counter = Counter((it.rule.name, it.folder) for it in found)
    result: Counts = {}
    for (name, folder), number in sorted(counter.items()):
        result.setdefault(name, {})[folder] = number
    return result


def excess(found: list[Finding], baseline: Counts) -> list[Finding]:
    """The occurrences in folders that have more of a rule than their baseline."""
    now = counts(found)

    def grew(it: Finding) -> bool:
        name, folder = it.rule.name, it.folder
        return now[name][folder] > baseline.get(name, {}).get(folder, 0)

    return [it for it in found if grew(it)]


def tightened(found: list[Finding], baseline: Counts) -> Counts:
    """The baseline, lowered to what is left, and never raised."""
    now = counts(found)
    lower = {
        name: {
            folder: min(number, now.get(name, {}).get(folder, 0))
            for folder, number in folders.items()
        }
        for name, folders in baseline.items()
    }
    kept = {name: {key: it for key, it in folders.items() if it} for name, folders in lower.items()}
    return {name: folders for name, folders in kept.items() if folders}


BASELINE_HEAD = """\
# How often a rule of prose.toml still occurs in a folder. A number may only fall:
# `python -m tests.lint.prose --tighten` lowers it.
"""


def written(baseline: Counts) -> str:
    """The baseline as TOML."""
    lines = [BASELINE_HEAD]
    for name, folders in baseline.items():
        lines += [
            f"[{name}]",
            *(f'"{folder}" = {number}' for folder, number in folders.items()),
            "",
        ]
    return "\n".join(lines).rstrip("\n") + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Prints what must go; returns 1 if there is anything."""
    parser = argparse.ArgumentParser(description="rejects the words that prose.toml names")
    parser.add_argument("--tighten", action="store_true", help="lower the baseline to what is left")
    parser.add_argument(
        "--all", action="store_true", help="list the baseline's occurrences as well"
    )
    parser.add_argument("files", nargs="*", help="only these files, all of their occurrences")
    options = parser.parse_args(arguments)
    known = rules(RULES.read_text())
    baseline: Counts = tomllib.loads(BASELINE.read_text())
    found = [
        finding
        for file in options.files or files(ROOT)
        for finding in findings(file, (ROOT / file).read_text(), known)
    ]
    if options.tighten:
        BASELINE.write_text(written(tightened(found, baseline)))
        return 0
    shown = found if options.all or options.files else excess(found, baseline)
    for finding in shown:
        print(finding)
    if shown and not options.files:
        print(
            "hint: put code and quoted words in backticks; allow a file in tests/lint/prose.toml",
            file=sys.stderr,
        )
    return 1 if shown else 0


if __name__ == "__main__":
    sys.exit(main())
