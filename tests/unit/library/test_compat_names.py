"""Every public name of the originals is implemented or says that it is not.

Run as a program, this file regenerates the tables of `docs/compat.md`.
"""

from __future__ import annotations

import doctest
import importlib
import json
import pkgutil
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
VECTORS = ROOT / "tests" / "vectors"
DOCUMENT = ROOT / "docs" / "compat.md"
NAMES = json.loads((VECTORS / "compat-names.json").read_text())
NAMES.pop("about")
DIFFERENCES = json.loads((VECTORS / "compat-differences.json").read_text())["flux"]
RECORDED = len((VECTORS / "flux-python.jsonl").read_text().splitlines()) - 1
IMPLEMENTED = "implemented"


def module(original):
    return importlib.import_module(f"penstock.compat.{original}")


def state(original, name):
    """`implemented`, or how the name says that it is not."""
    try:
        found = module(original)
        for part in name.split("."):
            found = getattr(found, part)
        if name.endswith(".InnerWrapper"):
            found()
    except NotImplementedError as error:
        return f"raises `NotImplementedError`: {error}"
    return IMPLEMENTED


def cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def shown(different):
    if "raises" in different:
        return f"`{different['raises']}`: `` {different['message']} ``"
    return f"`{json.dumps(different['result'])}`"


def tables():
    """The parts of the document that are made from data, by the mark that they stand after."""
    lines = ["| call | in Penstock | why |", "|---|---|---|"]
    for call, different in DIFFERENCES.items():
        lines.append(f"| `{cell(call)}` | {cell(shown(different))} | {cell(different['why'])} |")
    names = []
    for original, public in NAMES.items():
        names += [f"### `{original}`", "", "| name | |", "|---|---|"]
        names += [f"| `{name}` | {cell(state(original, name))} |" for name in public]
        names.append("")
    agreeing = RECORDED - len(DIFFERENCES)
    return {
        "agreement": f" {agreeing} of {RECORDED} agree, the others are listed below.",
        "differences": "\n" + "\n".join(lines) + "\n",
        "names": "\n" + "\n".join(names).rstrip() + "\n",
    }


def rewritten(text):
    """The document with its tables as they should be."""
    for mark, table in tables().items():
        # From the mark to the end of its line, or of its section.
        end = r"[^\n]*" if mark == "agreement" else r".*?(?=\n## |\Z)"
        pattern = rf"(<!-- {mark} -->){end}"
        text, count = re.subn(
            pattern, lambda match, body=table: match[1] + body, text, flags=re.DOTALL
        )
        assert count == 1, mark
    return text


def test_the_document_is_up_to_date():
    text = DOCUMENT.read_text()
    assert rewritten(text) == text, "regenerate it: python tests/unit/library/test_compat_names.py"


@pytest.mark.parametrize(
    ("original", "name"), [(original, name) for original in NAMES for name in NAMES[original]]
)
def test_a_name_is_implemented_or_hints_at_its_replacement(original, name):
    found = state(original, name)
    if found != IMPLEMENTED:
        hint = found.rpartition(": ")[2]
        assert re.search(r"\b(use|give|penstock|makes)\b", hint)
        for path in re.findall(r"penstock(?:\.\w+)+", hint):
            pkgutil.resolve_name(path)


def test_exported_names_are_listed():
    for original in NAMES:
        assert set(module(original).__all__) <= set(NAMES[original])


def test_a_name_that_no_original_has_is_an_attribute_error():
    for original in ("flux", "flux.resource", "hostlist", "ClusterShell"):
        with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
            module(original).nothing  # noqa: B018


def test_the_document_s_examples_run():
    assert doctest.testfile(str(DOCUMENT), module_relative=False).failed == 0


@pytest.mark.parametrize("original", list(NAMES))
def test_the_modules_examples_run(original):
    results = doctest.testmod(module(original))
    assert results.attempted > 0
    assert results.failed == 0


if __name__ == "__main__":
    DOCUMENT.write_text(rewritten(DOCUMENT.read_text()))
