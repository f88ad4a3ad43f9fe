"""No module cycle inside a crate or the Python package."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.lint.cycles import collapse, cycles, method_graph, python_graph, rust_graph

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    {path.parent for name in ("lib.rs", "main.rs") for path in ROOT.glob(f"rust/**/src/**/{name}")}
)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_cycle_in_a_crate(source: Path) -> None:
    assert cycles(method_graph(source)) == []


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_cycle_of_top_level_modules(source: Path) -> None:
    assert cycles(collapse(method_graph(source))) == []


def test_a_cycle_over_different_submodules_is_found(tmp_path: Path) -> None:
    files = {
        "lib.rs": "mod a; mod b;",
        "a.rs": "use crate::b::c::C;\npub struct A;",
        "b.rs": "pub mod c;\npub mod d;",
        "b/c.rs": "pub struct C;",
        "b/d.rs": "use crate::a::A;",
    }
    graph = rust_graph(written(tmp_path, files))
    assert cycles(graph) == []
    assert cycles(collapse(graph)) == [["a", "b"]]


def test_a_cycle_over_methods_is_found(tmp_path: Path) -> None:
    files = {
        "lib.rs": "mod a; mod b; mod c;",
        "a.rs": "pub struct A;\nimpl A {\n    fn one(&self) { self.two() }\n}\n",
        "b.rs": "use crate::a::A;\nimpl A {\n    pub fn two(&self) {}\n}\n",
        "c.rs": "use crate::a::A;\nimpl A {\n    fn three(&self) { self.two(); self.one() }\n}\n",
    }
    source = written(tmp_path, files)
    assert cycles(rust_graph(source)) == []
    assert cycles(method_graph(source)) == [["a", "b"]]


def test_a_cycle_over_a_constructor_is_found(tmp_path: Path) -> None:
    files = {
        "lib.rs": "mod a; mod b;",
        "a.rs": "pub struct A;\nimpl A {\n    fn new() { let mut a = Self {}; a.two() }\n}\n",
        "b.rs": "use crate::a::A;\nimpl A {\n    pub fn two(&mut self) {}\n}\n",
    }
    assert cycles(method_graph(written(tmp_path, files))) == [["a", "b"]]


def test_a_cycle_over_the_root_of_a_library_with_a_program_is_found(tmp_path: Path) -> None:
    files = {
        "lib.rs": "mod a;\nmod b;\npub use a::A;\n",
        "a.rs": "use crate::b::B;\npub struct A;",
        "b.rs": "use crate::A;\npub struct B;",
        "main.rs": "mod arguments;\n",
        "arguments.rs": "pub struct Arguments;",
    }
    assert cycles(rust_graph(written(tmp_path, files))) == [["a", "b"]]


def test_a_module_of_a_named_file_is_read(tmp_path: Path) -> None:
    files = {
        "src/lib.rs": 'mod a;\n#[path = "../other/b.rs"]\nmod b;\npub use a::A;\n',
        "src/a.rs": "use crate::b::B;\npub struct A;",
        "other/b.rs": "pub struct B;",
    }
    graph = rust_graph(written(tmp_path, files) / "src")
    assert graph["a"] == {"b"}
    assert cycles(graph) == []


def test_no_cycle_in_the_python_package() -> None:
    assert cycles(python_graph(ROOT / "python" / "penstock")) == []


def written(folder: Path, files: dict[str, str]) -> Path:
    """The folder, with these files in it."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


# Each kind of cycle, and next to it the same without one.
RUST = {
    "siblings": (
        {"lib.rs": "mod a; mod b;", "a.rs": "use crate::b::B;", "b.rs": "use super::a::A;"},
        ["a", "b"],
    ),
    "siblings, one way": (
        {"lib.rs": "mod a; mod b;", "a.rs": "use crate::b::B;", "b.rs": "struct B;"},
        None,
    ),
    "over a re-export": (
        {
            "lib.rs": "mod a; mod b;\npub use a::{A as Renamed};",
            "a.rs": "use crate::b::B;",
            "b.rs": "use crate::{\n    Renamed,\n};",
        },
        ["a", "b"],
    ),
    "over a re-export of a re-export": (
        {
            "lib.rs": "mod a; mod b;\npub(crate) use a::C;",
            "a/mod.rs": "mod c;\npub use self::c::C;",
            "a/c.rs": "fn f() { crate::b::f() }",
            "b.rs": "use crate::C;",
        },
        ["a::c", "b"],
    ),
    "over a private import of the parent": (
        {
            "lib.rs": "mod a; mod b;\nuse a::A;",
            "a.rs": "use crate::b::B;",
            "b.rs": "use super::A;",
        },
        ["a", "b"],
    ),
    "over a glob": (
        {
            "lib.rs": "mod a; mod b;\npub use a::*;",
            "a.rs": "use crate::b::B;",
            "b.rs": "use crate::A;",
        },
        ["a", "b"],
    ),
    "parent and child": (
        {"lib.rs": "mod a;", "a.rs": "mod c;\nuse c::C;", "a/c.rs": "use super::A;"},
        ["a", "a::c"],
    ),
    "parent and child, by a path in the code": (
        {"lib.rs": "mod a;", "a.rs": "mod c;\nfn f() { c::f() }", "a/c.rs": "type A = super::A;"},
        ["a", "a::c"],
    ),
    "parent and child, by a name that is re-exported and used": (
        {
            "lib.rs": "mod a;",
            "a.rs": "mod c;\npub use c::C;\nfn f(c: C) {}",
            "a/c.rs": "use super::A;",
        },
        ["a", "a::c"],
    ),
    "parent that only declares": (
        {
            "lib.rs": "mod a;",
            "a.rs": "mod c;\npub use c::C;\nenum A {\n    C,\n}\nfn f() -> A { A::C }",
            "a/c.rs": "use super::A;\npub(in crate::a) struct C;",
        },
        None,
    ),
    "root and child": (
        {"lib.rs": "mod a;\nfn f() { a::f() }", "a.rs": "use crate::Root;"},
        ["", "a"],
    ),
    "unit tests, comments, strings and visibilities": (
        {
            "lib.rs": "mod a; mod b;\n#[cfg(test)]\nmod c;",
            "a.rs": 'use crate::b::B; // crate::c::C\nconst A: &str = "crate::a::A";',
            "b.rs": "pub(in crate::a) struct B;\n#[cfg(test)]\nuse crate::a::A;\n"
            "#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}",
            "c.rs": "use crate::a::A;",
        },
        None,
    ),
    "another root in a folder": (
        {"lib.rs": "mod a;", "a.rs": "use crate::Root;", "bin/main.rs": "mod a;\nuse a::A;"},
        None,
    ),
}


@pytest.mark.parametrize(("files", "cycle"), RUST.values(), ids=RUST)
def test_a_cycle_in_rust_is_found(
    tmp_path: Path, files: dict[str, str], cycle: list[str] | None
) -> None:
    assert cycles(rust_graph(written(tmp_path, files))) == ([cycle] if cycle else [])


PYTHON = {
    "siblings, for type checking as well": (
        {
            "a.py": "import penstock.b",
            "b.py": "if TYPE_CHECKING:\n    from penstock.a import A",
        },
        ["penstock.a", "penstock.b"],
    ),
    "siblings, one way": ({"a.py": "from penstock import b", "b.py": ""}, None),
    "over a re-export": (
        {
            "__init__.py": "from penstock.a import A",
            "a.py": "from penstock.b import B",
            "b.py": "from penstock import A",
        },
        ["penstock.a", "penstock.b"],
    ),
    "package and module": (
        {
            "c/__init__.py": "from penstock.c.d import D\nX = D()",
            "c/d.py": "from penstock.c import X",
        },
        ["penstock.c", "penstock.c.d"],
    ),
    "package that only re-exports": (
        {
            "c/__init__.py": "from penstock.c.d import D\n__all__ = ['D']\nX = 1",
            "c/d.py": "from penstock.c import X",
        },
        None,
    ),
}


@pytest.mark.parametrize(("files", "cycle"), PYTHON.values(), ids=PYTHON)
def test_a_cycle_in_python_is_found(
    tmp_path: Path, files: dict[str, str], cycle: list[str] | None
) -> None:
    package = written(tmp_path / "penstock", {"__init__.py": "", **files})
    assert cycles(python_graph(package)) == ([cycle] if cycle else [])
