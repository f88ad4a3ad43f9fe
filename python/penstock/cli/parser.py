"""The parser of a verb's arguments: an error is one line, with what may have been meant."""

from __future__ import annotations

import argparse
import difflib
import re
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

SLICE = re.compile(r"^-\d+(\.\d+)?$|^-\d*:[-\d:]*$")


class Parser(argparse.ArgumentParser):
    """A parser of a verb or one of its operations. `-2:` is a slice and not an option."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})
        self._negative_number_matcher = SLICE

    @classmethod
    def of_verb(cls, verb: str, summary: str) -> Parser:
        """The parser of a verb, whose summary is shown as it is."""
        formatter = argparse.RawDescriptionHelpFormatter
        return cls(prog=f"penstock {verb}", description=summary, formatter_class=formatter)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parses the arguments; an unknown option is an error that names the nearest one."""
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.error(_unknown(unknown[0], sorted(self._known_options())))
        return parsed

    def error(self, message: str) -> NoReturn:
        """Ends with exit code 2 after a line."""
        self.exit(2, f"{self.prog}: {message} (`{self.prog} --help` shows the usage)\n")

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
        hint = _hint(str(value), choices)
        text = f"unknown value `{value}`: expected {', '.join(choices)}{hint}"
        # Names of operations are no argument that a user could name.
        is_operation = isinstance(action, argparse._SubParsersAction)
        if is_operation:
            text = text.replace("unknown value", "unknown operation", 1)
        raise argparse.ArgumentError(None if is_operation else action, text)


def _unknown(text: str, options: list[str]) -> str:
    option = text.partition("=")[0]
    if not option.startswith("-"):
        return f"unexpected argument `{text}`"
    return f"unknown option `{option}`{_hint(option, options)}"


def _hint(text: str, candidates: list[str]) -> str:
    close = difflib.get_close_matches(text, candidates, 1)
    return f"; did you mean `{close[0]}`?" if close else ""
