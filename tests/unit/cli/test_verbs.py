"""Verbs against a fake instance: requests, output, exit codes."""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from datetime import datetime

import openmetrics
import pytest
from virtualtime import SteppedClock

from penstock.cli import main
from penstock.cli.jobs import since
from penstock.jobid import f58

BULK_RESPONSE = {"count": 1, "errors": {}}
PARTIAL_RESPONSE = {"count": 1, "errors": {"1": "no job ƒ2"}}


@pytest.fixture
def say(fake):
    """Makes the instance answer a topic with this."""

    def make(topic, payload=None, **error):
        fake.methods[topic] = lambda request: [request.respond(payload, **error)]

    return make


def requested(fake, topic):
    return fake.wait_for(topic).object()


@pytest.mark.parametrize(
    "args",
    [
        ["urgency", "ƒ2"],
        ["urgency", "ƒ2", "32"],
        ["urgency", "ƒ2", "soon"],
        ["kill", "-s", "NONE", "ƒ2"],
        ["kill", "-s", "0", "ƒ2"],
        ["kill"],
        ["memo", "ƒ2"],
        ["memo", "ƒ2", "word"],
        ["memo", "ƒ2", "ƒ3", "note=x"],
        ["memo", "ƒ2", "=x"],
        ["memo", "ƒ2", ""],
        ["update", "ƒ2"],
        ["update", "ƒ2", "queue=a"],
        ["update", "ƒ2", "duration=soon"],
        ["update", "ƒ2", "duration=+inf"],
        ["update", "ƒ2", "duration=0"],
        ["purge"],
        ["purge", "--force"],
        ["purge", "--age-limit", "soon"],
        ["purge", "--age-limit", "inf"],
        ["purge", "--num-limit", "-1"],
        ["purge", "--user", "no-such-user"],
        ["dmesg", "-c", "-C"],
        ["ping"],
        ["ping", "-c", "x", "sched"],
        ["queue"],
        ["queue", "pause"],
        ["queue", "drain", "-t", "soon"],
        ["cancel", "--states", "inactive"],
        ["cancel", "--states", "sched", "ƒ2"],
        ["cancel", "-u", "no-such-user"],
        ["jobs", "-u", "no-such-user"],
        ["jobs", "--since", "soon"],
        ["jobs", "-c", "-1"],
        ["submit", "--dependency", "begin-time:-3", "true"],
        ["jobs", "--since", "@nan"],
        ["submit", "--flags", "debug", "true"],
        ["submit", "--flags", "novalidate", "true"],
        ["submit", "--flags", "odd", "true"],
        ["explain", "x"],
        ["estimate", "-c", "x"],
        ["what-if"],
        ["what-if", "change", "ƒ2"],
        ["what-if", "change", "ƒ2", "-N", "2", "-t", "3"],
        ["what-if", "fit"],
        ["what-if", "submit", "--cc", "0-1", "true"],
    ],
    ids=" ".join,
)
def test_bad_usage_exits_with_2_before_any_request(args, capsys, monkeypatch):
    monkeypatch.setenv("PENSTOCK_URI", "local:///nowhere")
    assert main(args) == 2
    assert capsys.readouterr().err


def test_rejections_are_printed_job_by_job(fake, say, capsys):
    say("job-manager.urgency", PARTIAL_RESPONSE)
    assert main(["urgency", "ƒ2", "ƒ3", "expedite"]) == 1
    assert requested(fake, "job-manager.urgency") == {"ids": [1, 2], "urgency": 31}
    assert capsys.readouterr() == ("1 job changed\n", "penstock urgency: ƒ2: no such job\n")
    say("job-manager.urgency", {**PARTIAL_RESPONSE, "unlisted": 9})
    assert main(["urgency", "ƒ2", "ƒ3", "expedite"]) == 1
    assert requested(fake, "job-manager.urgency")["urgency"] == 31
    assert capsys.readouterr().err.endswith("\npenstock urgency: 9 more jobs failed\n")
    say("job-manager.urgency", BULK_RESPONSE)
    assert main(["urgency", "ƒ2", "hold"]) == 0
    assert requested(fake, "job-manager.urgency")["urgency"] == 0
    assert capsys.readouterr() == ("", "")
    say("job-manager.kill", {"count": 0, "errors": {"1": "job ƒ2 is not running"}})
    assert main(["kill", "ƒ2"]) == 1
    assert capsys.readouterr().err == "penstock kill: ƒ2: is not running\n"


@pytest.mark.parametrize("name", ["USR1", "sigusr1", str(signal.SIGUSR1.value)])
def test_signals_have_names_and_numbers(fake, say, name):
    say("job-manager.kill", BULK_RESPONSE)
    assert main(["kill", "-s", name, "ƒ2"]) == 0
    assert requested(fake, "job-manager.kill") == {"ids": [1], "signum": signal.SIGUSR1}


def test_memos_are_json_or_text(fake, say):
    say("job-manager.memo")
    assert main(["memo", "ƒ2", "n=1", "text=a b", "gone=null", "list=[1]"]) == 0
    expected = {"n": 1, "text": "a b", "gone": None, "list": [1]}
    assert requested(fake, "job-manager.memo") == {"id": 1, "memo": expected}


@pytest.mark.parametrize(
    ("change", "duration"),
    [
        ("duration=2h", 7200.0),
        ("attributes.system.duration=30", 30.0),
        ("duration=+1m", 660.0),
        ("duration=-1m", 540.0),
        ("duration=inf", 0.0),
    ],
)
def test_a_time_limit_is_set_or_changed(fake, say, change, duration):
    say("job-list.list-id", {"job": {"id": 1, "duration": 600.0}})
    say("job-manager.update")
    assert main(["update", "ƒ2", change]) == 0
    updates = {"attributes.system.duration": duration}
    assert requested(fake, "job-manager.update") == {"id": 1, "updates": updates}


@pytest.mark.parametrize(
    ("duration", "change", "text"),
    [
        (0.0, "duration=+1m", "it has no time limit to change: set one with `duration=FSD`"),
        (60.0, "duration=-1m", "its time limit is 60s: the result would not be positive"),
    ],
)
def test_an_invalid_change_is_an_error(fake, say, capsys, duration, change, text):
    say("job-list.list-id", {"job": {"id": 1, "duration": duration}})
    assert main(["update", "ƒ2", change]) == 1
    assert capsys.readouterr().err == f"penstock update: ƒ2: {text}\n"


def test_a_rejected_update_does_not_affect_others(fake, capsys):
    def update(request):
        bad = request.object()["id"] == 1
        yield request.respond(errnum=errno.EPERM, errtext="no") if bad else request.respond()

    fake.methods["job-manager.update"] = update
    assert main(["update", "ƒ2", "ƒ3", "duration=1h"]) == 1
    assert capsys.readouterr() == ("1 job updated\n", "penstock update: ƒ2: no\n")
    assert [requested(fake, "job-manager.update")["id"] for _ in range(2)] == [1, 2]


@pytest.mark.parametrize(
    ("words", "topic", "done"),
    [
        (["urgency", "{}", "3"], "urgency", "changed"),
        (["cancel", "{}"], "raise", "cancelled"),
        (["raise", "-s2", "-tx", "{}"], "raise", "got the exception"),
        (["kill", "{}"], "kill", "signalled"),
    ],
)
def test_the_number_of_changed_jobs_is_printed_if_several_are_named(
    fake, say, capsys, words, topic, done
):
    def run(*jobs):
        args = [job for word in words for job in (jobs if word == "{}" else [word])]
        code = main(args)
        return code, capsys.readouterr().out

    say(f"job-manager.{topic}", {"count": 2, "errors": {}})
    assert run("ƒ2", "ƒ3") == (0, f"2 jobs {done}\n")
    say(f"job-manager.{topic}", {"count": 1, "errors": {}})
    assert run("ƒ2") == (0, "")


def test_many_updates_are_sent_in_parts(fake, capsys):
    def rows(request):
        job = request.object()["id"]
        if job == 3:
            yield request.respond(errnum=errno.ENOENT, errtext="no job ƒ4")
        else:
            yield request.respond({"job": {"id": job, "duration": 60.0 * (job != 5)}})

    fake.methods["job-list.list-id"] = rows
    fake.methods["job-manager.update"] = lambda request: [request.respond()]
    jobs = range(1, 601)
    assert main(["update", *map(f58, jobs), "duration=+1m"]) == 1
    out, err = capsys.readouterr()
    assert out == "598 jobs updated\n"
    assert [line.split(":")[1:2] for line in err.splitlines()] == [[" ƒ4"], [" ƒ6"]]
    topics = received_topics(fake)
    assert topics.count("job-manager.update") == 598
    # The first part is updated before the second one is read.
    assert topics.index("job-manager.update") == 250


def test_purging_is_shown_before_it_is_done(fake, say, capsys):
    say("job-manager.purge", {"count": 1, "inactives": 5})
    assert main(["purge", "--age-limit", "1d", "--num-limit", "0"]) == 0
    assert requested(fake, "job-manager.purge") == {
        "force": False,
        "age_limit": 86400.0,
        "num_limit": 0,
    }
    assert capsys.readouterr().out == "1 inactive job would be purged of 5 (--force does it)\n"
    assert main(["purge", "--force", "ƒ2", "ƒ3"]) == 0
    assert requested(fake, "job-manager.purge") == {"force": True, "ids": [1, 2]}
    assert capsys.readouterr().out == "1 inactive job purged, 5 left\n"
    assert main(["purge", "--user", "1234"]) == 0
    assert requested(fake, "job-manager.purge") == {"force": False, "userid": 1234}
    assert capsys.readouterr().out == "1 inactive job would be purged of 5 (--force does it)\n"
    assert main(["purge", "--json", "ƒ2"]) == 0
    assert json.loads(capsys.readouterr().out) == {"count": 1, "inactives": 5}


def test_queues_are_listed_with_their_reasons(fake, say, capsys):
    states = {
        "batch": {"enable": True, "start": True},
        "debug": {"enable": False, "start": False, "disable_reason": "old", "stop_reason": "late"},
    }
    say("job-manager.queue-list", {"queues": list(states)})
    fake.methods["job-manager.queue-status"] = lambda request: [
        request.respond(states[request.object()["name"]])
    ]
    assert main(["queue", "list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "QUEUE        SUBMIT   START    REASON",
        "batch        enabled  started",
        "debug        disabled stopped  old; late",
    ]
    assert main(["queue", "status", "--json", "debug"]) == 0
    assert json.loads(capsys.readouterr().out) == {"name": "debug", **states["debug"]}


def test_the_queue_without_a_name_is_one(fake, say, capsys):
    say("job-manager.queue-list", {"queues": []})
    say("job-manager.queue-status", {"enable": True, "start": False})
    assert main(["queue", "list"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "-            enabled  stopped"
    assert requested(fake, "job-manager.queue-status") == {}
    assert main(["queue", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] is None


@pytest.mark.parametrize(
    ("args", "topic", "payloads"),
    [
        (["enable"], "enable", [{"enable": True, "all": False}]),
        (["start", "-a"], "start", [{"start": True, "all": True}]),
        (
            ["disable", "-m", "no more", "a", "b"],
            "enable",
            [
                {"enable": False, "all": False, "name": name, "reason": "no more"}
                for name in ("a", "b")
            ],
        ),
        (["stop", "a"], "start", [{"start": False, "all": False, "name": "a"}]),
    ],
)
def test_queues_are_switched(fake, say, args, topic, payloads):
    say(f"job-manager.queue-{topic}")
    assert main(["queue", *args]) == 0
    for payload in payloads:
        assert requested(fake, f"job-manager.queue-{topic}") == payload


@pytest.mark.parametrize(("verb", "topic"), [("drain", "drain"), ("idle", "idle")])
def test_waiting_for_queues_may_be_limited(fake, say, capsys, verb, topic):
    assert main(["queue", verb, "-t", "10ms"]) == 1
    assert capsys.readouterr().err == "penstock queue: timed out\n"
    say(f"job-manager.{topic}")
    assert main(["queue", verb]) == 0


def test_the_log_is_shown_and_cleared(fake, answers, say, capsys):
    row = {"timestamp": 1.5, "level": "warning", "component": "broker", "text": "ƒ\n\x1b"}
    row["sequence"] = 7
    fake.methods["log.dmesg"] = answers({"lines": [row]})
    say("log.clear")
    assert main(["dmesg", "-c"]) == 0
    when = datetime.fromtimestamp(1.5).astimezone().isoformat(sep=" ", timespec="milliseconds")
    assert capsys.readouterr().out == f"{when} broker warning: ƒ\n    \\x1b\n"
    assert requested(fake, "log.dmesg") == {"follow": False, "nobacklog": False, "rows": True}
    assert requested(fake, "log.clear") == {"upto": 7}
    assert main(["dmesg", "-C"]) == 0
    assert requested(fake, "log.clear") == {}
    assert main(["dmesg", "-f", "--new", "--json"]) == 0
    assert requested(fake, "log.dmesg") == {"follow": True, "nobacklog": True, "rows": True}
    assert [json.loads(text) for text in capsys.readouterr().out.splitlines()] == [row]


def test_pings_are_counted(fake, capsys):
    fake.methods["kvs.ping"] = lambda request: [request.respond(request.object())]
    assert main(["ping", "-c", "3", "-i", "0", "kvs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["kvs.ping", f"seq={n}"] for n in range(3)]
    assert [requested(fake, "kvs.ping") for _ in range(3)] == [{"seq": n} for n in range(3)]
    assert main(["ping", "-c", "1", "--json", "kvs"]) == 0
    assert json.loads(capsys.readouterr().out)["service"] == "kvs"


def test_stats_are_flat_or_json(say, capsys):
    stats = {"jobs": {"active": 1, "by": {}}, "state": "ready"}
    say("job-manager.stats-get", stats)
    assert main(["stats", "job-manager"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "jobs.active  1",
        "jobs.by      {}",
        "state        ready",
    ]
    assert main(["stats", "--json", "job-manager"]) == 0
    assert json.loads(capsys.readouterr().out) == stats
    say("sched.stats-get", {})
    assert main(["stats", "sched"]) == 0
    assert capsys.readouterr().out == "`sched` has no statistics\n"
    assert main(["stats", "--json", "sched"]) == 0
    assert capsys.readouterr().out == "{}\n"


def test_statistics_are_those_of_all_services_with_metrics(say, capsys):
    say("job-manager.stats-get", {"jobs": {"active": 1}})
    say("broker.stats-get", {"connections": 2})
    for service in ("sched", "resource", "job-exec"):
        say(f"{service}.stats-get", errnum=errno.ENOSYS)
    assert main(["stats"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "broker.connections       2",
        "job-manager.jobs.active  1",
        "sched                    no answer",
        "resource                 no answer",
        "job-exec                 no answer",
    ]
    assert main(["stats", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "job-manager": {"jobs": {"active": 1}},
        "sched": None,
        "resource": None,
        "job-exec": None,
        "broker": {"connections": 2},
    }


def test_a_histogram_is_a_line_of_the_statistics(say, capsys):
    durations = {"count": 4, "sum": 2.0, "le": [0.1, 1.0], "buckets": [2, 4]}
    none = {"count": 0, "sum": 0, "le": [1], "buckets": [0]}
    say("sched.stats-get", {"passes": durations, "other": none})
    assert main(["stats", "sched"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "passes  4 (mean 0.5 s, half <= 0.1 s, 99 % <= 1 s)",
        "other   0",
    ]


def test_metrics_are_those_of_all_services_or_of_one(say, capsys):
    say("job-manager.stats-get", {"submitted": 3})
    say("broker.stats-get", {"connections": 1})
    for service in ("sched", "resource", "job-exec"):
        say(f"{service}.stats-get", errnum=errno.ENOSYS)
    assert main(["stats", "--openmetrics"]) == 0
    found = openmetrics.parse(capsys.readouterr().out)
    up = {
        dict(labels)["service"]: value
        for (_, labels), value in found["penstock_service_up"].samples.items()
    }
    assert up == {"job-manager": 1, "broker": 1, "sched": 0, "resource": 0, "job-exec": 0}
    assert found["penstock_jobs_submitted"].value("_total") == 3
    assert main(["stats", "--openmetrics", "broker"]) == 0
    found = openmetrics.parse(capsys.readouterr().out)
    assert found.keys() == {"penstock_service_up", "penstock_connections"}


def test_jobs_are_cancelled_by_state_and_user(fake, answers, say, capsys):
    say("job-manager.raise", {"count": 2, "errors": {}})
    fake.methods["job-list.list"] = answers({"jobs": [{"id": 1}, {"id": 2}]})
    assert main(["cancel", "--states=sched,run", "-m", "n"]) == 0
    own = {"userid": [os.getuid()]}
    both = [{"states": ["sched", "run"]}, {"states": ["active"]}]
    assert requested(fake, "job-list.list")["constraint"] == {"and": [*both, own]}
    request = requested(fake, "job-manager.raise")
    assert (request["ids"], request["note"]) == ([1, 2], "n")
    assert capsys.readouterr().out == "2 jobs cancelled\n"
    assert main(["cancel", "-q", "--all", "-S", "run"]) == 0
    assert capsys.readouterr().out == ""
    constraint = requested(fake, "job-list.list")["constraint"]
    assert constraint == {"and": [{"states": ["run"]}, {"states": ["active"]}]}
    assert main(["cancel", "-u", "0"]) == 0
    assert requested(fake, "job-manager.raise")["ids"] == [1, 2]
    request = requested(fake, "job-manager.raise")
    assert (request["all"], request["userid"]) == (True, 0)


def test_a_time_in_the_past_has_many_forms():
    now = 10_000.0
    assert since("@12.5", now) == 12.5
    assert since("1h", now) == since("-1h", now) == 6400.0
    assert since("1970-01-02T00:00:00+00:00", now) == 86400.0


def test_jobs_that_were_active_since_and_how_many(fake, answers, capsys):
    rows = [
        {"id": 1, "state": 8},
        {"id": 2, "state": 16},
        {"id": 3, "state": 32},
        {"id": 4, "state": 64, "result": 1},
        {"id": 5, "state": 64, "result": 8},
    ]
    fake.methods["job-list.list"] = answers({"jobs": rows})
    assert main(["jobs", "--stats", "-A"]) == 0
    assert capsys.readouterr().out == (
        "1 pending, 2 running, 1 completed, 0 failed, 0 canceled, 1 timeout\n"
    )
    assert requested(fake, "job-list.list")["constraint"] == {"and": []}
    assert main(["jobs", "--stats", "-A", "--since", "@5"]) == 0
    assert requested(fake, "job-list.list")["since"] == 5.0
    capsys.readouterr()
    assert main(["jobs", "--stats", "-A", "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)
    assert counts == {
        "pending": 1,
        "running": 2,
        "completed": 1,
        "failed": 0,
        "canceled": 0,
        "timeout": 1,
    }
    assert requested(fake, "job-list.list")["constraint"] == {"and": []}
    fake.methods["job-list.list"] = answers()
    assert main(["jobs", "--since=@12.5", "-A", "-o", "{id}"]) == 0
    request = requested(fake, "job-list.list")
    assert (request["since"], request["constraint"]) == (12.5, {"and": []})
    assert main(["jobs", "--since=1h", "-A", "-o", "{id}"], SteppedClock(10_000.0)) == 0
    assert requested(fake, "job-list.list")["since"] == 6400.0


def test_the_expiration_of_resources_counts_from_now(fake):
    fake.methods["resource.expiration"] = lambda request: [request.respond({})]
    for text, expected in [("+1h", 13_600.0), ("none", 0.0), ("12.5", 12.5)]:
        assert main(["resource", "expiration", text], SteppedClock(10_000.0)) == 0
        assert requested(fake, "resource.expiration") == {"expiration": expected}
    assert main(["resource", "expiration", "+soon"]) == 2


def test_jobspecs_are_printed_and_flags_sent(fake, say, capsys):
    assert main(["submit", "--dry-run", "--cc=1-2", "-n3", "echo", "{cc}"]) == 0
    specs = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [spec["tasks"][0]["command"] for spec in specs] == [["echo", "1"], ["echo", "2"]]
    assert fake.received.empty()
    say("job-ingest.submit", {"id": 1})
    assert main(["submit", "--flags=waitable", "true"]) == 0
    assert requested(fake, "job-ingest.submit")["flags"] == 4


def test_copies_are_one_request_with_one_jobspec(fake, say, capsys, monkeypatch):
    monkeypatch.delenv("FLUX_F58_FORCE_ASCII", raising=False)
    say("job-ingest.submit", {"ids": [1, 2]})
    options = ["--urgency=3", "--flags=waitable", "--token=t", "--env=-*", "--env=A={cc}"]
    assert main(["submit", "--cc=1,7", *options, "echo", "{cc}"]) == 0
    assert capsys.readouterr().out == "ƒ2\nƒ3\n"
    request = requested(fake, "job-ingest.submit")
    spec = request.pop("jobspec")
    assert request == {"urgency": 3, "flags": 4, "token": "t", "cc": "1,7"}
    assert spec["tasks"][0]["command"] == ["echo", "{cc}"]
    assert spec["attributes"]["system"]["environment"] == {
        "A": "{cc}",
        "PENSTOCK_CC": "{cc}",
        "FLUX_JOB_CC": "{cc}",
    }
    assert main(["submit", "--cc=1-2", "--json", "true"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows == [{"id": "ƒ2", "id_int": 1}, {"id": "ƒ3", "id_int": 2}]


def test_a_scheduler_that_does_not_answer_prevents_no_submission(fake, say, capsys, monkeypatch):
    monkeypatch.setattr("penstock.cli.feasibility.TIMEOUT_S", 0.01)
    fake.methods["feasibility.check"] = lambda _request: []
    say("job-ingest.submit", {"id": 1})
    assert main(["submit", "true"]) == 0
    assert capsys.readouterr() == ("ƒ2\n", "")


def received_topics(fake) -> list[str]:
    topics = []
    while not fake.received.empty():
        topics.append(fake.received.get().topic)
    return topics


def test_equal_requests_are_checked_once(fake, say, capsys):
    fake.methods["feasibility.check"] = lambda request: [
        request.respond(errnum=errno.EINVAL, errtext="no node has 9 cores")
    ]
    assert main(["submit", "--cc=1-3", "--dependency=after:{cc}", "-c9", "true"]) == 1
    expected = "penstock submit: the job can never run (see --no-check): no node has 9 cores\n"
    assert capsys.readouterr() == ("", expected)
    assert received_topics(fake) == ["feasibility.check"]
    say("job-ingest.submit", {"id": 1})
    assert main(["submit", "--no-check", "-c9", "true"]) == 0
    assert received_topics(fake) == ["job-ingest.submit"]


def test_an_unknown_queue_is_an_error(fake, say, answers, capsys):
    say("job-manager.queue-list", {"queues": ["batch", "debug"]})
    fake.methods["job-list.list"] = answers()
    assert main(["jobs", "-q", "batch,nosuch"]) == 1
    assert capsys.readouterr() == (
        "",
        "penstock jobs: unknown queue `nosuch`: expected batch, debug\n",
    )
    # A removed queue may still have jobs.
    fake.methods["job-list.list"] = answers({"jobs": [{"id": 1, "state": 8}]})
    assert main(["jobs", "-q", "old", "--stats"]) == 0
    assert capsys.readouterr().out.startswith("1 pending")


def test_an_invalid_jobspec_rejects_all_copies(fake, say, capsys):
    reasons = ("jobs[1-2]: no", "jobs[3]: never jobs[0]", "jobs from 4 on were not checked")
    text = f"no job is submitted: {'; '.join(reasons)}"
    say("job-ingest.submit", errnum=errno.EINVAL, errtext=text)
    named = "--cc=7,9: no; --cc=10: never jobs[0]; jobs from --cc=12 on were not checked"
    assert main(["submit", "--cc=5,7,9-10,12", "--dependency=after:{cc}", "true"]) == 1
    assert capsys.readouterr() == ("", f"penstock submit: no job is submitted: {named}\n")


# --- jobs


ROW = {"userid": 0, "urgency": 16, "t_submit": 1.0, "ntasks": 1}


def named(job: int, state: int, name: str = "x", **more) -> dict:
    return {"id": job, "state": state, "name": name} | ROW | more


def shown_jobs(capsys, *words: str) -> list[str]:
    assert main(["jobs", "-A", "-n", *words]) == 0
    return capsys.readouterr().out.splitlines()


def test_jobs_are_requested_by_state_and_a_cut_is_named(fake, listing, capsys):
    fake.methods["job-list.list"] = listing(*(named(job, 16) for job in (6, 2, 4, 3)))
    form = ("-o", "{id.dec}")
    assert shown_jobs(capsys, *form) == ["6", "2", "4", "3"]
    request = requested(fake, "job-list.list")
    assert (request["order"], request["max_entries"]) == ("state", 1001)
    assert request["constraint"] == {"and": [{"states": ["active"]}]}
    lines = shown_jobs(capsys, "-a", "--json")
    assert [json.loads(line)["id_int"] for line in lines] == [6, 2, 4, 3]
    assert requested(fake, "job-list.list")["constraint"] == {"and": []}
    assert main(["jobs", "-A", "-n", "-c", "3", *form]) == 0
    out, err = capsys.readouterr()
    assert out == "6\n2\n4\n"
    cut = "only the first 3 jobs are shown: `--skip 3` shows the next, `-c 0` all"
    assert err == f"penstock jobs: {cut}\n"
    for count in ("4", "0"):
        assert main(["jobs", "-A", "-n", "-c", count, *form]) == 0
        assert capsys.readouterr() == ("6\n2\n4\n3\n", "")


def test_jobs_are_shown_as_they_arrive_and_none_if_the_list_is_rejected(fake, answers, capsys):
    parts = [{"jobs": [named(job, 16)]} for job in (3, 2)]
    fake.methods["job-list.list"] = answers(*parts, errnum=errno.EIO, errtext="the disk failed")
    assert main(["jobs", "-A", "-n", "-c", "0", "-o", "{id.dec}"]) == 1
    assert capsys.readouterr() == ("3\n2\n", "penstock jobs: the disk failed\n")
    fake.methods["job-list.list"] = answers(errnum=errno.ENOENT, errtext="no job")
    assert main(["jobs", "ƒ2"]) == 1
    assert capsys.readouterr() == ("", "penstock jobs: no job\n")


def test_jobs_are_sorted_by_fields(fake, listing, capsys):
    rows = [
        named(1, 16, "b", nodelist="n1"),
        named(2, 16, "a"),
        named(3, 16, "b"),
        named(4, 16, "a", nodelist="n0"),
    ]
    fake.methods["job-list.list"] = listing(*rows)
    form = ("-o", "{id.dec}")
    assert shown_jobs(capsys, "--sort=name,-id.dec", *form) == ["4", "2", "3", "1"]
    assert shown_jobs(capsys, "--sort=-name,id.dec", *form) == ["1", "3", "2", "4"]
    # Rows without a value come last, either way.
    assert shown_jobs(capsys, "--sort=nodelist", *form)[:2] == ["4", "1"]
    assert shown_jobs(capsys, "--sort=-nodelist", *form)[:2] == ["1", "4"]
    assert main(["jobs", "--sort=nosuch"]) == 2
    assert "unknown field `nosuch`" in capsys.readouterr().err


def test_formats_have_names_and_dates(fake, listing, capsys, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    fake.methods["job-list.list"] = listing(named(1, 16, t_submit=86400.0), named(2, 8, t_submit=0))
    assert shown_jobs(capsys, "-o", "{t_submit!d:%F %T}|{t_run!d}|") == [
        "1970-01-02 00:00:00|-                  |",
        "-                  |-                  |",
    ]
    assert "1970-01-02 00:00:00" in shown_jobs(capsys, "-o", "long")[0]
    assert main(["jobs", "-A", "-o", "endreason"]) == 0
    assert "T_INACTIVE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "terminal", "no_color", "is_colored"),
    [
        ([], True, "", True),
        ([], True, "1", False),
        ([], False, "", False),
        (["--color=auto"], False, "", False),
        (["--color=always"], False, "1", True),
        (["--color"], False, "", True),
        (["--color=never"], True, "", False),
    ],
)
def test_rows_are_colored_by_result(
    fake, listing, capsys, monkeypatch, words, terminal, no_color, is_colored
):
    rows = [named(1, 64, result=1), named(2, 64, result=2), named(3, 16)]
    fake.methods["job-list.list"] = listing(*rows)
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    monkeypatch.setenv("NO_COLOR", no_color)
    lines = shown_jobs(capsys, "-o", "{id.dec}", *words)
    assert lines == (
        ["\x1b[32m1\x1b[0m", "\x1b[31m2\x1b[0m", "3"] if is_colored else ["1", "2", "3"]
    )


@pytest.fixture
def formats(tmp_path, monkeypatch):
    """The files with formats of the user and of the site."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    user, site = tmp_path / "config/penstock/jobs.toml", tmp_path / "site.toml"
    user.parent.mkdir(parents=True)
    monkeypatch.setattr("penstock.cli.jobformats.SITE_FORMATS", site)
    return user, site


def test_formats_of_ones_own_have_names(fake, listing, say, capsys, formats):
    user, site = formats
    fake.methods["job-list.list"] = listing(named(1, 16, "a"))
    say("config.get", {})
    site.write_text('[formats]\nboth = "site"\nshared = "{id.dec} {name}"\n')
    user.write_text('[formats]\nboth = "user {name}"\n')
    assert shown_jobs(capsys, "-o", "shared") == ["1 a"]
    assert shown_jobs(capsys, "-o", "both") == ["user a"]
    assert main(["jobs", "-o", "shraed"]) == 1
    assert capsys.readouterr().err == (
        "penstock jobs: unknown format `shraed`: expected default, long, endreason, both, shared; "
        "did you mean `shared`?\n"
    )
    user.write_text('[formats]\ndefault = "{name}!"\n')
    assert shown_jobs(capsys) == ["a!"]
    assert shown_jobs(capsys, "-o", "default") == ["a!"]


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("[", "Invalid "),
        ("formats = 3", "formats: expected a table"),
        ("[formats]\na = 3\n[x]", "unknown key `x`: expected formats\n"),
        ("[formats]\na = 3", "formats.a: expected a text"),
    ],
)
def test_a_file_of_formats_is_checked(capsys, formats, text, problems):
    formats[0].write_text(text)
    assert main(["jobs"]) == 1
    assert f"{formats[0]}: {problems}" in capsys.readouterr().err


def test_lines_that_do_not_fit_in_a_terminal_are_cut(fake, listing, capsys, monkeypatch):
    fake.methods["job-list.list"] = listing(named(1, 16, "a" * 30))
    assert shown_jobs(capsys, "-o", "{name}") == ["a" * 30]
    monkeypatch.setattr("penstock.cli.jobs.get_terminal_size", lambda: os.terminal_size((10, 1)))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert shown_jobs(capsys, "-o", "{name}") == ["a" * 9 + "+"]


@pytest.mark.parametrize(
    ("text", "constraint"), [("n[0-3]", {"hostlist": ["n[0-3]"]}), ("0-3", {"ranks": ["0-3"]})]
)
def test_jobs_on_some_nodes_are_listed(fake, listing, capsys, text, constraint):
    fake.methods["job-list.list"] = listing()
    assert shown_jobs(capsys, "-i", text, "-o", "{id}") == []
    assert constraint in requested(fake, "job-list.list")["constraint"]["and"]
