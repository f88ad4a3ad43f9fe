"""The jobs that `bulksubmit` makes of its inputs, as it shows them with `--dry-run`."""

from __future__ import annotations

import errno
import io
import shlex
from itertools import product

import pytest

from penstock.cli import main


@pytest.fixture
def jobs(capsys, monkeypatch):
    """Gives the words of the `penstock submit` of each job."""

    def run(*words, stdin=""):
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        assert main(["bulksubmit", "--dry-run", *words]) == 0
        lines = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
        assert all(line[:2] == ["penstock", "submit"] for line in lines)
        return [line[2:] for line in lines]

    return run


def commands(lines):
    return [" ".join(line) for line in lines]


def test_inputs_are_words_lines_and_files(jobs, tmp_path):
    assert jobs("echo", "{}", ":::", "a b", "c") == [["echo", "a b"], ["echo", "c"]]
    assert commands(jobs("echo", "{}", stdin="a b\nc\n")) == ["echo a b", "echo c"]
    file = tmp_path / "inputs"
    file.write_text("a b\nc\n")
    assert commands(jobs("echo", "{}", "::::", str(file))) == ["echo a b", "echo c"]
    words = ["echo a", "echo b", "echo c"]
    assert commands(jobs("--sep", "none", "echo", "{}", "::::", str(file))) == words
    file.write_text("a:b:c\n")
    assert commands(jobs("--sep", ":", "echo", "{}", "::::", str(file))) == words
    assert commands(jobs("echo", "{}", "::::", str(file), "-", stdin="d")) == [
        "echo a:b:c",
        "echo d",
    ]


def test_without_a_command_the_input_is_the_command(jobs):
    assert jobs(":::", "a", "b") == [["a"], ["b"]]
    assert jobs("--", ":::", "a") == [["a"]]
    assert jobs("true", ":::") == []


def test_lists_are_combined_or_linked(jobs):
    combined = jobs("{}", "{1}{0}", ":::", "a", "b", ":::", "1", "2")
    assert combined == [[x, y + x] for x, y in product("ab", "12")]
    linked = jobs("{}{}", ":::", "a", "b", "c", ":::+", "1", "2")
    assert commands(linked) == ["a1", "b2", "c1"]
    both = jobs("{}{}{}", ":::", "a", "b", ":::+", "1", "2", ":::", "x", "y")
    assert commands(both) == ["a1x", "a1y", "b2x", "b2y"]


def test_placeholders_have_attributes(jobs):
    words = ["{}", "{.%}", "{./}", "{./%}", "{.//}", "{0.%}", "{seq}", "{seq1}"]
    expected = ["/d/a.txt", "/d/a", "a.txt", "a", "/d", "/d/a", "0", "1"]
    assert jobs(*words, ":::", "/d/a.txt") == [expected]
    assert jobs("--define", "square=int(x)**2", "echo", "{.square}", ":::", "3") == [["echo", "9"]]
    # Others are no placeholders.
    others = ["{{id}}", "{x}", "{print $1}", "${A}", "{cc}"]
    assert jobs(*others, ":::", "a") == [others]


def test_options_have_placeholders(jobs):
    options = ["-n{}", "--job-name={seq}", "-c", "2", "--env=A={1}", "-x", "-N1"]
    assert jobs(*options, "true", ":::", "3", ":::", "-y") == [
        ["-n3", "--job-name=0", "-c2", "--env=A=-y", "-x", "-N1", "true"]
    ]


def test_shuffled_jobs_are_the_same_jobs(jobs):
    numbers = [str(number) for number in range(1000)]
    shuffled = commands(jobs("--shuffle", ":::", *numbers))
    assert shuffled != numbers
    assert sorted(shuffled, key=int) == numbers


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["{2}", ":::", "a"], "`{2}` in `{2}`: no list 2 of inputs: expected 0"),
        (["{}{}{}", ":::", "a", ":::", "b"], "no list 2 of inputs: expected 0 to 1"),
        (["{.size}", ":::", "a"], "unknown `{.size}` in `{.size}`: expected .%, ./"),
        (["true", ":::+", "a"], "`:::+`: expected a list of inputs before it"),
        (["true", ":::", "a", ":::+"], "a linked list of inputs is empty"),
        (["true", "::::", "/nosuch"], "inputs of `/nosuch`: No such file"),
        (["--define", "n=int(x)", "{.n}", ":::", "a"], "--define n: input `a`: ValueError: "),
        (["--define", "n=(", "{.n}", ":::", "a"], "`(`: "),
        (["--define", "n", "{.n}", ":::", "a"], "expected NAME=CODE, found `n`"),
        (["-n{}", "true", ":::", "many"], "argument -n/--ntasks: expected a whole number"),
        (["--progress", "true", ":::", "a"], "--progress: expected --wait or --watch, too"),
        (["--cc=1", "--bcc=1", "true", ":::", "a"], "--cc and --bcc exclude each other"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_submitted_is_bad_usage(words, text, capsys, monkeypatch):
    monkeypatch.setenv("PENSTOCK_URI", "local:///nowhere")
    assert main(["bulksubmit", *words]) == 2
    assert text in capsys.readouterr().err


def test_an_error_names_the_inputs(fake, capsys):
    reasons = ("jobs[1]: no", "jobs[0,2-3,5-7]: never", "jobs from 9 on were not checked")
    text = f"no job is submitted: {'; '.join(reasons)}"
    fake.methods["job-ingest.submit"] = lambda request: [
        request.respond(errnum=errno.EINVAL, errtext=text)
    ]
    inputs = [*"abcdefgh", "i j"]
    assert main(["bulksubmit", "echo", "{}", ":::", *inputs, "k"]) == 1
    named = (
        "no job is submitted: input `b`: no; inputs `a`, `c`, `d`, `f`, `g` and 1 more: never; "
        "jobs from input `k` on were not checked"
    )
    assert capsys.readouterr() == ("", f"penstock bulksubmit: {named}\n")


@pytest.mark.parametrize("word", ["jobs[9]", "jobs[3-1]", "jobs[,]", "jobs[0-99999999999999]"])
def test_words_of_a_user_in_an_error_are_no_positions(fake, capsys, word):
    text = f"no job is submitted: jobs[0]: queue `x; {word}: y`: no queues are configured"
    fake.methods["job-ingest.submit"] = lambda request: [
        request.respond(errnum=errno.EINVAL, errtext=text)
    ]
    assert main(["bulksubmit", "echo", "{}", ":::", "a", "b"]) == 1
    named = text.replace("jobs[0]", "input `a`")
    assert capsys.readouterr() == ("", f"penstock bulksubmit: {named}\n")
