"""Reads `requirements.toml`, and marks tests with the requirements that they show."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).with_name("requirements.toml")
STRENGTHS = ("MUST", "SHOULD", "MAY")
VERSIONS = ("specified", "current")

# Marks a test as one that shows these requirements, each named by its id.
requirement = pytest.mark.requirement


@dataclass(frozen=True)
class Requirement:
    """A requirement of a specification, in our own words.

    `version` is `specified` for the specifications' texts and `current` for what live Flux does
    beyond them. `note` tells where Penstock does more or otherwise, `untested` why it has no test.
    """

    id: str
    strength: str
    text: str
    version: str = "specified"
    note: str = ""
    untested: str = ""

    @property
    def specification(self) -> str:
        """The first part of the id, such as `rfc27`."""
        return self.id.split(".")[0]

    @property
    def section(self) -> str:
        """The second part of the id, such as `alloc-cancel`."""
        return self.id.split(".")[1]


@dataclass(frozen=True)
class Specification:
    """A specification's title, and the titles of its sections by their names in ids."""

    title: str
    sections: dict[str, str]


def parse(document: dict[str, Any]) -> tuple[dict[str, Specification], dict[str, Requirement]]:
    """Checks a document of requirements and returns what it holds, by name and by id.

    Raises:
        ValueError: a key, a strength, a version, or a requirement's place is unknown.
    """
    tables = dict(document)
    specifications = {
        name: Specification(**table) for name, table in tables.pop("specifications").items()
    }
    found: dict[str, Requirement] = {}
    for name, sections in tables.items():
        for section, entries in sections.items():
            for last, fields in entries.items():
                where = f"{name}.{section}.{last}"
                if name not in specifications or section not in specifications[name].sections:
                    raise ValueError(f"{where}: unknown section `{name}.{section}`")
                if unknown := fields.keys() - Requirement.__dataclass_fields__.keys():
                    raise ValueError(f"{where}: unknown key `{min(unknown)}`")
                entry = Requirement(where, **fields)
                if entry.strength not in STRENGTHS or entry.version not in VERSIONS:
                    raise ValueError(f"{where}: unknown strength or version")
                found[where] = entry
    return specifications, found


@cache
def _read() -> tuple[dict[str, Specification], dict[str, Requirement]]:
    return parse(tomllib.loads(FILE.read_text()))


def specifications() -> dict[str, Specification]:
    """Every specification by its name in ids, in the order of the page."""
    return _read()[0]


def requirements() -> dict[str, Requirement]:
    """Every requirement by its id, in the order of the file."""
    return _read()[1]
