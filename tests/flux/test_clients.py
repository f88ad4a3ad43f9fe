"""Flux's own command line on the socket of an instance."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from itertools import pairwise

import pytest
from tests.instance.conftest import start  # noqa: F401 - a fixture

FLUX = shutil.which("flux")


class Flux:
    """Commands of Flux on an instance."""

    def __init__(self, uri, directory):
        self.uri = uri
        self.directory = directory

    def run(self, *words, stdin=None):
        return subprocess.run(
            [str(FLUX), *words],
            env={**os.environ, "FLUX_URI": self.uri, "FLUX_F58_FORCE_ASCII": "1"},
            cwd=self.directory,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def __call__(self, *words, stdin=None):
        """The output of a command that must succeed."""
        done = self.run(*words, stdin=stdin)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout


@pytest.fixture
def flux(start, tmp_path):  # noqa: F811 - the fixture
    with start("--nodes", "2", "--cores", "4", "--exec", "local", "--oversubscribe") as instance:
        yield Flux(instance.uri, tmp_path)


def test_output_of_jobs_reaches_the_command_that_runs_them(flux):
    done = flux.run("run", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.stdout, done.returncode) == ("out\n", 3)
    assert "err\n" in done.stderr
    assert flux("submit", "--watch", "--quiet", "echo", "watched") == "watched\n"
    both = flux("bulksubmit", "--watch", "--quiet", "echo", "{}", ":::", "a", "b")
    assert sorted(both.split()) == ["a", "b"]
    job = flux("submit", "echo", "later").strip()
    assert flux("job", "attach", job) == "later\n"
    assert flux("job", "attach", job) == "later\n"


def test_standard_input_is_that_of_the_job(flux):
    assert flux("run", "cat", stdin="a\nb\n") == "a\nb\n"
    assert flux("run", "echo", "x", stdin="") == "x\n"
    assert flux("run", "-n2", "--input=1", "-l", "cat", stdin="a\n") == "1: a\n"
    job = flux("submit", "cat").strip()
    assert flux("job", "attach", job, stdin="later\n") == "later\n"
    (flux.directory / "file").write_text("of a file")
    assert flux("run", "--input=file", "cat") == "of a file"


def test_standard_input_has_a_log(flux):
    assert flux("run", "-n2", "cat", stdin="a\n").split() == ["a", "a"]
    job = flux("job", "last").strip()
    log = flux("job", "eventlog", "--path=guest.input", "--format=json", job)
    events = [json.loads(line) for line in log.splitlines()]
    contexts = [event["context"] for event in events if event["name"] == "data"]
    assert events[0]["name"] == "header"
    assert "".join(context.get("data", "") for context in contexts) == "a\n"
    assert contexts[-1]["eof"]
    job = flux("submit", "sleep", "1000").strip()
    flux("job", "wait-event", "--timeout=100", "--path=exec", job, "shell.start")
    watch = ("job", "wait-event", "--timeout=100", "--path=guest.input", "--match-context=eof=true")
    command = [str(FLUX), "job", "attach", job]
    environment = {**os.environ, "FLUX_URI": flux.uri}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE) as attach:
        attach.stdin.write(b"b\n")
        attach.stdin.close()
        flux(*watch, job, "data")
        assert flux.run("job", "attach", job, stdin="c\n").returncode != 0
        flux("cancel", job)
        assert attach.wait(timeout=100) == 143


def test_output_is_labelled_by_task(flux):
    script = "echo out $FLUX_TASK_RANK; echo err >&2"
    done = flux.run("run", "-n3", "--label-io", "sh", "-c", script)
    assert sorted(done.stdout.splitlines()) == [f"{rank}: out {rank}" for rank in range(3)]
    assert sorted(done.stderr.splitlines()) == [f"{rank}: err" for rank in range(3)]
    lines = flux("run", "-n2", "--label-io", "printf", "a\\nb\\n").splitlines()
    assert sorted(lines) == ["0: a", "0: b", "1: a", "1: b"]
    assert flux("run", "-n2", "printf", "%s", "x").split() == ["x", "x"]
    assert flux("run", "--label-io", "echo", "one") == "0: one\n"


def test_variables_with_templates_are_those_of_each_task(flux):
    values = ["{{task.rank}}", "{{size}}", "{{nnodes}}", "{{name}}", "{{other}}"]
    rule = "--env=WORDS=" + " ".join(values)
    lines = flux("run", "-n2", "--job-name=named", rule, "printenv", "WORDS").splitlines()
    assert sorted(lines) == [f"{rank} 2 1 named {{{{other}}}}" for rank in range(2)]
    id_line = flux("run", "--env=ID={{id.dec}}", "printenv", "ID")
    assert id_line == flux("job", "id", "--to=dec", flux("job", "last").strip())


@pytest.mark.parametrize(("program", "code"), [("nosuchprogram", 127), ("/tmp", 126)])
def test_a_program_that_cannot_be_executed_is_an_exception(flux, program, code):
    done = flux.run("run", program)
    assert done.returncode == code
    assert f"type=exec severity=0 task 0: start failed: {program}: " in done.stderr
    fields = "{result} {returncode} {exception.type} {inactive_reason}"
    ended = {127: "command not found", 126: "command invoked cannot execute"}
    shown = flux("jobs", "-ano", fields).strip().lower()
    assert shown == f"failed {code} exec {ended[code]}"


def test_the_times_of_a_job_are_in_order(flux):
    first = flux("submit", "sleep", "0.1").strip()
    flux("submit", f"--dependency=afterok:{first}", "true")
    flux("queue", "drain")
    names = ["t_submit", "t_depend", "t_priority", "t_sched", "t_run", "t_cleanup", "t_inactive"]
    fields = " ".join(f"{{{name}}}" for name in names)
    for line in flux("jobs", "-ano", fields).splitlines():
        times = [float(word) for word in line.split()]
        assert len(times) == len(names)
        # The times of pending states are exact to 10⁻⁷ of the wait.
        assert all(before <= after + 1e-5 for before, after in pairwise(times)), times


def test_an_interactive_terminal_cannot_be_attached_read_only(flux):
    assert flux("run", "-o", "pty.interactive", "echo", "hello").split() == ["hello"]
    assert "typed" in flux("run", "-o", "pty.interactive", "head", "-1", stdin="typed\n")
    job = flux("submit", "-o", "pty.interactive", "sleep", "inf").strip()
    done = flux.run("job", "attach", "--read-only", job)
    assert done.returncode == 1
    assert "readonly" in done.stderr
    flux("cancel", job)


def test_a_batch_script_runs_in_a_child_instance_of_flux(flux):
    script = "#!/bin/sh\nflux getattr size; flux run -n2 echo task\n"
    (flux.directory / "script.sh").write_text(script)
    job = flux("batch", "-N1", "-n2", "--output=out", "script.sh").strip()
    flux("job", "wait-event", "--timeout=100", job, "clean")
    said = (flux.directory / "out").read_text()
    assert said.split() == ["1", "task", "task"], said


def test_a_batch_job_on_two_nodes_is_one_instance(flux):
    script = "#!/bin/sh\nflux getattr size; flux getattr instance-level\n"
    script += "flux run -N2 echo task\nread end < hold\n"
    (flux.directory / "script.sh").write_text(script)
    os.mkfifo(flux.directory / "hold")
    job = flux("batch", "-N2", "--output=out", "--error=err", "script.sh").strip()
    memo = flux("job", "wait-event", "--timeout=100", job, "memo")
    assert "uri=" in memo
    assert flux("uri", "--local", job).startswith("local:///")
    (flux.directory / "hold").write_text("\n")
    flux("job", "wait-event", "--timeout=100", job, "clean")
    assert (flux.directory / "out").read_text().split() == ["2", "1", "task", "task"]
    assert flux("alloc", "-N2", "flux", "getattr", "size") == "2\n"


def test_listings_show_jobs_nodes_and_services(flux):
    job = flux("submit", "--job-name=named", "sleep", "1000").strip()
    assert flux("jobs", "-no", "{id} {name}").split() == [job, "named"]
    assert flux("pgrep", "named").split() == [job]
    assert "named" in flux("pstree")
    assert re.search(r"avail +\S* *2", flux("resource", "status"))
    assert "2" in flux("resource", "list")
    assert "job-manager" in flux("module", "list")
    assert flux("ping", "-c2", "job-manager").count("time=") == 2
    assert "canceled 1 job" in flux.run("cancel", "--all").stderr.lower()
    flux("job", "wait-event", "--timeout=100", job, "clean")
    assert flux("jobs", "-n") == ""


def test_a_held_job_is_released(flux):
    assert flux("queue", "idle") == "0 jobs\n"
    job = flux("submit", "--urgency=hold", "true").strip()
    assert flux("queue", "idle") == "1 jobs\n"
    assert (
        flux.run("job", "urgency", "-v", job, "default").stderr.strip() == "old urgency: job held"
    )
    flux("job", "wait-event", "--timeout=100", job, "clean")
    assert "is inactive" in flux.run("job", "urgency", job, "5").stderr
    assert flux("job", "purge", "--force") == "purged 0 inactive jobs, 1 remaining\n"
    assert flux("job", "purge", job) == "use --force to purge 1 of 1 inactive jobs\n"
    assert flux("job", "purge", "--force", job).startswith("purged 1 inactive jobs")
    assert "may have been purged" in flux.run("job", "purge", "--force", job).stderr
    assert flux("job", "purge", "--force", "--num-limit=0").startswith("purged 0 inactive jobs")


WAITING = """
import flux, flux.job
from flux.job import JobspecV1, JournalConsumer

handle = flux.Flux()
for command in ("true", "false"):
    flux.job.submit(handle, JobspecV1.from_command([command]), waitable=True)
results = [flux.job.wait(handle).success for _ in range(2)]
journal = JournalConsumer(handle, include_sentinel=True).start()
names = []
while not (event := journal.poll(timeout=60)).is_empty():
    names.append(event.name)
flux.job.submit(handle, JobspecV1.from_command(["true"]))
while (event := journal.poll(timeout=60)).name != "clean":
    pass
print(sorted(results), names.count("clean"), event.name)
"""


def test_scripts_wait_for_jobs_and_follow_all_events(flux):
    (flux.directory / "script.py").write_text(WAITING)
    assert flux("python", "script.py") == "[False, True] 2 clean\n"
    job = flux("submit", "--flags=waitable", "sh", "-c", "exit 3").strip()
    done = flux.run("job", "wait", job)
    assert (done.returncode, "exit code 3" in done.stderr) == (1, True)
    assert flux.run("job", "wait", job).returncode == 2
    flux("submit", "--flags=waitable", "--cc=1-3", "true")
    flux("job", "wait", "--all")


BATCH = """
import flux, flux.job
from flux.job import JobspecV1

handle = flux.Flux()
script = "#!/bin/sh\\nflux run -n2 echo task\\n"
spec = JobspecV1.from_batch(content=script, nslots=2, time_limit="5m", output="out")
job = flux.job.submit(handle, spec)
names = [event.name for event in flux.job.event_watch(handle, job)]
print(names[-1], flux.job.result(handle, job).returncode, open("out").read().split())
"""

FUTURES = """
import concurrent.futures
import flux, flux.job
from flux.job import FluxExecutor, JobList, JobspecV1

started = []
with FluxExecutor() as executor:
    scripts = [["sh", "-c", f"exit {code}"] for code in range(3)]
    futures = [executor.submit(JobspecV1.from_command(script)) for script in scripts]
    for future in futures:
        future.add_event_callback("start", lambda future, event: started.append(future.jobid()))
    endless = executor.submit(JobspecV1.from_command(["sleep", "inf"]))
    endless.add_event_callback(
        "start", lambda future, event: flux.job.cancel(flux.Flux(), future.jobid())
    )
    codes = sorted(future.result() for future in concurrent.futures.as_completed(futures))
    error = endless.exception()
jobs = JobList(flux.Flux(), filters=["completed", "failed"]).jobs()
assert sorted(started) == sorted(job.id for job in jobs), (started, jobs)
print(codes, type(error).__name__, error.type, sorted(job.returncode for job in jobs))
"""


@pytest.mark.parametrize(
    ("script", "output"),
    [
        (BATCH, "clean 0 ['task', 'task']"),
        (FUTURES, "[0, 1, 2] JobException cancel [0, 1, 2]"),
    ],
)
def test_programs_of_users_run_unchanged(flux, script, output):
    """Subjects of the documentation of flux-core's Python package, in programs of our own."""
    assert flux("python", "-c", script).strip() == output


def test_the_log_of_resources_is_that_of_the_instance(flux):
    flux("resource", "drain", "1", "for a test")
    log = flux("resource", "eventlog", "--format=json").splitlines()
    events = [json.loads(line) for line in log]
    names = [event["name"] for event in events]
    assert names[:3] == ["restart", "online", "resource-define"]
    assert events[-1]["context"] | {"idset": "1", "reason": "for a test"} == events[-1]["context"]


def test_a_drained_node_is_drained_again_only_if_the_command_says_so(flux):
    flux("resource", "drain", "1")
    flux("resource", "drain", "1", "smoke")
    again = flux.run("resource", "drain", "0-1", "dust")
    assert again.returncode == 1
    assert "rank 1 already drained" in again.stderr
    assert "Use --force" in again.stderr
    flux("resource", "drain", "--update", "0-1", "dust")
    shown = ("resource", "drain", "-no", "{ranks} {reason}")
    assert sorted(flux(*shown).splitlines()) == ["0 dust", "1 smoke"]
    flux("resource", "drain", "--force", "1", "flames")
    assert "1 flames" in flux(*shown)
    flux("resource", "undrain", "0")
    assert "rank 0 not drained" in flux.run("resource", "undrain", "0-1").stderr
    flux("resource", "undrain", "--force", "0")
    flux("resource", "undrain", "--update", "0-1")
    assert flux(*shown) == ""


def test_a_queue_is_stopped_with_a_report(flux):
    said = flux("queue", "stop", "--verbose")
    assert "0 alloc requests pending to scheduler" in said
    job = flux("submit", "true").strip()
    flux("cancel", job)
    flux("job", "wait-event", "--timeout=100", job, "clean")
    assert "0 completed, 1 failed" in flux.run("jobs", "--stats-only").stdout


def test_without_a_default_queue_a_job_must_name_its_queue(flux):
    flux("config", "load", stdin="[queues.debug]\n[queues.batch]\n")
    flux("queue", "start", "--all")
    assert "no queue is named" in flux.run("submit", "true").stderr
    assert flux("run", "-q", "debug", "echo", "x") == "x\n"


def test_events_at_intervals_let_clients_read_values_again(flux):
    """`flux top` reads the resources again at each of them."""
    assert flux("event", "sub", "--count=2", "heartbeat.pulse").split()[0] == "heartbeat.pulse"


def test_each_line_of_one_task_has_a_label(flux):
    job = flux("submit", "printf", "a\\nb\\n").strip()
    assert flux("job", "attach", "--label-io", job) == "0: a\n0: b\n"


def test_the_jobspec_is_there_as_submitted(flux):
    job = flux("submit", "--job-name=named", "true").strip()
    document = json.loads(flux("job", "info", "--original", job, "jobspec"))
    assert document["attributes"]["system"]["job"]["name"] == "named"


def test_names_of_files_have_ids_as_the_locale_shows_them(flux, monkeypatch):
    (flux.directory / "script.sh").write_text("#!/bin/sh\necho said\n")
    monkeypatch.setenv("LC_ALL", "C")
    job = flux("batch", "-n1", "script.sh").strip()
    assert job.isascii()
    flux("job", "wait-event", "--timeout=100", job, "clean")
    assert (flux.directory / f"flux-{job}.out").read_text() == "said\n"


def test_resources_are_those_of_a_file(flux):
    first = flux("R", "encode", "--hosts=node0", "--ranks=0", "--cores=0-3")
    (flux.directory / "R").write_text(first)
    job = flux("submit", "-N2", "--wait-event=start", "sleep", "1000").strip()
    assert "jobs are running on node1" in flux.run("resource", "reload", "R").stderr
    flux("cancel", job)
    flux("job", "wait-event", "--timeout=100", job, "clean")
    flux("resource", "reload", "R")
    assert flux("resource", "list", "-no", "{nnodes}", "-s", "free").strip() == "1"
    assert "XML" in flux.run("resource", "reload", "-x", ".").stderr
    assert "no such file" in flux.run("resource", "reload", "missing").stderr.lower()


def test_the_owner_can_act_as_a_guest(flux, monkeypatch):
    job = flux("submit", "--flags=waitable", "sleep", "1000").strip()
    monkeypatch.setenv("FLUX_HANDLE_ROLEMASK", "0x2")
    assert flux.run("job", "wait", job).returncode != 0
    assert flux.run("resource", "drain", "1").returncode != 0
    monkeypatch.delenv("FLUX_HANDLE_ROLEMASK")
    flux("cancel", job)


def test_keys_attributes_events_and_log(flux):
    flux("kvs", "put", "a.b=1", "c=2")
    assert flux("kvs", "get", "a.b") == "1\n"
    flux("kvs", "put", "--append", "c=3")
    assert flux("kvs", "get", "--raw", "c") == "23"
    assert flux("kvs", "ls", "-1").split() == ["a", "c", "job"]
    assert flux("kvs", "dir", "a") == "a.b = 1\n"
    assert int(flux("kvs", "version")) >= 0
    job = flux("submit", "true").strip()
    flux("job", "wait-event", "--timeout=100", job, "clean")
    assert "shell.init" in flux("job", "eventlog", "--path=guest.exec.eventlog", job)
    assert "submit" in flux("job", "info", job, "eventlog")
    flux("setattr", "site.x", "1")
    assert flux("getattr", "site.x") == "1\n"
    flux("logger", "--severity=info", "a line")
    assert "a line" in flux("dmesg")
    flux("event", "pub", "a.topic", '{"x":1}')


def test_keys_have_directories_links_and_watches(flux):
    flux("kvs", "mkdir", "empty.below")
    flux("kvs", "put", "dir.value=1")
    flux("kvs", "link", "dir", "to")
    assert flux("kvs", "readlink", "to") == "dir\n"
    assert flux("kvs", "get", "to.value") == "1\n"
    assert flux("kvs", "ls", "empty") == "below\n"
    assert flux("kvs", "get", "--watch", "--count=1", "dir.value") == "1\n"
    command = [str(FLUX), "kvs", "get", "--waitcreate", "--watch", "--count=1", "later"]
    with subprocess.Popen(
        command, env={**os.environ, "FLUX_URI": flux.uri}, stdout=subprocess.PIPE, text=True
    ) as watch:
        flux("kvs", "put", "later=2")
        assert watch.communicate(timeout=60)[0] == "2\n"
    flux("kvs", "eventlog", "append", "log", "named", '{"a":1}')
    assert "named" in flux("kvs", "eventlog", "get", "log")
    flux("kvs", "unlink", "--recursive", "empty")
    assert "empty" not in flux("kvs", "ls")


def test_what_penstock_lacks_is_an_unknown_service(flux):
    for words in (["overlay", "status"], ["exec", "true"], ["content", "flush"]):
        done = flux.run(*words)
        assert done.returncode != 0, words
        said = done.stderr.lower()
        assert any(text in said for text in ("not implemented", "no service")), (words, said)
