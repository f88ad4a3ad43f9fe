"""Rejects words that `tests/lint/prose.toml` names: `python -m tests.lint.prose`.

Reads the comments, strings and names of Rust and Python, the names of files, Markdown without its
code, the comments and strings of C and TOML, and the help of makefiles.
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
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

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
    | \b(?:(?:struct|enum|trait|type|const|static)[ ](?P<declared>\w+)|(?:fn|mod)[ ](?P<name>\w+))
    | ^[^\S\n]*(?:pub(?:\([^)]*\))?[ ])?(?P<field>[a-z]\w*):[ ]
    | (?P<it>\|&?it\|)
    """,
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
MUTATOR = re.compile(r"\s*(?:<[^({]*?>)?\(\s*&(?:'\w+ )?mut self\b")
SLASHES = re.compile(r"^([^\S\n]*)//[/!]?", re.MULTILINE)


# The piece that a variable named `it` yields, for a rule about it.
IT = "loop-variable-it"
# Begins a piece with a declared type or constant as it is written, for rules about whole names.
DECLARED = "declares:"
# Begins a piece with the name of a method that changes `self`: in Rust one with `&mut self`, in
# Python one that returns nothing.
CHANGES = "changes-self:"
PYTHON_MUTATOR = re.compile(r"\bdef _*(\w+)\(\s*self\b[^)]*\)\s*->\s*None\b")


def words(name: str) -> str:
    """The words of an identifier."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).replace("_", " ").lower()


def rust(text: str) -> Iterator[tuple[int, str]]:
    """Yields the comments, strings and names of Rust: functions, types, fields, constants."""
    for match in RUST.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if comment := match["comment"]:
            yield line, SLASHES.sub("", comment)
        elif string := match["string"] or match["raw"]:
            # A backslash at the end of a line joins it with the next.
            yield line, string.replace("\\\n", " \n").replace("\\n", "  ")
        elif name := match["declared"]:
            yield line, words(name)
            yield line, DECLARED + name
        elif name := match["name"] or match["field"]:
            yield line + match[0].count("\n"), words(name)
            if match["name"] and MUTATOR.match(text, match.end()):
                yield line, CHANGES + name
        elif match["it"]:
            yield line, IT


def python(text: str) -> Iterator[tuple[int, str]]:
    """Yields the comments, strings and names of Python: functions, classes, assigned names."""
    comment: list[str] = []
    first, before, starting = 0, "", None
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
            if before in ("def", "class"):
                yield token.start[0], words(token.string)
                if before == "class":
                    yield token.start[0], DECLARED + token.string
            elif token.string == "it" and before in ("for", "lambda"):
                yield token.start[0], IT
            if not token.line[: token.start[1]].strip() and not iskeyword(token.string):
                starting = token
            before = token.string
        elif kind == "OP":
            if starting is not None and token.string in (":", "="):
                yield starting.start[0], words(starting.string)
                yield starting.start[0], DECLARED + starting.string
            starting, before = None, ""
    for match in PYTHON_MUTATOR.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, CHANGES + match[1]


C = re.compile(
    r"""
      (?P<comment>/\*.*?\*/ | (?:[^\S\n]*//[^\n]*\n?)+)
    | (?P<string>"(?:[^"\\\n]|\\.)*")
    | '(?:[^'\\\n]|\\[^\n]{1,8}?)'
    """,
    re.DOTALL | re.VERBOSE,
)
STARS = re.compile(r"^[^\S\n]*(?:/\*+|\*/?|//+)", re.MULTILINE)


def c(text: str) -> Iterator[tuple[int, str]]:
    """Yields the comments and strings of C."""
    for match in C.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if comment := match["comment"]:
            yield line, STARS.sub("", comment)
        elif string := match["string"]:
            yield line, string.replace("\\n", "  ")


FENCE = re.compile(r"^[ \t]*(```+|~~~+).*?^[ \t]*\1[ \t]*$", re.DOTALL | re.MULTILINE)


def markdown(text: str) -> Iterator[tuple[int, str]]:
    """Yields Markdown without its code blocks."""
    yield 1, FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)


TOML = re.compile(
    r"""\"{3}.*?\"{3}|'{3}.*?'{3}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|\#[^\n]*""", re.DOTALL
)


def toml(text: str) -> Iterator[tuple[int, str]]:
    """Yields the comments and strings of TOML."""
    for match in TOML.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match[0].replace("\\\n", " \n")


def makefile(text: str) -> Iterator[tuple[int, str]]:
    """Yields the comments of a makefile, and the help of its targets."""
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.search(r"(?:^|\s)#+\s(.*)", line):
            yield number, match[1]


READERS = {
    ".rs": rust,
    ".py": python,
    ".pyi": python,
    ".c": c,
    ".h": c,
    ".md": markdown,
    ".toml": toml,
    "Makefile": makefile,
}


def reader(file: str) -> Callable[[str], Iterator[tuple[int, str]]] | None:
    """The reader of a file's prose, by its suffix or its name."""
    return READERS.get(Path(file).suffix or Path(file).name)


CODE = re.compile(r"`[^`]*`")


def _without_code(text: str) -> str:
    return CODE.sub(lambda match: "`" + "\n" * match[0].count("\n") + "`", text)


def findings(file: str, text: str, known: Iterable[Rule]) -> Iterator[Finding]:
    """Yields the occurrences of rules in a file's prose."""
    read = reader(file)
    assert read is not None, file
    pieces = [(1, words(Path(file).stem))]
    pieces += [(line, _without_code(piece)) for line, piece in read(text)]
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
        if reader(file) is not None and (root / file).is_file()
    )


# --- the baseline


Counts = dict[str, dict[str, int]]


def counts(found: Iterable[Finding]) -> Counts:
    """The number of occurrences of each rule, by rule and folder."""
    counter = Counter((finding.rule.name, finding.folder) for finding in found)
    result: Counts = {}
    for (name, folder), number in sorted(counter.items()):
        result.setdefault(name, {})[folder] = number
    return result


def excess(found: list[Finding], baseline: Counts) -> list[Finding]:
    """The occurrences in folders that have more of a rule than their baseline."""
    now = counts(found)

    def grew(finding: Finding) -> bool:
        name, folder = finding.rule.name, finding.folder
        return now[name][folder] > baseline.get(name, {}).get(folder, 0)

    return [finding for finding in found if grew(finding)]


def tightened(found: list[Finding], baseline: Counts) -> Counts:
    """The baseline, lowered to the remaining occurrences, and never raised."""
    now = counts(found)
    lower = {
        name: {
            folder: min(number, now.get(name, {}).get(folder, 0))
            for folder, number in folders.items()
        }
        for name, folders in baseline.items()
    }
    kept = {
        name: {folder: number for folder, number in folders.items() if number}
        for name, folders in lower.items()
    }
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
    """Prints the occurrences above the baseline; returns 1 if there are any."""
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
