"""The conformance page: `python -m tests.conformance.table > docs/conformance.md`.

Collects the tests and lists, for each requirement, those whose markers name it. A marker of an
unknown requirement is an error, and so is a MUST or SHOULD without a test and without a reason.
"""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conformance.mutations import MUTATIONS, ROOT
from tests.conformance.requirements import Requirement, requirements, specifications

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
# The folders with marked tests.
COLLECTED = (HERE, ROOT / "tests" / "pmix")

HEAD = """\
# Conformance

The requirements of RFC 20, 27, 28, 32 and PMIx RFC 0005 in our own words, and the tests that show
that Penstock meets them. They are in `tests/conformance/requirements.toml`; `make conformance`
makes this page from them and from the tests' markers. CI fails if the page is out of date, or if a
MUST or SHOULD has neither a test nor a reason.

- **MUST** includes SHALL, REQUIRED, and what the texts state plainly.
- **current** marks what live Flux does beyond the texts, or in another way. Penstock speaks both
  versions; a peer needs to choose neither.
- A **note** tells where Penstock does more or otherwise. The test then shows what Penstock does.

Tests are in `tests/conformance` unless another folder is named. Tests in `tests/pmix` use real
clients and need libpmix (`make test-pmix`). Beside a checkout of the texts, `sources.toml` accounts
for each of their sentences.
"""

MUTATED = """\
## Mutations

`make mutations` shows that the tests can fail: it removes each of these branches from the source,
builds, and expects the named test to fail.

| removed | in | must fail |
|---|---|---|
"""


class Collector:
    """A pytest plugin that keeps the collected tests, without those that are always skipped."""

    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Keeps the tests that run, whatever the machine."""
        unsure = ("skip", "skipif", "xfail")
        self.items = [
            item for item in session.items if not any(map(item.get_closest_marker, unsure))
        ]


def _name(item: pytest.Item) -> str:
    folder = HERE if item.path.is_relative_to(HERE) else ROOT
    return f"{item.path.relative_to(folder)}::{getattr(item, 'originalname', item.name)}"


def shown_by(items: list[pytest.Item]) -> dict[str, list[str]]:
    """The tests (`file::name`) by the id of each requirement that they show.

    Raises:
        LookupError: a marker names an unknown requirement.
    """
    found: dict[str, list[str]] = {}
    for item in items:
        for marker in item.iter_markers("requirement"):
            for key in marker.args:
                if key not in requirements():
                    raise LookupError(f"{item.nodeid}: unknown requirement `{key}`")
                tests = found.setdefault(key, [])
                if _name(item) not in tests:
                    tests.append(_name(item))
    return found


def collected() -> list[pytest.Item]:
    """The tests of the folders in which tests are marked.

    Raises:
        SystemExit: the tests cannot be collected.
    """
    collector, output = Collector(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        args = ["--collect-only", "-q", "-p", "no:cacheprovider", *map(str, COLLECTED)]
        code = pytest.main(args, plugins=[collector])
    if code:
        raise SystemExit(output.getvalue())
    return collector.items


def problems(tests: dict[str, list[str]]) -> list[str]:
    """Which requirements lack a test, or claim to lack one."""
    found = []
    for entry in requirements().values():
        if entry.untested and entry.id in tests:
            found.append(f"{entry.id}: `untested`, but {tests[entry.id][0]} shows it")
        elif entry.strength != "MAY" and not entry.untested and entry.id not in tests:
            found.append(f"{entry.id}: a {entry.strength} without a test or a reason in `untested`")
    return found


def _cell(text: str) -> str:
    """Markdown for a table's cell: outside of code, signs are escaped."""
    parts = text.split("`")
    for at in range(0, len(parts), 2):
        parts[at] = parts[at].replace("&", "&amp;").replace("<", "&lt;")
    return "`".join(parts).replace("|", "&#124;")


def _row(entry: Requirement, tests: list[str]) -> str:
    strength = entry.strength if entry.version == "specified" else f"{entry.strength}, current"
    shown = "<br>".join(f"`{name}`" for name in tests)
    note = " ".join(filter(None, [entry.note, entry.untested and f"Not tested: {entry.untested}"]))
    name = entry.id.partition(".")[2]
    return f"| `{name}` | {strength} | {_cell(entry.text)} | {shown} | {_cell(note)} |"


def table(tests: dict[str, list[str]]) -> Iterator[str]:
    """Yields the page, line by line."""
    known = list(requirements().values())
    counts = Counter(entry.strength for entry in known)
    yield HEAD
    yield (
        f"{len(known)} requirements: {counts['MUST']} MUST, {counts['SHOULD']} SHOULD, "
        f"{counts['MAY']} MAY. {sum(entry.id in tests for entry in known)} are shown by tests, "
        f"{sum(bool(entry.note) for entry in known)} have a note."
    )
    for name, specification in specifications().items():
        yield f"\n## {specification.title}\n"
        yield f"Ids start with `{name}.`\n"
        yield "| id | strength | requirement | shown by | note |\n|---|---|---|---|---|"
        for entry in known:
            if entry.specification == name:
                yield _row(entry, tests.get(entry.id, []))
    yield f"\n{MUTATED}".removesuffix("\n")
    for mutation in MUTATIONS:
        yield f"| {mutation.what} | `{mutation.file}` | `{mutation.test}` |"


def main() -> None:
    """Prints the page.

    Raises:
        SystemExit: a requirement lacks a test.
    """
    tests = shown_by(collected())
    if lacking := problems(tests):
        raise SystemExit("\n".join(lacking))
    print("\n".join(table(tests)))


if __name__ == "__main__":
    main()
