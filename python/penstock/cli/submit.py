"""`penstock submit`: queue a job, print its id."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from collections import Counter
from typing import TYPE_CHECKING, Any

from penstock.cli import feasibility, joboptions
from penstock.cli.rows import exit_code
from penstock.cli.text import id_text, id_texts, json_text, safe
from penstock.client import Client
from penstock.errors import RpcError
from penstock.suggestion import with_suggestion

if TYPE_CHECKING:
    import argparse

    from penstock.rows import Submission

SUMMARY = "Submit a job and print its id, one a line."

FLAGS = {"waitable": 4}
UNSUPPORTED = {
    "debug": "the events of a job are all logged, `penstock eventlog` shows them",
    "novalidate": "every jobspec is validated, what is invalid could not be run",
}


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("--wait", action="store_true", help="wait for the jobs, exit as `wait`")
    parser.add_argument("--json", action="store_true", help="print objects with id and id_int")
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
    template = None if args.dry_run else joboptions.template(args)
    specs = joboptions.jobspecs(args) if template is None else [template]
    if args.dry_run:
        for spec in specs:
            print(json_text(spec))
        return 0
    feasibility.check(args, specs)
    with Client() as client:
        if template is None:
            ids, code = submit(client, specs, args.urgency, args.flags, args.token)
        else:
            ids, code = submit_copies(client, template, args), 0
        if args.json:
            for job in ids:
                print(json_text({"id": id_text(job), "id_int": job}))
        elif ids:
            print("\n".join(id_texts(ids)))
        if args.wait:
            sys.stdout.flush()
            code = max([code, *(exit_code(row) for row in client.wait(ids))])
    return code


def submit_copies(client: Client, template: dict[str, Any], args: argparse.Namespace) -> list[int]:
    """Submits a copy for each id of --cc, in one request with one jobspec; returns the ids."""
    return client.submit(
        template, urgency=args.urgency, flags=args.flags, token=args.token, cc=args.cc
    )


def submit(
    client: Client,
    specs: list[dict[str, Any]],
    urgency: int,
    flags: int = 0,
    token: str | None = None,
) -> tuple[list[int], int]:
    """Submits jobspecs in one request; prints the errors, and of how many jobs each is.

    Returns:
        The ids, and 1 if any was rejected.
    """
    if len(specs) == 1:
        return [client.submit(specs[0], urgency=urgency, flags=flags, token=token)], 0
    ids: list[int] = []
    errors: Counter[str] = Counter()
    jobs: list[Submission] = [
        {"jobspec": spec, "urgency": urgency, "flags": flags} for spec in specs
    ]
    for result in client.submit_many(jobs, token=token):
        if isinstance(result, list):
            ids += result
        else:
            errors[str(result.strerror if isinstance(result, RpcError) else result)] += 1
    for text, count in errors.items():
        jobs_text = f"{count} jobs: " if count > 1 else ""
        print(f"penstock submit: {jobs_text}{safe(with_suggestion(text))}", file=sys.stderr)
    return ids, 1 if errors else 0
