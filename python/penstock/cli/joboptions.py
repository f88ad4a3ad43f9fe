"""The options that describe a job, as `flux submit` and `flux run` have them, and its jobspec."""

from __future__ import annotations

import argparse
import json
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock._core import URGENCY_DEFAULT, IDset, parse_count, parse_duration
from penstock.cli.arguments import attribute, urgency, warning
from penstock.cli.parser import Parser
from penstock.cli.text import safe
from penstock.constraint import parse_requires
from penstock.errors import Error, JobspecError, UsageError
from penstock.interpreter import penstock_command
from penstock.jobspec import (
    environment_from_rules,
    file_object,
    from_command,
    is_text,
    set_attribute,
)
from penstock.rlimits import limits_from_rules

if TYPE_CHECKING:
    from collections.abc import Iterable

# The text that stands for the id of a copy.
CC = "{cc}"
# The environment variables of a copy with its id; the second one is Flux's.
COPY_VARIABLES = ("PENSTOCK_CC", "FLUX_JOB_CC")
# The permissions behind the name of a file of `--add-file`.
PERMISSIONS = re.compile(r"(.*):(\d+)", re.ASCII | re.DOTALL)
OCTAL = re.compile(r"[0-7]{3,4}")
# Stands for `{cc}` in a trial: a noncharacter of Unicode, which no text of a user has.
_MARK = "\ufdd0"


def _amount(least: int) -> Any:
    def number(text: str) -> int | str:
        if text.isdecimal() and least <= int(text) < 2**32:
            return int(text)
        try:
            # A decimal number that is too small or too large is not a range either.
            if not text.isdecimal() and parse_count(text):
                return text
        except Error:
            pass
        raise argparse.ArgumentTypeError(
            f"expected a whole number from {least} or a range, found `{text}`"
        )

    return number


def _duration(text: str) -> float:
    """As flux: a plain number is in minutes, with a suffix it is a Flux Standard Duration."""
    try:
        seconds = parse_duration(text)
    except Error as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if text.replace(".", "", 1).isdecimal():
        seconds *= 60
    return 0.0 if seconds == float("inf") else seconds


def _number(text: str) -> int:
    if text.isascii() and text.isdecimal() and 0 < int(text) < 2**32:
        return int(text)
    raise argparse.ArgumentTypeError(f"expected a whole number from 1, found `{text}`")


def _idset(text: str) -> IDset:
    try:
        return IDset(text)
    except Error as error:
        raise argparse.ArgumentTypeError(str(error)) from None


# Options of Flux's verbs of submission that have no counterpart, and what to do instead.
ABSENT_OPTIONS = {
    "--taskmap": "tasks are laid out in blocks: `penstock taskmap` shows them",
    "--cores": "give `--ntasks` and `--cores-per-task`",
    "--tasks-per-core": "give `--ntasks` and `--cores-per-task`",
    "--resources-shape": "give `--nodes`, `--ntasks` and the others",
    "--resources-json": "give `--nodes`, `--ntasks` and the others",
    "--list-plugins": "the command line has no plugins",
    "--conf": "a nested instance has the default configuration",
    "--broker-opts": "an instance has no broker options",
    "--dump": "a nested instance keeps nothing after its end",
    "--bg": "`penstock batch` submits an instance and returns",
    "--wait-event": "`penstock job-wait-event` waits for an event",
    "--log": "redirect the output of the command",
    "--log-stderr": "redirect the standard error of the command",
    "--debug": "`penstock eventlog` shows the events of the job",
}


def register(
    parser: argparse.ArgumentParser,
    *,
    words: str = "COMMAND …",
    words_help: str = "program and arguments",
) -> None:
    """Adds the options that describe a job.

    Args:
        parser: gets them.
        words: the name of the arguments that follow the options.
        words_help: their meaning.
    """
    if isinstance(parser, Parser):
        parser.absent_options |= ABSENT_OPTIONS
    add = parser.add_argument
    add(
        "-n",
        "--ntasks",
        type=_amount(1),
        metavar="N",
        help="tasks (default 1, with -N one a node); a number, or as the three below a range: "
        "2-4, 2+, 1-9:2, 2+:2:* (RFC 45)",
    )
    add("-c", "--cores-per-task", type=_amount(1), default=1, metavar="N", help="cores per task")
    add("-g", "--gpus-per-task", type=_amount(0), default=0, metavar="N", help="gpus per task")
    add("-N", "--nodes", type=_amount(1), metavar="N", help="distinct nodes; alone, whole ones")
    add("--tasks-per-node", type=_number, metavar="N", help="with -N: tasks on each node")
    add(
        "--gpus-per-node",
        type=_number,
        metavar="N",
        help="with -N: gpus of each node, for its tasks",
    )
    add("--exclusive", "-x", action="store_true", help="with -N: whole nodes only")
    add(
        "-t",
        "--time-limit",
        type=_duration,
        default=0.0,
        metavar="MIN|FSD",
        help="time limit: minutes, or with a suffix (30s, 2h); without it, and with 0 or inf, the "
        "default of the queue or the site, else none",
    )
    add("-q", "--queue", metavar="NAME", help="queue")
    add(
        "-B",
        "--bank",
        dest="setattr",
        action="append",
        default=[],
        type=lambda name: ("system.bank", name),
        metavar="NAME",
        help="bank, as --setattr=system.bank=NAME",
    )
    add(
        "--requires",
        action="append",
        metavar="CONSTRAINT",
        help="constraint on the nodes, such as `gpu&-slow` or `host:node[0-3]` (RFC 35)",
    )
    add(
        "--urgency",
        type=urgency,
        default=URGENCY_DEFAULT,
        metavar="N",
        help="0 (hold) to 31 (expedite)",
    )
    add(
        "--dependency",
        action="append",
        default=[],
        metavar="SCHEME:VALUE",
        help="after, afterany, afterok, afternotok:JOB, or begin-time: seconds since the epoch, "
        "+FSD from now (+2h), an ISO date and time (RFC 26)",
    )
    add(
        "--begin-time",
        dest="dependency",
        action="append",
        default=[],
        type="begin-time:{}".format,
        metavar="TIME",
        help="earliest start, as --dependency=begin-time:TIME",
    )
    add("--output", metavar="TEMPLATE", help="file for stdout ({{id}}, {{name}}, {{taskid}})")
    add("--error", metavar="TEMPLATE", help="file for stderr; default: the file for stdout")
    add("--cwd", metavar="DIR", help="working directory, relative to this one (default: this one)")
    add(
        "--env",
        action="append",
        default=[],
        metavar="RULE",
        help="NAME=VALUE sets, -PATTERN removes, PATTERN copies, ^FILE has rules; "
        "default: the current environment",
    )
    for name, rule, metavar, text in (
        ("--env-file", "^{}", "FILE", "the rules of a file, as --env=^FILE"),
        ("--env-remove", "-{}", "PATTERN", "remove variables, as --env=-PATTERN"),
    ):
        add(
            name,
            dest="env",
            action="append",
            default=[],
            type=rule.format,
            metavar=metavar,
            help=text,
        )
    add(
        "--rlimit",
        action="append",
        default=[],
        metavar="RULE",
        help="NAME=VALUE sets a resource limit, -PATTERN removes, PATTERN copies the current one; "
        "default: the current soft limits but memlock, msgqueue, nice, rtprio, rttime, sigpending",
    )
    add(
        "--signal",
        type=warning,
        metavar="SIGNAL@TIME",
        help="send SIGNAL (default USR1) to the tasks when TIME (FSD, default 60s) of the time "
        "limit is left",
    )
    add(
        "--cc",
        type=_idset,
        metavar="IDSET",
        help="one job for each id; {cc} stands for the id, which tasks have in PENSTOCK_CC",
    )
    add("--bcc", type=_idset, metavar="IDSET", help="as --cc, without PENSTOCK_CC")
    add(
        "-o",
        "--setopt",
        action="append",
        default=[],
        type=attribute,
        metavar="KEY[=VALUE]",
        help="a shell option; VALUE is JSON or a string (default 1)",
    )
    add(
        "-S",
        "--setattr",
        action="append",
        default=[],
        type=attribute,
        metavar="KEY[=VALUE]",
        help="a jobspec attribute; VALUE is JSON or a string (default 1)",
    )
    add(
        "--add-file",
        action="append",
        default=[],
        metavar="[NAME[:PERMS]=]ARG",
        help="store the file ARG in the job, for {{tmpdir}}/NAME (default: its own name) when it "
        "runs; with a name ARG may also be the content, if it has a newline",
    )
    add(
        "--pmix",
        action="store_true",
        help="start a PMIx server, by which tasks can request resources",
    )
    add("--job-name", metavar="NAME", help="job name (default: the command's)")
    add("command", nargs=argparse.REMAINDER, metavar=words, help=words_help)


def register_streams(
    parser: argparse.ArgumentParser,
    source: str = "FILE",
    source_help: str = "file for stdin of every task; default: it is empty",
) -> None:
    """Adds the options about the standard streams of the tasks.

    Args:
        parser: the verb's parser.
        source: the kinds of arguments of `--input`.
        source_help: what they mean.
    """
    add = parser.add_argument
    add("--input", metavar=source, help=source_help)
    add(
        "-l", "--label-io", action="store_true", help="begin each line of output with the task rank"
    )
    add(
        "-u",
        "--unbuffered",
        action="store_true",
        help="show output at once; with --label-io also lines that have not ended",
    )


def jobspecs(
    args: argparse.Namespace, copies: Iterable[int | str | None] | None = None
) -> list[dict[str, Any]]:
    """The jobspecs that the options describe: one, or one a copy.

    Args:
        args: the options of `register`.
        copies: what `{cc}` stands for in each; by default the ids of --cc or --bcc.

    Raises:
        UsageError: the options are invalid, or contradict each other.
    """
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    try:
        if not command:
            raise JobspecError("expected a command")
        if copies is None:
            ids = copy_ids(args)
            copies = [None] if ids is None else ids
        return [_jobspec(args, command, copy) for copy in copies]
    except JobspecError as error:
        raise UsageError(str(error)) from None


def copy_ids(args: argparse.Namespace) -> IDset | None:
    """The ids of the copies that `--cc` or `--bcc` requests; None without copies.

    Raises:
        UsageError: both are given.
    """
    if args.cc is not None and args.bcc is not None:
        raise UsageError("--cc and --bcc exclude each other")
    ids: IDset | None = args.bcc if args.cc is None else args.cc
    return ids


def template(args: argparse.Namespace) -> dict[str, Any] | None:
    """The jobspec of all copies, in which `{cc}` stands for the id of each.

    None without --cc and --bcc, and if copies may differ in another way: then `jobspecs` makes one
    for each.

    Raises:
        UsageError: the options are invalid, or contradict each other.
    """
    if copy_ids(args) is None or not _differ_by_text(args):
        return None
    every, marked = jobspecs(args, [None]), jobspecs(args, [_MARK])
    text, shown = json.dumps(every), json.dumps(marked)
    if CC in shown or shown.replace(json.dumps(_MARK)[1:-1], CC) != text:
        # `{cc}` occurs outside of the options, such as in a variable of the environment.
        return None
    return every[0]


def _differ_by_text(args: argparse.Namespace) -> bool:
    """Whether the options with `{cc}` have the same meaning for every copy."""
    others = [*args.dependency, *args.add_file, *(key for key, _ in args.setopt)]
    others += [args.cwd or "", args.queue or "", *(args.requires or [])]
    # The service uses other attributes than the user's own, such as the bank.
    others += [key if key.startswith("user.") else f"{key} {value}" for key, value in args.setattr]
    rules = [rule for rule in args.env if CC in rule]
    return all(map(_sets_variable, rules)) and not any(CC in text for text in others)


def _sets_variable(rule: str) -> bool:
    """Whether an environment rule sets one variable to a value without other variables."""
    name, sign, value = rule.partition("=")
    return bool(sign) and name[:1] not in "-^/" and CC not in name and "$" not in value


def _jobspec(
    args: argparse.Namespace, command: list[str], copy: int | str | None
) -> dict[str, Any]:
    def fill(value: Any) -> Any:
        if copy is None:
            return value
        if isinstance(value, list):
            return [fill(item) for item in value]
        if isinstance(value, dict):
            return {fill(key): fill(item) for key, item in value.items()}
        return value.replace(CC, str(copy)) if isinstance(value, str) else value

    environment = environment_from_rules([fill(rule) for rule in args.env])
    if args.cc is not None:
        environment |= dict.fromkeys(COPY_VARIABLES, CC if copy is None else str(copy))
    attributes: dict[str, Any] = {"shell.options.umask": f"{_umask():03o}"}
    if limits := limits_from_rules(args.rlimit):
        attributes["shell.options.rlimit"] = limits
    if args.signal:
        attributes["shell.options.signal"] = args.signal
    if args.pmix:
        attributes["shell.options.pmix"] = True
    for stream in ("stdout", "stderr"):
        if getattr(args, "label_io", False):
            attributes[f"shell.options.output.{stream}.label"] = True
        if getattr(args, "unbuffered", False):
            attributes[f"shell.options.output.{stream}.buffer.type"] = "none"
    if files := dict(_added_file(fill(text)) for text in args.add_file):
        attributes["system.files"] = files
    attributes |= getattr(args, "stream_attributes", {})
    attributes |= {f"shell.options.{fill(key)}": fill(value) for key, value in args.setopt}
    attributes |= {fill(key): fill(value) for key, value in args.setattr}
    return from_command(
        [fill(word) for word in command],
        ntasks=args.ntasks,
        cores_per_task=args.cores_per_task,
        gpus_per_task=_gpus_per_task(args),
        nodes=args.nodes,
        tasks_per_node=args.tasks_per_node,
        exclusive=args.exclusive,
        duration=args.time_limit,
        queue=fill(args.queue),
        requires=_requires([fill(text) for text in args.requires or []]),
        dependencies=[fill(text) for text in args.dependency],
        name=fill(args.job_name),
        cwd=_absolute(fill(args.cwd)),
        environment=environment,
        input=fill(getattr(args, "input", None)),
        output=fill(args.output),
        error=fill(args.error),
        setattr=attributes,
        clock=args.clock,
    )


def _added_file(text: str) -> tuple[str, dict[str, Any]]:
    """The name and the file system object of a file of `--add-file`."""
    name, equals, source = text.partition("=")
    if not equals:
        name, source = Path(text).name, text
    permissions: int | None = None
    if equals and (found := PERMISSIONS.fullmatch(name)):
        if not OCTAL.fullmatch(found[2]):
            raise JobspecError(
                f"--add-file={safe(text)}: expected octal permissions as 600 or 0755, "
                f"found `{found[2]}`"
            )
        name, permissions = found[1], int(found[2], 8)
    if not name or name.startswith("/") or ".." in name.split("/") or not is_text(name):
        raise JobspecError(
            f"--add-file={safe(text)}: expected the name of a file below the job's directory"
        )
    if equals and "\n" in source:
        return name, file_object(os.fsencode(source), 0o600 if permissions is None else permissions)
    try:
        with Path(source).open("rb") as file:
            if permissions is None:
                permissions = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            return name, file_object(file.read(), permissions)
    except OSError as error:
        raise JobspecError(f"--add-file={safe(text)}: {error.strerror}") from error


def _gpus_per_task(args: argparse.Namespace) -> int | str:
    per_node, tasks = args.gpus_per_node, args.tasks_per_node or 1
    if per_node is None:
        return args.gpus_per_task  # type: ignore[no-any-return]
    if args.nodes is None:
        raise JobspecError("--gpus-per-node: expected --nodes, too")
    if args.ntasks is not None or args.gpus_per_task:
        raise JobspecError("--gpus-per-node excludes --ntasks and --gpus-per-task")
    if per_node % tasks:
        raise JobspecError(
            f"--gpus-per-node: expected a multiple of --tasks-per-node ({tasks}), as tasks do not "
            f"share gpus, found {per_node}"
        )
    return per_node // tasks  # type: ignore[no-any-return]


def _requires(texts: list[str]) -> dict[str, Any] | None:
    # One by one: an error names the text of the user.
    constraints = [parse_requires(text) for text in texts]
    return {"and": constraints} if len(constraints) > 1 else next(iter(constraints), None)


def _absolute(directory: str | None) -> str | None:
    """A working directory, relative to the current one; a template is the job's to fill.

    The current directory may have been removed: an absolute one does not depend on it.
    """
    if directory is None or directory.startswith(("/", "{{")):
        return directory
    return str(Path.cwd() / directory)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def instance_jobspecs(args: argparse.Namespace, start: list[str]) -> list[dict[str, Any]]:
    """The jobspecs of `batch` and `alloc`: instances with the resources that the options request.

    One task on the first node starts the instance; it has all cores and gpus that the job has
    there, whichever slots they are in.

    Args:
        args: the options of `register`.
        start: the arguments of `penstock start`.
    """
    args.command = penstock_command("start", *start)
    specs = jobspecs(args)
    for spec in specs:
        set_attribute(spec, "shell.options.instance", value=True)
    return specs
