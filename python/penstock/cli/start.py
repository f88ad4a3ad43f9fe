"""`penstock start`: an instance, in the foreground or around a command."""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from penstock import paths
from penstock.cli.arguments import queue_policy
from penstock.cli.exec import find_program
from penstock.cli.logformat import log_to_stderr
from penstock.cli.text import resources_text, safe
from penstock.config import Config, load
from penstock.config.tables import SchedulerMode, SchedulerSettings, Selection
from penstock.errors import StartError, UsageError
from penstock.instance.kind import ExecMode, InstanceKind, instance_kind
from penstock.instance.startup import MAX_SOCKET_PATH_BYTES, StartOptions

if TYPE_CHECKING:
    import argparse

    from penstock._core import ResourceSet
    from penstock.instance.parent_instance import Parent

SUMMARY = """Start an instance on this machine, or on simulated nodes.

Without COMMAND it runs in the foreground until it gets SIGINT, SIGTERM or SIGHUP. With COMMAND it
runs that with PENSTOCK_URI set, and ends with it and its exit code.

In a job, of Penstock or of Flux, the default resources are those of the job, and state and socket
are in a temporary directory."""


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    add = parser.add_argument
    add("--state", type=Path, metavar="DIR", help="jobs and output (default: below the home)")
    add("--any-state", action="store_true", help="accept DIR of another kind of instance")
    add("--socket", type=Path, metavar="PATH", help="the socket to listen at")
    add(
        "--config",
        type=Path,
        metavar="PATH",
        help="configuration: a TOML file, or a directory of them",
    )
    add("--R", type=Path, metavar="FILE", help="the resources, as R (RFC 20)")
    add("--nodes", type=int, metavar="N", help="simulate N nodes")
    add("--cores", type=int, metavar="N", help="cores of a simulated node (default 1)")
    add("--gpus", type=int, metavar="N", help="gpus of a simulated node (default 0)")
    add(
        "--exec",
        choices=get_args(ExecMode),
        help="run jobs as processes, simulate them, or leave them to a service that sends "
        "exec-hello (default local; sim for simulated nodes)",
    )
    add("--oversubscribe", action="store_true", help="run jobs of simulated nodes here, unbound")
    add(
        "--sched",
        choices=get_args(SchedulerMode),
        help="scheduler: in the daemon, as a supervised process, or none (attach `penstock sched`)",
    )
    add(
        "--policy",
        type=queue_policy,
        metavar="NAME",
        help="the scheduling policy: fcfs, easy, conservative, hybrid:N "
        f"(default {SchedulerSettings.policy})",
    )
    add(
        "--selection",
        choices=get_args(Selection),
        help=f"the choice among suitable nodes (default {SchedulerSettings.selection})",
    )
    add("--script", action="store_true", help="run the script that this job carries (see `batch`)")
    add("-v", "--verbose", action="store_true", help="log more lines")
    add(
        "command",
        nargs="*",
        metavar="COMMAND",
        help="program and arguments, after `--`; arguments for --script",
    )


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    level = logging.INFO if args.verbose else logging.WARNING
    log_to_stderr(level, "%(name)s: %(message)s")
    problem = _problem(args)
    if problem:
        raise UsageError(problem)
    config = load(args.config) if args.config else Config()
    try:
        import trio  # noqa: F401 - imported here for an error message of our own
    except ModuleNotFoundError:
        print("penstock start: the daemon needs the package trio", file=sys.stderr)
        print("hint: pip install 'penstock-hpc[daemon]'", file=sys.stderr)
        return 1
    from penstock.instance.daemon import run

    parent = _parent(args, config)
    with ExitStack() as stack:
        code = run(_options(args, config, parent, stack))
    if code is not None:
        return code
    # `penstock restart`: the same command line, of the Penstock that is installed by now.
    sys.stdout.flush()
    sys.stderr.flush()
    # The working directory is no place for modules: others may write to it.
    options = [] if sys.flags.safe_path else ["-P"]
    os.execv(sys.executable, [sys.executable, *options, *sys.orig_argv[1:]])
    return None


def _parent(args: argparse.Namespace, config: Config) -> Parent | None:
    """The instance that this process is a job of, if it is in a job.

    Raises:
        StartError: the job's resources are requested and cannot be determined.
    """
    from penstock.instance.parent_instance import check_alone, find_parent

    named = _names_resources(args, config)
    try:
        parent = find_parent(os.environ)
    except StartError as error:
        if args.script or not named:
            raise
        logging.getLogger("penstock").warning("%s", str(error).partition("\n")[0])
        return None
    if parent is not None and not named:
        check_alone(os.environ)
    return parent


def _problem(args: argparse.Namespace) -> str | None:
    simulated = args.nodes is not None
    if simulated and args.R:
        return "--R and --nodes exclude each other"
    if not simulated and (args.cores is not None or args.gpus is not None):
        return "--cores and --gpus need --nodes"
    for name, number, least in (
        ("--nodes", args.nodes, 1),
        ("--cores", args.cores, 1),
        ("--gpus", args.gpus, 0),
    ):
        if number is not None and number < least:
            return f"{name}: expected at least {least}, found {number}"
    if args.script and not _in_job():
        return "--script: expected to run in a job\nhint: submit a script with `penstock batch`"
    if simulated and args.exec == "local" and not args.oversubscribe:
        return (
            "simulated nodes have no cores to run on: --exec local needs --oversubscribe\n"
            "hint: omit --exec to simulate execution"
        )
    return None


def _names_resources(args: argparse.Namespace, config: Config) -> bool:
    return bool(args.R or args.nodes or config.resource.path or config.resource.config)


def _in_job() -> bool:
    return bool(os.environ.get("PENSTOCK_JOB_ID") or os.environ.get("FLUX_JOB_ID"))


def _options(
    args: argparse.Namespace, config: Config, parent: Parent | None, stack: ExitStack
) -> StartOptions:
    is_temporary = _in_job() and not (args.state or config.penstock.state)
    named = _names_resources(args, config)
    oversubscribe = args.oversubscribe or config.penstock.exec.oversubscribe
    if parent is not None and not named:
        oversubscribe = oversubscribe or parent.oversubscribe
    simulated = args.nodes is not None and not oversubscribe
    execution: ExecMode = args.exec or ("sim" if simulated else "local")
    kind = instance_kind(execution, named=named, oversubscribe=oversubscribe)
    state, socket = _places(args, config, kind, stack)
    options = StartOptions(
        state=state,
        socket=socket,
        config=config,
        R=args.R,
        nodes=args.nodes,
        cores=args.cores,
        gpus=args.gpus,
        exec=execution,
        exec_program=Path(find_program()) if execution == "local" else None,
        oversubscribe=oversubscribe,
        sched=args.sched or config.penstock.scheduler.mode,
        command=tuple(args.command),
        parent=parent,
        is_temporary=is_temporary,
        any_state=args.any_state,
    )
    if sys.stderr.isatty() and not args.script:
        options = dataclasses.replace(options, on_ready=partial(_greet, options))
    settings = dataclasses.replace(
        config.penstock,
        state=state,
        socket=socket,
        scheduler=_scheduler(config.penstock.scheduler, options.sched, args),
        exec=dataclasses.replace(config.penstock.exec, oversubscribe=oversubscribe),
    )
    if args.script:
        options = dataclasses.replace(options, command=_with_script(options, stack))
    return dataclasses.replace(options, config=dataclasses.replace(config, penstock=settings))


EXECUTION = {
    "local": "jobs run here",
    "sim": "execution is simulated",
    "none": "jobs wait for an execution service, such as `penstock exec`",
}


def _greet(options: StartOptions, resources: ResourceSet) -> None:
    """Tells the user at a terminal what has been started, where it is, and how to end it."""
    lines = [f"{resources_text(resources)}; {EXECUTION[options.exec]}"]
    if options.command:
        lines.append(f"state {options.state}; it ends with `{options.command[0]}`")
    else:
        lines += [
            f"socket {options.socket}",
            f"state {options.state}",
            "Ctrl-C or `penstock stop` ends it",
        ]
    if not options.command and options.socket != paths.default_socket():
        lines.insert(2, f"in other terminals: export PENSTOCK_URI=local://{options.socket}")
    for line in lines:
        print(f"penstock start: {safe(line)}", file=sys.stderr)


def _scheduler(
    settings: SchedulerSettings,
    mode: SchedulerMode,
    args: argparse.Namespace,
) -> SchedulerSettings:
    return dataclasses.replace(
        settings,
        mode=mode,
        policy=args.policy or settings.policy,
        selection=args.selection or settings.selection,
    )


def _places(
    args: argparse.Namespace, config: Config, kind: InstanceKind, stack: ExitStack
) -> tuple[Path, Path]:
    """The state directory and the socket; those of an instance in a job are its own."""
    state = args.state or config.penstock.state
    socket = args.socket or config.penstock.socket
    if _in_job():
        state = state or _temporary(stack)
        socket = socket or state / "socket"
        if len(os.fsencode(socket.absolute())) > MAX_SOCKET_PATH_BYTES and not args.socket:
            socket = _temporary(stack) / "socket"
    else:
        state = state or paths.default_state(kind)
        # The address that clients will use, too.
        socket = socket or paths.socket_of(paths.default_uri())
    # These paths are passed to jobs and the command, whose working directories may differ.
    return state.absolute(), socket.absolute()


def _temporary(stack: ExitStack) -> Path:
    """A directory for as long as the instance runs, whose name leaves room for a socket's."""
    base = tempfile.gettempdir()
    if len(os.fsencode(base)) > MAX_SOCKET_PATH_BYTES - 40:
        base = "/tmp"
    directory = tempfile.TemporaryDirectory(
        prefix="penstock-", dir=base, ignore_cleanup_errors=True
    )
    return Path(stack.enter_context(directory))


def _with_script(options: StartOptions, stack: ExitStack) -> tuple[str, ...]:
    """The command that runs the job's script, which is written to a file."""
    from penstock.instance.parent_instance import script_of

    assert options.parent is not None
    path = _temporary(stack) / "script"
    path.write_bytes(script_of(options.parent.jobspec))
    path.chmod(0o700)
    return (str(path), *options.command)
