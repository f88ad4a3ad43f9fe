"""`penstock sim`: output, files, and errors."""

from __future__ import annotations

import csv
import gzip
import json
import re
from xml.etree import ElementTree

import pytest

from penstock import ResourceSet
from penstock.cli import main

SWF = b"""\
; MaxProcs: 4
; UnixStartTime: 749458803
1 0 -1 10 3 -1 -1 3 10 -1 1 -1 -1 -1 -1 -1 -1 -1
2 1 -1 5 4 -1 -1 4 5 -1 1 -1 -1 -1 -1 -1 -1 -1
3 1 -1 8.5 1 -1 -1 1 9 -1 1 -1 -1 -1 -1 -1 -1 -1
"""
LINES = b"""\
{"id": 7, "submit": 0, "run": 10, "nodes": 2, "slots": 2}
{"id": 5, "submit": 1, "run": 5, "cores": 1, "limit": 8}
"""
HEAD = "policy,id,submit,start,end,cores,nodes,wait,backfilled\n"
FCFS = "fcfs,1,0,0,10,3,1,0,0\nfcfs,2,1,10,15,4,1,9,0\nfcfs,3,1,15,23.5,1,1,14,0\n"
EASY = "easy,1,0,0,10,3,1,0,0\neasy,2,1,10,15,4,1,9,0\neasy,3,1,1,9.5,1,1,0,1\n"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.swf").write_bytes(SWF)
    (tmp_path / "b.jsonl").write_bytes(LINES)
    return tmp_path


def rows(directory):
    with (directory / "jobs.csv").open() as file:
        return list(csv.DictReader(file))


def used(found):
    """Core-seconds of these rows."""
    ran = [row for row in found if row["start"]]
    return sum(int(row["cores"]) * (float(row["end"]) - float(row["start"])) for row in ran)


def sim(capsys, *args, code=0):
    """Runs `penstock sim`; returns its stdout and stderr."""
    assert main(["sim", *map(str, args)]) == code
    return capsys.readouterr()


def test_a_row_a_job_and_policy(here, capsys):
    sim(capsys, "a.swf", "--policy", "fcfs,easy", "--out", "out")
    assert (here / "out" / "jobs.csv").read_bytes() == (HEAD + FCFS + EASY).encode()


def test_a_job_that_never_starts_has_no_times(here, capsys):
    (here / "c.jsonl").write_text(
        '{"submit":0,"run":1,"cores":9}\n{"submit":0.25,"run":1,"cores":1}'
    )
    said = sim(capsys, "c.jsonl", "--cores", "4", "--out", "out").out
    written = (here / "out" / "jobs.csv").read_text()
    assert written.splitlines()[1] == "easy,1,0,,,9,1,,0"
    assert written.splitlines()[2] == "easy,2,0.25,0.25,1.25,1,1,0,0"
    assert "denied" in said


def test_a_packed_trace_is_the_same(here, capsys):
    (here / "a.swf.gz").write_bytes(gzip.compress(SWF))
    sim(capsys, "a.swf.gz", "--out", "packed")
    sim(capsys, "a.swf", "--out", "plain")
    names = [(here / name / "jobs.csv").read_bytes() for name in ("packed", "plain")]
    assert names[0] == names[1]


def test_json_lines_in_the_order_of_the_file(here, capsys):
    sim(capsys, "b.jsonl", "--nodes", "2", "--cores", "2", "--out", "out")
    found = [(row["id"], row["start"], row["cores"], row["nodes"]) for row in rows(here / "out")]
    assert found == [("7", "0", "4", "2"), ("5", "10", "1", "1")]


def test_the_summary(here, capsys):
    sim(capsys, "a.swf", "--policy", "fcfs,easy", "--out", "out")
    summary = json.loads((here / "out" / "summary.json").read_text())
    assert set(summary) == {
        *("version", "command", "workload", "machine", "options", "assumptions", "runs")
    }
    assert summary["command"][:3] == ["penstock", "sim", "a.swf"]
    assert summary["workload"] == {
        "name": "a.swf",
        "jobs": 3,
        "first_submit": 0,
        "last_submit": 1,
        "unix_start": 749458803,
    }
    assert (summary["machine"]["cores"], summary["machine"]["pool"]) == (4, True)
    assert summary["options"]["policy"] == ["fcfs", "easy"]
    fcfs, easy = summary["runs"]
    assert (fcfs["policy"], easy["policy"]) == ("fcfs", "easy")
    assert (fcfs["makespan"], easy["makespan"]) == (23.5, 15)
    assert (easy["wait_mean"], easy["wait_max"], easy["backfilled"]) == (3, 9, 1)
    assert easy["utilisation"] == pytest.approx((30 + 20 + 8.5) / 60)
    keys = {f"{what}_{part}" for what in ("wait", "slowdown") for part in ("mean", "p95", "median")}
    assert keys <= set(easy)


def test_the_command_in_the_summary_does_the_same(here, capsys):
    options = ["--mix", "50%:1c:10m,2n:1h", "--nodes", "4", "--cores", "2", "--jobs", "50"]
    options += ["--seed", "0", "--mtbf", "2h", "--selection", "pack", "--estimates"]
    sim(capsys, *options, "--out", "one")
    command = json.loads((here / "one" / "summary.json").read_text())["command"]
    assert command[:2] == ["penstock", "sim"]
    again = ["two" if word == "one" else word for word in command[2:]]
    sim(capsys, *again)
    assert (here / "one" / "jobs.csv").read_bytes() == (here / "two" / "jobs.csv").read_bytes()


def test_a_table_of_policies_side_by_side(capsys):
    said = sim(capsys, "a.swf", "--policy", "fcfs,easy")
    lines = said.out.splitlines()
    assert lines[0] == "a.swf: 3 jobs over 1.00 s, on one pool of cores, 4 of them"
    assert any(line.startswith("  assumed: ") for line in lines)
    head = next(n for n, line in enumerate(lines) if line.startswith("policy"))
    assert re.split(r"  +", lines[head])[:6] == ["policy", "jobs", "mean", "median", "p95", "max"]
    found = [re.split(r"  +", line) for line in lines[head + 1 :]]
    assert [row[:6] for row in found] == [
        ["fcfs", "3", "7.67 s", "9.00 s", "13.5 s", "14.0 s"],
        ["easy", "3", "3.00 s", "0 s", "8.10 s", "9.00 s"],
    ]
    assert len({len(line) for line in lines[head:]}) == 1
    assert said.err == ""


def test_selections_side_by_side(capsys):
    said = sim(capsys, "b.jsonl", "--nodes=2", "--cores=2", "--selection", "first,spread", "-q")
    assert re.findall(r"^easy\S*", said.out, re.MULTILINE) == ["easy+first", "easy+spread"]


def test_json_for_programs(capsys):
    said = sim(capsys, "a.swf", "b.jsonl", "--nodes=2", "--cores=2", "--json")
    names = [json.loads(line)["workload"]["name"] for line in said.out.splitlines()]
    assert names == ["a.swf", "b.jsonl"]


def test_several_traces_have_a_directory_each(here, capsys):
    (here / "more").mkdir()
    (here / "more" / "a.swf").write_bytes(SWF)
    sim(capsys, "a.swf", "more/a.swf", "--out", "out")
    assert sorted(path.name for path in (here / "out").iterdir()) == ["a", "a-2"]


def test_without_a_trace_there_is_a_model(capsys):
    said = sim(capsys, "--json").out
    [document] = map(json.loads, said.splitlines())
    assert (document["workload"]["jobs"], document["machine"]["cores"]) == (5000, 256)
    assert "Lublin and Feitelson" in document["assumptions"][0]
    assert (document["options"]["seed"], document["options"]["load"]) == (1, 0.8)
    # The command in the summary reproduces the result.
    again = json.loads(sim(capsys, *document["command"][2:], "--json").out)
    assert again["runs"][0]["wait_mean"] == document["runs"][0]["wait_mean"]


def test_a_trace_is_scaled_with_generated_estimates(capsys):
    said = sim(capsys, "a.swf", "--pace", "2", "--user-estimates", "factor:3", "--json").out
    document = json.loads(said)
    assert (
        "jobs come 2 times as fast as the workload says, in whole seconds"
        in (document["assumptions"])
    )
    assert "estimates are generated: factor:3, seed 1" in document["assumptions"]
    assert document["options"]["seed"] == 1


def test_estimates_and_their_error(here, capsys):
    said = sim(capsys, "a.swf", "--policy", "fcfs", "--estimates", "--out", "out", "--report", "r")
    assert "estimate error" not in said.out, "all of them are right here"
    [run] = json.loads((here / "out" / "summary.json").read_text())["runs"]
    assert (run["estimate_jobs"], run["estimate_error_max"]) == (2, 0)
    assert "estimated on arrival" in (here / "r").read_text()


def test_denials_are_listed_with_their_reasons(here, capsys):
    jobs = [
        {"submit": 0, "run": 1, "cores": 1 if number == 6 else 9, "id": number}
        for number in (4, 5, 6)
    ]
    (here / "wide.jsonl").write_text("\n".join(map(json.dumps, jobs)))
    table = sim(
        capsys, "wide.jsonl", "--cores=8", "--policy=fcfs,easy", "--out=o", "--report=r.html"
    ).out
    [denied] = [line for line in table.splitlines() if line.startswith("denied: ")]
    assert denied.startswith("denied: job 4 and 1 more: ")
    reason = denied.partition("1 more: ")[2]
    assert "9" in reason
    assert "8" in reason
    for run in json.loads((here / "o" / "summary.json").read_text())["runs"]:
        assert run["denials"] == [{"reason": reason, "jobs": 2, "first": 4}]
    assert reason in (here / "r.html").read_text()


def test_where_nothing_started_nothing_is_counted(here, capsys):
    (here / "wide.jsonl").write_text('{"submit":0,"run":1,"cores":9}')
    row = sim(capsys, "wide.jsonl", "--cores=8", "-q", "--report=r.html").out.splitlines()[2]
    # Four of waits, four of slowdowns, utilisation, makespan and the share that was backfilled.
    assert row.split()[:14] == ["easy", "1", *11 * "-", "1"]
    [run] = json.loads(sim(capsys, "wide.jsonl", "--cores=8", "--json").out)["runs"]
    assert (run["slowdown_mean"], run["wait_max"], run["utilisation"]) == (None, None, None)


def test_quiet_tables_of_several_traces_have_names(capsys):
    out = sim(capsys, "a.swf", "b.jsonl", "-q", "--nodes=2", "--cores=4").out.splitlines()
    assert [line for line in out if line.endswith(":")] == ["a.swf:", "b.jsonl:"]
    assert "a.swf" not in sim(capsys, "a.swf", "-q").out


def test_nodes_fail_after_the_last_submit(here, capsys):
    (here / "long.jsonl").write_text('{"submit":0,"run":1000000,"cores":1}')
    machine = ["--nodes=1", "--cores=1", "--mtbf=3d", "--mttr=1h"]
    found = sim(capsys, "long.jsonl", *machine, "--json", "--seed=2")
    [run] = json.loads(found.out)["runs"]
    assert run["node_failures"] > 0
    assert run["lost_core_seconds"] > 0
    assert run["core_seconds"] == pytest.approx(1_000_000 + run["lost_core_seconds"])


def test_one_of_a_thing_is_one(here, capsys):
    (here / "one.jsonl").write_text('{"submit":0,"run":1,"cores":1}')
    out = sim(capsys, "one.jsonl", "--nodes=1", "--cores=1").out
    assert "one.jsonl: 1 job over 0 s, on 1 node with 1 core\n" in out
    assert "the one job has no limit" in out


def test_where_the_size_of_a_pool_is_from(here, capsys):
    def said(*args):
        found = re.findall("assumed: (the pool has .*)", sim(capsys, *args).out)
        return found[0] if found else None

    (here / "lots.swf").write_bytes(SWF.replace(b"MaxProcs: 4", b"MaxProcs: lots"))
    (here / "c.jsonl").write_text('{"submit":0,"run":1,"cores":1}')
    assert said("a.swf") == "the pool has 4 cores: MaxProcs of the header"
    lots = "the pool has 4 cores: the largest job; MaxProcs is no number above 0: `lots`"
    assert said("lots.swf") == lots
    assert said("c.jsonl") == "the pool has 1 core: the largest job"
    assert said("c.jsonl", "--cores=2") is None
    assert said("c.jsonl", "--cores=2", "--nodes=1") is None
    assert said("--lublin=3") is None


def test_utilisation_can_be_found_from_the_rows(here, capsys):
    (here / "c.jsonl").write_text(
        '{"submit":0,"run":10,"nodes":2}\n{"submit":0,"run":6,"cores":1}\n'
        '{"submit":0,"run":5,"nodes":3,"slots":2}'
    )
    sim(capsys, "c.jsonl", "--nodes=2", "--cores=2", "--whole-nodes", "--out", "out")
    found = rows(here / "out")
    assert [(row["cores"], row["nodes"], row["start"]) for row in found] == [
        *(("4", "2", "0"), ("2", "1", "10"), ("6", "3", ""))
    ]
    [run] = json.loads((here / "out" / "summary.json").read_text())["runs"]
    assert used(found) / (4 * run["makespan"]) == pytest.approx(run["utilisation"])


def test_whole_nodes(here, capsys):
    sim(capsys, "a.swf", "--nodes=3", "--cores=2", "--whole-nodes", "--out", "out")
    assert [(row["cores"], row["nodes"]) for row in rows(here / "out")] == [
        ("4", "2"),
        ("4", "2"),
        ("2", "1"),
    ]


@pytest.mark.parametrize("name", ["inventory.json", "inventory.toml"])
def test_an_inventory(here, capsys, name):
    r = ResourceSet.uniform("0-1", "n[0-1]", cores="0-1")
    (here / "inventory.json").write_text(r.to_json())
    (here / "inventory.toml").write_text(
        '[resource]\nexclude = "n2"\n[[resource.config]]\nhosts = "n[0-2]"\ncores = "0-1"\n'
    )
    said = sim(capsys, "b.jsonl", "--inventory", name, "--out", "out")
    assert "on 2 nodes with 2 cores each" in said.out
    assert ("resource.exclude" in said.out) == name.endswith("toml")
    assert "assumed: cores are taken wherever they are free, also on parts of nodes\n" in said.out
    assert [row["start"] for row in rows(here / "out")] == ["0", "10"]


def test_the_expiration_of_an_inventory_is_left_out(here, capsys):
    r = ResourceSet.uniform("0-1", "n[0-1]", cores="0-1")
    (here / "endless.json").write_text(r.to_json())
    r.expiration = 3.0
    (here / "ends.json").write_text(r.to_json())
    (here / "ends.toml").write_text('[resource]\npath = "ends.json"\n')
    left_out = "assumed: the resources do not end: the expiration of R is left out\n"
    for name, said in [("endless.json", False), ("ends.json", True), ("ends.toml", True)]:
        out = sim(capsys, "b.jsonl", "--inventory", name, "--out", "out").out
        assert (left_out in out, "expiration" in out) == (said, said)
        assert [(row["start"], row["end"]) for row in rows(here / "out")] == [
            ("0", "10"),
            ("10", "15"),
        ]


def test_different_nodes_are_grouped_by_common_resources(here, capsys):
    node = '[[resource.config]]\nhosts = "{}"\ncores = "{}"\ngpus = "{}"\n'
    for second, said in [
        (("n[4-5]", "0-31", "0-3"), "6 nodes with 32 cores each and 8 gpus in all"),
        (("n[4-5]", "0-61", "0"), "6 nodes with 42.0 cores on average and 2 gpus in all"),
    ]:
        (here / "m.toml").write_text(
            '[[resource.config]]\nhosts = "n[0-3]"\ncores = "0-31"\n' + node.format(*second)
        )
        assert f", on {said}\n" in sim(capsys, "a.swf", "--inventory", "m.toml").out


def test_failures_from_a_file(here, capsys):
    (here / "f").write_text("# a comment\n4 n1 down  # by its host\n\n1m 1 up\n")
    (here / "r.json").write_text(ResourceSet.uniform("0-1", "n[0-1]", cores="0-1").to_json())
    options = ["b.jsonl", "--inventory", "r.json", "--failures", "f", "--policy", "fcfs"]
    sim(capsys, *options, "--out", "out")
    assert [row["start"] for row in rows(here / "out")] == ["60", "70"]
    [run] = json.loads((here / "out" / "summary.json").read_text())["runs"]
    assert run["lost_core_seconds"] == 4 * 4
    assert used(rows(here / "out")) + run["lost_core_seconds"] == run["core_seconds"]
    said = sim(capsys, *options, "--no-requeue", "--json", "--out", "out")
    [run] = json.loads(said.out)["runs"]
    assert (run["lost"], run["ended"]) == (1, 1)
    assert run["lost_core_seconds"] == 4 * 4
    assert used(rows(here / "out")) == run["core_seconds"]


def test_a_limit_may_kill(here, capsys):
    (here / "c.jsonl").write_text('{"submit":0,"run":9,"cores":1,"limit":5}')
    sim(capsys, "c.jsonl", "--kill-at-limit", "--out", "out")
    assert rows(here / "out")[0]["end"] == "5"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["none.swf"], "none.swf"),
        (["bad.swf"], "bad.swf: line 1: field 1 (job number): expected a number, found `x`"),
        (["bad.jsonl"], "bad.jsonl: line 1: cores: expected a whole number below 4294967296"),
        (["bad.swf.gz"], "expected a file packed by gzip"),
        (["empty.swf"], "there is no job in it"),
        (["left_out.swf"], "no job in it that can be run: left out: 2 jobs without a run time"),
        (["long.jsonl"], "long.jsonl: line 1: job 1: run time 1e308: expected seconds from 0 on"),
        (["--load", "1e300"], "load: expected at most 1000, found 1e300"),
        (["b.jsonl"], "give the nodes there are"),
        (["a.swf", "--nodes=1", "--cores=4", "--failures", "bad.f"], "line 1: expected TIME NODES"),
        (["--mix", "1x:3"], "invalid mix"),
        (["a.swf", "--inventory", "bad.jsonl"], "bad.jsonl"),
        (["a.swf", "--inventory", "bad.toml"], "`none.json`: No such file or directory\n"),
        (
            ["a.swf", "--nodes=4", "--cores=1", "--failures", "hosts.f"],
            "`hosts.f`: line 1: no such hosts: n[0-3]; the hosts are node[0-3]",
        ),
    ],
)
def test_errors_name_their_place(here, capsys, args, said):
    (here / "bad.swf").write_text("x y\n")
    (here / "bad.swf.gz").write_bytes(SWF)
    (here / "bad.jsonl").write_text('{"submit":0,"run":1,"cores":0.5}')
    (here / "empty.swf").write_text("; nothing\n")
    (here / "left_out.swf").write_text("1 0 -1 -1 3 -1 -1 3 10 -1 1 -1 -1 -1 -1 -1 -1 -1\n" * 2)
    (here / "long.jsonl").write_text('{"submit":0,"run":1e308,"cores":1}')
    (here / "bad.f").write_text("now 0 down up\n")
    (here / "hosts.f").write_text("10 n[0-3] down\n")
    (here / "bad.toml").write_text('[resource]\npath = "none.json"\n')
    found = sim(capsys, *args, "--out", "out", code=1)
    assert said in found.err
    assert found.out == ""
    assert not (here / "out").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--policy", "best"], "expected `fcfs`, `easy`, `conservative` or `hybrid:N`"),
        (["--policy", "easy,easy"], "`easy` is named twice"),
        (["--selection", "best"], "expected first, pack, spread, thrifty, contiguous"),
        (["--user-estimates", "best"], "expected exact, modal or factor:F"),
        (["--load", "0"], "expected a number above 0"),
        (["--window", "2d", "--report", "r"], "expected FROM:TO"),
        (["--seed", str(2**64)], "expected a number below 2^64, found `18446744073709551616`"),
        (["--limit", str(2**32)], "expected 1 to 4294967295, found `4294967296`"),
        (["--lublin", "100000001"], "--lublin: expected 1 to 100000000, found `100000001`"),
        (["--jobs", str(2**32 - 1)], "--jobs: expected 1 to 100000000, found `4294967295`"),
        (["--report", "."], "--report `.` is not a regular file"),
        (["--out", "a.swf"], "--out `a.swf` is a file: expected a directory"),
        (["--out", ""], "argument --out: expected a path, found nothing"),
        (["--report", ""], "argument --report: expected a path, found nothing"),
    ],
)
def test_invalid_options_are_bad_usage(capsys, args, said):
    assert main(["sim", *args]) == 2
    found = capsys.readouterr().err
    assert said in found
    assert len(found.splitlines()) <= 2, "what is wrong is not lost in a list of all options"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["a.swf", "--lublin=9"], "a trace and --lublin exclude each other"),
        (["a.swf", "--load=0.5"], "--load needs --lublin or --mix"),
        (["--pace=2"], "--pace needs a trace"),
        (["--nodes=2"], "--nodes needs --cores"),
        (["a.swf", "--whole-nodes"], "--whole-nodes needs nodes"),
        (["--parquet"], "--parquet needs --out"),
        (["--estimate-every=2"], "--estimate-every needs --estimates"),
    ],
)
def test_options_that_contradict_each_other(capsys, args, said):
    assert said in sim(capsys, *args, code=2).err


def test_progress_is_shown_on_a_terminal_alone(capsys, monkeypatch):
    options = ["--lublin", "20000", "--cores", "64"]
    assert sim(capsys, *options).err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    shown = sim(capsys, *options).err
    assert re.search(r"\reasy \S+ +\d+ %  [\d,]+/20,000 jobs  day [\d,.]+", shown)
    assert shown.endswith("\r\x1b[K")
    assert sim(capsys, *options, "--quiet").err == ""


def test_an_interrupt_writes_nothing(here, capsys, monkeypatch):
    def interrupted(*_args, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock.sim.runs.from_simulation", interrupted)
    sim(capsys, "a.swf", "--out", "out", "--report", "r.html", code=130)
    assert sorted(path.name for path in here.iterdir()) == ["a.swf", "b.jsonl"]


def report(here, capsys, *args):
    sim(capsys, *args, "--report", "r.html")
    text = (here / "r.html").read_text()
    return text, ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))


def test_the_report_needs_nothing_else(here, capsys):
    (here / "<&>.swf").write_bytes(SWF)
    text, page = report(here, capsys, "<&>.swf", "--policy", "fcfs,easy,conservative")
    assert not re.search(r"https?:|//|url\(|@import|<script|src=|href=", text)
    assert page.find("head/title").text == "<&>.swf: penstock sim"
    titles = [element.text for element in page.iter("text") if element.get("class") == "head"]
    assert [title.split(" (")[0] for title in titles] == [
        *("Utilisation", "Pending jobs", "Wait", "Bounded slowdown", "Wait by size"),
        *("Mean bounded slowdown by size", "fcfs", "easy", "conservative"),
    ]
    assert "job 3, backfilled\n1 core\nwaited 0 s, ran 8.50 s" in text
    assert "1993-10-01" in text
    code = page.find(".//pre/code").text
    assert code.startswith("penstock sim '<&>.swf' --policy fcfs,easy,conservative")


def test_the_report_of_nodes_and_of_a_window(here, capsys):
    options = ["b.jsonl", "--nodes=2", "--cores=2", "--window", "12s:20s"]
    text, page = report(here, capsys, *options)
    jobs = [
        element for element in page.iter("rect") if (element.get("class") or "").startswith("job")
    ]
    assert len(jobs) == 1, "the other one has ended"
    assert jobs[0].find("title").text.startswith("job 5")
    assert "Who has which nodes" in text


def test_sizes_in_the_report_are_those_of_jobs_that_ran_under_any_policy(here, capsys):
    jobs = [
        {"submit": 0, "run": 10, "cores": 7},
        {"submit": 1, "run": 5, "cores": 8},
        # Backfilled with two cores, or with all nine when the others have ended.
        {"submit": 1, "run": 5, "cores": "2-9"},
        {"submit": 2, "run": 5, "cores": 200},
    ]
    (here / "c.jsonl").write_text("\n".join(map(json.dumps, jobs)))
    _, page = report(here, capsys, "c.jsonl", "--cores=9", "--policy=easy,fcfs")
    names = [element.text for element in page.iter("text")]
    assert "9-16" in names
    assert "129-256" not in names


def test_a_window_in_which_nothing_runs(here, capsys):
    said = sim(capsys, "a.swf", "--report", "r.html", "--window", "3d:4d").err
    nothing = "no job runs from 3.00 d to 4.00 d of the trace, which goes from 0 s to 15.0 s"
    assert said == f"penstock sim: --window: a.swf: {nothing}\n"
    assert f"{nothing}." in (here / "r.html").read_text()
    assert sim(capsys, "a.swf", "--report", "r.html", "--window", "1s:2s").err == ""


def test_the_report_of_many_jobs_is_no_larger(here, capsys):
    sizes = []
    for jobs in (3000, 12000):
        report(here, capsys, "--lublin", jobs, "--load", "0.9", "--policy", "fcfs,easy")
        sizes.append((here / "r.html").stat().st_size)
    assert sizes[1] < 1.5 * sizes[0] < 1.5e6
