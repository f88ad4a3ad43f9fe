"""`explain`, `estimate` and `what-if` against a fake instance."""

from __future__ import annotations

import errno
import json
import os

import pytest
from virtualtime import SteppedClock

from penstock import cli
from penstock.cli.planned import accuracy, parts
from penstock.cli.text import clock, span
from penstock.cli.whatif import _complete
from penstock.errors import Error

NOW = 1_800_000_000.0
PENDING_JOB = {"id": 1, "userid": 0, "urgency": 16, "t_submit": NOW, "state": 8, "name": "a"}
PENDING_JOB |= {"ntasks": 1, "ncores": 1, "duration": 60.0, "exception_occurred": False}
NO_ACCURACY = {"count": 0, "mean": 0.0, "low": 0.0, "median": 0.0, "high": 0.0}
REASON = {"id": 1, "kind": "insufficient", "reason": "needs\x1b 4 nodes", "details": {"free": 3}}


def main(arguments):
    """Runs a command line at `NOW`."""
    return cli.main(arguments, SteppedClock(NOW))


@pytest.fixture
def say(fake):
    """Makes the instance answer a topic with this."""

    def make(topic, payload=None, **error):
        fake.methods[topic] = lambda request: [request.respond(payload, **error)]

    return make


def requested(fake, topic):
    return fake.wait_for(topic).object()


def test_many_jobs_are_explained_and_estimated_in_parts():
    jobs = list(range(2500))
    assert [len(part) for part in parts(jobs)] == [1000, 1000, 500]
    assert [job for part in parts(jobs) for job in part] == jobs
    assert list(parts([])) == []


def test_pending_jobs_are_explained_by_the_scheduler(fake, say, capsys):
    say("job-list.list-id", {"job": PENDING_JOB})
    band = {"start": NOW + 720, "earliest": NOW + 180, "latest": NOW + 1200}
    say("sched.explain", {"jobs": [REASON | band], "errors": {}})
    assert main(["explain", "ƒ2"]) == 0
    assert requested(fake, "sched.explain") == {"ids": [1]}
    lines = capsys.readouterr().out.splitlines()
    between = "by the estimates so far, between 3 min and 20 min from now in 80 % of cases"
    assert lines == [
        r"ƒ2: needs\x1b 4 nodes",
        f"    starts in 12 min ({clock(NOW + 720, NOW)}) by the time limits of jobs; {between}",
    ]
    assert main(["explain", "--json", "ƒ2"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row == REASON | band | {"id": "ƒ2", "id_int": 1}


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"urgency": 0}, "held: "),
        ({"pending_reason": "queue stopped"}, "queue stopped"),
        ({"state": 2, "dependencies": ["after:ƒ3"]}, "depends on after:ƒ3"),
        ({"state": 4}, "not yet scheduled: it is in state PRIORITY"),
        ({"state": 16, "nodelist": "n0"}, "it runs on n0"),
        ({"state": 64, "result": 1}, "it has ended: completed"),
        ({"state": 64, "returncode": 3, "waitstatus": 768}, "it has ended: exited with code 3"),
    ],
)
def test_other_states_are_explained_without_a_request(fake, say, capsys, row, text):
    say("job-list.list-id", {"job": PENDING_JOB | row})
    assert main(["explain", "ƒ2"]) == 0
    assert capsys.readouterr().out.startswith(f"ƒ2: {text}")
    while not fake.received.empty():
        assert fake.received.get().topic != "sched.explain"


def test_errors_are_printed_job_by_job(fake, say, capsys):
    say("job-list.list-id", {"job": PENDING_JOB})
    say("sched.explain", {"jobs": [], "errors": {"1": "job ƒ2 is another user's"}})
    assert main(["explain", "ƒ2"]) == 1
    assert capsys.readouterr() == ("", "penstock explain: ƒ2: is another user's\n")
    say("job-list.list-id", errnum=errno.ENOENT, errtext="unknown job id")
    assert main(["explain", "ƒ2"]) == 1
    assert "unknown job id" in capsys.readouterr().err


def test_estimates_are_a_table_and_tell_how_good_they_were(fake, say, capsys):
    jobs = [
        {"id": 1, "start": NOW + 90},
        {"id": 2, "start": None, "reason": "needs 2 gpus"},
        {"id": 3, "start": NOW + 7200, "earliest": NOW + 60, "latest": NOW + 9000},
    ]
    seen = {"count": 12, "mean": -120.0, "low": -3600.0, "median": 0.0, "high": 0.5}
    say("sched.estimate", {"jobs": jobs, "accuracy": seen, "errors": {}})
    assert main(["estimate"]) == 0
    assert requested(fake, "sched.estimate") == {"max_entries": 100}
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["JOBID", "START", "IN", "EARLIEST", "LATEST", "INFO"]
    assert lines[1] == ["ƒ2", *clock(NOW + 90, NOW).split(), "90", "s", "-", "-"]
    assert lines[2] == ["ƒ3", "-", "-", "-", "-", "needs", "2", "gpus"]
    assert lines[3][-1] == clock(NOW + 9000, NOW).split()[-1]
    text = "12 starts so far were 2 min early on average, 80 % of them between 60 min early and "
    assert " ".join(lines[4]) == text + "on time"
    say("sched.estimate", {"jobs": jobs[:1], "accuracy": seen, "errors": {"5": "it runs"}})
    fake.methods["job-list.list-id"] = lambda request: [
        request.respond({"job": PENDING_JOB | {"id": request.object()["id"]}})
    ]
    assert main(["estimate", "--json", "ƒ2", "ƒ6"]) == 1
    assert fake.wait_for("sched.estimate").object() == {"ids": [1, 5]}
    out, err = capsys.readouterr()
    assert json.loads(out) == {"id": "ƒ2", "id_int": 1, "start": NOW + 90}
    assert err == "penstock estimate: ƒ6: it runs\n"


def test_why_nothing_is_expected_of_a_job(fake, say, capsys):
    say("job-list.list-id", {"job": PENDING_JOB | {"urgency": 0}})
    assert main(["estimate", "ƒ2"]) == 0
    held = "held: `penstock urgency JOB default` releases it"
    title, line = capsys.readouterr().out.splitlines()
    assert title.split()[0] == "JOBID"
    assert line.split(maxsplit=5) == ["ƒ2", "-", "-", "-", "-", held]
    assert main(["estimate", "--json", "ƒ2"]) == 0
    row = {"id": "ƒ2", "id_int": 1, "start": None, "reason": held}
    assert json.loads(capsys.readouterr().out) == row
    say("job-list.list-id", errnum=errno.ENOENT, errtext="unknown job id")
    assert main(["estimate", "ƒ2"]) == 1
    assert capsys.readouterr() == ("", "penstock estimate: ƒ2: unknown job id\n")
    while not fake.received.empty():
        assert fake.received.get().topic != "sched.estimate"


def test_an_empty_queue(say, capsys):
    say("sched.estimate", {"jobs": [], "accuracy": NO_ACCURACY, "errors": {}})
    assert main(["estimate"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "no job is pending"


def test_without_a_name_one_s_own_pending_jobs_are_explained(fake, say, answers, capsys):
    rows = [PENDING_JOB | {"id": job, "priority": priority} for job, priority in ((3, 16), (1, 16))]
    rows.append(PENDING_JOB | {"id": 2, "priority": 20})
    fake.methods["job-list.list"] = answers({"jobs": rows})
    fake.methods["job-list.list-id"] = lambda request: [
        request.respond({"job": PENDING_JOB | {"id": request.object()["id"]}})
    ]
    say("sched.explain", {"jobs": [REASON | {"id": 2}, REASON], "errors": {}})
    assert main(["explain", "-c", "2"]) == 0
    wanted = requested(fake, "job-list.list")["constraint"]
    assert wanted == {"and": [{"states": ["pending"]}, {"userid": [os.getuid()]}]}
    assert requested(fake, "sched.explain") == {"ids": [2, 1]}
    assert [line[:3] for line in capsys.readouterr().out.splitlines()] == ["ƒ3:", "ƒ2:"]
    fake.methods["job-list.list"] = answers({"jobs": []})
    assert main(["explain"]) == 0
    assert capsys.readouterr().out == "none of your jobs is pending\n"


def test_few_starts_make_no_band():
    assert accuracy(NO_ACCURACY | {"count": 1}) == "1 start so far was on time"
    assert accuracy(NO_ACCURACY) == "no start has been compared with its estimate yet"
    few = NO_ACCURACY | {"count": 2, "mean": 61.0}
    assert accuracy(few) == "2 starts so far were 61 s late on average"


@pytest.mark.parametrize(
    ("args", "change"),
    [
        (["cancel", "ƒ2"], {"cancel": 1}),
        (["fit", "ƒ2"], {"fit": 1}),
        (["change", "-N", "3", "ƒ2"], {"job": 1, "nodes": 3}),
        (["change", "-t", "30m", "ƒ2"], {"job": 1, "duration": 1800.0}),
        (["down", "1-2"], {"down": "1-2"}),
        (["up", "n[1-2]"], {"up": "1-2"}),
    ],
    ids=" ".join,
)
def test_a_change_is_sent(fake, say, capsys, args, change):
    r = {"version": 1, "execution": {"R_lite": [{"rank": "0-2", "children": {"core": "0"}}]}}
    r["execution"]["nodelist"] = ["n[0-2]"]
    say("resource.sched-status", {"all": r, "down": {}, "allocated": {}})
    moved = [{"id": 1, "before": NOW + 600, "after": NOW}, {"id": 2, "before": None, "after": NOW}]
    moved.append({"id": 3, "before": NOW, "after": NOW + 0.07})
    say("sched.what-if", {"text": "2 jobs would start earlier", "moved": moved})
    assert main(["what-if", *args]) == 0
    assert requested(fake, "sched.what-if") == change
    now, later = clock(NOW, NOW), clock(NOW + 600, NOW)
    assert capsys.readouterr().out.splitlines() == [
        "2 jobs would start earlier",
        f"  ƒ2: {later} → {now} (10 min earlier)",
        f"  ƒ3: not foreseen → {now}",
        f"  ƒ4: {now} → {now} (less than 1 s later)",
    ]


CONFIG = {
    "queues": {
        "a": {"requires": ["big"], "constraint": {"ranks": ["0-3"]}},
        "b": {"policy": {"jobspec": {"defaults": {"system": {"duration": 60.0}}}}},
    },
    "policy": {"jobspec": {"defaults": {"system": {"duration": 3600.0, "queue": "b"}}}},
}


@pytest.mark.parametrize(
    ("config", "args", "system"),
    [
        ({}, [], {"duration": 0.0}),
        (CONFIG, [], {"duration": 60.0, "queue": "b"}),
        (CONFIG, ["-t", "5"], {"duration": 300.0, "queue": "b"}),
        (
            *(CONFIG, ["-q", "a"]),
            {
                "duration": 3600.0,
                "queue": "a",
                "constraints": {"and": [{"ranks": ["0-3"]}, {"properties": ["big"]}]},
            },
        ),
    ],
)
def test_a_jobspec_is_sent_as_it_would_be_submitted(fake, say, capsys, config, args, system):
    say("config.get", config)
    say("sched.what-if", {"text": "would start now", "moved": []})
    assert main(["what-if", "submit", "--urgency", "5", *args, "true"]) == 0
    change = requested(fake, "sched.what-if")
    found = change["submit"]["attributes"]["system"]
    keys = ("duration", "queue", "constraints")
    assert {key: found[key] for key in keys if key in found} == system
    assert change["urgency"] == 5
    assert capsys.readouterr().out == "would start now\n"


def test_the_command_of_a_job_makes_no_difference(fake, say, capsys):
    say("config.get", {})
    say("sched.what-if", {"text": "would start now", "moved": []})
    assert main(["what-if", "submit", "-N", "2"]) == 0
    assert "submit" in requested(fake, "sched.what-if")
    assert capsys.readouterr().out == "would start now\n"


def test_an_empty_job_is_rejected_in_the_name_of_the_verb(capsys):
    assert main(["submit", "-N", "2"]) == 2
    assert capsys.readouterr().err == "penstock submit: expected a command\n"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "queue `c`: no queues are configured"),
        (CONFIG, "unknown queue `c`: expected a, b"),
    ],
)
def test_a_job_of_an_unknown_queue_is_rejected(fake, say, capsys, config, message):
    say("config.get", config)
    assert main(["what-if", "submit", "-q", "c", "true"]) == 1
    assert message in capsys.readouterr().err


def test_unknown_nodes_are_an_error(fake, say, capsys):
    r = {"version": 1, "execution": {"R_lite": [{"rank": "0", "children": {"core": "0"}}]}}
    r["execution"]["nodelist"] = ["n0"]
    say("resource.sched-status", {"all": r, "down": {}, "allocated": {}})
    assert main(["what-if", "down", "3"]) == 1
    text = "`3`: expected ranks or hosts that the scheduler may use: n0"
    assert text in capsys.readouterr().err
    assert main(["what-if", "down", "m1"]) == 1
    assert "unknown host `m1`" in capsys.readouterr().err


@pytest.mark.parametrize("args", [["fit"], ["cancel"], ["change", "-N", "1"]], ids=" ".join)
def test_an_unknown_job_is_an_error(fake, say, capsys, args):
    text = "`fit`: ƒ2 is not pending in the scheduler"
    say("sched.what-if", errnum=errno.EINVAL, errtext=text)
    say("job-list.list-id", errnum=errno.ENOENT, errtext="no job ƒ2")
    assert main(["what-if", *args, "ƒ2"]) == 1
    assert capsys.readouterr() == ("", "penstock what-if: ƒ2: no such job\n")
    # There is one, which runs.
    say("job-list.list-id", {"job": PENDING_JOB | {"state": 16}})
    assert main(["what-if", *args, "ƒ2"]) == 1
    assert capsys.readouterr() == ("", f"penstock what-if: {text}\n")


@pytest.mark.parametrize(
    ("args", "topic"),
    [(["estimate"], "sched.estimate"), (["what-if", "cancel", "ƒ2"], "sched.what-if")],
)
def test_an_error_of_the_scheduler_is_reported(fake, say, capsys, args, topic):
    say(topic, errnum=errno.EINVAL, errtext="ids: expected a list of job ids")
    say("job-list.list-id", {"job": PENDING_JOB})
    assert main(args) == 1
    assert "ids: expected a list of job ids" in capsys.readouterr().err


def test_spans_and_times_are_short():
    spans = [span(seconds) for seconds in (-3.0, 0.0, 89.6, 150.0, 7300.0, 4e5)]
    assert spans == ["0 s", "0 s", "90 s", "2 min", "2 h", "5 d"]
    assert len(clock(NOW, NOW)) == 8
    assert len(clock(NOW + 5e5, NOW)) == 16
    assert clock(1e300, NOW) == "1e+300"


# --- the jobspec of `what-if submit`


@pytest.mark.parametrize(
    ("queues", "text"),
    [
        ({}, "queue `nosuch`: no queues are configured"),
        ({"debug": {}, "batch": {}}, "unknown queue `nosuch`: expected batch, debug"),
    ],
)
def test_an_invalid_queue_is_an_error(queues, text):
    spec = {"attributes": {"system": {"queue": "nosuch"}}}
    with pytest.raises(Error, match=text):
        _complete(spec, {"queues": queues})


def test_a_job_without_a_queue_gets_the_default_one():
    spec = {"attributes": {"system": {}}}
    defaults = {"jobspec": {"defaults": {"system": {"queue": "batch", "duration": 60.0}}}}
    _complete(spec, {"queues": {"batch": {"requires": ["big"]}}, "policy": defaults})
    assert spec["attributes"]["system"] == {
        "queue": "batch",
        "duration": 60.0,
        "constraints": {"properties": ["big"]},
    }
