"""Operations of `penstock job`: exceptions, events, remaining time, task map, last jobs."""

from __future__ import annotations

import json
import subprocess

import pytest
from tests.instance.conftest import PENSTOCK

from penstock import Hostlist
from penstock.cli import SHORT_FORMS, VERBS_OF_JOB, main
from penstock.cli.job import taskmap


@pytest.fixture
def sim(start):
    with start("--nodes", "3", "--cores", "4") as instance:
        yield instance


def submit(instance, *options):
    """Submits a job and waits until it runs."""
    (job,) = instance.lines("submit", *options, "true")
    assert instance.lines("job-wait-event", "-q", job, "start") == []
    return job


def info(instance, job):
    return json.loads(instance.lines("info", "--json", job)[0])


@pytest.mark.parametrize("verb", SHORT_FORMS)
def test_short_forms_have_help(verb, capsys):
    assert main([verb, "--help"]) == main(["help", verb]) == 0
    assert capsys.readouterr().out.count(f"usage: penstock {' '.join(SHORT_FORMS[verb])}") == 2


@pytest.mark.parametrize("verb", VERBS_OF_JOB)
def test_job_has_the_verbs_that_flux_job_has(verb, capsys):
    assert main(["job", verb, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: penstock {verb}")


def test_a_misspelt_short_form_gets_a_hint(capsys):
    assert main(["timeleftt"]) == 2
    assert "did you mean `timeleft`?" in capsys.readouterr().err


# --- raise


def test_exceptions_are_raised_with_type_severity_and_note(sim):
    first, second = submit(sim, "-t1h"), submit(sim, "-t1h")
    sim.lines("raise", "-s", "3", "-t", "remark", "-m", "hot", first)
    text = sim.lines("eventlog", first)[-1]
    assert 'exception type="remark" severity=3' in text
    assert 'note="hot"' in text
    assert info(sim, first)["status"] == "RUN"
    done = sim.penstock("job", "raise", "-m", "over", "-", stdin=f"{first} {second}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "2 jobs got the exception\n", "")
    sim.penstock("wait", first, second)
    assert [info(sim, job)["status"] for job in (first, second)] == ["CANCELED"] * 2
    failed = sim.penstock("raise", "ƒ1", first)
    assert failed.returncode == 1
    assert failed.stderr.startswith("penstock job raise: ƒ1: no such job")
    assert sim.penstock("raise", "-s", "8", first).returncode == 2


# --- ids from standard input


def test_verbs_on_one_job_read_its_id_from_standard_input(sim):
    job = submit(sim, "-t1h", "--job-name=one")

    def shown(*words: str) -> str:
        done = sim.penstock(*words, stdin=f"{job}\n")
        assert (done.returncode, done.stderr) == (0, ""), words
        return done.stdout

    assert shown("eventlog", "-").startswith("0.000000 submit ")
    assert shown("info", "-", "R") == sim.penstock("info", job, "R").stdout
    assert shown("timeleft", "-H", "-").startswith(("1h", "59."))
    assert shown("taskmap", "-") == "[[0,1,1,1]]\n"
    assert shown("job-wait-event", "-", "start").endswith(" start\n")
    assert shown("memo", "-", "a=1") == ""
    assert info(sim, job)["annotations"]["user"] == {"a": 1}
    assert shown("what-if", "cancel", "-") == sim.penstock("what-if", "cancel", job).stdout
    assert "has no address yet" in sim.penstock("uri", "-", stdin=job).stderr
    done = sim.penstock("eventlog", "-", stdin=f"{job} {job}")
    assert done.returncode == 2
    assert "expected one job id on standard input, found 2" in done.stderr
    sim.lines("cancel", job)
    sim.penstock("wait", job)
    for verb in (["logs"], ["attach", "--read-only"]):
        # Simulated jobs have no output.
        done, named = sim.penstock(*verb, "-", stdin=job), sim.penstock(*verb, job)
        assert (done.returncode, done.stderr) == (named.returncode, named.stderr)


def test_info_shows_the_jobs_on_standard_input(sim):
    jobs = sim.lines("submit", "--cc=1-2", "-t1h", "true")
    done = sim.penstock("info", "--json", "-", stdin="\n".join(jobs))
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == jobs
    done = sim.penstock("info", "-", stdin=" ".join(jobs))
    first, second = done.stdout.split("\n\n")
    assert (first.split()[1], second.split()[1]) == (jobs[0], jobs[1])
    assert "standard input has no job id" in sim.penstock("info", "-", stdin="").stderr


# --- wait-event


def test_an_event_is_waited_for(sim):
    (held,) = sim.lines("submit", "-t1h", "--urgency=hold", "true")
    command = [*PENSTOCK, "job", "wait-event", held, "alloc"]
    env = {"PENSTOCK_URI": sim.uri}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as waiting:
        sim.lines("urgency", held, "default")
        assert waiting.wait(timeout=120) == 0
        assert waiting.stdout.read().split()[1] == "alloc"
    (event,) = sim.lines("job-wait-event", "-f", "json", held, "submit")
    assert json.loads(event)["context"]["urgency"] == 0
    options = ["-m", "urgency=16", "-v"]
    names = [line.split()[1] for line in sim.lines("job-wait-event", *options, held, "urgency")]
    assert (names[0], names[-1]) == ("submit", "urgency")
    for step in ("1", "2"):
        sim.lines("memo", held, f"step={step}")
    (second,) = sim.lines("job-wait-event", "-c", "2", held, "memo")
    assert second.endswith(" memo step=2")
    late = sim.penstock("job-wait-event", "-t", "0.01s", held, "clean")
    assert late.returncode == 1
    assert late.stderr.startswith("penstock job: ")


def test_an_event_that_never_comes_is_an_error(sim):
    (job,) = sim.lines("submit", "--wait", "true")
    done = sim.penstock("job-wait-event", job, "nosuch")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"penstock job: {job} has ended without the event `nosuch`\n"
    for words in (["-c", "0"], ["-m", "urgency"], ["-t", "soon"]):
        assert sim.penstock("job-wait-event", *words, job, "start").returncode == 2


# --- taskmap


def test_task_maps_have_several_forms(sim):
    job = submit(sim, "-t1h", "-N3", "-n5")
    forms = {form: sim.lines("taskmap", "--to", form, job) for form in ("raw", "pmi")}
    nodes = [int(line.split(": ")[1]) for line in sim.lines("taskmap", "--to=multiline", job)]
    assert len(nodes) == 5
    counts = [nodes.count(node) for node in range(max(nodes) + 1)]
    assert sim.lines("taskmap", job) == [json.dumps(taskmap(counts), separators=(",", ":"))]
    of_first = [str(task) for task, node in enumerate(nodes) if node == 0]
    assert sim.lines("taskmap", "--taskids", "0", job) == ["0-1"] == forms["raw"][0].split(";")[:1]
    assert sim.lines("taskmap", "--ntasks", "0", job) == [str(len(of_first))]
    assert sim.lines("taskmap", "--nodeid", "4", job) == [str(nodes[4])]
    (hosts,) = sim.lines("jobs", "-n", "-o", "{nodelist}", job)
    assert sim.lines("taskmap", "--hostname", "4", job) == [Hostlist(hosts)[nodes[4]]]
    assert forms["pmi"][0].startswith("(vector,(0,")
    for words in (["--nodeid", "5"], ["--hostname", "-1"], ["--taskids", "3"]):
        done = sim.penstock("taskmap", *words, job)
        assert (done.returncode, done.stdout) == (1, "")
        assert "expected 0 to" in done.stderr
    (denied,) = sim.lines("submit", "--urgency=hold", "true")
    sim.lines("cancel", denied)
    assert "has ended without resources" in sim.penstock("taskmap", denied).stderr


def test_the_map_of_very_many_tasks_is_made_of_ranges(sim):
    option = f'per-resource={{"type":"node","count":{2**26}}}'
    job = submit(sim, "-t1h", "-o", option)
    last = 2**26 - 1
    assert sim.lines("taskmap", job) == [f"[[0,1,{2**26},1]]"]
    assert sim.lines("taskmap", "--to=raw", job) == [f"0-{last}"]
    assert sim.lines("taskmap", "--taskids=0", job) == [f"0-{last}"]
    assert sim.lines("taskmap", "--ntasks=0", job) == [str(2**26)]
    assert sim.lines("taskmap", f"--nodeid={last}", job) == ["0"]
    assert sim.penstock("taskmap", f"--nodeid={2**26}", job).returncode == 1


@pytest.mark.parametrize(
    ("counts", "blocks"),
    [
        ([1], [[0, 1, 1, 1]]),
        ([1, 1, 1], [[0, 3, 1, 1]]),
        ([2, 2, 1], [[0, 2, 2, 1], [2, 1, 1, 1]]),
        ([1, 0, 1], [[0, 1, 1, 1], [2, 1, 1, 1]]),
        ([0, 3, 3, 0], [[1, 2, 3, 1]]),
    ],
)
def test_blocks_of_a_task_map(counts, blocks):
    assert taskmap(counts) == blocks


# --- timeleft


def test_the_time_left_of_jobs(sim):
    limited, unlimited = submit(sim, "-t1h"), submit(sim, "-Sexec.test.run_duration=1h")
    assert 0 < int(sim.lines("timeleft", limited)[0]) <= 3600
    assert sim.lines("timeleft", "-H", limited)[0][-1] in "hms"
    assert sim.lines("timeleft", unlimited) == [str(2**32 - 1)]
    assert sim.lines("timeleft", "-H", unlimited) == ["infinity"]
    env = {"PENSTOCK_JOB_ID": unlimited}
    assert sim.penstock("timeleft", env=env).stdout.split() == [str(2**32 - 1)]
    sim.lines("cancel", limited)
    sim.penstock("wait", limited)
    assert sim.lines("timeleft", limited) == ["0"]
    (held,) = sim.lines("submit", "--urgency=hold", "true")
    done = sim.penstock("timeleft", held)
    assert done.returncode == 1
    assert f"{held} is pending: it has no end yet" in done.stderr
    env = {"PENSTOCK_JOB_ID": ""}
    done = sim.penstock("timeleft", env=env)
    assert done.returncode == 1
    assert "not in a job: expected a job id" in done.stderr


def test_the_time_left_of_the_instance_in_a_job(start):
    with start("--nodes=1", "--cores=2", "--exec=local", "--oversubscribe") as instance:
        done = instance.penstock("run", "-t1h", *PENSTOCK, "start", "--", *PENSTOCK, "timeleft")
        assert done.returncode == 0, done.stderr
        assert 0 < int(done.stdout) <= 3600


# --- last


def test_the_last_jobs(sim):
    nothing = sim.penstock("last")
    assert nothing.returncode == 1
    assert "you have submitted no job yet" in nothing.stderr
    ids = sim.lines("submit", "--cc=1-4", "true")[::-1]
    assert sim.lines("last") == ids[:1]
    assert sim.lines("last", "2") == ids[:2]
    assert sim.lines("last", "[1:3]") == ids[1:3]
    assert sim.lines("job", "last", "[:]") == ids
    assert sim.penstock("last", "x").returncode == 2
