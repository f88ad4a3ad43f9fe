"""`penstock.jobid`: the forms of a job id."""

from __future__ import annotations

import doctest
import json
from pathlib import Path

import pytest

from penstock import jobid
from penstock.errors import JobspecError

ROOT = Path(__file__).parents[3]
VECTORS = json.loads((ROOT / "tests/vectors/fluid.json").read_text())


def test_every_form_is_the_same_id():
    for case in VECTORS["forms"]:
        assert jobid.f58(case["id"]) == case["f58"]
        assert jobid.dothex(case["id"]) == case["dothex"]
        for text in [case["f58"], case["dothex"], *case["also"]]:
            assert jobid.parse(text) == case["id"]


@pytest.mark.parametrize("text", VECTORS["bad"])
def test_an_invalid_id_is_rejected(text):
    with pytest.raises(JobspecError, match="invalid job id"):
        jobid.parse(text)


@pytest.mark.parametrize("form", [jobid.f58, jobid.dothex])
@pytest.mark.parametrize("number", [-1, 1 << 64])
def test_an_id_that_does_not_fit_is_rejected(form, number):
    with pytest.raises(OverflowError):
        form(number)


def test_the_examples_of_its_documentation_are_true():
    done = doctest.testmod(jobid)
    assert done.attempted >= 7
    assert done.failed == 0


@pytest.mark.parametrize(
    "file",
    [*ROOT.glob("examples/*.py"), *ROOT.glob("docs/*.md"), ROOT / "README.md"],
    ids=lambda path: path.name,
)
def test_examples_and_pages_need_nothing_private(file):
    assert "penstock._core" not in file.read_text()
