"""Everything public that the extension implements has a docstring, with its signature and types."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from pathlib import Path

import pytest

import penstock
from penstock import FrozenIDset, Hostlist, IDset, ResourceSet
from penstock.sim.workload import Workload

STUB = Path(penstock.__file__).parent / "_core.pyi"
KINDS = [IDset, FrozenIDset, Hostlist, ResourceSet, Workload]
# Annotations of signatures by those of the stub: sets of ids and lists of hosts are iterable.
READABLE = {
    "_Ids": "str | Iterable[int]",
    "_Hosts": "str | Iterable[str]",
    "SupportsIndex": "int",
}


@cache
def definitions() -> dict[str, dict[str, list[ast.FunctionDef]]]:
    """The functions of each class of the stub, by name."""
    found: dict[str, dict[str, list[ast.FunctionDef]]] = {}
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.ClassDef):
            functions = [item for item in node.body if isinstance(item, ast.FunctionDef)]
            by_name = found.setdefault(node.name, {})
            for function in functions:
                by_name.setdefault(function.name, []).append(function)
    return found


def annotation(node: ast.expr) -> str:
    text = ast.unparse(node)
    for name, readable in READABLE.items():
        text = re.sub(rf"\b{name}\b", readable, text)
    parts = re.split(r" \| (?![^\[]*\])", text)
    return " | ".join(dict.fromkeys(parts))


def signature(function: ast.FunctionDef, name: str) -> str:
    """The signature of a function of the stub, without `self` or `cls`."""
    names = [ast.unparse(decorator) for decorator in function.decorator_list]
    every = function.args
    positional = [*every.posonlyargs, *every.args]
    defaults = [None] * (len(positional) - len(every.defaults)) + every.defaults
    words = [parameter(*pair) for pair in zip(positional, defaults, strict=True)]
    if every.posonlyargs:
        words.insert(len(every.posonlyargs), "/")
    if "staticmethod" not in names:
        del words[0]
    words = [word for word in words if (word, len(words)) != ("/", 1)]
    if every.vararg:
        words.append(f"*{parameter(every.vararg, None)}")
    elif every.kwonlyargs:
        words.append("*")
    words += [parameter(*pair) for pair in zip(every.kwonlyargs, every.kw_defaults, strict=True)]
    returned = f" -> {annotation(function.returns)}" if function.returns else ""
    return f"{name}({', '.join(words)})" + ("" if function.name == "__new__" else returned)


def parameter(argument: ast.arg, default: ast.expr | None) -> str:
    typed = f"{argument.arg}: {annotation(argument.annotation)}" if argument.annotation else ""
    text = typed or argument.arg
    return text if default is None else f"{text} = {ast.unparse(default)}"


@pytest.mark.parametrize("kind", KINDS)
def test_every_public_member_has_a_docstring(kind):
    assert kind.__doc__
    names = [name for name in dir(kind) if not name.startswith("_")]
    assert [name for name in names if not (getattr(kind, name).__doc__ or "").strip()] == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_docstring_begins_with_the_signature_of_the_stub(kind):
    functions = definitions()[kind.__name__]
    methods = [
        name
        for name, overloads in functions.items()
        if not name.startswith("_") and not any(is_property(item) for item in overloads)
    ]
    if "__new__" in functions:
        methods.append("__new__")
    for name in methods:
        shown = kind if name == "__new__" else getattr(kind, name)
        lines = (inspect.getdoc(shown) or "").splitlines()
        expected = [signature(item, shown.__name__) for item in functions[name]]
        # The methods that both kinds of sets have in common share their docstrings.
        found = [re.sub(r"\bSelf\b", kind.__name__, line) for line in lines[: len(expected)]]
        assert found == expected
        assert lines[len(expected)] == ""


def is_property(function: ast.FunctionDef) -> bool:
    words = [ast.unparse(decorator) for decorator in function.decorator_list]
    return any(word == "property" or word.endswith(".setter") for word in words)
