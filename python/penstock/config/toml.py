"""Writing a configuration as TOML."""

from __future__ import annotations

import json
import re
from typing import Any


def to_toml(document: dict[str, Any], prefix: str = "") -> str:
    """The TOML text of a configuration's tables."""
    lines, tables = [], []
    for key, value in document.items():
        name = key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _quoted(key)
        path = f"{prefix}.{name}" if prefix else name
        if isinstance(value, dict):
            tables.append(to_toml(value, path))
        else:
            lines.append(f"{name} = {_inline(value)}\n")
    # An empty table is kept: its name means something.
    head = f"[{prefix}]\n" if prefix and (lines or not tables) else ""
    body = head + "".join(lines)
    return "\n".join(part for part in [body, *tables] if part)


def _inline(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, float) and value == float("inf"):
        return "inf"
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    # JSON's escapes are TOML's, except surrogate pairs and DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
