"""The requirements are complete, tested, and in our own words; the page is up to date."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from types import SimpleNamespace

import pytest
from tests.conformance import sources, table
from tests.conformance.mutations import MUTATIONS, ROOT, TESTS
from tests.conformance.requirements import (
    FILE,
    Requirement,
    parse,
    requirement,
    requirements,
    specifications,
)
from tests.lint import prose

NORMATIVE = re.compile(
    r"\b(MUST|SHALL|SHOULD|MAY|REQUIRED|RECOMMENDED|OPTIONAL|OPTIONALLY)\b(?! +NOT”)"
)


def test_every_must_and_should_has_a_test_and_the_page_is_up_to_date():
    command = [sys.executable, "-m", "tests.conformance.table"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    page = (ROOT / "docs" / "conformance.md").read_text()
    assert page == made.stdout, "docs/conformance.md is out of date: run `make conformance`"


def test_every_section_has_requirements_and_every_id_is_of_its_section():
    named = {(entry.specification, entry.section) for entry in requirements().values()}
    assert named == {
        (name, section) for name, spec in specifications().items() for section in spec.sections
    }


def test_an_unknown_key_strength_or_section_is_an_error():
    def document(section="hello", **fields):
        entry = {"strength": "MUST", "text": "Something.", **fields}
        specification = {"title": "RFC 27", "sections": {"hello": "Hello"}}
        return {"specifications": {"rfc27": specification}, "rfc27": {section: {"x": entry}}}

    _, found = parse(document())
    assert found == {"rfc27.hello.x": Requirement("rfc27.hello.x", "MUST", "Something.")}
    for wrong in (
        document(strength="SHALL"),
        document(version="new"),
        document(sentence="x"),
        document(section="bye"),
    ):
        with pytest.raises(ValueError, match="unknown"):
            parse(wrong)


def item(*markers):
    """A collected test with these markers."""
    return SimpleNamespace(
        path=table.HERE / "test_x.py",
        name="test_x",
        nodeid="test_x.py::test_x",
        iter_markers=lambda _name: [marker.mark for marker in markers],
    )


def test_a_marker_names_known_requirements():
    both = item(requirement("rfc27.hello.first", "rfc27.hello.end"), requirement("rfc27.hello.end"))
    assert table.shown_by([both, both]) == {
        "rfc27.hello.first": ["test_x.py::test_x"],
        "rfc27.hello.end": ["test_x.py::test_x"],
    }
    with pytest.raises(LookupError, match=r"test_x.py::test_x: unknown requirement `rfc27.bye`"):
        table.shown_by([item(requirement("rfc27.bye"))])


def test_a_requirement_without_a_test_is_reported(monkeypatch):
    entries = [
        Requirement("a.a.shown", "MUST", "x"),
        Requirement("a.a.excused", "SHOULD", "x", untested="because"),
        Requirement("a.a.optional", "MAY", "x"),
        Requirement("a.a.lacking", "SHOULD", "x"),
        Requirement("a.a.stale", "MUST", "x", untested="because"),
    ]
    monkeypatch.setattr(table, "requirements", lambda: {entry.id: entry for entry in entries})
    assert table.problems({"a.a.shown": ["t"], "a.a.stale": ["t"]}) == [
        "a.a.lacking: a SHOULD without a test or a reason in `untested`",
        "a.a.stale: `untested`, but t shows it",
    ]


# --- the mapping of the source texts, and the texts where they are


def mapping():
    """The hash and the targets of each sentence, by specification and place."""
    tables = tomllib.loads(sources.MAPPING.read_text())
    return {
        (spec, place): value for spec, table in tables.items() for place, value in table.items()
    }


def test_the_mapping_names_requirements_or_a_reason():
    for (spec, place), (fingerprint, *targets) in mapping().items():
        assert re.fullmatch(r"[0-9a-f]{12}", fingerprint), (spec, place)
        assert targets, (spec, place)
        for target in targets:
            known = f"{spec}.{target}" in requirements()
            assert known or re.fullmatch(r"none: [\w ,]+", target), (spec, place, target)


def test_every_specified_requirement_has_a_sentence_and_no_current_one_has():
    covered = {
        f"{spec}.{target}" for (spec, _), (_, *targets) in mapping().items() for target in targets
    }
    specified = {entry.id for entry in requirements().values() if entry.version == "specified"}
    assert {line for line in covered if ".none: " not in line} == specified


@pytest.fixture(scope="module")
def specs():
    """The folder of the source texts, which are not in this repository."""
    folder = sources.folder()
    if folder is None:
        pytest.skip("the specifications' texts are not in `shared/specs` beside this checkout")
    return folder


def test_every_sentence_of_the_texts_is_accounted_for_unchanged(specs):
    accounted = {place: fingerprint for place, (fingerprint, *_) in mapping().items()}
    found = {
        (sentence.spec, sentence.place): sentence.fingerprint
        for sentence in sources.sentences(specs)
    }
    assert accounted == found


def test_no_normative_word_stands_outside_the_sentences(specs):
    for spec, file in sources.FILES.items():
        text = (specs / file).read_text()
        # The paragraph that explains these words ends with this name, where there is one.
        text = text.partition("RFC 2119")[2] or text
        read = " ".join(
            sentence.text for sentence in sources.split(spec, (specs / file).read_text())
        )
        assert Counter(NORMATIVE.findall(read)) == Counter(NORMATIVE.findall(text)), spec


LONGEST_PHRASE = 7
# The keys of a vertex, which are data.
KEYS = tuple("type uuid basename name id properties size unit".split())


def phrases(text):
    """Every run of one word more than may be shared."""
    words = re.findall(r"[a-z0-9_.\-]+", text.casefold())
    return {tuple(words[at : at + LONGEST_PHRASE + 1]) for at in range(len(words) - LONGEST_PHRASE)}


@pytest.fixture(scope="module")
def quotable(specs):
    """Every phrase of the texts that is too long to be repeated."""
    texts = ((specs / file).read_text() for file in sources.FILES.values())
    return set().union(*map(phrases, texts)) - {KEYS}


def test_no_requirement_repeats_a_phrase_of_the_texts(quotable):
    ours = FILE.read_text().replace("\\\n", "") + sources.MAPPING.read_text()
    assert not phrases(ours) & quotable


def test_no_comment_message_or_page_repeats_a_phrase_of_the_texts(quotable):
    for file in prose.files(ROOT):
        read = prose.reader(file)
        assert read is not None
        for line, piece in read((ROOT / file).read_text()):
            # JSON is data.
            found = set() if '{"' in piece else phrases(piece) & quotable
            assert not found, f"{file}:{line}"


def test_a_text_is_split_into_places_and_its_hashes_ignore_spacing():
    blocks = [
        "Front matter.",
        "Implementation",
        "One. `Two` has:",
        "key",
        "(string) what it is. More.",
    ]
    text = "\n\n".join([*blocks, "Three", "• Four"])
    found = {sentence.place: sentence.text for sentence in sources.split("rfc28", text)}
    assert found == {
        "general.1.1": "One.",
        "general.1.2": "`Two` has:",
        "general.2.1": "key: (string) what it is.",
        "general.2.2": "More.",
        "general.3.1": "Three: Four",
    }
    one, other, third = (
        sources.Sentence("rfc28", "a.1.1", words).fingerprint
        for words in ("It  SHALL “stop”.", 'it shall "stop".', "It SHALL start.")
    )
    assert one == other != third


# --- mutations


@pytest.mark.parametrize(
    "mutation", MUTATIONS, ids=lambda mutation: mutation.what.replace(" ", "-")
)
def test_a_mutation_matches_the_source_once(mutation):
    assert (ROOT / mutation.file).read_text().count(mutation.old) == 1
    assert mutation.new != mutation.old
    file, _, name = mutation.test.partition("::")
    assert re.search(rf"^def {name}\(", (ROOT / TESTS / file).read_text(), re.MULTILINE)


def test_there_are_ten_mutations():
    assert len(MUTATIONS) >= 10
