"""Names of job events and PMIx attributes are written in `rust/flux` only."""

from __future__ import annotations

import ast
import re
from pathlib import Path

RUST = Path(__file__).parents[2] / "rust"
PYTHON = RUST.parent / "python" / "penstock"
# A constant, or a line of a macro that declares constants.
CONSTANT = re.compile(r'^(?:pub const (?=\w+:)|    )(\w+)(?:: &str)? = "([^"]*)";$', re.MULTILINE)
LITERAL = re.compile(r'"([a-zA-Z._-]+)"')
# A name in the place of an event's, whether it is one of the constants or not.
NEW_EVENT = re.compile(r'Event::(?:new|with)\([^"(]*"([^"]*)"')
EVENTS = RUST / "flux" / "src" / "eventlog.rs"
ATTRIBUTES = RUST / "flux" / "src" / "pmix_attribute.rs"
# The crates that read and write eventlogs; elsewhere a word such as "start" is no event.
EVENT_CRATES = {"elastic", "manager"}
# Words in these crates that are the names of events too.
OTHER_MEANINGS = {
    "elastic/src/names.rs": {"release"},  # a directive
    "manager/src/elastic/requests.rs": {"alloc"},  # the type of an exception
    "manager/src/priority.rs": {"priority", "urgency"},  # a word of an error
    "manager/src/quota.rs": {"memo"},  # a key of a request
    "manager/src/queries/row.rs": {"priority", "urgency"},  # columns
    "manager/src/replay.rs": {"alloc"},  # the type of an exception
    "manager/src/scheduler/request.rs": {"alloc"},  # the same
    "manager/src/scheduler/response.rs": {"alloc"},  # the same
}


def names(source: Path) -> set[str]:
    """The values of the constants of a module."""
    return {value for _, value in CONSTANT.findall(source.read_text())}


def code(path: Path) -> str:
    """A file without its comments and unit tests."""
    text = path.read_text().partition("#[cfg(test)]\nmod tests {")[0]
    return re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)


def event_literals(file: str, text: str) -> set[str]:
    """The names of events in a file of Rust, by its path below `rust`."""
    known = names(EVENTS)
    in_eventlogs = file.partition("/")[0] in EVENT_CRATES
    found = {
        word
        for word in LITERAL.findall(text)
        if word in known and (in_eventlogs or not word.isalpha())
    }
    return found.union(NEW_EVENT.findall(text)) - OTHER_MEANINGS.get(file, set())


def sources() -> dict[str, str]:
    """The code of each crate, by its path below `rust`."""
    return {
        file: code(path)
        for path in sorted(RUST.glob("*/src/**/*.rs"))
        if path not in {EVENTS, ATTRIBUTES}
        and "test" not in (file := str(path.relative_to(RUST)))
        and path.name != "fixture.rs"
    }


def test_events_are_not_written_as_literals() -> None:
    found = {
        file: literals
        for file, text in sources().items()
        if (literals := event_literals(file, text))
    }
    assert found == {}, "write `eventlog::NAME`, from `penstock_flux`"


def test_attributes_are_not_written_as_literals() -> None:
    known = names(ATTRIBUTES)
    found = {
        file: literals
        for file, text in sources().items()
        if (literals := known.intersection(LITERAL.findall(text)))
    }
    assert found == {}, "write `pmix_attribute::NAME`, from `penstock_flux`"


def python_attributes(text: str) -> set[str]:
    """The names of attributes among the strings of a file of Python."""
    strings = {
        node.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return names(ATTRIBUTES) & strings


def test_attributes_are_not_written_as_literals_in_python() -> None:
    found = {
        str(path.relative_to(PYTHON)): literals
        for path in sorted(PYTHON.rglob("*.py"))
        if (literals := python_attributes(path.read_text()))
    }
    assert found == {}, "write `pmix_attribute.NAME`, from `penstock._core`"


def test_a_literal_is_found() -> None:
    assert python_attributes('key = {"pmix.alloc.id": 1, "other": 2}') == {"pmix.alloc.id"}
    assert {"submit", "prolog-start", "penstock.request"} <= names(EVENTS)
    assert "pmix.alloc.nnodes" in names(ATTRIBUTES)
    text = 'Event::with(cx.now, "own", &x); "start"; "prolog-start"; "other"'
    assert event_literals("manager/src/x.rs", text) == {"own", "start", "prolog-start"}
    assert event_literals("exec/src/x.rs", text) == {"own", "prolog-start"}
    assert event_literals("manager/src/priority.rs", '"urgency"') == set()


def test_every_exception_is_used() -> None:
    for file, words in OTHER_MEANINGS.items():
        assert words <= set(LITERAL.findall(code(RUST / file))), file
