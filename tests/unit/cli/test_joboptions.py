"""Options of jobs: the rules of `--env`, and begin times."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import pytest
from virtualtime import SteppedClock

from penstock.cli import joboptions, main
from penstock.cli.text import safe
from penstock.errors import JobspecError, UsageError
from penstock.jobspec import dependency, environment_from_rules

CURRENT = {"PATH": "/bin", "OMP_A": "1", "OMP_B": "2", "HOME": "/h"}


@pytest.mark.parametrize(
    ("rules", "environment"),
    [
        ([], CURRENT),
        (["-*"], {}),
        (["-/.*/"], {}),
        (["-/^OMP/"], {"PATH": "/bin", "HOME": "/h"}),
        (["-/_B$"], {"PATH": "/bin", "OMP_A": "1", "HOME": "/h"}),
        (["-*", "OMP_*"], {"OMP_A": "1", "OMP_B": "2"}),
        (["-*", "/^P.*/"], {"PATH": "/bin"}),
        (["-*", "NOSUCH*"], {}),
        # A variable that a rule has set is not replaced by the current environment.
        (["-*", "OMP_A=9", "OMP_*"], {"OMP_A": "9", "OMP_B": "2"}),
        # A value is expanded from the rules before, else from the current environment.
        (["-*", "PATH=$PATH:/x", "X=${PATH}:$HOME"], {"PATH": "/bin:/x", "X": "/bin:/x:/h"}),
        (["-*", "X=$$HOME", "Y=a=b", "Z="], {"X": "$HOME", "Y": "a=b", "Z": ""}),
    ],
)
def test_rules_apply_in_order(rules, environment, monkeypatch):
    monkeypatch.setattr("os.environ", dict(CURRENT))
    assert environment_from_rules(rules) == environment


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("X=$NOSUCH", "environment rule `X=$NOSUCH`: `NOSUCH` is not set"),
        ("X=${HOME:-y}", "environment rule `X=${HOME:-y}`: expected `$NAME`, `${NAME}` or `$$`"),
        ("-/(/", "environment pattern `/(/`: missing ), unterminated subpattern at position 0"),
        ("^/nosuch/file", "environment rule `^/nosuch/file`: No such file or directory"),
    ],
)
def test_an_invalid_rule_is_an_error(rule, text, monkeypatch):
    monkeypatch.setattr("os.environ", dict(CURRENT))
    with pytest.raises(JobspecError) as caught:
        environment_from_rules([rule])
    assert str(caught.value).startswith(text)


def test_rules_may_stand_in_a_file_which_does_not_name_itself(tmp_path):
    outer, inner = tmp_path / "outer", tmp_path / "inner"
    outer.write_text(f"-*\n\n  ^{inner}\nY=$X\n")
    inner.write_text("X=1\n")
    assert environment_from_rules([f"^{outer}"]) == {"X": "1", "Y": "1"}
    inner.write_text(f"^{outer}\n")
    with pytest.raises(JobspecError, match="the file names itself"):
        environment_from_rules([f"^{outer}"])


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", "0"),
        ("1795262903", "1795262903"),
        ("12.5", "12.5"),
        ("+3", "10003"),
        ("+1.5h", "15400"),
        ("1970-01-02T00:00:00+00:00", "86400"),
        ("1970-01-02 01:00Z", "90000"),
    ],
)
def test_a_time_to_begin_has_many_forms(value, seconds):
    expected = {"scheme": "begin-time", "value": seconds}
    assert dependency(f"begin-time:{value}", SteppedClock(10_000.0)) == expected


def test_a_time_without_a_zone_is_local():
    when = time.mktime((2030, 1, 2, 3, 4, 0, 0, 0, -1))
    assert float(dependency("begin-time:2030-01-02T03:04")["value"]) == when
    midnight = time.mktime((2030, 1, 2, 0, 0, 0, 0, 0, -1))
    assert float(dependency("begin-time:2030-01-02")["value"]) == midnight


@pytest.mark.parametrize("value", ["-3", "+-3", "+inf", "+", "soon", "nan", "inf", "1_0", "1.2.3"])
def test_an_invalid_begin_time_is_an_error(value):
    with pytest.raises(JobspecError, match="expected seconds since the epoch, an ISO date"):
        dependency(f"begin-time:{value}")


def options(*words):
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.set_defaults(clock=SteppedClock())
    joboptions.register(parser)
    return parser.parse_args([*words, "true"])


def parsed(*words):
    return joboptions.jobspecs(options(*words))


def test_options_take_ranges():
    (spec,) = parsed("-N2-4", "-c", "2+:2:*", "-g1-2", "--cc=7")
    (node,) = spec["resources"]
    assert node["count"] == {"min": 2, "max": 4, "operator": "+", "operand": 1}
    amounts = {child["type"]: child["count"] for child in node["with"][0]["with"]}
    assert amounts["core"] == {"min": 2, "operator": "*", "operand": 2}
    assert amounts["gpu"] == {"min": 1, "max": 2, "operator": "+", "operand": 1}


def test_tasks_and_gpus_are_counted_by_node():
    (spec,) = parsed("-N3", "--tasks-per-node=4", "--gpus-per-node=8", "-c2")
    (node,) = spec["resources"]
    assert (node["count"], node["exclusive"]) == (3, True)
    (slot,) = node["with"]
    assert slot["count"] == 4
    assert {child["type"]: child["count"] for child in slot["with"]} == {"core": 2, "gpu": 2}
    assert spec["tasks"][0]["count"] == {"per_slot": 1}
    (spec,) = parsed("-N2-4", "--gpus-per-node=2")
    (slot,) = spec["resources"][0]["with"]
    assert {child["type"]: child["count"] for child in slot["with"]} == {"core": 1, "gpu": 2}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--tasks-per-node=2"], "tasks per node: expected a number of nodes"),
        (["-N2", "-n4", "--tasks-per-node=2"], "tasks per node: expected a number of nodes"),
        (["--gpus-per-node=2"], "--gpus-per-node: expected --nodes, too"),
        (["-N1", "-g1", "--gpus-per-node=2"], "--gpus-per-node excludes"),
        (["-N1", "-n1", "--gpus-per-node=2"], "--gpus-per-node excludes"),
        (["-N1", "--tasks-per-node=2", "--gpus-per-node=3"], "a multiple of --tasks-per-node (2)"),
    ],
    ids=" ".join,
)
def test_counts_by_node_that_contradict_others_are_bad_usage(words, text):
    with pytest.raises(UsageError) as caught:
        parsed(*words)
    assert text in str(caught.value)


@pytest.mark.parametrize("text", ["0", "-1", "2-4", "x"])
def test_an_invalid_number_by_node_is_bad_usage(text):
    with pytest.raises(argparse.ArgumentError, match="expected a whole number from 1"):
        parsed("-N1", f"--tasks-per-node={text}")


def test_short_forms_of_other_options(tmp_path, monkeypatch):
    monkeypatch.setattr("os.environ", {"A": "1", "B": "2", "C": "3"})
    file = tmp_path / "rules"
    file.write_text("B=4\n")
    words = ["--env-remove=A", f"--env-file={file}", "--begin-time=+2h", "--bank=physics"]
    (short,) = parsed(*words, "--dependency=after:ƒ2")
    system = short["attributes"]["system"]
    assert system["environment"] == {"B": "4", "C": "3"}
    assert system["bank"] == "physics"
    assert [part["scheme"] for part in system["dependencies"]] == ["begin-time", "after"]
    long = ["--env=-A", f"--env=^{file}", "--dependency=begin-time:+2h", "-Ssystem.bank=physics"]
    assert [short] == parsed(*long, "--dependency=after:ƒ2")


@pytest.mark.parametrize("text", ["0", "4-2", "x", "", "2-", "-1", "4294967296", "1:2"])
def test_an_invalid_count_is_bad_usage(text):
    with pytest.raises(argparse.ArgumentError, match="from 1 or a range, found"):
        parsed(f"-N{text}" if text else "--nodes=")


def test_short_options_mean_what_they_mean_in_flux():
    (spec,) = parsed("-o", "verbose=2", "-opty.interactive", "-S", "memo.a=b", "-Suser.c=[1]")
    attributes = spec["attributes"]
    options = attributes["system"]["shell"]["options"]
    assert (options["verbose"], options["pty"]) == (2, {"interactive": 1})
    assert attributes["system"]["memo"] == {"a": "b"}
    assert attributes["user"] == {"c": [1]}
    assert "output" not in options


@pytest.mark.parametrize(
    "words",
    [
        ["--job-name=n{cc}"],
        ["--output=out-{cc}-{{cc}}-{{id}}", "--error={cc}"],
        ["--env=A={cc}", "--env=B=${A}"],
        ["-o", "verbose={cc}"],
        ["-S", "user.a={cc}", "-S", 'user.b={"{cc}": ["{cc}", 1, {"c": "x{cc}"}]}'],
        [],
    ],
)
def test_copies_share_a_jobspec_if_they_differ_by_its_text(words, monkeypatch):
    monkeypatch.setenv("UNCHANGED", "{c}")
    template = joboptions.template(options("--cc=1-3,20", *words))
    text = json.dumps(template)
    copies = [json.loads(text.replace("{cc}", str(copy))) for copy in (1, 2, 3, 20)]
    assert copies == parsed("--cc=1-3,20", *words)


@pytest.mark.parametrize(
    "words",
    [
        ["--dependency=after:{cc}"],
        ["-o", "name.{cc}=1"],
        ["-S", "system.bank={cc}"],
        ["-S", "user.{cc}=1"],
        ["--env=X{cc}"],
        ["--env=-X{cc}"],
        ["--env=X{cc}=1"],
        ["--env=A=$X{cc}"],
        ["--env=/X{cc}=/"],
        ["--cwd=/{cc}"],
        ["--queue=q{cc}"],
        ["--requires=host:n{cc}"],
        ["--job-name=\ufdd0"],
    ],
)
def test_copies_that_differ_in_another_way_share_no_jobspec(words, monkeypatch):
    monkeypatch.setenv("X1", "1")
    assert joboptions.template(options("--cc=1-2", *words)) is None


def test_copies_with_the_text_in_a_variable_of_the_environment_share_no_jobspec(monkeypatch):
    assert joboptions.template(options("true")) is None
    monkeypatch.setenv("HINT", "{cc}")
    assert joboptions.template(options("--cc=1-2")) is None
    assert joboptions.template(options("--bcc=1-2")) is None
    first, second = parsed("--bcc=1-2")
    assert first == second
    assert first["attributes"]["system"]["environment"]["HINT"] == "{cc}"


def test_each_copy_has_its_directory_queue_and_constraint():
    specs = parsed("--cc=1-2", "--cwd=d{cc}", "--queue=q{cc}", "--requires=host:n{cc}")
    for copy, spec in enumerate(specs, 1):
        system = spec["attributes"]["system"]
        assert system["cwd"] == str(Path.cwd() / f"d{copy}")
        assert system["queue"] == f"q{copy}"
        assert system["constraints"] == {"hostlist": [f"n{copy}"]}


def test_a_working_directory_is_relative_to_the_current_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    directories = {"sub": f"{tmp_path}/sub", "/a/b": "/a/b", "{{tmpdir}}": "{{tmpdir}}"}
    for given, expected in directories.items():
        (spec,) = parsed(f"--cwd={given}")
        assert spec["attributes"]["system"]["cwd"] == expected
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    (spec,) = parsed("--cwd=/a/b")
    assert spec["attributes"]["system"]["cwd"] == "/a/b"


def test_a_shell_option_of_each_copy():
    specs = parsed("--cc=1-2", "-o", "name.{cc}={cc}")
    options = [spec["attributes"]["system"]["shell"]["options"]["name"] for spec in specs]
    assert options == [{"1": "1"}, {"2": "2"}]


@pytest.mark.parametrize(
    "words", [["--output=out", "--pmix"], ["--setattr=shell.options.pmix=true"]]
)
def test_a_job_asks_for_a_pmix_server_by_a_shell_option(words):
    parser = argparse.ArgumentParser()
    parser.set_defaults(clock=SteppedClock())
    joboptions.register(parser)
    [spec] = joboptions.jobspecs(parser.parse_args([*words, "true"]))
    assert spec["attributes"]["system"]["shell"]["options"]["pmix"]
    [spec] = joboptions.jobspecs(parser.parse_args(["--output=out", "true"]))
    assert "pmix" not in spec["attributes"]["system"]["shell"]["options"]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("/nosuch/data", "No such file or directory"),
        ("d=/", "Is a directory"),
        ("a:9=/dev/null", "expected octal permissions as 600 or 0755, found `9`"),
        ("../a=/dev/null", "expected the name of a file below the job's directory"),
        ("/a=/dev/null", "expected the name of a file below the job's directory"),
        ("=/dev/null", "expected the name of a file below the job's directory"),
        ("a\udcff=/dev/null", "expected the name of a file below the job's directory"),
    ],
)
def test_an_invalid_added_file_is_an_error(text, error, capsys):
    assert main(["submit", "--dry-run", f"--add-file={text}", "true"]) == 2
    assert capsys.readouterr().err == f"penstock submit: --add-file={safe(text)}: {error}\n"


def test_of_files_with_one_name_the_last_is_added(capsys):
    words = ["--add-file=a=1\n", "--add-file=a:640=2\n", "true"]
    assert main(["submit", "--dry-run", *words]) == 0
    files = json.loads(capsys.readouterr().out)["attributes"]["system"]["files"]
    assert files == {"a": {"mode": 0o100640, "size": 2, "encoding": "utf-8", "data": "2\n"}}
