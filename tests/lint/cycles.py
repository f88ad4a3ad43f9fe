"""Import cycles: modules of one Rust crate, or of the Python package, that need each other.

A name counts for the module that defines it, not for one that re-exports it. A module needs its
child when its own code uses a name of it; declaring or re-exporting it is no use. Imports for type
checking count, since a reader follows them too; unit tests do not.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

Graph = dict[str, set[str]]
# A path from the root of a crate, as its parts.
Parts = tuple[str, ...]


def cycles(graph: Graph) -> list[list[str]]:
    """Groups of modules that need each other, each sorted."""
    reachable = {name: _reachable(name, graph) for name in graph}
    groups = {
        tuple(sorted(other for other in reached if name in reachable[other]))
        for name, reached in reachable.items()
        if name in reached
    }
    return sorted(list(group) for group in groups)


def _reachable(start: str, graph: Graph) -> set[str]:
    reached: set[str] = set()
    pending = list(graph[start])
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            pending += graph.get(name, ())
    return reached


# --- Rust

USE = re.compile(r"^\s*(?P<pub>pub(?:\([^)]*\))?\s)?\s*use\s(?P<tree>[^;]*);", re.MULTILINE)
INLINE = re.compile(r"(?<![\w:])\w+(?:::\w+)+")
IGNORED = re.compile(r'//[^\n]*|"(?:[^"\\]|\\.)*"|\(in [\w:]+\)', re.DOTALL)
# A variant without a payload, which is no use of a type of that name.
VARIANT = re.compile(r"^\s*\w+,$", re.MULTILINE)
# The methods of a type in one module, and the calls of methods of the same value.
IMPL = re.compile(r"^impl(?:<[^>]*>)? (\w+)(?:<[^{]*>)? \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
METHOD = re.compile(r"\bfn (\w+)")
CALL = re.compile(r"\b(?:(\w+)\s*\.|Self::)(\w+)\(")
# A variable that has a value of the type.
BOUND = re.compile(r"\blet (?:mut )?(\w+)(?:: Self)? = Self\b")
TESTS = re.compile(r"#\[cfg\(test\)\]\s*mod \w+ \{.*", re.DOTALL)
# A module whose file is named.
ELSEWHERE = re.compile(r'#\[path = "(?P<path>[^"]+)"\]\s*(?:pub(?:\([^)]*\))? )?mod (?P<name>\w+);')
TEST_ITEM = re.compile(r"#\[cfg\(test\)\]\s*(?:(?:pub(?:\([^)]*\))? )?mod (\w+)|use [^;]*);")


@dataclass
class _Module:
    """A source file: the names that it imports or re-exports, and the paths that it uses."""

    # The path that each name of a `use` stands for; a glob's path is in `globs`.
    names: dict[str, Parts] = field(default_factory=dict)
    globs: list[Parts] = field(default_factory=list)
    used: list[Parts] = field(default_factory=list)


def rust_graph(source: Path) -> Graph:
    """Modules of a crate, by path from the root (`a::b`, "" for the root), and what each uses.

    `source` is the folder of its `lib.rs` or `main.rs`.
    """
    texts = _texts(source)
    modules = {name: _read(name, text, texts) for name, text in texts.items()}
    return {
        "::".join(name): {
            "::".join(defining)
            for path in module.used
            for defining in _defining(path, modules)
            if defining != name
        }
        for name, module in modules.items()
    }


def method_graph(source: Path) -> Graph:
    """As `rust_graph`; a module also needs those whose methods of one of its own types it calls.

    Both modules have an `impl` of the type; the call is `self.method()`, `Self::method()` or, after
    `let value = Self …`, `value.method()`.
    """
    graph = rust_graph(source)
    types: dict[str, dict[str, str]] = {}
    for parts, text in _texts(source).items():
        module = "::".join(parts)
        for match in IMPL.finditer(text):
            blocks = types.setdefault(match[1], {})
            blocks[module] = blocks.get(module, "") + match[2]
    for blocks in types.values():
        owners = {method: name for name, code in blocks.items() for method in METHOD.findall(code)}
        for name, code in blocks.items():
            values = {"", "self", *BOUND.findall(code)}
            called = {
                owners[method]
                for value, method in CALL.findall(code)
                if value in values and method in owners
            }
            graph[name] |= called - {name}
    return graph


def collapse(graph: Graph) -> Graph:
    """The graph of the top-level modules: a module with its submodules is one."""
    collapsed: Graph = {}
    for name, used in graph.items():
        top = name.partition("::")[0]
        tops = {other.partition("::")[0] for other in used}
        collapsed[top] = collapsed.get(top, set()) | (tops - {top})
    return collapsed


def _texts(source: Path) -> dict[Parts, str]:
    """The source of each module, without comments, strings and unit tests."""
    roots = {path.parent for path in source.rglob("main.rs")} - {source}
    paths = {path for path in source.rglob("*.rs") if not roots & {*path.parents}}
    if source / "lib.rs" in paths:
        # The root of another crate, which uses the library by its name.
        paths.discard(source / "main.rs")
    texts = {_module(path.relative_to(source)): TESTS.sub("", path.read_text()) for path in paths}
    for path in paths:
        for match in ELSEWHERE.finditer(TEST_ITEM.sub("", path.read_text())):
            name = (*_module(path.relative_to(source)), match["name"])
            texts[name] = TESTS.sub("", (path.parent / match["path"]).read_text())
    tests = {
        (*name, match[1]) for name, text in texts.items() for match in TEST_ITEM.finditer(text)
    }
    return {
        name: TEST_ITEM.sub("", IGNORED.sub("", text))
        for name, text in texts.items()
        if name not in tests
    }


def _module(path: Path) -> Parts:
    parts = path.with_suffix("").parts
    return parts[:-1] if parts[-1] in ("lib", "main", "mod") else parts


def _read(name: Parts, text: str, known: Iterable[Parts]) -> _Module:
    """Reads a module's source, without its comments, strings and unit tests."""
    module = _Module()
    children = {other[-1] for other in known if other[:-1] == name and other}
    rest = USE.sub("", text)
    code = VARIANT.sub("", rest)
    for statement in USE.finditer(text):
        for path, bound in _tree(statement["tree"]):
            target = _absolute(path, name, children)
            if target is None:
                continue
            if bound == "*":
                target = target[:-1]
                module.globs.append(target)
            else:
                module.names[bound] = target
            if not statement["pub"] or re.search(rf"(?<!:)\b{re.escape(bound)}\b", code):
                module.used.append(target)
    for match in INLINE.finditer(rest):
        target = _absolute(match[0].split("::"), name, children)
        if target is not None:
            module.used.append(target)
    return module


def _absolute(path: list[str], module: Parts, children: set[str]) -> Parts | None:
    """A path from the crate's root, or None if it begins outside the crate."""
    if path[0] == "crate":
        return tuple(path[1:])
    if path[0] in children:
        return (*module, *path)
    if path[0] not in ("self", "super"):
        return None
    rest = path[1:] if path[0] == "self" else path
    while rest and rest[0] == "super":
        module, rest = module[:-1], rest[1:]
    return (*module, *rest)


def _defining(path: Parts, modules: dict[Parts, _Module]) -> Iterator[Parts]:
    """The module that defines what a path names, past every re-export."""
    for _ in range(len(modules)):
        length = max(n for n in range(len(path) + 1) if path[:n] in modules)
        module, rest = path[:length], path[length:]
        if not rest:
            break
        if rest[0] in modules[module].names:
            path = (*modules[module].names[rest[0]], *rest[1:])
        elif modules[module].globs:
            yield from modules[module].globs
            return
        else:
            break
    yield module


def _tree(text: str) -> Iterator[tuple[list[str], str]]:
    """The paths of a `use` statement, groups in braces resolved, each with the name it binds."""
    for item in _groups(re.sub(r"\s+", " ", text)):
        path, _, other = item.partition(" as ")
        parts = path.replace(" ", "").split("::")
        if parts[-1] == "self":
            parts.pop()
        yield parts, other.strip() or parts[-1]


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
    if piece.strip():
        yield from _groups(text[:start] + piece)


# --- Python


def python_graph(package: Path) -> Graph:
    """Modules of a package, by dotted name, and what each imports."""
    root = package.parent
    trees = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): ast.parse(
            path.read_text()
        )
        for path in package.rglob("*.py")
    }
    imports = {name: list(_imports(tree)) for name, tree in trees.items()}
    names = {
        name: {bound: (module, item) for module, item, bound in found if item}
        for name, found in imports.items()
    }
    graph: Graph = {}
    for name, tree in trees.items():
        loaded = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        graph[name] = {
            target
            for module, item, bound in imports[name]
            if (target := _origin(module, item, names)) in trees
            # A package that imports a name of its own module and does not use it re-exports it.
            and (bound in loaded or not target.startswith(f"{name}."))
        } - {name}
    return graph


def _imports(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Module, item (empty if the module itself is imported) and bound name of each import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, "", alias.asname or alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield node.module, alias.name, alias.asname or alias.name


def _origin(module: str, item: str, names: dict[str, dict[str, tuple[str, str]]]) -> str:
    """The module that defines what an import names, past every re-export."""
    for _ in names:
        if f"{module}.{item}" in names:
            return f"{module}.{item}"
        if item not in names.get(module, {}):
            break
        module, item = names[module][item]
    return module
