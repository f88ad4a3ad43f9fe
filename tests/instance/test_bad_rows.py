"""Rows of the database with values that no reader accepts.

A start leaves them out, the check names them, and the repair removes them.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.instance.conftest import PENSTOCK

from penstock import ResourceSet
from penstock._core import JobManager, ResourceModule, check_store, repair_store
from penstock.client import Client
from penstock.errors import RpcError, StoreError
from penstock.jobspec import from_command

if TYPE_CHECKING:
    from pathlib import Path

NODES = ("--nodes=2", "--cores=2", "--exec=sim")

# As SQL: bytes, texts of other formats, numbers beyond all bounds.
VALUES = {
    "bytes": "x'ff'",
    "no-unicode": "CAST(x'ff' AS TEXT)",
    "text": "'garbage'",
    "greatest": "9223372036854775807",
    "infinite": "9e999",
    "empty": "''",
    "negative": "-1",
}

# Columns of texts or numbers of which any one may be right.
FREE = {
    ("meta", "value"): ["greatest"],
    ("submissions", "seq"): ["greatest", "negative"],
    ("submissions", "token"): ["text", "greatest", "infinite"],
    ("submissions", "digest"): ["greatest", "negative"],
    ("submissions", "time"): ["greatest", "negative"],
    ("submissions", "result"): ["text", "greatest", "infinite"],
    ("inputs", "line"): ["text", "greatest", "infinite", "empty", "negative"],
    ("inputs", "seq"): ["greatest"],
    ("kvs", "key"): ["text", "greatest", "infinite", "empty", "negative"],
    ("kvs", "value"): ["bytes", "text", "empty"],
    ("resource_events", "seq"): ["greatest", "negative"],
    ("purged_jobs", "job"): ["greatest", "negative"],
    ("ended_jobs", "seq"): ["greatest", "negative"],
    ("ended_jobs", "first"): ["greatest", "negative"],
    ("ended_jobs", "last"): ["greatest", "negative"],
    ("jobspecs", "id"): ["greatest"],
    ("open_submissions", "first"): ["negative"],
    ("common_events", "first"): ["negative"],
}


@pytest.fixture(scope="module")
def state(tmp_path_factory) -> Path:
    """The state directory of an instance that has ended, with rows in each table."""
    state = tmp_path_factory.mktemp("rows") / "state"
    socket = state / "socket"
    start = [*PENSTOCK, "start", "--state", str(state), "--socket", str(socket), *NODES]
    with subprocess.Popen(
        [*start, "--", "sh", "-c", "echo accepting; cat > /dev/null"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"accepting\n"
        with Client(f"local://{socket}", timeout=60) as client:
            spec = from_command(
                ["true"],
                environment={},
                cwd="/",
                setattr={"exec.test.run_duration": "0s"},
            )
            for _ in range(4):
                assert client.wait_row(client.submit(spec))["success"]
            held = client.submit(spec, count=20, urgency=0)[0]
            # Of a pending job with many events the facts are stored.
            for number in range(64):
                client.memo(held, {"number": number})
            running = from_command(["true"], environment={}, cwd="/", duration=3600.0)
            with client.eventlog(client.submit(running), follow=True) as events:
                assert any(event["name"] == "start" for event in events)
            client.queue_stop(everything=True)
            client.drain("1", reason="a reason")
        process.stdin.close()
    with closing(sqlite3.connect(state / "jobs.sqlite")) as database:
        (pending,) = database.execute("SELECT max(first) FROM common_events").fetchone()
        database.execute("INSERT INTO inputs VALUES (?, 0, '{}')", (pending,))
        database.execute("INSERT INTO kvs VALUES ('site.key', x'31')")
        database.execute("INSERT INTO unsent_starts VALUES (?)", (pending,))
        database.execute("INSERT INTO purged_jobs VALUES (1)")
        database.execute("INSERT INTO open_submissions VALUES (1, 1)")
        database.commit()
    return state


def columns(state: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(state / "jobs.sqlite")) as database:
        tables = database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        return [
            (table, column)
            for (table,) in tables.fetchall()
            for (column,) in database.execute("SELECT name FROM pragma_table_info(?)", (table,))
        ]


def damage(database: Path, table: str, column: str, value: str) -> bool:
    """Changes a column of one row; false if the database does not permit the value."""
    with closing(sqlite3.connect(database)) as connection:
        keys = connection.execute("SELECT name FROM pragma_table_info(?) WHERE pk > 0", (table,))
        names = ", ".join(name for (name,) in keys)
        row = f"SELECT {names} FROM {table} ORDER BY {names} LIMIT 1"
        update = f"UPDATE {table} SET {column} = {value} WHERE ({names}) = ({row})"
        try:
            changed = connection.execute(update).rowcount
        except sqlite3.IntegrityError:
            return False
        connection.commit()
        assert changed == 1, f"{table} is empty"
        return True


def start_once(database: Path) -> list[str]:
    """Restores job manager and resource module, as a start does. Returns the log."""
    settings = json.dumps({"owner": os.getuid()})
    manager = JobManager(database, settings, time.time())
    resources = ResourceModule(
        manager,
        ResourceSet.uniform("0-1", "node[0-1]", "0-1"),
        exclude=None,
        properties={},
        executable=None,
        now=time.time(),
    )
    manager.advance(time.time())
    log = [*manager.take_output(lambda _: True)[4], *resources.take_output()[1]]
    manager.commit()
    return log


@pytest.mark.parametrize("value", VALUES)
def test_a_bad_value_in_any_column_costs_its_row(state, tmp_path, value):
    whole = tmp_path / "whole"
    shutil.copytree(state, whole)
    assert start_once(whole / "jobs.sqlite") == []
    assert check_store(state / "jobs.sqlite") == []
    tried = 0
    for table, column in columns(state):
        copy = tmp_path / f"{table}-{column}"
        shutil.copytree(state, copy)
        database = copy / "jobs.sqlite"
        case = f"{table}.{column} = {value}"
        if value in FREE.get((table, column), ()) or not damage(
            database, table, column, VALUES[value]
        ):
            continue
        tried += 1
        try:
            problems = check_store(database)
        except StoreError as error:
            # Whether the database went back in time is unknown then.
            assert table == "store", case
            problems = [str(error)]
            assert "penstock store repair" in problems[0], case
            with pytest.raises(StoreError, match="penstock store"):
                start_once(database)
        else:
            assert problems, case
            started = tmp_path / "started"
            shutil.copytree(copy, started)
            if table != "store":
                log = start_once(started / "jobs.sqlite")
                if (table, column) in {("meta", "value"), ("resource_events", "line")}:
                    assert any(f"of `{table}` is left out: " in line for line in log), case
            shutil.rmtree(started)
        repair_store(database)
        assert check_store(database) == [], case
        start_once(database)
        shutil.rmtree(copy)
    assert tried >= 20


# Of the first and of the last row; `{id}` is the greatest id.
EVENTS = [
    ("events", "lines", "''"),
    ("events", "lines", "'x'"),
    ("common_events", "lines", "''"),
    ("common_events", "last", "{id}"),
    ("common_events", "last", "first - 1"),
    ("common_events", "first", "-1"),
    ("common_events", "step", "1e308"),
]


@pytest.mark.parametrize("order", ["ASC", "DESC"])
@pytest.mark.parametrize(("table", "column", "value"), EVENTS)
def test_a_damaged_row_of_events_costs_its_jobs_alone(
    state, start, tmp_path, table, column, value, order
):
    shutil.copytree(state, tmp_path / "state")
    named, key = ("job, job", "job, seq") if table == "events" else ("first, last", "seq, first")
    with closing(sqlite3.connect(tmp_path / "state" / "jobs.sqlite")) as database:
        jobs = {job for (job,) in database.execute("SELECT id FROM jobs")}
        ordered = ", ".join(f"{name} {order}" for name in key.split(", "))
        row = database.execute(
            f"SELECT {named}, {key} FROM {table} ORDER BY {ordered} LIMIT 1"
        ).fetchone()
        first, last = row[:2]
        value = value.format(id=max(jobs))
        database.execute(f"UPDATE {table} SET {column} = {value} WHERE ({key}) = (?, ?)", row[2:])
        database.commit()
    with start(*NODES) as instance, Client(instance.uri, timeout=60) as client:
        known = {row["id"] for row in client.job_rows(max_entries=0, constraint={})}
        assert {job for job in jobs - known if not first <= job <= last} == set()
        active = [row["id"] for row in client.job_rows(max_entries=0) if row["state"] != 64]
        client.cancel(active)
        assert len(list(client.wait_rows(active))) == len(active)
        assert client.submit(from_command(["true"], environment={})) not in jobs


def test_an_instance_starts_without_bad_rows_and_its_next_ids_are_new(state, start, tmp_path):
    shutil.copytree(state, tmp_path / "state")
    database = tmp_path / "state" / "jobs.sqlite"
    assert damage(database, "resource_events", "line", "'garbage'")
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("UPDATE meta SET value = 'garbage'")
        connection.commit()
    with start(*NODES) as instance, Client(instance.uri, timeout=60) as client:
        # Without the service `log`, which is there later, warnings are in the standard error alone.
        log = "\n".join([(tmp_path / "state.log").read_text(), *instance.lines("dmesg")])
        assert "store: row 1 of `resource_events` is left out: " in log
        for key in ("epoch_ms", "queues"):
            assert f"store: row `{key}` of `meta` is left out: " in log
        known = {row["id"] for row in client.job_rows(max_entries=0)}
        assert len(known) == 25
        spec = from_command(["true"], environment={}, cwd="/", duration=1.0)
        job = client.submit(spec)
        assert job > max(known)
        assert client.wait_row(job)["success"]
        # A damaged value is not read, and costs no more than that.
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("UPDATE kvs SET value = 5")
            connection.commit()
        with pytest.raises(RpcError):
            client.rpc("kvs.lookup", {"key": "site.key", "flags": 0})
        assert client.wait_row(client.submit(spec))["success"]
