"""`penstock info`: everything about one job."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.cli.ids import JobIds
from penstock.cli.rows import job_row
from penstock.cli.text import json_text, safe, safe_json
from penstock.client import Client

if TYPE_CHECKING:
    import argparse

    from penstock.rows import JobRow

SUMMARY = "Show a job: a summary, or one of its documents."


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("--json", action="store_true", help="the summary as one object")
    parser.epilog = (
        "max_rss_kib is in KiB: the greatest resident set of one process of the job. user_cpu and "
        "system_cpu are in seconds: the CPU time of all tasks."
    )
    text = "`-`: read the id, or several, from standard input"
    parser.add_argument("id", action=JobIds, nargs=1, metavar="ID", help=text)
    parser.add_argument("document", nargs="?", choices=["jobspec", "R", "eventlog"])


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    with Client() as client:
        for number, job in enumerate(args.id):
            if args.document:
                document = client.lookup(job, args.document)[args.document]
                print(safe_json(document.rstrip("\n")))
                continue
            (row,) = client.job_rows(ids=[job])
            shown = job_row(row) | {"exit_codes": _exit_codes(client, row)}
            if args.json:
                print(json_text(shown))
                continue
            if number:
                print()
            for key, value in shown.items():
                if value is not None:
                    print(f"{key:<12} {_text(key, value)}")
    return 0


def _exit_codes(client: Client, row: JobRow) -> dict[str, int] | None:
    """The exit codes of the tasks by their ranks, if they differ; 128 + N if signal N ended one."""
    if row.get("ntasks", 1) < 2 or "waitstatus" not in row:
        return None
    for event in client.eventlog(row["id"]):
        if event["name"] == "finish" and (statuses := event["context"].get("statuses")):
            return {ranks: _code(status) for ranks, status in statuses.items()}
    return None


def _code(status: int) -> int:
    signal = status & 0x7F
    return 128 + signal if signal else status >> 8


def _text(key: str, value: Any) -> str:
    if key.startswith("t_"):
        return (
            datetime.fromtimestamp(value).astimezone().isoformat(sep=" ", timespec="milliseconds")
        )
    return safe(value) if isinstance(value, str) else json_text(value)
