"""`penstock exec`: the execution service as a process of its own."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from penstock.cli.arguments import seconds, whole
from penstock.client.server_identity import named_users
from penstock.config.tables import ExecSettings
from penstock.errors import Error
from penstock.paths import default_uri, socket_of, user_of

if TYPE_CHECKING:
    import argparse

SUMMARY = """Run the jobs of an instance on this machine, in a process of its own
(`penstock start --exec none`). Tasks outlive this process and the instance: when it is started
again, it reports what has ended meanwhile."""

PROGRAM = "penstock-exec"


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    add = parser.add_argument
    add("--uri", help="the instance (default: PENSTOCK_URI, else the default socket)")
    add(
        "--directory",
        type=Path,
        metavar="DIR",
        help="where journal and reaper are (default: by the address, in "
        "$XDG_STATE_HOME/penstock/exec)",
    )
    add(
        "--output-directory",
        type=Path,
        metavar="DIR",
        help="where retained output is (default: `output` in --directory)",
    )
    add("--name", help="the service's name (default job-exec)")
    add(
        "--kill-timeout",
        type=seconds,
        metavar="FSD",
        help=f"the time between SIGTERM and SIGKILL (default {ExecSettings.kill_timeout:g}s)",
    )
    add(
        "--output-limit",
        type=whole,
        metavar="BYTES",
        help="bytes of output stored for a job; a job that exceeds them is killed; 0 is no limit "
        f"(default {ExecSettings.output_limit})",
    )
    add(
        "--output-reserve",
        type=whole,
        metavar="BYTES",
        help="bytes that stored output of guests leaves free on its file system: with no more, "
        "jobs of guests whose output is stored do not start, or block while they write, and those "
        "that continue to write are killed; 0 is no reserve "
        f"(default {ExecSettings.output_reserve})",
    )
    add(
        "--user-output-limit",
        type=whole,
        metavar="BYTES",
        help="bytes of output stored for all jobs of a guest; a job that exceeds them is killed, "
        f"and further ones fail; 0 is no limit (default {ExecSettings.user_output_limit})",
    )
    add(
        "--job-directory",
        type=Path,
        metavar="DIR",
        help="where directories of jobs are, in INSTANCE/jobs (default: those of guests in "
        "/run/penstock, others in `jobs` in --directory)",
    )
    add(
        "--cgroup",
        metavar="PLACE",
        help="where cgroups of jobs are made: a cgroup's path, `none`, or `auto`, the service's "
        f"own (default {ExecSettings.cgroup})",
    )
    add("--oversubscribe", action="store_true", help="do not bind tasks to their cores")
    add("--sync", action="store_true", help="flush the journal to disk before tasks start")
    add(
        "--take-over",
        action="store_true",
        help="end a service that uses the directory, and continue with its journal",
    )
    add(
        "--end-when-idle",
        action="store_true",
        help="end when the instance has gone and no job has a process",
    )
    add(
        "--simulate",
        action="store_true",
        help="run nothing: each job succeeds after the time that its jobspec says; only with --uri "
        "and --name",
    )


def main(args: argparse.Namespace) -> NoReturn:
    """Runs the verb: executes the program in place of this process."""
    uri = default_uri() if args.uri is None else args.uri
    # The program reads user ids, not names.
    address = uri if user_of(uri) is None else f"local://{socket_of(uri)}"
    command = [PROGRAM, "--uri", address]
    for user in sorted(named_users(uri)):
        command += ["--server-user", str(user)]
    for option in (
        "directory",
        "output-directory",
        "name",
        "kill-timeout",
        "output-limit",
        "output-reserve",
        "user-output-limit",
        "job-directory",
        "cgroup",
    ):
        value = getattr(args, option.replace("-", "_"))
        if value is not None:
            command += [f"--{option}", str(value)]
    for flag in ("oversubscribe", "sync", "take-over", "end-when-idle", "simulate"):
        if getattr(args, flag.replace("-", "_")):
            command.append(f"--{flag}")
    os.execv(find_program(), command)


def find_program() -> str:
    """The path of the program, which is installed beside `penstock`.

    Raises:
        Error: it is not there.
    """
    folders = [sysconfig.get_path("scripts"), str(Path(sys.argv[0]).parent)]
    for path in [*folders, None]:
        found = shutil.which(PROGRAM, path=path)
        if found is not None:
            return found
    raise Error(f"`{PROGRAM}` is not installed beside `penstock`, nor on the PATH")
