"""Options about tasks: input, limits, mask, warning signal; and the exit code of each task."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from tests.instance.conftest import PENSTOCK

from penstock import ResourceSet
from penstock.client import Client
from penstock.errors import RpcError
from penstock.jobid import JobId
from penstock.jobspec import from_command

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def local(start):
    with start("--nodes=1", "--cores=4", "--exec=local", "--oversubscribe") as instance:
        yield instance


def run_from_shell(instance, script: str, *args: str) -> str:
    """The output of a shell script in which `$@` is the command of `penstock`."""
    env = {**os.environ, "PENSTOCK_URI": instance.uri}
    command = ["sh", "-c", script, "sh", *PENSTOCK, *args]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


def test_every_task_reads_the_file_of_its_input(local, tmp_path):
    (tmp_path / "data").write_text("one\ntwo\n")
    options = ["-n2", "--cwd", str(tmp_path), "--input=data"]
    assert sorted(local.lines("run", *options, "cat")) == ["one", "one", "two", "two"]
    (tmp_path / "data-1").write_text("of 1\n")
    (job,) = local.lines("submit", "--cc=1", f"--input={tmp_path}/data-{{cc}}", "cat")
    assert local.penstock("wait", job).returncode == 0
    assert local.lines("logs", job) == ["of 1"]
    done = local.penstock("run", "--input=/nosuch", "cat")
    assert done.returncode == 1
    assert "/nosuch" in done.stderr


def test_tasks_and_gpus_by_node(local, start):
    ranks = local.lines("run", "-N1", "--tasks-per-node=3", "sh", "-c", "echo $FLUX_TASK_RANK")
    assert sorted(ranks) == ["0", "1", "2"]
    with start("--nodes=2", "--cores=4", "--gpus=4", name="sim") as sim:
        options = ["-N2", "--tasks-per-node=2", "--gpus-per-node=4"]
        (job,) = sim.lines("submit", "--wait", *options, "true")
        resources = ResourceSet(sim.lines("info", job, "R")[0])
        assert resources.summary() == "rank[0-1]/core[0-3],gpu[0-3]"


def test_files_of_a_jobspec_are_in_the_directory_of_the_job(local):
    spec = from_command(
        ["{{tmpdir}}/script", "{{id}}", "{{.Other}}"], cwd="/", environment={"D": "{{tmpdir}}"}
    )
    spec["attributes"]["system"]["files"] = {
        "script": {
            "mode": 0o100700,
            "encoding": "utf-8",
            "data": '#!/bin/sh\necho "$@"; cat "$D/d/data"; ls "$FLUX_JOB_TMPDIR"; echo "$D"\n',
        },
        "d/data": {"mode": 0o100600, "encoding": "base64", "data": "eAo="},
    }
    with Client(local.uri) as client:
        job = client.submit(spec)
        row = client.wait_row(job)
    assert row["returncode"] == 0
    words = local.lines("logs", JobId(job).f58)
    directory = local.state / "exec" / "jobs" / str(int(job))
    assert words == [f"{JobId(job).f58} {{{{.Other}}}}", "x", "d", "script", str(directory)]
    deadline = time.monotonic() + 60
    while directory.exists():
        assert time.monotonic() < deadline, "the directory is removed after the job"
        time.sleep(0.01)
    spec["attributes"]["system"]["files"] = {"../x": {"mode": 0o100600, "data": "x"}}
    rejected = "file `../x`: expected a relative path without `..`"
    with Client(local.uri) as client, pytest.raises(RpcError, match=re.escape(rejected)):
        client.submit(spec)


def test_added_files_are_stored_with_the_job(local, tmp_path):
    data = tmp_path / "data"
    data.write_bytes(b"one\xff\n")
    data.chmod(0o640)
    script = tmp_path / "script"
    script.write_text('#!/bin/sh\ncd "$PENSTOCK_JOB_TMPDIR"; stat -c "%n %a" "$@"; cat "$1" d/b\n')
    options = [f"--add-file={data}", f"--add-file=a/s:700={script}", "--add-file=d/b:0444=x\ny"]
    spec = local.lines("submit", "--dry-run", *options, "true")
    (job,) = local.lines("submit", "--urgency=hold", *options, "{{tmpdir}}/a/s", "data", "d/b")
    data.write_text("changed")
    script.unlink()
    local.lines("urgency", job, "default")
    assert local.penstock("wait", job).returncode == 0
    with Client(local.uri) as client:
        output = b"".join(part for _, part in client.output(JobId(job)))
    assert output == b"data 640\nd/b 444\none\xff\nx\ny"
    files = json.loads(spec[0])["attributes"]["system"]["files"]
    assert files["data"] == {
        "mode": 0o100640,
        "size": 5,
        "encoding": "base64",
        "data": base64.b64encode(b"one\xff\n").decode(),
    }


def test_copies_and_scripts_have_their_added_files(local, tmp_path):
    for copy in "12":
        (tmp_path / f"run-{copy}").write_text(f"of {copy} {{cc}}\n")
    add = f"--add-file=p={tmp_path}/run-{{cc}}"
    jobs = local.lines("submit", "--cc=1-2", add, "cat", "{{tmpdir}}/p")
    assert local.penstock("wait", *jobs).returncode == 0
    assert [local.lines("logs", job) for job in jobs] == [["of 1 {cc}"], ["of 2 {cc}"]]
    script = tmp_path / "script"
    script.write_text(
        "#!/bin/sh\n"
        '# flux: --add-file=q="""\n# flux: of a\n# flux: directive\n# flux: """\n'
        'cat "$PENSTOCK_JOB_TMPDIR/p" "$PENSTOCK_JOB_TMPDIR/q"\n'
    )
    options = [f"--output={tmp_path}/out", f"--add-file=p={tmp_path}/run-1"]
    assert local.penstock("batch", "--wait", *options, script).returncode == 0
    assert (tmp_path / "out").read_text() == "of 1 {cc}\nof a\ndirective\n"
    done = local.penstock("batch", "--add-file=script=/dev/null", script)
    assert done.returncode == 2
    assert "the name `script` is reserved for the script" in done.stderr


def test_a_job_with_a_begin_time_and_a_bank(local):
    (job,) = local.lines("submit", "--begin-time=+1h", "--bank=physics", "true")
    (row,) = map(json.loads, local.lines("info", "--json", job))
    assert row["state"] == "DEPEND"
    assert "begin-time" in row["reason"]
    (spec,) = map(json.loads, local.lines("info", job, "jobspec"))
    assert spec["attributes"]["system"]["bank"] == "physics"


def test_each_copy_of_a_submission_runs_with_its_id(local, tmp_path):
    options = ["--cc=3,7-8", "--env=COPY=c{cc}", f"--output={tmp_path}/out-{{cc}}-{{{{id}}}}"]
    ids = local.lines("submit", *options, "sh", "-c", "echo {cc} $COPY")
    assert local.penstock("wait", *ids).returncode == 0
    found = {path.name: path.read_text() for path in tmp_path.glob("out-*")}
    copies = zip(ids, ("3", "7", "8"), strict=True)
    assert found == {f"out-{copy}-{job}": f"{copy} c{copy}\n" for job, copy in copies}


def test_tasks_have_the_soft_limits_of_the_submitter(local):
    script = 'ulimit -S -n 123; ulimit -S -c 0; exec "$@"'
    limits = ["run", "sh", "-c", "ulimit -S -n; ulimit -S -c"]
    assert run_from_shell(local, script, *limits).split() == ["123", "0"]
    options = ["--rlimit=-*,nofile=99", "--rlimit=core=unlimited"]
    shown = run_from_shell(local, script, "submit", "--dry-run", *options, "true")
    shell = json.loads(shown)["attributes"]["system"]["shell"]["options"]
    assert shell["rlimit"] == {"nofile": 99, "core": -1}
    assert local.lines("run", "--rlimit=nofile=99", "sh", "-c", "ulimit -S -n") == ["99"]
    for rule in ("lunch", "lunch=1", "nofile=many"):
        done = local.penstock("run", f"--rlimit={rule}", "true")
        assert done.returncode == 2
        assert f"resource limit `{rule}`: " in done.stderr


def test_tasks_have_the_umask_of_the_submitter(local):
    assert run_from_shell(local, 'umask 027; exec "$@"', "run", "sh", "-c", "umask") == "0027\n"
    options = ["--setattr", "shell.options.umask=077"]
    assert local.lines("run", *options, "sh", "-c", "umask") == ["0077"]
    done = local.penstock("run", "--setattr", "shell.options.umask=9", "true")
    assert "shell option `umask`: expected octal digits" in done.stderr


def warn(local, job: str, ready: Path) -> None:
    """Changes the time limit of a job once its task is ready, so that the signal is due."""
    ready.read_text()
    assert local.penstock("update", job, "duration=40s").returncode == 0


def test_tasks_get_a_signal_before_their_time_limit(local, tmp_path):
    os.mkfifo(tmp_path / "ready")
    script = "trap 'echo warned; exit 0' USR2; echo > ready; while :; do sleep 0.01; done"
    options = ["-t", "60s", "--signal=USR2@50s", "--cwd", str(tmp_path)]
    (job,) = local.lines("submit", *options, "sh", "-c", script)
    warn(local, job, tmp_path / "ready")
    assert local.penstock("wait", job).returncode == 0
    assert local.lines("logs", job) == ["warned"]
    shown = json.loads(local.lines("submit", "--dry-run", "--signal=@2m", "true")[0])
    option = shown["attributes"]["system"]["shell"]["options"]["signal"]
    assert option == {"signum": 10, "timeleft": 120.0}
    for text in ("LUNCH", "USR1@lunch"):
        assert local.penstock("submit", f"--signal={text}", "true").returncode == 2


def test_the_script_of_a_batch_job_gets_the_signal(local, tmp_path):
    script = tmp_path / "script"
    lines = ["#!/bin/sh", "#FLUX: --signal=USR1@50s", "trap 'echo warned; exit 3' USR1"]
    lines += [f"echo > {tmp_path}/ready", "while :; do sleep 0.01; done"]
    script.write_text("\n".join(lines) + "\n")
    os.mkfifo(tmp_path / "ready")
    output = tmp_path / "out"
    (job,) = local.lines("batch", "-n1", "-t", "60s", "--output", str(output), str(script))
    warn(local, job, tmp_path / "ready")
    assert local.penstock("wait", job).returncode == 3
    assert "warned" in output.read_text()


def test_the_exit_code_of_each_task_is_shown(local):
    script = "case $PENSTOCK_TASK_RANK in 1) exit 3;; 2) kill -TERM $$;; esac"
    (job,) = local.lines("submit", "-n4", "sh", "-c", script)
    assert local.penstock("wait", job).returncode == 3
    events = map(json.loads, local.lines("eventlog", "--json", job))
    (finish,) = (event["context"] for event in events if event["name"] == "finish")
    assert finish["statuses"] == {"0,3": 0, "1": 768, "2": 15}
    shown = json.loads(local.lines("info", "--json", job)[0])
    assert shown["exit_codes"] == {"0,3": 0, "1": 3, "2": 143}
    (job,) = local.lines("submit", "-n4", "sh", "-c", "exit 3")
    assert local.penstock("wait", job).returncode == 3
    assert json.loads(local.lines("info", "--json", job)[0])["exit_codes"] is None
