"""Errors of the command line: one line that names what was meant."""

from __future__ import annotations

import errno
import io

import pytest

from penstock.cli import VERBS, main


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["submit", "--nodess", "2", "true"], "unknown option `--nodess`; did you mean `--nodes`?"),
        (["submit", "--xyzzy=2", "true"], "unknown option `--xyzzy`"),
        (
            ["batch", "--conf", "x.toml", "script"],
            "unsupported option `--conf`: a nested instance has the default configuration",
        ),
        (["queue", "stop", "--al"], "unknown option `--al`; did you mean `--all`?"),
        (["submit", "--n=2", "true"], "unknown option `--n`; did you mean `-n`?"),
        (
            ["submit", "--gpus=2", "true"],
            "unknown option `--gpus`; did you mean `--gpus-per-node` or `--gpus-per-task`?",
        ),
        # Names that have only their dashes or one letter in common with a known one.
        (["submit", "--mem=4G", "true"], "unknown option `--mem`"),
        (["jobs", "--all"], "unknown option `--all`"),
        (["completion", "tcsh"], "argument SHELL: unknown value `tcsh`: expected bash, zsh, fish"),
        (["completion"], "the following arguments are required: SHELL"),
        (
            ["queue", "lst"],
            (
                "unknown operation `lst`: expected list, status, enable, disable, start, "
                "stop, drain, idle; did you mean `list`?"
            ),
        ),
        (
            ["logs", "--stream=stdot", "1"],
            (
                "argument --stream: unknown value `stdot`: expected "
                "stdout, stderr; did you mean `stdout`?"
            ),
        ),
        # Its argument would be an invalid job id.
        (["jobs", "--sotr", "name"], "unknown option `--sotr`; did you mean `--sort`?"),
        (["urgency", "--ver", "1", "hold"], "unknown option `--ver`"),
        (["uri", "1", "2"], "unexpected argument `2`"),
        (["urgency"], "the following arguments are required: ID, URGENCY"),
        (
            ["hostlist", "slice", "a[1-5]"],
            (
                "argument START:STOP[:STEP]|POSITIONS: expected START:STOP or positions: "
                'invalid idset "a[1-5]": expected a number at byte 0'
            ),
        ),
    ],
)
def test_an_error_is_one_line(capsys, words, error):
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    prog, found, hint = said.rpartition(f": {error} (")
    assert prog.startswith(f"penstock {words[0]}")
    assert (found, hint) == (f": {error} (", f"`{prog} --help` shows the usage)\n")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["hostlist", "slice", "-2:", "a[1-5]"], "a[4-5]"),
        (["idset", "slice", "-3:-1", "1-5"], "3-4"),
        (["idset", "slice", "::-2", "1-5"], "1,3,5"),
        (["idset", "slice", "-2:-4:-1", "1-5"], "3-4"),
    ],
)
def test_a_slice_may_begin_with_a_negative_number(capsys, words, shown):
    assert main(words) == 0
    assert capsys.readouterr().out == f"{shown}\n"


@pytest.mark.parametrize("words", [["--requires", "a&&"], ["--requires=b", "--requires=a&&"]])
def test_an_invalid_constraint_is_shown_as_it_was_written(capsys, words):
    assert main(["submit", *words, "true"]) == 2
    expected = "penstock submit: invalid constraint `a&&`: expected a term at byte 3\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("options", [[], ["--wrap"]])
def test_an_empty_script_is_rejected(capsys, monkeypatch, options):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\n")))
    assert main(["batch", "-n1", *options]) == 1
    expected = "penstock batch: standard input is empty: expected a script\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize(
    ("verb", "hint"),
    [
        ("jbos", "`jobs`"),
        ("drain", "`resource drain` or `queue drain`"),
        ("wait-event", "`job wait-event`"),
        ("backup", "`store backup`"),
    ],
)
def test_an_unknown_verb_is_one_line(capsys, verb, hint):
    assert main([verb]) == 2
    expected = f"penstock: unknown verb `{verb}`; did you mean {hint}? ("
    assert capsys.readouterr().err == f"{expected}`penstock --help` shows the usage)\n"


@pytest.mark.parametrize(
    ("words", "unknown", "close"),
    [
        (["jobs", "-f", "runing"], "filter `runing`", "running"),
        (["jobs", "--color=alwys"], "value `alwys`", "always"),
        (["kill", "-s", "sigtrem", "1"], "signal `sigtrem`", "TERM"),
        (["submit", "--rlimit=nofil=3", "true"], "limit `nofil`", "nofile"),
        (["submit", "--requires=hst:a", "true"], "operator `hst`", "host"),
        (["jobs", "-o", "{nnode}"], "field `nnode`", "nnodes"),
        (["jobs", "--sort=-nme"], "field `nme`", "name"),
        (["cancel", "--states=rnu"], "state `rnu`", "run"),
        (["submit", "--flags=waitabl", "true"], "flag `waitabl`", "waitable"),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(capsys, words, unknown, close):
    assert main(words) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert f"unknown {unknown}: expected " in line
    assert f"; did you mean `{close}`?" in line


def test_a_policy_is_answered_with_the_nearest(capsys):
    assert main(["start", "--policy=esy"]) == 2
    assert "with N of at least 1; did you mean `easy`? (" in capsys.readouterr().err


def test_options_of_another_command_are_not_taken_for_unknown_ones(capsys):
    assert main(["submit", "-n", "x", "ls", "--color"]) == 2
    assert "argument -n/--ntasks" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "close"),
    [
        ("unknown queue `debgu`: expected batch, debug", "debug"),
        ("unknown dependency scheme `begn-time`: expected after or begin-time", "begin-time"),
    ],
)
def test_names_that_an_instance_does_not_know_are_answered_with_the_nearest(
    fake, capsys, text, close
):
    def reject(request):
        return [request.respond(errnum=errno.EINVAL, errtext=text)]

    fake.methods["job-ingest.submit"] = reject
    assert main(["submit", "true"]) == 1
    assert capsys.readouterr().err == f"penstock submit: {text}; did you mean `{close}`?\n"


@pytest.mark.parametrize("columns", ["80", "60", "40"])
@pytest.mark.parametrize("verb", VERBS)
def test_the_text_of_a_help_fits_the_terminal(capsys, monkeypatch, verb, columns):
    monkeypatch.setenv("COLUMNS", columns)
    assert main([verb, "--help"]) == 0
    text = capsys.readouterr().out
    paragraphs = [part for part in text.split("\n\n") if not part.startswith(("usage:", " "))]
    # Commands and tables are indented.
    lines = [line for part in paragraphs for line in part.splitlines() if line[:1] != " "]
    assert [line for line in lines if len(line) > int(columns)] == []
    indented = [line for line in text.splitlines() if line[:1] == " "]
    if columns == "80":
        assert [line for line in indented if len(line) > 80] == []
