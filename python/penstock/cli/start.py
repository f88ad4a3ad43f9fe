"""`penstock start`: an instance, in the foreground or around a command."""

from __future__ import annotations

import dataclasses
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import paths
from penstock.config import Config, load
from penstock.instance.options import StartOptions

if TYPE_CHECKING:
    import argparse

SUMMARY = """Start an instance on this machine, or on made-up nodes.

Without COMMAND it runs in the foreground until it gets SIGINT, SIGTERM or SIGHUP. With COMMAND it
runs that with PENSTOCK_URI set, and ends with it and its exit code."""


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    add = parser.add_argument
    add("--state", type=Path, metavar="DIR", help="jobs and output (default: below the home)")
    add("--socket", type=Path, metavar="PATH", help="where to listen")
    add("--config", type=Path, metavar="FILE", help="configuration, TOML")
    add("--R", type=Path, metavar="FILE", help="the resources, as R (RFC 20)")
    add("--nodes", type=int, metavar="N", help="make up N nodes")
    add("--cores", type=int, metavar="N", help="cores of a made-up node (default 1)")
    add("--gpus", type=int, metavar="N", help="gpus of a made-up node (default 0)")
    add(
        "--exec",
        choices=["local", "sim"],
        help="run jobs as processes, or simulate them (default local; sim for made-up nodes)",
    )
    add("--oversubscribe", action="store_true", help="run jobs of made-up nodes here, unbound")
    add(
        "--sched",
        choices=["inside", "process", "none"],
        help="scheduler: inside the daemon, kept as a process, or none (attach `penstock sched`)",
    )
    add("-v", "--verbose", action="store_true", help="log more")
    add("command", nargs="*", metavar="COMMAND", help="what to run, after `--`")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    level = logging.INFO if args.verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(name)s: %(message)s")
    problem = _problem(args)
    if problem:
        print(f"penstock start: {problem}", file=sys.stderr)
        return 2
    config = load(args.config) if args.config else Config()
    try:
        import trio  # noqa: F401 - asked for here, so that its absence gets a plain answer
    except ModuleNotFoundError:
        print("penstock start: the daemon needs the package trio", file=sys.stderr)
        print("hint: pip install 'penstock[daemon]'", file=sys.stderr)
        return 1
    from penstock.instance.daemon import run

    return run(_options(args, config))


def _problem(args: argparse.Namespace) -> str | None:
    made_up = args.nodes is not None
    if made_up and args.R:
        return "--R and --nodes exclude each other"
    if not made_up and (args.cores is not None or args.gpus is not None):
        return "--cores and --gpus need --nodes"
    for name, number, least in (
        ("--nodes", args.nodes, 1),
        ("--cores", args.cores, 1),
        ("--gpus", args.gpus, 0),
    ):
        if number is not None and number < least:
            return f"{name}: expected at least {least}, found {number}"
    if made_up and args.exec == "local" and not args.oversubscribe:
        return (
            "made-up nodes have no cores to run on: --exec local needs --oversubscribe\n"
            "hint: leave --exec away to simulate execution"
        )
    return None


def _options(args: argparse.Namespace, config: Config) -> StartOptions:
    state = args.state or config.penstock.state or paths.default_state()
    socket = args.socket or config.penstock.socket
    if socket is None:
        # The address that clients will use, too.
        socket = paths.socket_of(paths.default_uri())
    # Jobs and the command get to know these: they need not be where this process is.
    state, socket = state.absolute(), socket.absolute()
    oversubscribe = args.oversubscribe or config.penstock.exec.oversubscribe
    fallback = "sim" if args.nodes is not None and not oversubscribe else "local"
    sched = args.sched or config.penstock.scheduler.mode
    settings = dataclasses.replace(
        config.penstock,
        state=state,
        socket=socket,
        scheduler=dataclasses.replace(config.penstock.scheduler, mode=sched),
        exec=dataclasses.replace(config.penstock.exec, oversubscribe=oversubscribe),
    )
    return StartOptions(
        state=state,
        socket=socket,
        config=dataclasses.replace(config, penstock=settings),
        R=args.R,
        nodes=args.nodes,
        cores=args.cores,
        gpus=args.gpus,
        exec="sim" if (args.exec or fallback) == "sim" else "local",
        oversubscribe=oversubscribe,
        sched=sched,
        command=tuple(args.command),
    )
