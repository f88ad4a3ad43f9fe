"""Jobs as the command line shows them: the `--json` keys, and the words for states."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from typing import TYPE_CHECKING, Any

from penstock._core import fluid_f58, fluid_parse, job_result, job_state
from penstock.cli.text import id_text, safe
from penstock.errors import JobspecError
from penstock.paths import memo_uri
from penstock.suggestion import with_suggestion

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from penstock.rows import BulkResponse, JobRow

STATES = {bit: name for name, bit in vars(job_state).items() if name.isupper()}
RESULTS = {bit: name for name, bit in vars(job_result).items() if name.isupper()}
ABBREVIATIONS = {
    "NEW": "N",
    "DEPEND": "D",
    "PRIORITY": "P",
    "SCHED": "S",
    "RUN": "R",
    "CLEANUP": "C",
    "COMPLETED": "CD",
    "FAILED": "F",
    "CANCELED": "CA",
    "TIMEOUT": "TO",
}
# In the order of the output; none is ever absent.
COPIED_KEYS = (
    "userid urgency priority queue state result status waitstatus returncode name ntasks nnodes "
    "ncores duration nodelist ranks t_submit t_run t_cleanup t_inactive max_rss_kib user_cpu "
    "system_cpu annotations"
).split()
ROW_KEYS = ("id", "id_int", *COPIED_KEYS, "exception", "reason")


def job_row(row: JobRow) -> dict[str, Any]:
    """A row of `job-list` under the command line's keys; absent values are None."""
    state = STATES[row["state"]]
    result = RESULTS.get(row.get("result", 0))
    words = {"state": state, "result": result, "status": result or state}
    shown = {"id": id_text(row["id"]), "id_int": row["id"]}
    shown |= {key: words[key] if key in words else row.get(key) for key in COPIED_KEYS}
    shown["exception"] = _exception(row)
    shown["reason"] = reason(row)
    return shown


def _exception(row: JobRow) -> dict[str, Any] | None:
    if not row.get("exception_occurred"):
        return None
    keys = ("type", "severity", "note")
    return {key: row.get(f"exception_{key}") for key in keys}


def reason(row: JobRow) -> str | None:
    """The reason why a job is pending, or why it failed; None if there is neither."""
    if row.get("exception_occurred") and row.get("exception_severity") == 0:
        note = row.get("exception_note")
        return f"{row['exception_type']}: {note}" if note else str(row["exception_type"])
    if row["state"] == job_state.DEPEND and row.get("dependencies"):
        return "depends on " + ", ".join(row["dependencies"])
    if row["state"] == job_state.SCHED and row.get("urgency") == 0:
        return "held"
    annotation = row.get("annotations", {}).get("sched", {}).get("reason_pending")
    pending = row.get("pending_reason") or annotation
    if pending:
        return str(pending)
    code = row.get("returncode", 0)
    if code == 0:
        return None
    signal = row.get("waitstatus", 0) & 0x7F
    return f"ended by signal {signal}" if signal else f"exited with code {code}"


def exit_code(row: JobRow) -> int:
    """The exit code for a job that has ended.

    It is `returncode`, that of the task with the greatest wait status (RFC 21), 128 + N if signal N
    ended it; an exit code other than 0 is greater there than any signal. A job that was denied,
    cancelled or failed by another exception and has none, or 0, has 1; after the time limit 143.
    """
    is_failed = row.get("exception_occurred") and row.get("exception_severity") == 0
    code = int(row.get("returncode", 0 if is_failed else 1))
    if is_failed and code == 0:
        return 143 if row["exception_type"] == "timeout" else 1
    return code


def nested_uri(row: JobRow) -> str | None:
    """The address of the instance in a running job; None if there is none."""
    return user_uri(row) if row["state"] == job_state.RUN else None


def user_uri(row: JobRow) -> str | None:
    """The address of an instance that the memo of a job gives; None if it gives none."""
    return memo_uri(row.get("annotations", {}).get("user", {}))


def tell(verb: str, errors: Mapping[int, str]) -> int:
    """Prints the error of each job whose request was rejected; returns the exit code."""
    for job, text in errors.items():
        name = fluid_f58(job)
        # The line starts with the name.
        rest = text.removeprefix(f"job {name} ").replace(f"no job {name}", "no such job")
        print(f"penstock {verb}: {id_text(job)}: {safe(with_suggestion(rest))}", file=sys.stderr)
    return 1 if errors else 0


def show_changes(verb: str, jobs: Collection[int], response: BulkResponse, done: str) -> int:
    """Prints how many of several named jobs were changed, and the errors; returns the exit code."""
    show_count(jobs, response.done, done)
    return tell_all(verb, response)


def tell_all(verb: str, response: BulkResponse) -> int:
    """Prints the errors of a response about several jobs; returns the exit code."""
    code = tell(verb, response.errors)
    if response.unlisted:
        print(f"penstock {verb}: {response.unlisted} more jobs failed", file=sys.stderr)
    return code


def show_count(jobs: Collection[int], count: int, done: str) -> None:
    """Prints how many of several named jobs were changed, such as `2 jobs cancelled`."""
    if len(jobs) > 1:
        print(count_text(count, done))


def count_text(count: int, done: str) -> str:
    """A number of jobs and what was done with them, such as `1 job cancelled`."""
    return f"{count} {'job' if count == 1 else 'jobs'} {done}"


def job_id(text: str) -> int:
    """An argument that is a job id, in any of RFC 19's forms.

    Raises:
        ArgumentTypeError: it is not; that is bad usage.
    """
    try:
        return fluid_parse(text)
    except JobspecError as error:
        raise ArgumentTypeError(str(error)) from None
