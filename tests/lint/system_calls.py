"""Uses of the operating system in Python: time, randomness, sockets, processes, files, threads.

A whole instance runs in virtual time on a simulated system (`penstock.instance.system`), and a verb
runs at the time of a test. That is possible while each of these is used in few named modules.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


@dataclass(frozen=True)
class Resource:
    """A part of the operating system.

    Attributes:
        pattern: the full names that stand for it, such as `time.monotonic`; `.x` is a method `x`.
        modules: the modules (from the package's folder) that may use it, each with the reason.
        folder: the folder to which the restriction applies.
    """

    pattern: str
    modules: Mapping[str, str]
    folder: str = ""

    def is_forbidden(self, module: str, name: str) -> bool:
        """Whether a module uses this by `name` and may not."""
        return (
            module.startswith(self.folder)
            and module not in self.modules
            and re.fullmatch(self.pattern, name) is not None
        )


def uses(source: str) -> Iterator[tuple[int, str]]:
    """Yields the line and the full name of what a module refers to, without its annotations.

    Names are those of modules and their members: `from time import time as now` and `now()` are
    `time.time`. A method of an unknown object is `.method`.
    """
    tree = ast.parse(source)
    names = dict(_imported(tree))
    for node in _code(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.lineno, names.get(node.id, node.id)
        elif isinstance(node, ast.Attribute):
            yield node.lineno, _full_name(node, names) or f".{node.attr}"


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (first, first)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _full_name(node: ast.expr, names: Mapping[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _full_name(node.value, names)
        return owner and f"{owner}.{node.attr}"
    return None


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a tree, without annotations and without blocks for type checking."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or _is_for_type_checking(child):
                continue
            yield child
            yield from _code(child)


def _is_for_type_checking(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def forbidden(package: Path, resources: Mapping[str, Resource]) -> Iterator[str]:
    """Yields each use of a resource in a module that is not named for it."""
    for path in sorted(package.rglob("*.py")):
        module = path.relative_to(package).as_posix()
        for line, name in uses(path.read_text()):
            for title, resource in resources.items():
                if resource.is_forbidden(module, name):
                    yield f"{module}:{line}: {name} ({title})"
