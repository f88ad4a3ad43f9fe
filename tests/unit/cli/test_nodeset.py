"""`penstock nodeset`; ClusterShell's own tests of it run by `make test-peer-suites`."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from penstock.cli import main
from penstock.compat.ClusterShell.NodeSet import set_std_group_resolver

CONFIGURATION = """
[Main]
default: local

[local]
map: sed -n 's/^$GROUP: //p' $CFGDIR/groups
list: sed -n 's/:.*//p' $CFGDIR/groups

[half]
map: echo n[1-2]
"""
GROUPS = "gpu: n[1-4]\ncpu: n[5-8]\n"


@pytest.fixture
def nodeset(capsys, monkeypatch, tmp_path):
    """Runs the verb; returns the lines of its output, or the exit code and the error."""
    (tmp_path / "groups.conf").write_text(CONFIGURATION)
    (tmp_path / "groups").write_text(GROUPS)

    def run(*arguments, stdin=None):
        if stdin is not None:
            monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        set_std_group_resolver(None)
        code = main(["nodeset", "--groupsconf", str(tmp_path / "groups.conf"), *arguments])
        set_std_group_resolver(None)
        out, err = capsys.readouterr()
        return (code, err.splitlines()[0]) if code else out.splitlines()

    return run


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["-f", "n[1-9]", "-x", "n6", "n20"], ["n[1-5,7-9,20]"]),
        (["n[1-9]", "-x", "n6", "-i", "n[6-12]", "-f"], ["n[7-9]"]),
        (["-f", "n[1-3]", "-xn2", "-X", "n[3-4]"], ["n[1,4]"]),
        (["-f", "-x", "n1", "--", "n1"], ["n1"]),
        (["-eS,", "n[1-3]"], ["n1,n2,n3"]),
        (["-e", "-S", "\\n", "n[1-2]"], ["n1", "n2"]),
        (["-e", "-O", "%s-ib0", "n[1-2]"], ["n1-ib0 n2-ib0"]),
        (["-f", "-O", "%s0", "n[1-2]"], ["n[10,20]"]),
        (["-f", "-O", "[%s]", "n[1-2]"], ["[n1],[n2]"]),
        (["-cR", "1-9/2"], ["5"]),
        (["-fR", "--", "-2-1"], ["-2-1"]),
        (["-f", "-I", "0,2-9/3", "n[1-9]"], ["n[1,3,6,9]"]),
        (["-f", "--split=2", "n[1-5]"], ["n[1-3]", "n[4-5]"]),
        (["-e", "--contiguous", "n[1-2,4]"], ["n1 n2", "n4"]),
        (["-f", "--axis=1", "r[1-2]n[1-2]"], ["r[1-2]n1,r[1-2]n2"]),
        (["-f", "--axis", "-1", "r[1-2]n[1-2]"], ["r1n[1-2],r2n[1-2]"]),
        (["-f", "--autostep=3", "n1,n3,n5"], ["n[1-5/2]"]),
        (["-f", "--autostep=auto", "n1,n3,n6"], ["n[1,3,6]"]),
        (["-f", "--autostep=74.9%", "n1,n3,n5,n6"], ["n[1-5/2,6]"]),
        (["-f", "--autostep=75.1%", "n1,n3,n5,n6"], ["n[1,3,5-6]"]),
        (["-c", "--pick=3", "n[1-9]"], ["3"]),
        (["--index", "n5", "n[1-9]", "-x", "n1"], ["3"]),
        (["-f", "@gpu!n1"], ["n[2-4]"]),
        (["-f", "-s", "half", "@any"], ["n[1-2]"]),
        (["-a", "-f", "-x", "@gpu"], ["n[5-8]"]),
        (["-r", "n[1-5]"], ["@gpu,n5"]),
        (["-r", "-s", "local", "n[1-4]"], ["@local:gpu"]),
        (["-r", "-G", "-s", "local", "n[1-4]"], ["@gpu"]),
        (["-l"], ["@cpu", "@gpu"]),
        (["-lll"], ["@cpu n[5-8] 4", "@gpu n[1-4] 4"]),
        (["-lll", "n1", "n2"], ["@gpu n[1-2] 2/4"]),
        (["--list-sources"], ["local (default)", "half"]),
        (["--list-sources", "-q", "-s", "half"], ["half", "local"]),
    ],
)
def test_commands(nodeset, arguments, output):
    assert nodeset(*arguments) == output


def test_standard_input(nodeset):
    assert nodeset("-f", stdin="n1 n2\nn3\n") == ["n[1-3]"]
    assert nodeset("-f", "-x", "n2", stdin="n[1-3]\n") == ["n[1,3]"]
    assert nodeset("-f", "n[1-9]", "-x", "-", stdin="n2\nn[4-8]\n") == ["n[1,3,9]"]
    text = "n1 # the login node\n# all of it\nn[2-3]#x\n\n n4\n"
    assert nodeset("-f", stdin=text) == ["n[1-4]"]
    assert nodeset("-cR", stdin="1-3 # 5\n") == ["3"]


def test_ranges_in_a_list_of_groups_are_expanded(nodeset, tmp_path):
    configuration = "[racks]\nmap: echo $GROUP-n\nlist: echo rack[1-2]\n"
    (tmp_path / "groups.conf").write_text(configuration)
    assert nodeset("-l") == ["@rack1", "@rack2"]
    assert nodeset("-ll") == ["@rack1 rack1-n", "@rack2 rack2-n"]


def test_a_source_that_lists_no_groups(nodeset, capsys):
    assert nodeset("-l", "-s", "half") == (
        1,
        'penstock nodeset: No list upcall defined for group source "half"',
    )
    assert main(["nodeset", "-l", "-s", "none"]) == 1
    assert "GroupResolverSourceError: none" in capsys.readouterr().err
    assert nodeset("-L") == ["@cpu", "@gpu"]
    # A source without a list, or whose list fails, does not hide those behind it.
    assert nodeset("-l", "-s", "half", "n1") == []
    assert nodeset("-L", "n1") == ["@gpu"]
    assert nodeset("-r", "-s", "half", "n1") == ["n1"]


@pytest.mark.parametrize("option", ["--contiguous", "--split=3"])
def test_an_empty_set_is_its_only_part(nodeset, option):
    assert nodeset("-c", option, "") == ["0"]
    assert nodeset("-cR", option, "") == ["0"]
    assert nodeset("-f", option, "") == [""]


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["-f", "n[1-"], 1, 'missing bracket : "n[1-"'),
        (["-fR", "3-1"], 1, "RangeSetParseError: invalid values in range"),
        (["--index", "n5", "n[1-4]"], 1, "nodeset: 'n5' is not in nodeset"),
        (["-c", "-f", "n1"], 2, "not allowed with argument"),
        (["n1"], 2, "one of the arguments -c/--count"),
        (["-e", "--axis=1", "n1"], 2, "--axis is for --fold of nodes only"),
        (["-R", "-l"], 2, "--rangeset has no groups"),
        (["-f", "--split=0", "n1"], 2, "expected a number from 1 on, found `0`"),
        (["-f", "-I", "x", "n1"], 2, "expected indexes such as 0-9/2,12"),
        (["-f", "--autostep=x", "n1"], 2, "expected a number, a percentage"),
        (["-e", "-O", "%s%s", "n1"], 2, "expected one %s"),
        (["-f", "--unknown", "n1"], 2, "unknown option `--unknown`"),
    ],
)
def test_errors(nodeset, arguments, code, error):
    found, message = nodeset(*arguments)
    assert found == code
    assert error in message


def test_an_operation_on_nothing_is_warned_about(nodeset, capsys):
    main(["nodeset", "-f", "-x", "n1", "n2"])
    out, err = capsys.readouterr()
    assert (out, err) == ("n2\n", "WARNING: empty left operand for set operation\n")
    for silent in (["-q", "-x", "n1", "n2"], ["n1", "-x", "n1", "-x", "n2"], ["", "-x", "n2"]):
        main(["nodeset", "-f", *silent])
        assert capsys.readouterr().err == ""


def run_with_defaults(folder, text, *arguments):
    """Runs the verb in a process of its own, which reads a `defaults.conf`."""
    (folder / "defaults.conf").write_text(text)
    environment = {**os.environ, "CLUSTERSHELL_CFGDIR": str(folder)}
    command = [sys.executable, "-m", "penstock", "nodeset", *arguments]
    return subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_the_axes_of_defaults_conf(tmp_path):
    text = "[nodeset]\nfold_axis: -1\n"
    done = run_with_defaults(tmp_path, text, "-f", "r[1-2]n[1-2]")
    assert (done.stdout, done.stderr) == ("r1n[1-2],r2n[1-2]\n", "")
    done = run_with_defaults(tmp_path, text, "-f", "--axis=1", "r[1-2]n[1-2]")
    assert done.stdout == "r[1-2]n1,r[1-2]n2\n"


def test_an_invalid_defaults_conf(tmp_path):
    done = run_with_defaults(tmp_path, "[nodeset]\nfold_axis: x\n", "-f", "n1")
    path = tmp_path / "defaults.conf"
    assert done.returncode == 1
    assert done.stderr == (
        f"penstock nodeset: {path}: nodeset.fold_axis: expected integers separated by commas, "
        "found `x`\n"
    )
