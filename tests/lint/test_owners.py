"""State of a peer of the manager is changed by the peer's own files only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "rust" / "manager" / "src"

# The methods that change a peer's state, or publish it, and the first part of its files' paths.
OWNERS = {
    "advance_alloc": "scheduler",
    "advance_exec": "exec",
    "advance_hook": "hooks",
    "publish_handshake": "scheduler",
    "publish_shrunk_ranks": "exec",
}
# The tables and the methods that use them.
TABLES = "dialogue.rs"
USE = re.compile(rf"(?<!fn )\b({'|'.join(OWNERS)})\b")
TESTS = re.compile(r"#\[cfg\(test\)\]\s*mod \w+ \{.*", re.DOTALL)


def foreign(path: str, text: str) -> list[str]:
    """The methods in the text of a source file that belong to a peer with other files."""
    if path == TABLES:
        return []
    owner = path.removesuffix(".rs").partition("/")[0]
    return [name for name in USE.findall(TESTS.sub("", text)) if OWNERS[name] != owner]


def test_only_a_peer_changes_its_state() -> None:
    texts = {str(path.relative_to(SOURCE)): path.read_text() for path in SOURCE.rglob("*.rs")}
    used = {name for text in texts.values() for name in USE.findall(text)}
    assert used == set(OWNERS)
    assert {path: names for path, text in texts.items() if (names := foreign(path, text))} == {}


@pytest.mark.parametrize(
    ("path", "text", "names"),
    [
        ("exec.rs", "dialogue.advance_exec(input)", []),
        ("scheduler/request.rs", "cx.publish_handshake(ready)", []),
        ("hooks.rs", "dialogue.advance_exec(input)", ["advance_exec"]),
        ("elastic/grant.rs", "split.map(Context::publish_handshake)", ["publish_handshake"]),
        ("dialogue.rs", "self.advance_alloc(input)", []),
        ("context.rs", "pub(crate) fn publish_handshake(&mut self)", []),
        ("steps.rs", "#[cfg(test)]\nmod tests { fn f() { dialogue.advance_exec(input) } }", []),
    ],
)
def test_a_change_by_another_is_found(path: str, text: str, names: list[str]) -> None:
    assert foreign(path, text) == names
