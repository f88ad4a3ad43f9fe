"""`penstock submit`: queue a job, print its id."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from penstock._core import fluid_f58
from penstock.cli import joboptions
from penstock.cli.rows import exit_code
from penstock.client import Client
from penstock.errors import RpcError

if TYPE_CHECKING:
    import argparse

SUMMARY = "Submit a job and print its id, one a line."


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("--wait", action="store_true", help="wait for the jobs, exit as `wait`")
    parser.add_argument("--json", action="store_true", help="print objects with id and id_int")
    joboptions.register(parser)


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    specs = joboptions.jobspecs(args)
    with Client() as client:
        ids, code = submit(client, specs, args.urgency)
        for job in ids:
            row = {"id": fluid_f58(job), "id_int": job}
            print(json.dumps(row, ensure_ascii=False) if args.json else row["id"])
        if args.wait:
            sys.stdout.flush()
            code = max([code, *(exit_code(row) for row in client.wait(ids))])
    return code


def submit(client: Client, specs: list[dict[str, Any]], urgency: int) -> tuple[list[int], int]:
    """Submits jobspecs in one request; tells each that is refused.

    Returns:
        The ids, and 1 if any was refused.
    """
    if len(specs) == 1:
        return [client.submit(specs[0], urgency=urgency)], 0
    ids: list[int] = []
    code = 0
    for result in client.submit_many([{"jobspec": it, "urgency": urgency} for it in specs]):
        if isinstance(result, RpcError):
            print(f"penstock submit: {result.strerror}", file=sys.stderr)
            code = 1
        else:
            ids += result
    return ids, code
