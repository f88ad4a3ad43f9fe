"""No function in Rust has a `bool` as a parameter: at a call, an enum or two verbs say more."""

from __future__ import annotations

import re
from pathlib import Path

RUST = Path(__file__).parents[2] / "rust"
# Up to the parenthesis that closes the parameters; types of parameters have no deeper nesting.
FUNCTION = re.compile(r"\bfn (\w+)(?:<[^(]*>)?\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)")
BOOL = re.compile(r"\b(\w+): (?:bool|Option<bool>)")
# Blocks of methods that Python calls, and the attributes of its functions.
METHODS = re.compile(r"^ *#\[pymethods\]\n( *)impl .*?^\1}$", re.MULTILINE | re.DOTALL)
FOR_PYTHON = re.compile(r"#\[(pyfunction|pyo3)\b")
ALLOWED = {
    ("idset/src/op.rs", "keeps"): "the truth table of a set operation",
    ("py/src/shared.rs", "detach_if"): "reads as a condition",
}


def arguments(source: str) -> list[tuple[str, str]]:
    """The functions up to the tests that have a boolean parameter, and its name."""
    code = METHODS.sub("", source.partition("#[cfg(test)]")[0])
    found = []
    for function in FUNCTION.finditer(code):
        attributes = code[: function.start()].rpartition("\n\n")[2]
        # A parameter that is a function may have any type.
        own = re.sub(r"\bimpl Fn\w*\([^)]*\)", "", function[2])
        if (parameter := BOOL.search(own)) and not FOR_PYTHON.search(attributes):
            found.append((function[1], parameter[1]))
    return found


def test_no_function_has_a_boolean_parameter():
    found = {}
    for path in sorted(RUST.glob("*/src/**/*.rs")):
        file = str(path.relative_to(RUST))
        if "tests" in path.stem or "/tests/" in file:
            continue
        for name, parameter in arguments(path.read_text()):
            found[file, name] = parameter
    assert found.keys() == ALLOWED.keys()


def test_a_boolean_parameter_is_found_except_in_functions_for_python():
    source = """\
pub fn open(path: &Path, create: bool) {}

fn choose(\n    &self,\n    keep: impl Fn(u32, bool) -> bool,\n    force: Option<bool>,\n) {}

fn each(visit: impl Fn(is_last: bool)) {}

#[pyfunction]
fn parse(text: &str, lenient: bool) {}

#[pymethods]
impl Set {
    #[new]
    fn py_new(ids: &Ids, lenient: bool) {}
}

#[cfg(test)]
fn check(whole: bool) {}
"""
    assert arguments(source) == [("open", "create"), ("choose", "force")]
