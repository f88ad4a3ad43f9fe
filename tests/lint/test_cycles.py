"""No module cycle inside a crate or the Python package."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.lint.cycles import cycles, python_graph, rust_graph

ROOT = Path(__file__).parents[2]
CRATES = sorted(path.parent for path in ROOT.glob("rust/*/src"))


@pytest.mark.parametrize("crate", CRATES, ids=lambda path: path.name)
def test_no_cycle_in_a_crate(crate: Path) -> None:
    assert cycles(rust_graph(crate), "::") == []


def test_no_cycle_in_the_python_package() -> None:
    assert cycles(python_graph(ROOT / "python" / "penstock"), ".") == []


def test_cycles_are_found(tmp_path: Path) -> None:
    source = tmp_path / "src"
    (source / "a").mkdir(parents=True)
    (source / "lib.rs").write_text("mod a; mod b;")
    (source / "a.rs").write_text("mod c;\nuse crate::{\n    b::{self, B as Other},\n};")
    (source / "a" / "c.rs").write_text("use super::A;")
    (source / "b.rs").write_text(
        "use crate::a::c::C;\n#[cfg(test)]\nmod tests {\n use crate::a::A;\n}"
    )
    assert rust_graph(tmp_path) == {"": set(), "a": {"b"}, "a::c": {"a"}, "b": {"a::c"}}
    assert cycles(rust_graph(tmp_path), "::") == []
    (source / "a" / "c.rs").write_text("use super::super::b::B;")
    assert cycles(rust_graph(tmp_path), "::") == [["a::c", "b"]]
