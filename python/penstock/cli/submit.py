"""`penstock submit`: queue a job, print its id."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentTypeError
from itertools import chain
from typing import TYPE_CHECKING, Any

from penstock._core import SUBMIT_WAITABLE, IDset
from penstock.cli import feasibility, joboptions
from penstock.cli.progress import Progress
from penstock.cli.rows import exit_code
from penstock.cli.text import id_text, id_texts, json_text
from penstock.client import Client
from penstock.errors import Error, JobspecError, RpcError, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from penstock.rows import Submission

SUMMARY = "Submit a job and print its id, one a line."

FLAGS = {"waitable": SUBMIT_WAITABLE}
UNSUPPORTED = {
    "debug": "the events of a job are all logged, `penstock eventlog` shows them",
    "novalidate": "every jobspec is validated, what is invalid could not be run",
}


# The jobs that an error is about, by their positions in the list of a submission.
POSITIONS = re.compile(r"(?<=[:;] )jobs(?:\[([\d,-]+)\](?=: )| from (\d+)(?= on were not checked))")


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    register_following(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="print the jobspecs (RFC 25), submit nothing"
    )
    parser.add_argument(
        "--flags",
        type=flags,
        default=0,
        metavar="FLAGS",
        help="`waitable`: recorded as in Flux; every job is waitable",
    )
    parser.add_argument(
        "--token",
        metavar="TEXT",
        help="name the submission: repeated within a day, it adds no jobs and prints the same ids",
    )
    feasibility.register(parser)
    joboptions.register_streams(parser)
    joboptions.register(parser)


def register_following(parser: argparse.ArgumentParser) -> None:
    """Adds the options about the ids of submitted jobs, and about waiting for the jobs."""
    add = parser.add_argument
    add("--wait", action="store_true", help="wait for the jobs, exit as `wait`")
    add("--watch", action="store_true", help="show the output of the jobs, exit as `wait`")
    Progress.register(parser)
    add("--json", action="store_true", help="print objects with id and id_int")
    add("--quiet", action="store_true", help="do not print the ids")
    register_verbose(parser)


def register_verbose(parser: argparse.ArgumentParser) -> None:
    """Adds the option that shows ids on standard error."""
    parser.add_argument("-v", "--verbose", action="store_true", help="print the ids on stderr, too")


def check_following(args: argparse.Namespace) -> None:
    """Checks the options of `register_following` before anything is submitted.

    Raises:
        UsageError: one is given without another that it needs.
    """
    if args.jps and not args.progress:
        raise UsageError("--jps: expected --progress, too")
    if args.progress and not (args.wait or args.watch):
        raise UsageError("--progress: expected --wait or --watch, too")


def show_ids(verb: str, args: argparse.Namespace, ids: Sequence[int]) -> None:
    """Shows the ids of submitted jobs on standard error if `--verbose` is given."""
    if args.verbose and ids:
        lines = "\n".join(f"penstock {verb}: job {name}" for name in id_texts(ids))
        print(lines, file=sys.stderr, flush=True)


def follow(client: Client, verb: str, args: argparse.Namespace, ids: Sequence[int]) -> int:
    """Prints the ids of submitted jobs, and waits for these, as the options say.

    Returns:
        The greatest of the jobs' exit codes; 0 without a wait.
    """
    show_ids(verb, args, ids)
    if args.json and not args.quiet:
        for job in ids:
            print(json_text({"id": id_text(job), "id_int": job}))
    elif ids and not args.quiet:
        print("\n".join(id_texts(ids)))
    sys.stdout.flush()
    if args.watch and ids:
        # Its modules are not needed otherwise.
        from penstock.cli.watch import watch

        return watch(client, verb, args, ids)
    code = 0
    if args.wait:
        with Progress.of(args, len(ids)) as progress:
            for row in client.wait_rows(ids):
                code = max(code, exit_code(row))
                progress.count([row])
    return code


def flags(text: str) -> int:
    """The submission flags that mean something here, as in the `submit` event (RFC 21).

    Raises:
        ArgumentTypeError: a flag that does not; that is bad usage.
    """
    number = 0
    for word in text.split(","):
        if word in UNSUPPORTED:
            raise ArgumentTypeError(f"`{word}` is not supported: {UNSUPPORTED[word]}")
        if word not in FLAGS:
            raise ArgumentTypeError(f"unknown flag `{word}`: expected {', '.join(FLAGS)}")
        number |= FLAGS[word]
    return number


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    check_following(args)
    template = None if args.dry_run else joboptions.template(args)
    copies = joboptions.copy_ids(args)
    specs = joboptions.jobspecs(args) if template is None else [template]
    if args.dry_run:
        for spec in specs:
            print(json_text(spec))
        return 0
    with Client() as client:
        feasibility.check(client, args, specs)
        ids: Sequence[int]
        if copies is None:
            ids = submit(client, specs, args.urgency, args.flags, args.token)
        elif template is None:
            jobs = submissions(specs, args.urgency, args.flags)
            ids = submit_jobs(client, jobs, args.token, copy_namer(args, copies))
        else:
            ids = submit_copies(client, template, copies, args)
        return follow(client, "submit", args, ids)


def submit_copies(
    client: Client, template: dict[str, Any], copies: IDset, args: argparse.Namespace
) -> Sequence[int]:
    """Submits all copies in one request with one jobspec; returns the ids."""
    return client.submit(
        template, urgency=args.urgency, flags=args.flags, token=args.token, cc=copies
    )


def submit(
    client: Client,
    specs: list[dict[str, Any]],
    urgency: int,
    flags: int = 0,
    token: str | None = None,
) -> list[int]:
    """Submits jobspecs in one request; returns the ids."""
    return submit_jobs(client, submissions(specs, urgency, flags), token)


def submissions(specs: list[dict[str, Any]], urgency: int, flags: int = 0) -> list[Submission]:
    """The submission of each jobspec."""
    return [{"jobspec": spec, "urgency": urgency, "flags": flags} for spec in specs]


def submit_jobs(
    client: Client,
    jobs: list[Submission],
    token: str | None = None,
    name: Callable[[IDset], str] | None = None,
) -> list[int]:
    """Submits jobs in one request; returns the ids.

    Args:
        client: the client.
        jobs: the jobs.
        token: of the submission.
        name: names the jobs at these positions as the user knows them, for errors.

    Raises:
        JobspecError: a job cannot be sent.
        RpcError: the instance rejects the jobs.
    """
    if len(jobs) == 1:
        job = jobs[0]
        urgency, flags = job["urgency"], job.get("flags", 0)
        return [client.submit(job["jobspec"], urgency=urgency, flags=flags, token=token)]
    try:
        return list(chain.from_iterable(client.submit_many(jobs, token=token)))
    except RpcError as error:
        text = _with_names(error.strerror or "", len(jobs), name)
        raise RpcError(error.errno, text) from None
    except JobspecError as error:
        raise JobspecError(_with_names(str(error), len(jobs), name)) from None


def copy_namer(args: argparse.Namespace, copies: IDset) -> Callable[[IDset], str]:
    """Names copies by their ids, as the user wrote them."""
    option = "--bcc" if args.cc is None else "--cc"
    ids = list(copies)
    return lambda positions: f"{option}={IDset(ids[at] for at in positions)}"


def _with_names(text: str, count: int, name: Callable[[IDset], str] | None) -> str:
    if name is None:
        return text

    def named(found: re.Match[str]) -> str:
        listed, first = found.groups()
        try:
            positions = IDset(listed or first)
        except Error:
            return found[0]
        last = positions.last()
        # Words of a user may look like positions.
        if last is None or last >= count:
            return found[0]
        return name(positions) if listed else f"jobs from {name(positions)}"

    return POSITIONS.sub(named, text)
