"""`Workload`: reading, generating and writing traces."""

from __future__ import annotations

import hashlib

import pytest

from penstock import Error, WorkloadError
from penstock._core import Workload

SWF = b"""\
; Version: 2.2
; MaxProcs: 64
; UnixStartTime: 1000
1 0 -1 100 4 -1 -1 8 200 -1 1 -1 -1 -1 -1 -1 -1 -1
2 5 -1 50.5 4 -1 -1 -1 -1 -1 1 -1 -1 -1 -1 -1 -1 -1
3 2 -1 -1 4 -1 -1 -1 -1 -1 0 -1 -1 -1 -1 -1 -1 -1
"""


def test_a_trace_with_its_assumptions():
    workload = Workload.from_swf(SWF, name="a.swf")
    assert (workload.name, workload.jobs, len(workload)) == ("a.swf", 2, 2)
    assert (workload.max_cores, workload.pool_origin) == (64, "MaxProcs of the header")
    assert (workload.first_submit, workload.last_submit) == (0.0, 5.0)
    assert workload.unix_start == 1000.0
    assert ("MaxProcs", "64") in workload.header
    assert workload.assumptions == [
        "1 of 2 jobs has no requested processors: the allocated ones are taken",
        "1 of 2 jobs has no requested time: the run time is taken as the estimate",
        "left out: 1 job without a run time",
        (
            "the trace has no wait times: its submit times may be start times, and are taken as"
            " they are"
        ),
    ]
    assert repr(workload) == '<Workload "a.swf": 2 jobs>'


def test_a_trace_can_be_written_in_both_formats():
    workload = Workload.from_swf(SWF, name="a.swf")
    assert workload.to_jsonl() == (
        b'{"id":1,"submit":0,"run":100,"cores":8,"limit":200,"status":1}\n'
        b'{"id":2,"submit":5,"run":50.5,"cores":4,"limit":50.5,"status":1}\n'
    )
    again = Workload.from_jsonl(workload.to_jsonl(), name="a")
    assert again.to_jsonl() == workload.to_jsonl()
    assert (again.max_cores, again.unix_start) == (8, None)
    swf = workload.to_swf()
    assert b"; MaxProcs: 64\n" in swf
    assert swf.endswith(b"2 5 -1 50.5 4 -1 -1 4 50.5 -1 1 -1 -1 -1 -1 -1 -1 -1\n")
    assert Workload.from_swf(swf, name="a.swf").to_swf() == swf


def test_the_first_jobs_alone():
    assert Workload.from_swf(SWF, name="a.swf", limit=1).jobs == 1
    assert Workload.from_jsonl(b'{"submit":0,"run":1,"cores":1}\n' * 3, name="a", limit=2).jobs == 2


def test_an_empty_trace():
    workload = Workload.from_swf(b"", name="a.swf")
    assert (workload.jobs, workload.first_submit, workload.unix_start) == (0, None, None)


@pytest.mark.parametrize(
    ("make", "message", "line"),
    [
        (
            lambda: Workload.from_swf(SWF + b"4 x\n", name="a.swf"),
            "a.swf: line 7: field 2 (submit time): expected a number, found `x`",
            7,
        ),
        (
            lambda: Workload.from_jsonl(b'\n{"submit":0,"run":1}', name="a.jsonl"),
            "a.jsonl: line 2: expected cores, slots or nodes",
            2,
        ),
        (
            lambda: Workload.lublin(10, cores=0, seed=1),
            "cores: expected 1 or more, found 0",
            None,
        ),
        (
            lambda: Workload.lublin(10, cores=8, seed=1, load=0),
            "load: expected a number above 0, such as 0.8, found 0",
            None,
        ),
        (
            lambda: Workload.lublin(10, cores=8, seed=1, estimates="good"),
            "invalid estimates `good`: expected exact, modal or factor:F with F from 1 on",
            None,
        ),
        (
            lambda: Workload.mix("3x:1m", 10, seed=1, cores=8),
            "invalid mix: `3x:1m`: expected a size such as 4c or 2n",
            None,
        ),
    ],
)
def test_errors_name_the_line_and_the_field(make, message, line):
    with pytest.raises(WorkloadError) as caught:
        make()
    assert str(caught.value) == message
    assert caught.value.line == line
    assert isinstance(caught.value, (Error, ValueError))


def test_a_seed_determines_the_jobs():
    made = Workload.lublin(1000, cores=128, seed=1, load=0.8)
    assert made.to_swf() == Workload.lublin(1000, cores=128, seed=1, load=0.8).to_swf()
    digest = hashlib.sha256(made.to_swf()).hexdigest()
    assert digest == "b7c7c8e40634d934d07068ad60df65026560ce23eb0d29ee8f9484eccc8bd0d7"
    assert made.to_swf() != Workload.lublin(1000, cores=128, seed=2, load=0.8).to_swf()
    mix = Workload.mix("80%:1c:10m,20%:1-64c:1m-2h", 1000, seed=1, cores=640)
    assert (
        hashlib.sha256(mix.to_swf()).hexdigest()
        == "d8246567a9eba4c3aa3a37187b361e8c9e59ab95df809745cbe008a8b134ef34"
    )


def test_a_generated_workload_describes_itself():
    made = Workload.lublin(10, cores=128, seed=1, load=0.8, estimates="factor:3")
    assert made.jobs == 10
    assert made.max_cores == 128
    first, second = made.assumptions
    assert first == (
        "10 jobs of the model of Lublin and Feitelson (2003) for 128 processors,"
        " seed 1, estimates factor:3"
    )
    assert second.endswith("for a load of 0.8")
    mix = Workload.mix("nodes", 10, seed=1, cores=640, cores_per_node=10, load=None)
    assert mix.assumptions == [
        "10 jobs of the mix nodes, all submitted at once, seed 1, estimates exact"
    ]
    assert b'"exclusive":true' in mix.to_jsonl()


def test_a_trace_can_be_scaled_with_generated_estimates():
    workload = Workload.from_swf(SWF, name="a.swf")
    varied = workload.vary(pace=2.5, estimates="modal", seed=1)
    assert (varied.jobs, varied.last_submit) == (2, 2.0)
    assert varied.assumptions[-1] == "estimates are generated: modal, seed 1"
    with pytest.raises(WorkloadError, match="pace: expected a number above 0, found 0"):
        workload.vary(pace=0)
