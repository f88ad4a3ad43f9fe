"""Import cycles: modules of one Rust crate, or of the Python package, that need each other.

A module and its parent may name each other: together they are one concept. Imports for type
checking count, since a reader follows them too.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Graph = dict[str, set[str]]

USE = re.compile(r"^\s*(?:pub(?:\([^)]*\))? )?use ((?:crate|super|self)\b[^;]*);", re.MULTILINE)
INLINE = re.compile(r"\bcrate((?:::[a-z_]\w*)+)")
COMMENT = re.compile(r"//[^\n]*")
TESTS = re.compile(r"#\[cfg\(test\)\]\s*mod \w+ \{.*", re.DOTALL)


def rust_graph(crate: Path) -> Graph:
    """Modules of a crate, by path from the root (`a::b`, "" for the root), and what each uses."""
    files = {_module(path.relative_to(crate)): path for path in (crate / "src").rglob("*.rs")}
    files = {name: path for name, path in files.items() if "tests" not in name.split("::")}
    graph: Graph = {}
    for name, path in files.items():
        text = COMMENT.sub("", TESTS.sub("", path.read_text()))
        statements = [*USE.findall(text), *(f"crate{path}" for path in INLINE.findall(text))]
        used = {
            _known(target, files) for statement in statements for target in _expand(statement, name)
        }
        graph[name] = used - {name}
    return graph


def python_graph(package: Path) -> Graph:
    """Modules of a package, by dotted name, and what each imports."""
    root = package.parent
    files = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for path in package.rglob("*.py")
    }
    graph: Graph = {}
    for name, path in files.items():
        used: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                used |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    module = f"{node.module}.{alias.name}"
                    used.add(module if module in files else node.module)
        graph[name] = (used & files.keys()) - {name}
    return graph


def cycles(graph: Graph, separator: str) -> list[list[str]]:
    """Groups of modules that need each other, each sorted; relatives' edges do not count."""
    edges = {
        name: {other for other in used if not _related(name, other, separator)}
        for name, used in graph.items()
    }
    reachable = {name: _reachable(name, edges) for name in edges}
    groups = {
        tuple(sorted(other for other in reached if name in reachable[other]))
        for name, reached in reachable.items()
        if name in reached
    }
    return sorted(list(group) for group in groups)


def _reachable(start: str, edges: Graph) -> set[str]:
    reached: set[str] = set()
    pending = list(edges[start])
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            pending += edges.get(name, ())
    return reached


def _related(one: str, other: str, separator: str) -> bool:
    return _is_ancestor(one, other, separator) or _is_ancestor(other, one, separator)


def _is_ancestor(one: str, other: str, separator: str) -> bool:
    return not one or other.startswith(one + separator)


def _module(path: Path) -> str:
    parts = path.with_suffix("").parts[1:]
    if parts[-1] in ("lib", "main", "mod"):
        parts = parts[:-1]
    return "::".join(parts)


def _known(target: str, files: dict[str, Path]) -> str:
    """The longest module that a path begins with."""
    parts = target.split("::")
    while parts and "::".join(parts) not in files:
        parts.pop()
    return "::".join(parts)


def _expand(statement: str, module: str) -> Iterator[str]:
    """The paths of a `use` statement, from the crate's root: groups in braces are resolved."""
    text = re.sub(r"\s+", "", re.sub(r"\bas \w+", "", statement))
    for path in _groups(text):
        parts = path.split("::")
        base = [] if parts[0] == "crate" else module.split("::") if module else []
        rest = parts[1:] if parts[0] in ("crate", "self") else parts
        while rest and rest[0] == "super":
            base, rest = base[:-1], rest[1:]
        yield "::".join([*base, *rest])


def _groups(text: str) -> Iterator[str]:
    start = text.find("{")
    if start < 0:
        yield text
        return
    depth, piece = 0, ""
    for character in text[start + 1 :]:
        if character == "}" and not depth:
            break
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and not depth:
            yield from _groups(text[:start] + piece)
            piece = ""
        else:
            piece += character
    if piece:
        yield from _groups(text[:start] + piece)
