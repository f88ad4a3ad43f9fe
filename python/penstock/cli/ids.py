"""Job ids as arguments, or from standard input."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from penstock.cli.rows import job_id

if TYPE_CHECKING:
    from collections.abc import Sequence

STDIN = "-"


class JobIds(argparse.Action):
    """Positional arguments that are job ids; `-` stands for those on standard input."""

    HELP = "`-`: read the ids from standard input"

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        options.setdefault("help", self.HELP)
        super().__init__(option_strings, dest, **options)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Stores the ids."""
        try:
            setattr(namespace, self.dest, self.read(values))
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentError(self, str(error)) from None

    def read(self, values: Any) -> Any:
        """The value of the arguments.

        Raises:
            ArgumentTypeError: an id is invalid, or standard input has none.
        """
        return [job_id(word) for text in values for word in words_of(text)]


class OneJobId(JobIds):
    """A positional argument that is a job id; `-` stands for the one on standard input."""

    HELP = "`-`: read the id from standard input"

    def read(self, values: Any) -> Any:
        """The id; None for an argument that may be absent, and is.

        Raises:
            ArgumentTypeError: the id is invalid, or standard input has none or several.
        """
        if values is None:
            return None
        return job_id(one_word(values))


def words_of(text: str) -> list[str]:
    """The words that an argument stands for: those on standard input for `-`, else itself.

    Raises:
        ArgumentTypeError: standard input has none.
    """
    words = sys.stdin.read().split() if text == STDIN else [text]
    if not words:
        raise argparse.ArgumentTypeError("standard input has no job id")
    return words


def one_word(text: str) -> str:
    """The word that an argument stands for: the one on standard input for `-`, else itself.

    Raises:
        ArgumentTypeError: standard input has none, or several.
    """
    words = words_of(text)
    if len(words) > 1:
        raise argparse.ArgumentTypeError(
            f"expected one job id on standard input, found {len(words)}"
        )
    return words[0]
