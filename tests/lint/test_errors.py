"""Each predicate of an error type is called: it decides something in another file."""

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


def test_each_predicate_of_an_error_is_called():
    files = sorted(RUST.glob("*/**/*.rs"))
    assert uncalled({str(path.relative_to(RUST)): path.read_text() for path in files}) == []


def test_a_predicate_without_a_caller_is_found():
    error = "impl Error { pub fn is_full(&self) -> bool { } pub fn is_syntax(&self) -> bool { } }"
    sources = {"a/src/error.rs": error, "a/src/lib.rs": "if error.is_full() {}"}
    assert uncalled(sources) == ["a/src/error.rs: is_syntax"]
