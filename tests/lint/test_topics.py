"""Topics are written in `rust/flux` only; Python has them as `penstock._core.topic`."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from penstock._core import topic

PACKAGE = Path(__file__).parents[2] / "python" / "penstock"


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
METHODS = tuple(f".{name}" for name in constants(topic.exec_method) | {topic.PING, topic.STATS_GET})


def literals(source: str) -> list[str]:
    """The literals of a module that are topics, or f-strings that build one."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in TOPICS:
            found.append(f"{node.lineno}: {node.value!r}")
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
            text = "".join(map(str, parts))
            if PATTERN.fullmatch(text) and (text.startswith(SERVICES) or text.endswith(METHODS)):
                found.append(f"{node.lineno}: {ast.unparse(node)}")
    return found


def test_topics_are_not_written_as_literals() -> None:
    found = {
        str(path.relative_to(PACKAGE)): lines
        for path in sorted(PACKAGE.rglob("*.py"))
        if (lines := literals(path.read_text()))
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
