"""`penstock uri`: the address of the instance in a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._core import fluid_parse, job_state
from penstock.cli.ids import one_word
from penstock.cli.rows import user_uri
from penstock.cli.text import id_text, safe
from penstock.client import Client
from penstock.errors import NotFoundError

if TYPE_CHECKING:
    import argparse

SUMMARY = """Print the address of the instance that runs in a job, for PENSTOCK_URI.

JOB/JOB is a job of the instance in a job, and so on."""


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    text = "the job, or a path of jobs; `-`: read it from standard input"
    parser.add_argument("id", type=one_word, metavar="JOB", help=text)


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    print(safe(address_of(args.id)))
    return 0


def address_of(path: str) -> str:
    """The address of the instance in a job.

    Args:
        path: the job, or a path of jobs.

    Raises:
        NotFoundError: a job has ended, or runs no instance.
    """
    uri = ""
    for name in path.split("/"):
        job = fluid_parse(name)
        with Client(uri or None) as client:
            (row,) = client.job_rows(ids=[job])
        found = user_uri(row)
        if row["state"] == job_state.INACTIVE or found is None:
            fault = "has ended" if row["state"] == job_state.INACTIVE else "has no address yet"
            raise NotFoundError(
                f"job {id_text(job)} {fault}\n"
                "hint: `penstock batch` and `penstock alloc` start jobs that are instances"
            )
        uri = found
    return uri
