"""Exceptions are defined in `penstock.errors`, where a caller finds all of them."""

from __future__ import annotations

import ast
import builtins
from pathlib import Path

import pytest

import penstock
from penstock import errors

PACKAGE = Path(penstock.__file__).parent
MODULES = {
    PACKAGE / "errors.py",
    # The exceptions of the drop-in modules, which `import penstock` does not load.
    PACKAGE / "compat" / "ClusterShell" / "errors.py",
}
NAMES = {
    name
    for module in (builtins, errors)
    for name, value in vars(module).items()
    if isinstance(value, type) and issubclass(value, BaseException)
}


def exceptions(source: str) -> list[str]:
    """The classes of a module that derive from an exception."""
    classes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]
    return [
        node.name
        for node in classes
        if any(ast.unparse(base).rpartition(".")[2] in NAMES for base in node.bases)
    ]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.stem)
def test_no_other_module_defines_an_exception(path: Path) -> None:
    assert path in MODULES or exceptions(path.read_text()) == []


def test_all_of_them_are_exported() -> None:
    assert set(exceptions((PACKAGE / "errors.py").read_text())) < set(errors.__all__)


def test_an_exception_is_found() -> None:
    source = "class A(errors.Error, ValueError): ...\nclass B(dict): ..."
    assert exceptions(source) == ["A"]
