"""The table is whole and true: no sentence without a test, and the page is what the tests say."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.conformance import table
from tests.conformance.conftest import pytest_collection_modifyitems
from tests.conformance.mutations import MUTATIONS, ROOT
from tests.conformance.sentences import BINDING, PLAIN, SPECS, find, sentences

TABLE = Path(__file__).with_name("table.py")


def test_every_sentence_has_a_test_and_the_page_is_up_to_date():
    made = subprocess.run(
        [sys.executable, str(TABLE)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    page = (ROOT / "docs" / "conformance.md").read_text()
    assert page == made.stdout, "docs/conformance.md is out of date: run `make conformance`"


def test_a_sentence_without_a_test_and_a_note_without_a_sentence_are_errors(monkeypatch):
    tests = {it.id: ["test_x.py::test_x"] for it in sentences()}
    monkeypatch.setattr(table, "shown", lambda: tests)
    assert any("test_x.py::test_x" in line for line in table.table())
    del tests["27.hello.1"]
    monkeypatch.setattr(table, "notes", lambda: {"27.nowhere.1": "because"})
    with pytest.raises(SystemExit) as error:
        list(table.table())
    assert "no test shows 27.hello.1: Before any other RPCs" in str(error.value)
    assert "a note is on 27.nowhere.1, which is no sentence" in str(error.value)


def test_a_marker_without_a_sentence_stops_the_run():
    def item(*args):
        marks = [pytest.mark.rfc(*args).mark]
        return SimpleNamespace(nodeid="a::b", iter_markers=lambda _name: marks, user_properties=[])

    good = item("27", "Before any other RPCs")
    pytest_collection_modifyitems([good])
    assert good.user_properties == [("rfc", ["27.hello.1"])]
    for wrong in (("27", "Nobody ever wrote this"), ("27", "The "), ("27",), ("99", "The ")):
        with pytest.raises(pytest.UsageError, match="a::b"):
            pytest_collection_modifyitems([good, item(*wrong)])


@pytest.mark.parametrize("spec", PLAIN)
def test_no_word_that_binds_is_lost_between_text_and_table(spec):
    text = (SPECS / f"rfc{spec}.txt").read_text()
    # What tells how to read the words ends with this name, where it is there at all.
    text = text.partition("RFC 2119")[2] or text
    in_text = Counter(BINDING.findall(text))
    # A rule of a list stands in the row of the list by its words, and has a row of its own.
    rules = [it.text.removesuffix(".") for it in sentences() if it.spec == spec]
    once = [it for it in rules if not any(it != other and it in other for other in rules)]
    assert Counter(BINDING.findall(" ".join(once))) == in_text


@pytest.mark.parametrize("spec", PLAIN)
def test_every_sentence_that_is_named_as_binding_is_there(spec):
    for beginning in PLAIN[spec]:
        assert [it for it in sentences() if it.spec == spec and beginning in it.text], beginning


def test_ids_and_sentences_are_unique():
    ids = Counter(it.id for it in sentences())
    assert max(ids.values()) == 1
    assert {it.spec for it in sentences()} == {"20", "27", "28", "32", "today"}


def test_every_difference_of_today_has_its_sentences_and_every_sentence_its_difference():
    rows = tomllib.loads(TABLE.with_name("rows.toml").read_text())
    named = Counter(f"today.{name}" for names in rows.values() for name in names)
    assert all(rows.values())
    assert named == Counter(it.id for it in sentences() if it.spec == "today")


def test_a_beginning_of_no_sentence_or_of_several_is_refused():
    assert find("27", "Before any other RPCs").id == "27.hello.1"
    with pytest.raises(LookupError, match="found none"):
        find("27", "Nobody ever wrote this")
    with pytest.raises(LookupError, match=re.escape("found 27.")):
        find("27", "The ")


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda it: it.what.replace(" ", "-"))
def test_what_a_mutation_takes_out_is_in_the_source_once(mutation):
    assert (ROOT / mutation.file).read_text().count(mutation.old) == 1
    assert mutation.new != mutation.old
    file, _, name = mutation.test.partition("::")
    assert re.search(rf"^def {name}\(", (TABLE.parent / file).read_text(), re.MULTILINE)


def test_there_are_ten_mutations():
    assert len(MUTATIONS) >= 10
