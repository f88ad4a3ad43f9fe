"""The jobs of `batch` and `alloc`, which run an instance."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from penstock.cli import joboptions
from penstock.jobspec import set_attribute

if TYPE_CHECKING:
    import argparse


def jobspecs(args: argparse.Namespace, start: list[str]) -> list[dict[str, Any]]:
    """The jobspecs for instances with the resources that the options request.

    One task on the first node starts the instance; it has all cores and gpus that the job has
    there, whichever slots they are in.

    Args:
        args: the options of `joboptions`.
        start: the arguments of `penstock start`.
    """
    # Without the working directory in the path: it may have a module of that name.
    args.command = [sys.executable, "-P", "-m", "penstock", "start", *start]
    specs = joboptions.jobspecs(args)
    for spec in specs:
        set_attribute(spec, "shell.options.instance", value=True)
    return specs
