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

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        options.setdefault("help", "`-`: read the ids from standard input")
        super().__init__(option_strings, dest, **options)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Stores the ids."""
        ids: list[int] = []
        try:
            for text in values:
                words = sys.stdin.read().split() if text == STDIN else [text]
                if not words:
                    raise argparse.ArgumentTypeError("standard input has no job id")
                ids += map(job_id, words)
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentError(self, str(error)) from None
        setattr(namespace, self.dest, ids)
