"""Splits the specifications' source texts into numbered sentences, and fingerprints them.

The texts are not part of the repository. `sources.toml` accounts for each of their sentences by
place and hash: where the texts are available, a test checks that none lacks and none has changed.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
MAPPING = HERE / "sources.toml"

FILES = {
    "rfc20": "rfc20-resource-set.txt",
    "rfc27": "rfc27-resource-allocation.txt",
    "rfc28": "rfc28-resource-acquisition.txt",
    "rfc32": "rfc32-job-execution.txt",
    "pmix5": "pmix-rfc0005-allocation.txt",
}

# The sections of each text by their headings. A section named "" requires nothing:
# front matter, background, references, and programs.
SECTIONS = {
    "rfc20": {
        "Producers and Consumers": "use",
        "Resource Set Format Definition": "document",
        "Version": "version",
        "Execution": "execution",
        "Scheduling": "scheduling",
        "Graph Vertices": "vertices",
        "Graph Edges": "edges",
        "Attributes": "attributes",
        "Example R": "example",
        "References": "",
    },
    "rfc27": {
        "Design Criteria": "criteria",
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
    "rfc28": {
        "Design Criteria": "criteria",
        "Implementation": "general",
        "Acquire Request": "request",
        "Initial Acquire Response": "initial",
        "Additional Acquire Responses": "additional",
        "Error Response": "error",
        "Disconnect Request": "disconnect",
    },
    "rfc32": {
        "Design Criteria": "criteria",
        "Implementation": "general",
        "Hello": "hello",
        "Start Request": "start",
    },
    "pmix5": {"Description": "description", "Example": "", "Protoype Implementation": ""},
}

UNDERLINE = re.compile(r"([=\-~^])\1{2,}")
BULLET = re.compile(r"\s*([-•]|\d+\.)\s+")
# A key that is defined by the lines after it, such as `id`, `SUCCESS (0)` or `[0]`.
TERM = re.compile(r"[A-Za-z_.\-]+( \(\d\))?|\[\d\]")
# Between two sentences. RFC 32 starts some of them in lower case.
BETWEEN = re.compile(r"(?<=[.?])\s+(?=[A-Z`*]|data |start and/or )")
DEFINE = re.compile(r"#define\s+(\w+)\s+(\S+)\s*(?://(.*))?$")


@dataclass(frozen=True)
class Sentence:
    """A sentence of a source text: its place (`section.paragraph.sentence`) and its words."""

    spec: str
    place: str
    text: str

    @property
    def fingerprint(self) -> str:
        """A hash of the words, whatever the spacing and the quotation marks."""
        words = " ".join(re.findall(r"[\w.<>*/-]+", self.text.casefold()))
        return hashlib.sha256(words.encode()).hexdigest()[:12]


@dataclass
class Block:
    """A piece of a text: `heading`, `text`, `item` of a list, `term` or `define`."""

    kind: str
    text: str


def folder() -> Path | None:
    """The folder of the source texts: `shared/specs` beside the checkout or above it."""
    beside = (parent / "shared" / "specs" for parent in HERE.parents[1].parents)
    return next((path for path in beside if path.is_dir()), None)


def _without_examples(text: str) -> Iterator[str]:
    """Yields the lines outside JSON examples, which end at the margin where they start."""
    margin = -1
    for line in text.splitlines():
        bare = line.strip()
        if margin >= 0:
            if bare == "}" and line.index("}") == margin:
                margin = -1
        elif bare == "{":
            margin = line.index("{")
        elif not bare.startswith(("{", ".. code::", ".. note::")) and bare != "Example:":
            yield line.replace("``", "`").removesuffix(" Example:")
    yield ""


def _blocks(spec: str, text: str) -> list[Block]:
    lines = list(_without_examples(text))
    # RFC 27 wraps its lines and underlines its headings; in the others a line is a block.
    wrapped = spec == "rfc27"
    blocks: list[Block] = []
    joining = False
    for line, following in pairwise(lines):
        bare = line.strip()
        if not bare or UNDERLINE.fullmatch(bare):
            joining = False
        elif bare in SECTIONS[spec] and (not wrapped or UNDERLINE.fullmatch(following)):
            blocks.append(Block("heading", bare))
            joining = False
        elif define := DEFINE.fullmatch(bare):
            blocks.append(Block("define", f"{define[1]} {define[2]}: {(define[3] or '').strip()}"))
            joining = True
        elif joining and bare.startswith("//"):
            blocks[-1].text += f" {bare.removeprefix('//').strip()}"
        elif bullet := BULLET.match(line):
            blocks.append(Block("item", line[bullet.end() :].strip()))
            joining = wrapped
        elif joining and wrapped:
            blocks[-1].text += f" {bare}"
        elif TERM.fullmatch(bare):
            blocks.append(Block("term", bare))
        else:
            blocks.append(Block("text", bare))
            joining = wrapped
    return blocks


def split(spec: str, text: str) -> list[Sentence]:
    """The sentences of a text's sections; each key definition starts with the key."""
    found: list[Sentence] = []
    section, paragraph, term = "", 0, ""
    for block in _blocks(spec, text):
        if block.kind == "heading":
            section, paragraph, term = SECTIONS[spec][block.text], 0, ""
        elif not section:
            continue
        elif block.kind == "term":
            term = block.text
        else:
            paragraph += 1
            whole = f"{term}: {block.text}" if term else block.text
            parts = [whole] if block.kind == "define" else BETWEEN.split(whole)
            for number, part in enumerate(parts, 1):
                found.append(Sentence(spec, f"{section}.{paragraph}.{number}", part))
            term = ""
    return found


def sentences(specs: Path) -> list[Sentence]:
    """The sentences of all source texts."""
    texts = ((spec, (specs / file).read_text()) for spec, file in FILES.items())
    return [sentence for spec, text in texts for sentence in split(spec, text)]
