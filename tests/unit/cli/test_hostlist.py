"""The verb `penstock hostlist`."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pytest

from penstock.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def penstock(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(["hostlist", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.mark.parametrize(
    ("arguments", "out"),
    [
        ("expand n[8-10],a a", "n8\nn9\nn10\na\na\n"),
        ("expand -d , n[1-3]", "n1,n2,n3\n"),
        ("expand --json n[8-9]", '{"position": 0, "host": "n8"}\n{"position": 1, "host": "n9"}\n'),
        ("fold n1 n2 x n3", "n[1-2],x,n3\n"),
        ("fold --nd x0c1 x1c0 x0c0 x1c1", "x[0-1]c[0-1]\n"),
        ("expand x[0-1]c[0-1]", "x0c0\nx0c1\nx1c0\nx1c1\n"),
        ("count n[0-99] n5", "101\n"),
        ("nth 2 n[1-5]", "n3\n"),
        ("slice 1:3 n[1-5]", "n[2-3]\n"),
        ("slice -2: n[1-5]", "n[4-5]\n"),
        ("slice ::-1 n[1-3]", "n[3,2,1]\n"),
        ("slice 0,2-3 n[1-5]", "n[1,3-4]\n"),
        ("find n4 n[1-5]", "3\n"),
        ("find n[4-5],n1 n[1-5]", "3\n4\n0\n"),
        ("fold n[1-9] --difference n[2-3] --union n20,n1 --slice 1:", "n[4-9,20]\n"),
        ("count a,a,b --uniq --intersection b,c", "1\n"),
        ("union b a --sort --slice 0", "a\n"),
        ("symmetric-difference a,b b,c --difference a", "c\n"),
        ("count n@1", "1\n"),
        ("split 2 n[1-5]", "n[1-3]\nn[4-5]\n"),
        ("split --json 1 n[1-5]", '{"part": 0, "hosts": "n[1-5]", "count": 5}\n'),
        ("sort n10 n9 a", "a,n[9-10]\n"),
        ("uniq a b a", "a,b\n"),
        ("union a,a b", "a,b\n"),
        ("intersection a,b,a a,c", "a\n"),
        ("difference n[0-9],n0 n[2-3] n5", "n[0-1,4,6-9]\n"),
        ("symmetric-difference a,b b,c", "a,c\n"),
    ],
)
def test_verb(penstock: Run, arguments: str, out: str) -> None:
    assert penstock(*arguments.split()) == (0, out, "")


def test_verb_reads_the_standard_input(penstock: Run) -> None:
    many = "\n".join(f"n{i}" for i in range(70_000)).encode() + b"\n"
    assert penstock("fold", stdin=many) == (0, "n[0-69999]\n", "")
    code, out, _ = penstock("expand", "n[0-69999]")
    assert (code, out.encode()) == (0, many)
    assert penstock("union", "-", "b", stdin=b"a b\na") == (0, "a,b\n", "")
    assert penstock("count", "") == (0, "0\n", "")


def test_verb_mends(penstock: Run) -> None:
    err = 'penstock hostlist: mended "n1, n2": left out blanks at byte 3\n'
    assert penstock("fold", "--lenient", "n1, n2", "n3") == (0, "n[1-3]\n", err)
    read = b"n1, n2\n\nn[3, 5]\n"
    code, out, err = penstock("count", "--lenient", stdin=read)
    assert (code, out) == (0, "4\n")
    assert [line.rpartition(": ")[2] for line in err.splitlines()] == [
        "left out blanks at byte 3",
        "left out blanks at byte 4",
    ]
    assert penstock("union", "--lenient", "a,,b", "b,c")[:2] == (0, "a,b,c\n")
    code, out, err = penstock("fold", "--lenient", "n[3-1]")
    assert (code, out) == (1, "")
    assert "expected the range to end at 3 or above at byte 4" in err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("fold foo[1-]", 'invalid hostlist "foo[1-]": expected a number at byte 6'),
        ("find n9 n[1-3]", "host `n9` is not in it"),
        ("nth 5 n[1-3]", "no position 5 among 3 hosts"),
        ("expand a]", 'invalid hostlist "a]": expected no `]` without `[` at byte 1'),
    ],
)
def test_verb_names_bad_input(penstock: Run, arguments: str, error: str) -> None:
    assert penstock(*arguments.split()) == (1, "", f"penstock hostlist: {error}\n")


@pytest.mark.parametrize("arguments", ["", "bogus", "nth x a", "split -- -1 a", "fold -b a"])
def test_verb_names_bad_usage(penstock: Run, arguments: str) -> None:
    code, out, error = penstock(*arguments.split())
    assert (code, out) == (2, "")
    assert "penstock hostlist" in error


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        ("count @gpu", 1, "`@gpu` is a group reference"),
        ("fold n1!@gpu", 1, "`@gpu` is a group reference"),
        ("fold n1&@gpu,n2", 1, "`@gpu` is a group reference"),
        ("count n1 --union n2,@a[1-2]", 1, "`@a[1-2]` is a group reference"),
        ("slice 0,7 n[1-5]", 1, "no position 7 among 5 hosts"),
        ("find n[5-6] n[1-5]", 1, "host `n6` is not in it"),
        ("slice x n1", 2, "expected START:STOP or positions"),
    ],
)
def test_errors_of_groups_positions_and_hosts(
    penstock: Run, arguments: str, code: int, error: str
) -> None:
    found, out, err = penstock(*arguments.split())
    assert (found, out) == (code, "")
    assert error in err
