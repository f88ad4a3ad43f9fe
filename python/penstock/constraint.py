"""Constraint queries (RFC 35), as `--requires` takes them, to constraint objects (RFC 31).

```text
query    := and ( ("|" | "||" | "or") and )*
and      := negation ( ["&" | "&&" | "and"] negation )*
negation := "not" negation | "-" term | "(" query ")" | term
term     := [operator ":"] operand
```

The precedence is that of the RFC's examples: `not` before `and` before `or`. Quotes take away the
meaning of blanks and of `()|&-,`. The RFC leaves the rest to implementations: the operators are
`properties` (the default; also `property`), `hostlist` (`host`, `hosts`) and `ranks` (`rank`); an
unquoted comma separates properties, all of which are then required.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock._core import validate_constraint
from penstock.errors import JobspecError

if TYPE_CHECKING:
    from collections.abc import Mapping

OPERATORS = {
    "property": "properties",
    "properties": "properties",
    "host": "hostlist",
    "hosts": "hostlist",
    "hostlist": "hostlist",
    "rank": "ranks",
    "ranks": "ranks",
}
# A comma is part of an idset or hostlist itself.
LISTS = frozenset({"properties"})
TOKEN = re.compile(
    r"""\s*(?:
        (?P<and>&&?|and\b) | (?P<or>\|\|?|or\b) | (?P<not>not\b)
        | (?P<open>\() | (?P<close>\)) | (?P<minus>-)
        | (?P<word>(?:"[^"]*"|'[^']*'|[^\s()|&"'])+)
        | (?P<quote>["'])
    )""",
    re.VERBOSE,
)
PART = re.compile(r"\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'|(?P<plain>[^\"']+)")
MAX_DEPTH = 50


class _Token(NamedTuple):
    kind: str
    text: str
    place: int


class _Parser:
    def __init__(self, text: str, operators: Mapping[str, str], default: str) -> None:
        self.text = text
        self.operators = operators
        self.default = default
        self.tokens = self._tokens()
        self.next = 0

    def _tokens(self) -> list[_Token]:
        tokens: list[_Token] = []
        place, end = 0, len(self.text.rstrip())
        while place < end:
            match = TOKEN.match(self.text, place)
            kind = match.lastgroup if match else None
            # There is no character that no token begins with.
            if match is None or kind is None:  # pragma: no cover
                raise self.error("expected a term", place)
            start, place = match.start(kind), match.end()
            if kind == "quote":
                raise self.error(f"expected a closing {match[kind]}", end)
            if kind == "word" and place < end and self.text[place] in "\"'":
                raise self.error(f"expected a closing {self.text[place]}", end)
            tokens.append(_Token(kind, match[kind], start))
        return tokens

    def error(self, expected: str, place: int | None = None) -> JobspecError:
        if place is None:
            after = self.next < len(self.tokens)
            place = self.tokens[self.next].place if after else len(self.text)
        byte = len(self.text[:place].encode(errors="surrogatepass"))
        return JobspecError(f"invalid constraint `{self.text}`: {expected} at byte {byte}")

    def peek(self) -> str | None:
        return self.tokens[self.next].kind if self.next < len(self.tokens) else None

    def accept(self, kind: str) -> bool:
        found = self.peek() == kind
        self.next += found
        return found

    def query(self, depth: int = 0) -> dict[str, Any]:
        parts = [self.conjunction(depth)]
        while self.accept("or"):
            parts.append(self.conjunction(depth))
        return parts[0] if len(parts) == 1 else {"or": parts}

    def conjunction(self, depth: int) -> dict[str, Any]:
        parts = [self.negation(depth)]
        while self.peek() not in (None, "close", "or"):
            self.accept("and")
            parts.append(self.negation(depth))
        return parts[0] if len(parts) == 1 else {"and": parts}

    def negation(self, depth: int) -> dict[str, Any]:
        if depth > MAX_DEPTH:
            raise self.error("nested too deeply")
        if self.accept("not"):
            return {"not": [self.negation(depth + 1)]}
        if self.accept("minus"):
            # RFC 35: it negates a term, `-(a|b)` is an error.
            if self.peek() != "word":
                raise self.error("expected a term after `-` (`not` negates any expression)")
            return {"not": [self.term()]}
        if self.accept("open"):
            inner = self.query(depth + 1)
            if not self.accept("close"):
                raise self.error("expected `)`")
            return inner
        if self.peek() != "word":
            raise self.error("expected a term")
        return self.term()

    def term(self) -> dict[str, Any]:
        token = self.tokens[self.next]
        self.next += 1
        name, colon, rest = token.text.partition(":")
        if not colon or '"' in name or "'" in name:
            return {self.default: self._values(self.default, token.text, token.place)}
        operator = self.operators.get(name)
        if operator is None:
            expected = ", ".join(sorted(self.operators))
            raise self.error(f"unknown operator `{name}`: expected {expected}", token.place)
        return {operator: self._values(operator, rest, token.place + len(name) + 1)}

    def _values(self, operator: str, operand: str, place: int) -> list[str]:
        values = [""]
        for part in PART.finditer(operand):
            if part["plain"] is None or operator not in LISTS:
                values[-1] += part[part.lastgroup or 0]
                continue
            first, *more = part["plain"].split(",")
            values[-1] += first
            values += more
        if not all(values):
            raise self.error("expected a value", place)
        return values


def parse_query(text: str, operators: Mapping[str, str], default: str) -> dict[str, Any]:
    """Converts a query (RFC 35) to an object.

    Args:
        text: the query.
        operators: what may stand before a colon, and the operator that is meant.
        default: the operator of a term that names none.

    Raises:
        JobspecError: the text cannot be read; it says what was expected at which byte.

    >>> parse_query("a|-b", {}, "name")
    {'or': [{'name': ['a']}, {'not': [{'name': ['b']}]}]}
    """
    parser = _Parser(text, operators, default)
    constraint = parser.query()
    if parser.peek() is not None:
        raise parser.error("expected the end")
    return constraint


def parse_requires(text: str) -> dict[str, Any]:
    """Converts a query to the object of RFC 31.

    Raises:
        JobspecError: the text cannot be read; it says what was expected at which byte.

    >>> parse_requires("gpu&-slow rank:0-3")
    {'and': [{'properties': ['gpu']}, {'not': [{'properties': ['slow']}]}, {'ranks': ['0-3']}]}
    """
    constraint = parse_query(text, OPERATORS, "properties")
    validate_constraint(json.dumps(constraint))
    return constraint
