"""`penstock bulksubmit`: a job for each of many inputs."""

from __future__ import annotations

import argparse
import itertools
import random
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from penstock.cli import feasibility, joboptions
from penstock.cli.parser import Parser
from penstock.cli.submit import check_following, follow, register_following, submit_jobs
from penstock.cli.text import safe
from penstock.client import Client
from penstock.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock._core import IDset
    from penstock.rows import Submission

SUMMARY = """Submit a job for each input, and print the ids.

Inputs follow the command: `::: INPUT …`, or `:::: FILE …` for the lines of files (`-`: standard
input). Without either they are the lines of standard input. Several lists are combined, each input
of one with each of the others; `:::+` and `::::+` link a list to the one before, item by item.

In the command and in options `{}` stands for the input, `{0}`, `{1}` for that of one list; `{.%}`
is without extension, `{./}` without directory, `{./%}` without both, `{.//}` the directory; with a
list: `{0.%}`. `{seq}` and `{seq1}` number the jobs from 0 and 1. Other braces stay as they are."""

# The inputs that an error names.
NAMED_INPUTS = 5
DELIMITERS = (":::", ":::+", "::::", "::::+")
# {{id}} is a template of the execution service, not a placeholder.
PLACEHOLDER = re.compile(r"\{\{.*?\}\}|\{(?:(seq1?)|(\d*)(?:\.([^{}]+))?)\}")
ATTRIBUTES: dict[str, Callable[[str], Any]] = {
    "%": lambda x: str(Path(x).with_suffix("")) if Path(x).name else x,
    "/": lambda x: Path(x).name,
    "//": lambda x: str(Path(x).parent),
    "/%": lambda x: Path(x).stem,
}


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    add = parser.add_argument
    register_following(parser)
    feasibility.register(parser)
    add(
        "--dry-run",
        action="store_true",
        help="print a `penstock submit` for each job, submit nothing",
    )
    add("--shuffle", action="store_true", help="submit the jobs in random order")
    add("--sep", metavar="TEXT", help="separates inputs in files (default: lines; `none`: words)")
    add(
        "--define",
        action="append",
        default=[],
        type=_definition,
        metavar="NAME=CODE",
        help="make {.NAME} the value of a Python expression of the input x, such as 2**int(x)",
    )
    recorder = cast("argparse.ArgumentParser", _Recorder(parser))
    joboptions.register_streams(recorder)
    joboptions.register(
        recorder, words="COMMAND …", words_help="program and arguments; then the inputs"
    )


class _Record(argparse.Action):
    """Records an option and its value as they are given."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        option = option_string or ""
        words = [option]
        if isinstance(values, str):
            # In one word, because the value may begin with `-`.
            words = [f"{option}={values}" if option.startswith("--") else f"{option}{values}"]
        namespace.words = [*namespace.words, *words]


class _Recorder:
    """Adds options that are recorded as they are, because their values may have placeholders.

    Args:
        parser: gets the options.
    """

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._parser = parser
        parser.set_defaults(words=[])

    def add_argument(self, *names: str, **options: Any) -> None:
        """Adds an option that is recorded, or an argument."""
        if not names[0].startswith("-"):
            self._parser.add_argument(*names, **options)
            return
        is_flag = options.get("action") == "store_true"
        self._parser.add_argument(
            *names,
            action=_Record,
            dest="words",
            default=[],
            nargs=0 if is_flag else None,
            metavar=options.get("metavar"),
            help=options["help"],
        )


def _definition(text: str) -> tuple[str, str]:
    name, separator, code = text.partition("=")
    if not separator or not name or set(name) & set("{}."):
        raise argparse.ArgumentTypeError(f"expected NAME=CODE, found `{text}`")
    try:
        compile(code, "--define", "eval")
    except (SyntaxError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"`{code}`: {error}") from None
    return name, code


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    check_following(args)
    jobs = [*_jobs(args)]
    if args.shuffle:
        random.shuffle(jobs)
    if args.dry_run:
        for job in jobs:
            print(safe(shlex.join(["penstock", "submit", *job.options, *job.command])))
        return 0
    parser = _OptionParser(args)
    submissions: list[Submission] = []
    inputs: list[str] = []
    for job in jobs:
        options = parser.parse(job.options)
        options.command = job.command
        specs = joboptions.jobspecs(options)
        submissions += [{"jobspec": spec, "urgency": options.urgency} for spec in specs]
        inputs += [job.input] * len(specs)
    with Client() as client:
        feasibility.check(client, args, [job["jobspec"] for job in submissions])
        ids = submit_jobs(client, submissions, name=lambda at: _inputs_at(inputs, at))
        return follow(client, "bulksubmit", args, ids)


def _inputs_at(inputs: list[str], positions: IDset) -> str:
    """The inputs of the jobs at these positions."""
    found = list(dict.fromkeys(inputs[at] for at in positions))
    shown = ", ".join(f"`{text}`" for text in found[:NAMED_INPUTS])
    more = len(found) - NAMED_INPUTS
    word = "input" if len(found) == 1 else "inputs"
    return f"{word} {shown}" + (f" and {more} more" if more > 0 else "")


class _OptionParser:
    """Parses the recorded options of jobs, equal ones once."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._parser = Parser(prog="penstock bulksubmit")
        self._parser.set_defaults(clock=args.clock)
        joboptions.register_streams(self._parser)
        joboptions.register(self._parser)
        self._parsed: dict[tuple[str, ...], argparse.Namespace] = {}

    def parse(self, options: Sequence[str]) -> argparse.Namespace:
        """The options of a job, without its command."""
        key = tuple(options)
        if key not in self._parsed:
            self._parsed[key] = self._parser.parse_args(list(options))
        return self._parsed[key]


# --- templates


class Job(NamedTuple):
    """A job: the words of its options and of its command, and its inputs."""

    options: list[str]
    command: list[str]
    input: str


def _jobs(args: argparse.Namespace) -> Iterator[Job]:
    command, lists = _split(args.command)
    separator = args.sep
    sources = [_Source(delimiter, words, separator) for delimiter, words in lists]
    if not sources:
        sources = [_Source("::::", ["-"], separator)]
    if sources[0].is_linked:
        raise UsageError(f"`{lists[0][0]}`: expected a list of inputs before it")
    attributes = ATTRIBUTES | {name: _evaluator(name, code) for name, code in args.define}
    for number, inputs in enumerate(combinations(sources)):
        filler = Filler(inputs, number, attributes)
        words = (args.words, command or ["{}"])
        options, filled = ([*map(filler.fill, each)] for each in words)
        yield Job(options, filled, " ".join(inputs))


def _split(words: list[str]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """The command, and the lists of inputs with their delimiters."""
    words = words[1:] if words[:1] == ["--"] else words
    command: list[str] = []
    lists: list[tuple[str, list[str]]] = []
    for word in words:
        if word in DELIMITERS:
            lists.append((word, []))
        elif lists:
            lists[-1][1].append(word)
        else:
            command.append(word)
    return command, lists


class _Source:
    """A list of inputs.

    Args:
        delimiter: of `DELIMITERS`.
        words: the inputs, or files with inputs.
        separator: between the inputs of a file.

    Raises:
        UsageError: a file cannot be read.
    """

    def __init__(self, delimiter: str, words: list[str], separator: str | None) -> None:
        self.is_linked = delimiter.endswith("+")
        self.inputs = words
        if delimiter.startswith("::::"):
            self.inputs = [part for word in words for part in _inputs(word, separator)]


def _inputs(file: str, separator: str | None) -> list[str]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
    except OSError as error:
        raise UsageError(f"inputs of `{file}`: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"inputs of `{file}`: {error}") from error
    if separator == "none":
        return text.split()
    if separator:
        return text.removesuffix("\n").split(separator)
    return text.splitlines()


def combinations(sources: Sequence[_Source]) -> Iterator[list[str]]:
    """The inputs of each job: linked lists item by item, the others in all combinations."""
    groups: list[list[_Source]] = []
    for source in sources:
        if source.is_linked:
            groups[-1].append(source)
        else:
            groups.append([source])
    rows = []
    for first, *linked in groups:
        if any(not source.inputs for source in linked):
            raise UsageError("a linked list of inputs is empty")
        rows.append(
            [
                [item, *(source.inputs[place % len(source.inputs)] for source in linked)]
                for place, item in enumerate(first.inputs)
            ]
        )
    for parts in itertools.product(*rows):
        yield [item for part in parts for item in part]


def _evaluator(name: str, code: str) -> Callable[[str], Any]:
    compiled = compile(code, "--define", "eval")

    def evaluate(x: str) -> Any:
        try:
            return eval(compiled, {"x": x})
        except Exception as error:
            kind = type(error).__name__
            raise UsageError(f"--define {name}: input `{x}`: {kind}: {error}") from error

    return evaluate


class Filler:
    """Fills the placeholders of words with the inputs of a job.

    Args:
        inputs: one of each list.
        number: of the job, from 0.
        attributes: functions of an input, by name.
    """

    def __init__(
        self, inputs: list[str], number: int, attributes: dict[str, Callable[[str], Any]]
    ) -> None:
        self._inputs = inputs
        self._number = number
        self._attributes = attributes

    def fill(self, word: str) -> str:
        """A word without placeholders."""
        # `{}` takes the next input, as in `str.format`; with one list always the same.
        following = itertools.count()

        def replace(found: re.Match[str]) -> str:
            sequence, index, attribute = found.groups()
            if found[0].startswith("{{"):
                return found[0]
            if sequence:
                return str(self._number + (sequence == "seq1"))
            place = int(index) if index else next(following) * (len(self._inputs) > 1)
            if place >= len(self._inputs):
                last = len(self._inputs) - 1
                raise UsageError(
                    f"`{found[0]}` in `{word}`: no list {place} of inputs: expected 0"
                    + (f" to {last}" if last else "")
                )
            value = self._inputs[place]
            if attribute is None:
                return value
            if attribute not in self._attributes:
                known = ", ".join(f".{name}" for name in self._attributes)
                raise UsageError(f"unknown `{found[0]}` in `{word}`: expected {known}")
            return str(self._attributes[attribute](value))

        return PLACEHOLDER.sub(replace, word)
