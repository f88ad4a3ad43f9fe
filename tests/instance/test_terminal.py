"""Job names, notes and reasons are escaped before they reach a terminal."""

from __future__ import annotations

import json

import pytest

from penstock.client import Client
from penstock.errors import RpcError
from penstock.jobspec import from_command

EVIL = "ev\x1b[31mil\nƒrow2 root \x9b\x7f"
TAME = r"ev\x1b[31mil\nƒrow2 root \x9b\x7f"


@pytest.fixture
def sim(start):
    with start("--nodes=2", "--cores=2") as instance:
        yield instance


def test_names_notes_and_reasons_are_escaped_and_tables_keep_their_rows(sim):
    with Client(sim.uri) as client:
        spec = from_command(["true"], name=EVIL, duration=3600.0, environment={}, cwd="/")
        submitted = client.submit(spec, urgency=0)
        client.memo(submitted, {EVIL: EVIL})
        client.cancel([submitted], note=EVIL)
        client.wait_one(submitted)
        client.drain("1", EVIL)
        client.queue_stop(reason=EVIL)
        client.log_append(EVIL)
    job = str(submitted)
    shown = {
        "jobs": ["jobs", "-a", "-o", "{name} {info} {annotations}"],
        "table": ["jobs", "-a"],
        "wait": ["wait", "-v", job],
        "info": ["info", job],
        "eventlog": ["eventlog", job],
        "queue": ["queue", "list"],
        "status": ["resource", "status"],
        "drain": ["resource", "drain"],
        "history": ["resource", "history"],
        "dmesg": ["dmesg"],
        "json": ["jobs", "-a", "--json"],
        "events": ["eventlog", "--json", job],
        "spec": ["info", job, "jobspec"],
    }
    texts = {}
    for what, args in shown.items():
        texts[what] = sim.penstock(*args).stdout
        assert all(line.isprintable() for line in texts[what].split("\n")), what
    for what in ("jobs", "wait", "info", "queue", "status", "drain", "history"):
        assert TAME in texts[what], what
    assert [len(texts[what].splitlines()) for what in ("jobs", "table", "wait", "queue")] == [
        *(2, 2, 1, 2)
    ]
    assert r"ev\x1b[31mil" + "\n    ƒrow2 root " + r"\x9b\x7f" in texts["dmesg"]
    assert json.loads(texts["json"])["name"] == EVIL
    assert json.loads(texts["spec"])["attributes"]["system"]["job"]["name"] == EVIL


def test_exception_notes_are_escaped(sim):
    done = sim.penstock("submit", "--dependency", "afterok:ƒ1", "--job-name", EVIL, "true")
    assert done.returncode == 1
    with Client(sim.uri) as client:
        spec = from_command(["true"], queue=EVIL, environment={}, cwd="/")
        with pytest.raises(RpcError) as caught:
            client.submit_many([{"jobspec": spec}])
    done = sim.penstock("submit", "-q", EVIL, "true")
    assert EVIL in caught.value.strerror
    assert all(line.isprintable() for line in done.stderr.split("\n"))
    # A request with a jobspec for each copy.
    options = ["--cc=1-2", "--dependency=begin-time:{cc}", "-q", EVIL]
    done = sim.penstock("submit", *options, "true")
    assert done.stderr.startswith("penstock submit: no job is submitted: --cc=1-2: ")
    assert all(line.isprintable() for line in done.stderr.split("\n"))
