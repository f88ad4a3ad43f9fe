"""The sentences that bind: those of `tests/vectors/specs` that say SHALL, MUST or REQUIRED.

The texts are read in blocks: headings, paragraphs, list items, and terms with their definitions.
A sentence that ends in a colon before a list has the list's items as part of it; an item that
binds by itself is a sentence of its own besides. Ids are the section and the place in it
(`27.hello.3`); they change only with the texts, which do not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

SPECS = Path(__file__).parents[1] / "vectors" / "specs"
SPEC_NAMES = ("20", "27", "28", "32", "today")

# Where a section begins, by its heading; what stands before the first of them binds nobody.
HEADINGS = {
    "20": {
        "Producers and Consumers": "use",
        "Resource Set Format Definition": "format",
        "Version": "version",
        "Execution": "execution",
        "Scheduling": "scheduling",
        "Graph Vertices": "vertices",
        "Graph Edges": "edges",
        "Attributes": "attributes",
        "Example R": "example",
    },
    "27": {
        "Implementation": "general",
        "Hello": "hello",
        "Ready": "ready",
        "Alloc": "alloc",
        "Alloc Success": "success",
        "Alloc Annotate": "annotate",
        "Alloc Deny": "deny",
        "Alloc Cancel": "alloc-cancel",
        "Cancel": "cancel",
        "Prioritize": "prioritize",
        "Free": "free",
        "Finalization": "finalization",
        "Exceptions": "exceptions",
    },
    "28": {
        "Implementation": "general",
        "Acquire Request": "request",
        "Initial Acquire Response": "initial",
        "Additional Acquire Responses": "additional",
        "Error Response": "error",
        "Disconnect Request": "disconnect",
    },
    "32": {"Implementation": "general", "Hello": "hello", "Start Request": "start"},
}

BINDING = re.compile(r"\b(SHALL|MUST|REQUIRED|OPTIONAL|OPTIONALLY)\b")

# What tells how to read these words; it asks nothing of anybody.
BOILERPLATE = "The key words"

# Sentences that bind, and have none of the words: by their beginning.
PLAIN = {
    "20": (),
    "27": (
        "`limit` can be in the range",
        "Job IDs which cannot be correlated to a pending",
        "No response is sent to the `sched.prioritize` request",
        "Upon the job entering CLEANUP state",
        "If the job is holding resources when it enters CLEANUP",
        "The job manager posts an `alloc` event",
        "A snapshot of job's annotation dictionary",
    ),
    "28": (
        "The resource.acquire request has no payload",
        "(string) RFC 22 idset of execution targets that should be marked available",
        "(string) RFC 22 idset of execution targets that should be marked unavailable",
        "The idset only contains targets that are transitioning, not the full set of available",
        "The idset only contains targets that are transitioning, not the full set of unavailable",
        "(object) RFC 20 conforming properties object containing properties that should be added",
        "(object) RFC 20 conforming properties object containing properties that should be removed",
        "(float) When present, this key notifies",
        "If an error response is returned to resource.acquire",
        "This cancels the resource.acquire request",
        "Running jobs are unaffected",
    ),
    "32": (
        "Indicates that the job shells have started",
        "data contains two keys: ranks",
        "data contains two required keys: severity",
        "data contains one required key: status",
        "An exception response MAY be sent at any point",
        "start and/or finish responses MAY be omitted",
    ),
}

# A term that is defined, such as `id`, `SUCCESS (0)` or `[0]`.
TERM = re.compile(r"[A-Za-z_.\-]+( \(\d\))?|\[\d\]")
BULLET = re.compile(r"\s*[-•]\s+")
UNDERLINE = re.compile(r"([=\-~^])\1{2,}")
# Between two sentences; RFC 32 begins some in lower case.
BETWEEN = re.compile(r"(?<=\.)\s+(?=[A-Z`*]|data |start and/or )")
# How many items a list has where its introduction says so.
NUMBERS = {"one": 1, "two": 2}
COUNTED = re.compile(r"\b(one|two)( \w+)? keys?:$")


@dataclass(frozen=True)
class Sentence:
    """A sentence that binds: its specification, its id, and its text with what it lists."""

    spec: str
    id: str
    text: str


@dataclass
class Block:
    """A piece of a text: `heading`, `text`, `item` (of a list) or `term` (of a definition)."""

    kind: str
    text: str


@dataclass
class Row:
    """A sentence on its way: `items` is what the list after it names."""

    text: str
    items: list[str] = field(default_factory=list)
    binds: bool = False

    def takes_items(self) -> bool:
        """Whether a list follows that is not complete yet."""
        counted = COUNTED.search(self.text)
        return counted is None or len(self.items) < NUMBERS[counted[1]]

    def whole(self) -> str:
        """The sentence with what it lists."""
        return f"{self.text} {'; '.join(self.items)}." if self.items else self.text


def _without_examples(text: str) -> list[str]:
    """The lines of a text without the JSON in it, which ends at the margin where it began."""
    lines, margin = [], -1
    for line in text.splitlines():
        bare = line.strip()
        if margin >= 0:
            if bare == "}" and line.index("}") == margin:
                margin = -1
        elif bare == "{":
            margin = line.index("{")
        elif not bare.startswith(("{", ".. code::")) and bare != "Example:":
            lines.append(line.replace("``", "`").removesuffix(" Example:"))
    return [*lines, ""]


def _blocks(spec: str) -> list[Block]:
    lines = _without_examples((SPECS / f"rfc{spec}.txt").read_text())
    # RFC 27 has its lines wrapped and its headings underlined; in the others a line is a block.
    wrapped = spec == "27"
    blocks: list[Block] = []
    joining = False
    for at, line in enumerate(lines):
        bare = line.strip()
        if not bare or UNDERLINE.fullmatch(bare):
            joining = False
        elif bare in HEADINGS[spec] and (not wrapped or UNDERLINE.fullmatch(lines[at + 1])):
            blocks.append(Block("heading", bare))
        elif bullet := BULLET.match(line):
            blocks.append(Block("item", line[bullet.end() :].strip()))
            joining = wrapped
        elif joining:
            blocks[-1].text += f" {bare}"
        elif TERM.fullmatch(bare):
            blocks.append(Block("term", bare))
        else:
            # A line of signs alone is what the sentence before speaks of.
            blocks.append(Block("text" if re.search("[a-z]", bare) else "item", bare))
            joining = wrapped
    return blocks


def _binds(spec: str, text: str) -> bool:
    if text.startswith(BOILERPLATE):
        return False
    return BINDING.search(text) is not None or text.startswith(PLAIN[spec])


def _read(spec: str) -> list[Sentence]:
    rows: dict[str, list[Row]] = {}
    section, term = "", ""
    head: Row | None = None
    for block in _blocks(spec):
        if block.kind == "heading":
            section, term, head = HEADINGS[spec][block.text], "", None
        elif not section or block.kind == "term":
            term = block.text
        else:
            here = rows.setdefault(section, [])
            first, *rest = BETWEEN.split(block.text)
            listed = head is not None and head.takes_items() and (term or block.kind == "item")
            if head is not None and listed:
                # What binds by itself has a row of its own: its name is enough here.
                binds = term and _binds(spec, first)
                named = binds or (term and not first.startswith("("))
                item = term if named else f"{term} {first}".strip()
                head.items.append(item.removesuffix("."))
                if binds and not re.search(rf"\b{re.escape(term)}\b", first):
                    here.append(Row(f"{term}: {first}", binds=True))
                    first = ""
            elif not term and block.kind == "text":
                head = None
            for text in [first, *rest]:
                here.append(Row(text))
                if text.endswith(":"):
                    head = here[-1]
            term = ""
    return [
        Sentence(spec, f"{spec}.{name}.{number}", row.whole())
        for name, found in rows.items()
        for number, row in enumerate((it for it in found if it.binds or _binds(spec, it.text)), 1)
    ]


def _read_today() -> list[Sentence]:
    lines = (SPECS / "today.txt").read_text().partition("\n\n")[2].splitlines()
    parts = (line.partition(": ") for line in lines)
    return [Sentence("today", f"today.{name}", text) for name, _, text in parts]


@cache
def sentences() -> tuple[Sentence, ...]:
    """Every sentence that binds, in the order of the texts."""
    return (*(it for spec in HEADINGS for it in _read(spec)), *_read_today())


def find(spec: str, beginning: str) -> Sentence:
    """The one sentence of a specification that begins so.

    Raises:
        LookupError: there is none, or there are several.
    """
    found = [it for it in sentences() if it.spec == spec and it.text.startswith(beginning)]
    if len(found) != 1:
        names = ", ".join(it.id for it in found) or "none"
        raise LookupError(f"`{beginning}` of {spec}: expected one sentence, found {names}")
    return found[0]


if __name__ == "__main__":
    for sentence in sentences():
        print(f"{sentence.id}: {sentence.text}")
