"""`penstock config`: check a configuration, show the effective one, reload an instance's."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import config

if TYPE_CHECKING:
    import argparse

SUMMARY = """Check a configuration file, show the effective configuration, or apply a changed one to
the running instance: all of it, or nothing if a key cannot change at run time."""


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="check|dump|reload")
    check = verbs.add_parser("check", help="print every problem of a file or directory")
    check.add_argument("file", type=Path, metavar="PATH")
    dump = verbs.add_parser("dump", help="show the effective configuration as TOML")
    dump.add_argument("--json", action="store_true", help="as one JSON object")
    dump.add_argument("--live", action="store_true", help="that of the running instance")
    dump.add_argument("file", nargs="?", type=Path, metavar="PATH")
    reload = verbs.add_parser(
        "reload", help="apply a changed configuration to the running instance"
    )
    reload.add_argument("file", type=Path, metavar="PATH")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    try:
        if args.verb == "check":
            config.load(args.file)
            print(f"{args.file}: ok")
            return 0
        if args.verb == "reload":
            return _reload(args.file)
        if args.live:
            from penstock.client import Client

            with Client() as client:
                document = client.config()
        else:
            loaded = config.load(args.file) if args.file else config.Config()
            document = loaded.to_dict()
    except config.ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(document) if args.json else config.to_toml(document), end="")
    if args.json:
        print()
    return 0


def _reload(file: Path) -> int:
    from penstock.client import Client

    config.load(file)
    with Client() as client:
        changed = client.config_reload(config.document(file))
    print("\n".join(f"changed: {key}" for key in changed) or "nothing has changed")
    return 0
