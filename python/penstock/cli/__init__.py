"""The command `penstock`: one module for each verb, imported on use.

A verb's module has `SUMMARY` (a line), `register(parser)` (its arguments) and `main(args)` (which
returns an exit code). `args.clock` is the time.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.clock import Clock

__all__ = ["main"]

USAGE, NO_INSTANCE = 2, 69

# The summaries are here, so that --help does not import the verbs.
VERBS = {
    "start": ("start", "start an instance"),
    "stop": ("stop", "stop an instance, with or without its jobs"),
    "shutdown": ("shutdown", "end an instance and its running jobs"),
    "web": ("web", "show an instance in a browser"),
    "top": ("top", "show jobs, nodes and queues on the whole screen, live"),
    "uptime": ("uptime", "show since when an instance runs, and its size"),
    "restart": ("restart", "start an instance again, while its jobs continue"),
    "submit": ("submit", "submit a job"),
    "bulksubmit": ("bulksubmit", "submit a job for each of many inputs"),
    "run": ("run", "run a job: submit it, show its output, end with its exit code"),
    "batch": ("batch", "submit a script that runs in an instance of its own"),
    "alloc": ("alloc", "get an instance in a job, and run a command with it"),
    "uri": ("uri", "print the address of the instance in a job"),
    "jobs": ("jobs", "list jobs"),
    "pgrep": ("pgrep", "list jobs by name"),
    "pstree": ("pstree", "show jobs as a tree, with those of the instances in jobs"),
    "attach": ("attach", "show a job's output, write to its tasks, signal them"),
    "logs": ("logs", "show a job's output"),
    "cancel": ("cancel", "cancel jobs"),
    "pkill": ("pkill", "cancel jobs by name"),
    "kill": ("kill", "send a signal to running jobs"),
    "urgency": ("urgency", "hold, release and expedite pending jobs"),
    "explain": ("explain", "explain why jobs are pending"),
    "estimate": ("estimate", "estimate when jobs start"),
    "what-if": ("whatif", "predict the effect of a change"),
    "update": ("update", "change the time limit of jobs"),
    "elastic": ("elastic", "extend, release, lend and reacquire resources from inside a job"),
    "usage": ("usage", "show node, core and gpu hours by user, queue, project, month"),
    "memo": ("memo", "set annotations of a job"),
    "watch": ("watch", "show the output of jobs until they have ended"),
    "wait": ("wait", "wait for jobs to end"),
    "info": ("info", "show a job"),
    "eventlog": ("eventlog", "show a job's events"),
    "job": ("job", "raise exceptions, wait for events, show time left, tasks, last jobs"),
    "purge": ("purge", "remove inactive jobs"),
    "queue": ("queue", "list, start, stop, enable and disable queues"),
    "resource": ("resource", "list and administer resources"),
    "services": ("services", "list the services of an instance"),
    "ping": ("ping", "measure the round-trip time of a service"),
    "stats": ("stats", "show the statistics of services"),
    "completion": ("completion", "complete command lines in bash, zsh and fish"),
    "dmesg": ("dmesg", "show the log of an instance"),
    "store": ("store", "check, copy, replace and repair the database of jobs"),
    "record": ("record", "record the messages between clients and an instance"),
    "replay": ("replay", "show a recording, or send it to an instance again"),
    "sched": ("sched", "run a scheduler as a process of its own"),
    "flux": ("flux", "show the folder of the broker module for Flux"),
    "exec": ("exec", "run jobs in a process of its own, whose tasks outlive it"),
    "config": ("config", "check, show or reload a configuration"),
    "sim": ("sim", "replay a workload in virtual time: waits, utilisation, a report"),
    "idset": ("idset", "sets of ids: expand, fold, count, combine"),
    "hostlist": ("hostlist", "lists of hosts: expand, fold, count, combine"),
    "nodeset": ("nodeset", "node sets and groups of nodes, as ClusterShell's nodeset"),
    "R": ("rset", "resource sets: show, make, verify, combine"),
}


# A verb in no group is listed with those on jobs.
GROUPS = {
    "jobs": (),
    "the instance": tuple(
        "start stop shutdown restart top web uptime queue resource services ping stats dmesg"
        " record replay store sched exec config uri flux completion".split()
    ),
    "simulation": ("sim",),
    "the library": ("idset", "hostlist", "nodeset", "R"),
}


# Verbs that are short forms of operations.
SHORT_FORMS = {
    "raise": ["job", "raise"],
    "job-wait-event": ["job", "wait-event"],
    "taskmap": ["job", "taskmap"],
    "timeleft": ["job", "timeleft"],
    "last": ["job", "last"],
}
# Verbs whose operations users of other systems know as verbs.
VERBS_WITH_OPERATIONS = ("resource", "queue", "job", "config", "store")
# Verbs that are operations of `flux job`.
VERBS_OF_JOB = ("attach", "cancel", "eventlog", "info", "kill", "memo", "purge", "urgency")


def _group(title: str, names: Sequence[str]) -> list[str]:
    width = max(map(len, VERBS))
    return ["", f"{title}:", *(f"  {name:<{width}}  {VERBS[name][1]}" for name in names)]


def _help() -> str:
    elsewhere = {name for names in GROUPS.values() for name in names}
    lines: list[str] = []
    for title, names in GROUPS.items():
        chosen = names or [name for name in VERBS if name not in elsewhere]
        lines += _group(title, [name for name in chosen if name in VERBS])
    return "\n".join(
        [
            "usage: penstock [--version] VERB …",
            "",
            "Resource sets and a scheduler for clusters.",
            *lines,
            "",
            "`penstock VERB --help` shows the options of a verb. The instance is the one that",
            "PENSTOCK_URI names, else the one at the default socket.",
        ]
    )


def main(argv: Sequence[str] | None = None, clock: Clock | None = None) -> int:
    """Runs a command line.

    Args:
        argv: the arguments; by default the process's own.
        clock: the time, for verbs that show or compute times; by default the system's.

    Returns:
        The exit code: 2 for bad usage, 69 if there is no instance, else the verb's.
    """
    from penstock.cli.encoding import adapt_streams, decoded_argument, open_missing_streams

    open_missing_streams()
    arguments = [decoded_argument(text) for text in (sys.argv[1:] if argv is None else argv)]
    adapt_streams()
    try:
        code = _main(arguments, clock)
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of the output has closed it: Python's flush at exit must not fail, too.
        sys.stdout = None
        return 141
    except OSError as error:
        # Text of no verb, or the rest of a verb's output.
        print(f"penstock: {_text(error)}", file=sys.stderr)
        sys.stdout = None
        return 1
    return code


def _main(arguments: list[str], clock: Clock | None) -> int:
    verb = arguments.pop(0) if arguments else "--help"
    if verb in ("-h", "--help", "help"):
        if arguments and arguments[0] in (*VERBS, *SHORT_FORMS):
            return _main([arguments[0], "--help"], clock)
        if verb == "help" and arguments:
            return _unknown(arguments[0])
        print(_help())
        return 0
    if verb in ("-V", "--version"):
        from penstock import __version__

        print(f"penstock {__version__}")
        return 0
    if verb in SHORT_FORMS:
        verb, *operation = SHORT_FORMS[verb]
        arguments = operation + arguments
    elif verb == "job" and arguments and arguments[0] in VERBS_OF_JOB:
        verb = arguments.pop(0)
    if verb not in VERBS:
        return _unknown(verb)
    return _call(verb, arguments, clock)


def _unknown(verb: str) -> int:
    from penstock.cli.parser import usage_error
    from penstock.suggestion import suggestion

    places = [f"`{of} {verb}`" for of in VERBS_WITH_OPERATIONS if verb in _operations(of)]
    hint = (
        f"; did you mean {' or '.join(places)}?"
        if places
        else suggestion(verb, [*VERBS, *SHORT_FORMS])
    )
    text = f"unknown verb `{verb}`{hint}"
    print(usage_error("penstock", text), end="", file=sys.stderr)
    return USAGE


def _operations(verb: str) -> set[str]:
    """The operations of a verb, such as `drain` of `resource`."""
    from penstock.cli.parser import Parser

    module = importlib.import_module(f"penstock.cli.{VERBS[verb][0]}")
    parser = Parser.of_verb(verb, module.SUMMARY)
    module.register(parser)
    return {name for action in parser._actions for name in action.choices or ()}


def _call(verb: str, arguments: list[str], clock: Clock | None) -> int:
    from penstock.cli.parser import Parser
    from penstock.cli.text import safe_lines
    from penstock.clock import SYSTEM_CLOCK
    from penstock.errors import Error, UsageError
    from penstock.suggestion import with_suggestion

    module = importlib.import_module(f"penstock.cli.{VERBS[verb][0]}")
    parser = Parser.of_verb(verb, module.SUMMARY)
    parser.set_defaults(clock=clock or SYSTEM_CLOCK)
    module.register(parser)
    prog = parser.prog
    try:
        args = parser.parse_args(arguments)
        prog = vars(args).pop("prog")
        code: int = module.main(args)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    except BrokenPipeError:
        raise
    except UsageError as error:
        print(f"{prog}: {safe_lines(with_suggestion(str(error)))}", file=sys.stderr)
        return USAGE
    except (Error, OSError) as error:
        print(f"penstock {verb}: {safe_lines(with_suggestion(_text(error)))}", file=sys.stderr)
        return _code(error)
    return code


def _text(error: Exception) -> str:
    strerror = getattr(error, "strerror", None)
    filename = getattr(error, "filename", None)
    if strerror and filename:
        return f"`{filename}`: {strerror}"
    return strerror or str(error)


def _code(error: Exception) -> int:
    # By name: the client is imported only by the verbs that need it.
    return NO_INSTANCE if type(error).__name__ == "NoInstanceError" else 1
