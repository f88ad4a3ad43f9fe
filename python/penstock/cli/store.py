"""`penstock store`: the database of an instance: check, copy, replace, repair and shrink it."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import paths
from penstock._core import (
    back_up_store,
    check_store,
    export_store,
    import_store,
    repair_store,
    restore_store,
    store_bytes_by_user,
    topic,
    vacuum_store,
)
from penstock.cli.selection import username
from penstock.cli.text import safe, safe_lines
from penstock.client import Call, Client
from penstock.client.responses import expect
from penstock.errors import Error, NoInstanceError, StartError
from penstock.instance.directories import DATABASE, check_private, check_trusted, lock_state

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

SUMMARY = """Check, copy, replace, repair and shrink the database of an instance.

check, usage, backup and export read the database, also while the instance runs. restore, import and
repair replace it: the instance must have ended, the database before is renamed, and pending jobs of
the new one are held, because they may have run since it was written. vacuum rewrites the database
in place, after the instance has ended. The database shrinks by itself when jobs are purged; vacuum
is for a large one of an earlier version, which cannot, and for the last free pages."""

STOP_HINT = (
    "end it with `penstock stop`, or `penstock stop --keep-running` if its jobs are to continue"
)


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    names = ["check", "usage", "backup", "export", "restore", "import", "repair", "vacuum"]
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="|".join(names))

    def add(name: str, text: str) -> argparse.ArgumentParser:
        verb = verbs.add_parser(name, help=text, description=text)
        verb.add_argument(
            "--state",
            type=Path,
            metavar="DIR",
            help="the state directory (default: that of the instance which PENSTOCK_URI names, if "
            "it answers, else the one below the home)",
        )
        return verb

    add("check", "find damaged pages and rows, and lost commits; exit code 1 if there are any")
    add("usage", "show the approximate bytes that each user has in the database")
    verb = add("backup", "copy the database to a new file")
    verb.add_argument("file", type=Path, metavar="FILE", help="must not exist")
    verb = add("export", "write the database as text, one JSON object a line")
    text = "must not exist (default: -, the standard output)"
    verb.add_argument("file", type=Path, nargs="?", default=Path("-"), metavar="FILE", help=text)
    verb = add("restore", "put a back-up in the place of the database")
    which = verb.add_mutually_exclusive_group(required=True)
    which.add_argument("file", type=Path, nargs="?", metavar="BACKUP", help="from `store backup`")
    which.add_argument(
        "--as-is", action="store_true", help="accept the database that went back in time"
    )
    text = "make the database of an instance without one from an exported text"
    verb = add("import", f"{text}, and its state directory if it does not exist")
    verb.add_argument("file", type=Path, metavar="FILE", help="from `store export`; - is the input")
    add("repair", "make a new database of what can be read of a damaged one")
    add("vacuum", "rewrite the database without free pages, so that its file is as small as can be")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    state = args.state or _state()
    path = state / DATABASE
    if args.verb == "check":
        return _check(path)
    if args.verb == "usage":
        return _show_usage(path)
    with ExitStack() as stack:
        # A copy has the environments of all users, as the store does.
        stack.callback(os.umask, os.umask(0o077))
        if args.verb == "backup":
            back_up_store(path, args.file)
            return 0
        if args.verb == "export":
            export_store(path, None if str(args.file) == "-" else args.file)
            return 0
        if args.verb == "import":
            stack.enter_context(_made(state))
        if not state.is_dir():
            raise StartError(f"no state directory `{state}`")
        check_private(state, os.geteuid(), "--state DIR")
        stack.enter_context(lock_state(state, STOP_HINT))
        if args.verb == "vacuum":
            vacuum_store(path)
            print(f"`{safe(str(path))}` has {path.stat().st_size} bytes", file=sys.stderr)
            return 0
        if args.verb == "restore":
            old, losses = restore_store(path, args.file)
        elif args.verb == "import":
            source = Path("/dev/stdin") if str(args.file) == "-" else args.file
            old, losses = import_store(path, source)
        else:
            if _is_sound(path):
                print(f"`{safe(str(path))}` has no problem: it stays as it is", file=sys.stderr)
                return 0
            old, losses = repair_store(path)
    for loss in losses:
        print(safe_lines(loss), file=sys.stderr)
    if old is not None:
        print(f"the database before is `{safe(str(old))}`", file=sys.stderr)
    print("pending jobs will be held: `penstock urgency ID 16` releases one", file=sys.stderr)
    return 0


@contextmanager
def _made(state: Path) -> Iterator[None]:
    """Makes a state directory that does not exist, and removes it if the block fails.

    Raises:
        StartError: its parent does not exist, or other users can replace what is made there.
    """
    if os.path.lexists(state):
        yield
        return
    if not state.parent.is_dir():
        raise StartError(f"no directory `{state.parent}` for the state directory `{state}`")
    check_trusted(state.parent, os.geteuid(), "--state DIR")
    state.mkdir(mode=0o700)
    try:
        yield
    except BaseException:
        # It stays if something is in it.
        with suppress(OSError):
            state.rmdir()
        raise


def _check(path: Path) -> int:
    problems = check_store(path)
    for problem in problems:
        print(safe_lines(problem))
    if not problems:
        print(f"`{safe(str(path))}`: no problem found")
    return 1 if problems else 0


def _show_usage(path: Path) -> int:
    users = sorted(store_bytes_by_user(path).items(), key=lambda user: -user[1])
    for userid, size in users:
        print(f"{safe(username(userid)):<16} {size:>16}")
    return 0


def _is_sound(path: Path) -> bool:
    try:
        return not check_store(path)
    except Error:
        # Of a database that cannot be opened something may be left: the repair tells.
        return False


def _state() -> Path:
    """The state directory of the instance that answers, else the default one."""
    with suppress(NoInstanceError), Client() as client:
        name = {"name": "statedir"}
        call = Call(topic.broker.ATTR_GET, name, lambda answer: expect(answer, "value", str))
        return Path(client.do(call))
    return paths.default_state()
