"""Topics are written in `rust/flux` only; Python has them as `penstock._core.topic`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from penstock._core import topic

PACKAGE = Path(__file__).parents[2] / "python" / "penstock"
# It runs where Penstock is not installed.
FOREIGN = PACKAGE / "flux" / "sched-penstock.py"
RUST = Path(__file__).parents[2] / "rust"


def constants(namespace: type) -> set[str]:
    """The strings in a namespace and in those below it."""
    members = [value for name, value in vars(namespace).items() if not name.startswith("_")]
    found = {value for value in members if isinstance(value, str)}
    return found.union(*(constants(value) for value in members if isinstance(value, type)))


# A method without its service, such as `start`, is a word like others.
TOPICS = {name for name in constants(topic) if "." in name or "-" in name}
SERVICES = tuple({f"{name.partition('.')[0]}." for name in TOPICS if "." in name})
# With X for what an f-string inserts.
PATTERN = re.compile("[a-zX.-]+")
COMMON = {topic.PING, topic.STATS_GET, topic.DISCONNECT}
METHODS = tuple(f".{name}" for name in constants(topic.exec_method) | COMMON)
LITERALS = TOPICS.union(METHODS)


def literals(source: str) -> list[str]:
    """The literals of a module that are topics, or f-strings that build one."""
    found = []
    nodes = list(ast.walk(ast.parse(source)))
    inner = {part for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.Constant) and node not in inner and node.value in LITERALS:
            found.append(f"{node.lineno}: {node.value!r}")
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
            text = "".join(map(str, parts))
            if PATTERN.fullmatch(text) and (text.startswith(SERVICES) or text.endswith(METHODS)):
                found.append(f"{node.lineno}: {ast.unparse(node)}")
    return found


def rust_literals(source: str) -> list[str]:
    """The same for a file of Rust, up to its tests."""
    found = []
    code = source.partition("#[cfg(test)]")[0]
    for number, line in enumerate(code.splitlines(), 1):
        words = [] if line.lstrip().startswith("//") else re.findall(r'"([a-z.-]+)"', line)
        found += [f'{number}: "{word}"' for word in words if word in LITERALS]
    return found


def test_topics_are_not_written_as_literals_in_rust() -> None:
    sources = [
        path for path in RUST.glob("*/src/**/*.rs") if "test" not in str(path.relative_to(RUST))
    ]
    found = {
        str(path.relative_to(RUST)): lines
        for path in sorted(sources)
        if path.name != "topic.rs" and (lines := rust_literals(path.read_text()))
    }
    assert found == {}, "write `topic::service::NAME`, from `penstock_flux`"


def test_topics_are_not_written_as_literals() -> None:
    found = {
        str(path.relative_to(PACKAGE)): lines
        for path in sorted(PACKAGE.rglob("*.py"))
        if path != FOREIGN and (lines := literals(path.read_text()))
    }
    assert found == {}, "write `topic.SERVICE.NAME`, from `penstock._core`"


def test_a_literal_is_found() -> None:
    assert "job-list.wait" in TOPICS
    assert "start" not in TOPICS
    source = """
client.rpc("job-list.wait")
client.rpc(f"resource.property-{what}")
client.rpc(f"{service}.ping")
client.rpc(topic.resource.DRAIN)
f"{name}: expected resource.drain"
f"resource.config: {error}"
"""
    assert literals(source) == [
        "2: 'job-list.wait'",
        "3: f'resource.property-{what}'",
        "4: f'{service}.ping'",
    ]
    source = """
// "job-list.wait"
route("job-list.wait"); topic.ends_with(".start"); "start"
#[cfg(test)] "job-list.wait"
"""
    assert rust_literals(source) == ['3: "job-list.wait"', '3: ".start"']
