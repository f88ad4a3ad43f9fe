"""The constraint query syntax of RFC 35, as `--requires` takes it, to RFC 31 objects.

```text
query    := and ( ("|" | "or") and )*
and      := not ( ("&" | "and" | nothing) not )*
not      := ("-" | "not" | "!") not | "(" query ")" | term
term     := [operator ":"] value ("," value)*
```

The operator is `properties` unless it is named; `host`, `hosts` and `hostlist` are `hostlist`,
`rank` and `ranks` are `ranks`.
"""

from __future__ import annotations

import json
import re
from typing import Any

from penstock._core import validate_constraint
from penstock.errors import JobspecError

OPERATORS = {
    "property": "properties",
    "properties": "properties",
    "host": "hostlist",
    "hosts": "hostlist",
    "hostlist": "hostlist",
    "rank": "ranks",
    "ranks": "ranks",
}
TOKEN = re.compile(
    r"\s*(?:(?P<symbol>[()|]|&&?|\|\||!)|(?P<word>(?:\"[^\"]*\"|'[^']*'|[^\s()|&!\"'])+))"
)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, int]] = []
        place = 0
        stripped = text.rstrip()
        while place < len(stripped):
            match = TOKEN.match(text, place)
            if match is None:
                raise self.error("expected a term", place)
            kind = match.lastgroup or "word"
            self.tokens.append((match[kind], match.start(kind)))
            place = match.end()
        self.next = 0

    def error(self, expected: str, place: int | None = None) -> JobspecError:
        if place is None:
            after = self.next < len(self.tokens)
            place = self.tokens[self.next][1] if after else len(self.text)
        return JobspecError(f"invalid constraint `{self.text}`: {expected} at byte {place}")

    def peek(self) -> str | None:
        return self.tokens[self.next][0] if self.next < len(self.tokens) else None

    def accept(self, *words: str) -> bool:
        found = self.peek() in words
        self.next += found
        return found

    def query(self, depth: int = 0) -> dict[str, Any]:
        if depth > 50:
            raise self.error("nested too deeply")
        parts = [self.conjunction(depth)]
        while self.accept("|", "||", "or"):
            parts.append(self.conjunction(depth))
        return parts[0] if len(parts) == 1 else {"or": parts}

    def conjunction(self, depth: int) -> dict[str, Any]:
        parts = [self.negation(depth)]
        while self.peek() not in (None, ")", "|", "||", "or"):
            self.accept("&", "&&", "and")
            parts.append(self.negation(depth))
        return parts[0] if len(parts) == 1 else {"and": parts}

    def negation(self, depth: int) -> dict[str, Any]:
        if depth > 50:
            raise self.error("nested too deeply")
        if self.accept("not", "!", "-"):
            return {"not": [self.negation(depth + 1)]}
        if self.accept("("):
            inner = self.query(depth + 1)
            if not self.accept(")"):
                raise self.error("expected `)`")
            return inner
        return self.term()

    def term(self) -> dict[str, Any]:
        token = self.peek()
        if token is None or token in {")", "|", "||", "&", "&&", "or", "and"}:
            raise self.error("expected a term")
        place = self.tokens[self.next][1]
        self.next += 1
        if token.startswith("-") and len(token) > 1:
            return {"not": [self._values(token[1:], place + 1)]}
        return self._values(token, place)

    def _values(self, token: str, place: int) -> dict[str, Any]:
        name, colon, rest = token.partition(":")
        operator = "properties"
        if colon and '"' not in name and "'" not in name:
            known = OPERATORS.get(name)
            if known is None:
                expected = ", ".join(sorted(OPERATORS))
                raise self.error(f"unknown operator `{name}`: expected {expected}", place)
            operator, token = known, rest
        token = token.replace('"', "").replace("'", "")
        if operator != "properties":
            # Commas separate the parts of an idset or hostlist itself.
            return {operator: [token]}
        values = token.split(",")
        if not all(values):
            raise self.error("expected a value", place)
        return {operator: values}


def parse_requires(text: str) -> dict[str, Any]:
    """The RFC 31 object that a query stands for.

    Raises:
        JobspecError: the text cannot be read; it says what was expected at which byte.

    >>> parse_requires("gpu&-slow rank:0-3")
    {'and': [{'properties': ['gpu']}, {'not': [{'properties': ['slow']}]}, {'ranks': ['0-3']}]}
    """
    parser = _Parser(text)
    if parser.peek() is None:
        raise parser.error("expected a term")
    constraint = parser.query()
    if parser.peek() is not None:
        raise parser.error("expected the end")
    validate_constraint(json.dumps(constraint))
    return constraint
