"""Errors in Rust: types with predicates that have callers, made exceptions in one place."""

from __future__ import annotations

import re
from pathlib import Path

RUST = Path(__file__).parents[2] / "rust"
PREDICATE = re.compile(r"\bpub (?:const )?fn (is_\w+)\(&?self\)")


def uncalled(sources: dict[str, str]) -> list[str]:
    """The public predicates in files about errors that no other file calls."""
    found = []
    for file, source in sources.items():
        if "error" not in Path(file).stem:
            continue
        others = [text for name, text in sources.items() if name != file]
        for predicate in PREDICATE.findall(source):
            called = re.compile(rf"(?:\.|::){predicate}\b")
            if not any(called.search(text) for text in others):
                found.append(f"{file}: {predicate}")
    return found


# A new exception, to the end of its statement.
NEW_EXCEPTION = re.compile(r"\w+Error::new_err\([^;]*")
ERROR_TEXT = re.compile(r"\{error\}|\{\w+: ?\w*error\}|\b\w*error\.to_string\(\)")


def formatted_errors(source: str) -> list[str]:
    """The statements that make an exception of the text of an error."""
    return [new for new in NEW_EXCEPTION.findall(source) if ERROR_TEXT.search(new)]


def test_errors_are_converted_to_exceptions_in_one_file():
    files = set((RUST / "py/src").rglob("*.rs")) - {RUST / "py/src/errors.rs"}
    found = {str(path): formatted_errors(path.read_text()) for path in sorted(files)}
    assert {file: statements for file, statements in found.items() if statements} == {}


def test_an_exception_of_the_text_of_an_error_is_found():
    by_hand = 'read(text).map_err(|error| WireError::new_err(format!("{name}: {error}")))?;'
    assert len(formatted_errors(by_hand)) == 1
    assert len(formatted_errors("WireError::new_err(error.to_string());")) == 1
    assert formatted_errors('Err(WireError::new_err("no error"));\nlog(error.to_string());') == []


def test_each_predicate_of_an_error_is_called():
    files = sorted(RUST.glob("*/**/*.rs"))
    assert uncalled({str(path.relative_to(RUST)): path.read_text() for path in files}) == []


def test_a_predicate_without_a_caller_is_found():
    error = "impl Error { pub fn is_full(&self) -> bool { } pub fn is_syntax(&self) -> bool { } }"
    sources = {"a/src/error.rs": error, "a/src/lib.rs": "if error.is_full() {}"}
    assert uncalled(sources) == ["a/src/error.rs: is_syntax"]


# A public function whose error is a text, up to its body or semicolon.
TEXT_ERROR = re.compile(
    r"\bpub(?:\(\w+\))? fn (\w+)[^{;]*?->\s*Result<[^{;]*,\s*String>\s*(?:where|\{|;)"
)


def test_errors_of_public_functions_are_types():
    found = {
        str(path.relative_to(RUST)): names
        for path in sorted(RUST.glob("*/src/**/*.rs"))
        if (names := TEXT_ERROR.findall(path.read_text()))
    }
    assert found == {}


def test_a_text_as_an_error_is_found():
    source = """\
pub fn open(path: &Path) -> Result<Store, String> {}
pub(crate) fn parse(
    text: &str,
) -> Result<Vec<(u32, u32)>, String> {}
fn read(text: &str) -> Result<(), String> {}
pub fn meta(&self) -> Result<Option<String>, Error> {}
pub fn check<T>(text: T) -> Result<(), String> where T: Copy {}
"""
    assert TEXT_ERROR.findall(source) == ["open", "parse", "check"]
