"""`penstock info`: everything about one job."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.cli.rows import job_id, job_row
from penstock.cli.text import json_text, safe, safe_json
from penstock.client import Client

if TYPE_CHECKING:
    import argparse

SUMMARY = "Show a job: a summary, or one of its documents."


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("--json", action="store_true", help="the summary as one object")
    parser.add_argument("id", type=job_id, metavar="ID")
    parser.add_argument("document", nargs="?", choices=["jobspec", "R", "eventlog"])


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    job = args.id
    with Client() as client:
        if args.document:
            print(safe_json(client.lookup(job, args.document)[args.document].rstrip("\n")))
            return 0
        (row,) = client.jobs(ids=[job])
    shown = job_row(row)
    if args.json:
        print(json_text(shown))
        return 0
    for key, value in shown.items():
        if value is not None:
            print(f"{key:<12} {_text(key, value)}")
    return 0


def _text(key: str, value: Any) -> str:
    if key.startswith("t_"):
        return (
            datetime.fromtimestamp(value).astimezone().isoformat(sep=" ", timespec="milliseconds")
        )
    return safe(value) if isinstance(value, str) else json_text(value)
