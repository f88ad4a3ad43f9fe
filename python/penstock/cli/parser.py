"""The parser of a verb's arguments: an error is one line, with what may have been meant."""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.cli.text import safe_lines
from penstock.suggestion import suggestion, with_suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SLICE = re.compile(r"^-\d+(\.\d+)?$|^-\d*:[-\d:]*$")


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Shows texts as they are, but for paragraphs that do not fit the terminal."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = super()._fill_text(text, width, indent).split("\n\n")
        return "\n\n".join(_fitting(paragraph, width) for paragraph in paragraphs)


def _fitting(paragraph: str, width: int) -> str:
    """The paragraph in lines of the width; one with indented lines is a table or commands."""
    lines = paragraph.splitlines()
    if all(len(line) <= width for line in lines) or any(line[:1] == " " for line in lines):
        return paragraph
    import textwrap

    return textwrap.fill(paragraph, width, break_long_words=False, break_on_hyphens=False)


class Parser(argparse.ArgumentParser):
    """A parser of a verb or one of its operations. `-2:` is a slice and not an option."""

    def __init__(self, **options: Any) -> None:
        self._is_formatting = False
        super().__init__(**{"allow_abbrev": False, **options})
        self._negative_number_matcher = SLICE
        # With the operation, if there is one: for errors.
        self.set_defaults(prog=self.prog)
        self._unknown_options: list[str] = []
        # Options that other systems have here, and what to do instead.
        self.absent_options: dict[str, str] = {}
        # The option that stands for an operand, so that operands and options keep their order.
        self.operand_option: str | None = None

    @classmethod
    def of_verb(cls, verb: str, summary: str) -> Parser:
        """The parser of a verb."""
        return cls(prog=f"penstock {verb}", description=summary, formatter_class=HelpFormatter)

    def _get_formatter(self) -> argparse.HelpFormatter:
        # `add_argument` checks the metavar by a formatter, whose width would be that of the
        # terminal: to find it imports modules for longer than most verbs run.
        if self._is_formatting:
            return super()._get_formatter()
        return argparse.HelpFormatter(self.prog, width=80)

    def format_help(self) -> str:
        """The text of `--help`."""
        self._is_formatting = True
        return super().format_help()

    def format_usage(self) -> str:
        """The line of the usage."""
        self._is_formatting = True
        return super().format_usage()

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parses the arguments; an unknown option is an error that names the nearest one."""
        if self.operand_option:
            words = sys.argv[1:] if args is None else list(args)
            args = list(self._with_operand_options(words, self.operand_option))
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.error(self._unknown(unknown[0]))
        return parsed

    def _with_operand_options(self, words: list[str], option: str) -> Iterator[str]:
        """The words with `option` in front of each operand."""
        rest = iter(words)
        for word in rest:
            if word == "--":
                break
            if len(word) < 2 or word[0] != "-":
                yield f"{option}={word}"
                continue
            yield word
            if self._wants_value(word) and (value := next(rest, None)) is not None:
                yield value
        for word in rest:
            yield f"{option}={word}"

    def _wants_value(self, word: str) -> bool:
        """Whether the value of an option, or of the last of several letters, is the next word."""
        if word.startswith("--"):
            action = self._option_string_actions.get(word)
            return action is not None and action.nargs is None
        for place, letter in enumerate(word[1:], 2):
            action = self._option_string_actions.get(f"-{letter}")
            if action is None or action.nargs is None:
                return action is not None and place == len(word)
        return False

    def error(self, message: str) -> NoReturn:
        """Ends with exit code 2 after a line."""
        # The argument of an unknown option is taken for a positional one, which it may not suit.
        if self._unknown_options and not self._takes_remainder():
            message = self._unknown(self._unknown_options[0])
        self.exit(2, usage_error(self.prog, message))

    def _unknown(self, text: str) -> str:
        option = text.partition("=")[0]
        if not option.startswith("-"):
            return f"unexpected argument `{text}`"
        if option in self.absent_options:
            return f"unsupported option `{option}`: {self.absent_options[option]}"
        known = sorted(self._known_options())
        longer = [f"`{name}`" for name in known if name.startswith(f"{option}-")]
        hint = f"; did you mean {' or '.join(longer)}?" if longer else suggestion(option, known)
        return f"unknown option `{option}`{hint}"

    def _takes_remainder(self) -> bool:
        """Whether words that look like options may belong to another command."""
        return any(action.nargs == argparse.REMAINDER for action in self._actions)

    def _parse_optional(self, arg_string: str) -> Any:
        found: Any = super()._parse_optional(arg_string)
        # (action, option, …), in a list since Python 3.12.
        first = found[0] if isinstance(found, list) else found
        if first is not None and first[0] is None:
            self._unknown_options.append(arg_string)
        return found

    def _known_options(self) -> set[str]:
        options = set(self._option_string_actions)
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for parser in action.choices.values():
                    options |= parser._known_options()
        return options

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        text = f"unknown value `{value}`: expected {', '.join(choices)}"
        # Names of operations are no argument that a user could name.
        is_operation = isinstance(action, argparse._SubParsersAction)
        if is_operation:
            text = text.replace("unknown value", "unknown operation", 1)
        raise argparse.ArgumentError(None if is_operation else action, text)


def usage_error(prog: str, message: str) -> str:
    """The line of an error in a command line."""
    text = safe_lines(with_suggestion(message))
    return f"{prog}: {text} (`{prog} --help` shows the usage)\n"
