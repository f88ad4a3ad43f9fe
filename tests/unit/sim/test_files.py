"""Files that `penstock sim` writes, replaces, and leaves alone."""

from __future__ import annotations

import os
import sys

import pytest

from penstock import ResourceSet
from penstock.cli import main
from penstock.sim import files

SWF = b"""\
; MaxProcs: 4
1 0 -1 10 3 -1 -1 3 10 -1 1 -1 -1 -1 -1 -1 -1 -1
2 1 -1 5 4 -1 -1 4 5 -1 1 -1 -1 -1 -1 -1 -1 -1
3 1 -1 8.5 1 -1 -1 1 9 -1 1 -1 -1 -1 -1 -1 -1 -1
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.swf").write_bytes(SWF)
    return tmp_path


def sim(capsys, *args, code=0):
    """Runs `penstock sim`; returns its stdout and stderr."""
    assert main(["sim", *args]) == code
    return capsys.readouterr()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--report", "a.swf"], "--report: `a.swf` is read as well"),
        (["--report", "sub/../a.swf"], "--report: `sub/../a.swf` is read as well"),
        (["--report", "link.html"], "--report: `link.html` is read as well"),
        (["--report", "r.json"], "--report: `r.json` is read as well"),
        (["--report", "f"], "--report: `f` is read as well"),
        (["--out", "os", "--report", "os/jobs.csv"], "is one of the results of --out as well"),
        (["--out", "os", "--report", "os/summary.json"], "is one of the results of --out as well"),
        (["--out", "os", "--report", "os"], "--report: `os` is the directory of --out, or above"),
        (["--out", "os/a", "--report", "os"], "`os` is the directory of --out, or above it"),
    ],
)
def test_nothing_that_is_read_or_written_is_overwritten(here, capsys, args, said):
    (here / "sub").mkdir()
    (here / "link.html").symlink_to("a.swf")
    (here / "f").write_text("4 0 down\n")
    (here / "r.json").write_text(ResourceSet.uniform("0-1", "n[0-1]", cores="0-1").to_json())
    before = {path: path.is_file() and path.read_bytes() for path in here.rglob("*")}
    options = ["--inventory", "r.json", "--failures", "f"]
    assert said in sim(capsys, "a.swf", *options, *args, code=2).err
    assert {path: path.is_file() and path.read_bytes() for path in here.rglob("*")} == before


def test_the_r_that_an_inventory_names_is_read_as_well(here, capsys):
    (here / "sub").mkdir()
    r = here / "sub" / "jobs.csv"
    r.write_text(ResourceSet.uniform("0-1", "n[0-1]", cores="0-1").to_json())
    (here / "sub" / "m.toml").write_text('[resource]\npath = "jobs.csv"\n')
    before = r.read_bytes()
    options = ["a.swf", "--inventory", "sub/m.toml"]
    for args, said in [
        (["--report", "sub/jobs.csv"], "--report: `sub/jobs.csv` is read as well"),
        (["--out", "sub"], "--out: `sub/jobs.csv` is read as well"),
    ]:
        assert said in sim(capsys, *options, *args, code=2).err
    sim(capsys, *options, "--out", "apart")
    assert r.read_bytes() == before


def test_the_results_of_each_of_several_traces_are_its_own(here, capsys):
    (here / "b.swf").write_bytes(SWF)
    said = sim(capsys, "a.swf", "b.swf", "--out", "os", "--report", "os/b/jobs.csv", code=2).err
    assert "--report: `os/b/jobs.csv` is one of the results of --out as well" in said
    sim(capsys, "a.swf", "b.swf", "--out", "os", "--report", "os/jobs.csv")
    assert sorted(path.name for path in (here / "os").iterdir()) == ["a", "b", "jobs.csv"]


def test_a_trace_beside_its_results_stays(here, capsys):
    (here / "jobs.csv").write_bytes(SWF)
    said = sim(capsys, "jobs.csv", "--out", ".", code=2).err
    assert "--out: `jobs.csv` is read as well" in said
    assert (here / "jobs.csv").read_bytes() == SWF


def test_a_file_is_written_once(here):
    with files.Writer() as writer:
        writer.text(here / "one", "a")
        with pytest.raises(files.FilesError, match="one` would be written twice"):
            writer.text(here / "." / "one", "b")
    assert (here / "one").read_text() == "a"


def test_earlier_results_are_removed(here, capsys, monkeypatch):
    (here / "out").mkdir()
    stale = here / "out" / "jobs.parquet"
    stale.write_text("of other jobs")
    with monkeypatch.context() as patch:
        patch.setattr("penstock.sim.report.page", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            main(["sim", "a.swf", "--out", "out", "--report", "r.html"])
    assert stale.exists(), "nothing was replaced"
    sim(capsys, "a.swf", "--out", "out")
    assert sorted(path.name for path in (here / "out").iterdir()) == ["jobs.csv", "summary.json"]


def test_parquet_needs_its_package(here, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    said = sim(capsys, "a.swf", "--out", "out", "--parquet", code=1)
    assert "hint: pip install pyarrow" in said.err
    assert not (here / "out").exists()


def test_parquet(here, capsys):
    parquet = pytest.importorskip("pyarrow.parquet")
    sim(capsys, "a.swf", "--out", "out", "--parquet")
    table = parquet.read_table(here / "out" / "jobs.parquet").to_pydict()
    assert tuple(table) == files.COLUMNS
    assert (table["end"], table["backfilled"]) == ([10, 15, 9.5], [False, False, True])


def test_files_are_unchanged_after_an_error(here, capsys, monkeypatch):
    sim(capsys, "a.swf", "--out", "out")
    before = {path.name: path.read_bytes() for path in (here / "out").iterdir()}

    def full(self, path, text):
        self.path(path).write_text(text[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.Writer, "text", full)
    said = sim(capsys, "a.swf", "--policy", "fcfs", "--out", "out", code=1)
    assert "No space left" in said.err
    assert {path.name: path.read_bytes() for path in (here / "out").iterdir()} == before


def test_only_regular_files_are_replaced(here, capsys):
    """A rename over a device or a pipe would take it away from everybody."""
    os.mkfifo(here / "pipe")
    (here / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        said = sim(capsys, "a.swf", "--report", name, code=2).err
        assert f"--report `{name}` is not a regular file" in said
    (here / "out").mkdir()
    os.mkfifo(here / "out" / "jobs.csv")
    assert "is not a regular file" in sim(capsys, "a.swf", "--out", "out", code=1).err
    assert (here / "pipe").is_fifo()
    assert (here / "link").is_symlink()
    assert [(path.name, path.is_fifo()) for path in (here / "out").iterdir()] == [
        ("jobs.csv", True)
    ]


def test_a_file_that_another_user_has_prepared_is_not_written(here):
    (here / "other").write_text("before")
    for number in (os.getpid(), os.getpid() + 1):
        (here / f".one.{number}").symlink_to("other")
    with files.Writer() as writer:
        writer.text(here / "one", "a")
    assert (here / "one").read_text() == "a"
    assert (here / "other").read_text() == "before"


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a link of another user")
def test_a_link_of_another_user_is_not_followed(here):
    (here / "real").write_text("before")
    (here / "link").symlink_to("real")
    os.lchown(here / "link", 54321, 54321)
    with files.Writer() as writer, pytest.raises(files.FilesError, match="of another user"):
        writer.text(here / "link", "a")
    assert (here / "real").read_text() == "before"


def test_a_link_to_a_file_stays_a_link(here, capsys):
    (here / "real.html").write_text("before")
    (here / "link.html").symlink_to("real.html")
    sim(capsys, "a.swf", "--report", "link.html")
    assert (here / "link.html").is_symlink()
    assert "<h1>a.swf</h1>" in (here / "real.html").read_text()
