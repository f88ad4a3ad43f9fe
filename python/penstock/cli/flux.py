"""`penstock flux`: what Penstock brings to an instance of Flux."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import penstock

if TYPE_CHECKING:
    import argparse

SUMMARY = """Show where Flux finds what Penstock brings to it: see docs/flux-cluster.md."""


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    operations = parser.add_subparsers(dest="operation", required=True, metavar="OPERATION")
    operations.add_parser(
        "module-path",
        help="print the folder of the broker module sched-penstock, for FLUX_MODULE_PATH and "
        "FLUX_MODPROBE_PATH_APPEND",
    )


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    print(Path(penstock.__file__).parent / "flux")
    return 0
