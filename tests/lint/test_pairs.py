"""No function in Rust takes or returns a pair of equal integers: a struct names what they are."""

from __future__ import annotations

import re
from pathlib import Path

RUST = Path(__file__).parents[2] / "rust"
SIGNATURE = re.compile(r"\bfn (\w+)[^{;]*")
INTEGER = r"(?:[ui](?:8|16|32|64|128|size))"
PAIR = re.compile(rf"\(({INTEGER}), ?\1\)")
# The name of a type that is a pair.
ALIAS = re.compile(r"\btype (\w+) = [^;]*")
ALLOWED = {
    ("idset/src/words.rs", "each_run"): "the first and the last id of a run",
    ("idset/src/words.rs", "Item"): "the first and the last id of a run",
    ("idset/src/words.rs", "next"): "the first and the last id of a run",
    ("py/src/idset/iterator.rs", "rest"): "the ends of a range of ids",
}


def pairs(source: str) -> list[str]:
    """The functions up to the tests with such a pair in their signature, and the aliases of one."""
    code = source.partition("#[cfg(test)]")[0]
    named = [*SIGNATURE.finditer(code), *ALIAS.finditer(code)]
    return [found[1] for found in named if PAIR.search(found[0])]


def test_no_signature_has_a_pair_of_equal_integers():
    found = set()
    for path in sorted(RUST.glob("*/src/**/*.rs")):
        file = str(path.relative_to(RUST))
        if "tests" not in path.stem and "/tests/" not in file:
            found |= {(file, name) for name in pairs(path.read_text())}
    assert found == ALLOWED.keys()


def test_a_pair_is_found_in_parameters_results_and_functions():
    source = """\
fn find(at: (u32, u32)) -> u32 { let pair: (u32, u32) = at; 0 }
fn all<T>(&self) -> Vec<(u64, u64)>
where T: Copy { }
fn most(
    of: impl Fn(u32, u32) -> u32,
) -> u32 { }
fn word(&self) -> (u32, u64) { let x: (u32, u32); }
pub type Core = (u32, u32);
type Handler = fn(u32, u32) -> u32;
#[cfg(test)]
fn of_a_test(pair: (u32, u32)) {}
"""
    assert pairs(source) == ["find", "all", "most", "Core", "Handler"]
