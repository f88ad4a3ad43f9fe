"""`penstock explain`: why a job is not running."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from penstock.cli.planned import answering, expected
from penstock.cli.rows import STATES, job_id, reason, tell
from penstock.cli.text import json_text, safe
from penstock.client import Client
from penstock.errors import NotFoundError, RpcError
from penstock.jobid import f58

if TYPE_CHECKING:
    import argparse

    from penstock.rows import JobRow

SUMMARY = """Tell why jobs wait: what they need, what there is of it, what they wait for, and when
they are expected to start."""

SCHED = 8


def register(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("--json", action="store_true", help="one object a job, with the numbers")
    parser.add_argument("id", nargs="+", type=job_id, metavar="ID")


def main(args: argparse.Namespace) -> int:
    """Runs the verb."""
    errors: dict[int, str] = {}
    answers: dict[int, dict[str, Any]] = {}
    with Client() as client:
        for job in args.id:
            try:
                answers[job] = _by_state(client.info(job))
            except NotFoundError as error:
                errors[job] = str(error)
            except RpcError as error:
                errors[job] = error.strerror or str(error)
        asked = [job for job, answer in answers.items() if not answer["reason"]]
        if asked:
            with answering("explain"):
                explained = client.explain(asked)
            answers |= {it["id"]: {**it} for it in explained.reasons}
            errors |= explained.errors
    now = time.time()
    for job in args.id:
        if job in errors or job not in answers:
            continue
        answer = {**answers[job], "id": f58(job), "id_int": job}
        if args.json:
            print(json_text(answer))
            continue
        print(f"{answer['id']}: {safe(answer['reason'])}")
        if answer.get("start") is not None:
            print(f"    {expected(answer, now)}")
    return tell("explain", errors)


def _by_state(row: JobRow) -> dict[str, Any]:
    """What the state of a job says by itself; no reason where the scheduler has to be asked."""
    state = STATES[row["state"]]
    told: dict[str, Any] = {"id": row["id"], "kind": state.lower()}
    if row["state"] == SCHED:
        held = row.get("urgency") == 0 or row.get("priority") == 0
        pending = row.get("pending_reason")
        text = "held: `penstock urgency JOB default` releases it" if held else pending
        return told | ({"kind": "held"} if held else {}) | {"reason": text or ""}
    if row["state"] < SCHED:
        return told | {"reason": reason(row) or f"not yet scheduled: it is in state {state}"}
    if state in ("RUN", "CLEANUP"):
        where = row.get("nodelist") or row.get("ranks") or ""
        return told | {"reason": f"it runs on {where}" if where else "it runs"}
    return told | {"reason": f"it is over: {reason(row) or 'completed'}"}
