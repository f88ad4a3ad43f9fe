"""The conformance table: `python tests/conformance/table.py > docs/conformance.md`.

The tests are asked what they show, by collecting them; a sentence that none of them shows is an
error, and so is a note on a sentence that is not there.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from tests.conformance.mutations import MUTATIONS  # noqa: E402
from tests.conformance.sentences import Sentence, sentences  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

TITLES = {
    "20": ("RFC 20: resource sets", "rfc20.txt"),
    "27": ("RFC 27: allocation", "rfc27.txt"),
    "28": ("RFC 28: acquisition", "rfc28.txt"),
    "32": ("RFC 32: execution", "rfc32.txt"),
    "today": ("Today's protocols", "today.txt"),
}

HEAD = """\
# Conformance

Every sentence of the specifications that binds, and the tests that show that Penstock does as it
says. The texts are those in `tests/vectors/specs`: an earlier version of RFC 20, 27, 28 and 32,
and, sentence by sentence, what live Flux does today in another way. Penstock speaks both. A
sentence that binds says SHALL, MUST, REQUIRED or OPTIONAL, or tells plainly what is sent.

A test names the sentences that it shows in its markers, and this page is made from those (`make
conformance`). CI fails on a sentence without a test and on a page that is out of date. The tests
are in `tests/conformance`. A note says where we do otherwise, or more; the test then shows what we
do.
"""

MUTATED = """\
## Mutations

That the tests can fail is shown by breaking what they test: `make mutations` takes each of these
branches out of the source, builds, and sees the test fail.

| taken out | in | must fail |
|---|---|---|
"""


class Collector:
    """A plugin that keeps what was collected."""

    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Keeps the tests that run, whatever the machine."""
        unsure = ("skip", "skipif", "xfail")
        self.items = [
            item for item in session.items if not any(map(item.get_closest_marker, unsure))
        ]


def shown() -> dict[str, list[str]]:
    """The tests (`file::name`) by the id of what they show.

    Raises:
        SystemExit: the tests cannot be collected, or one names a sentence that is not there.
    """
    collector, output = Collector(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        args = ["--collect-only", "-q", "-p", "no:cacheprovider", str(HERE)]
        code = pytest.main(args, plugins=[collector])
    if code:
        raise SystemExit(output.getvalue())
    found: dict[str, list[str]] = {}
    for item in collector.items:
        name = f"{item.path.name}::{getattr(item, 'originalname', item.name)}"
        for key in dict(item.user_properties).get("rfc", []):
            tests = found.setdefault(key, [])
            if name not in tests:
                tests.append(name)
    return found


def notes() -> dict[str, str]:
    """Where we do otherwise, and why, by the sentence's id."""
    return tomllib.loads((HERE / "notes.toml").read_text())


def _cell(sentence: Sentence) -> str:
    def plain(text: str) -> str:
        return text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;")

    if sentence.spec not in ("27", "today"):
        # A backtick is no markup here: it is the sign.
        return plain(sentence.text).replace("`", "&#96;")
    parts = sentence.text.split("`")
    return "`".join(part if at % 2 else plain(part) for at, part in enumerate(parts))


def table() -> Iterator[str]:
    """The page, line by line.

    Raises:
        SystemExit: a sentence has no test, or a note no sentence.
    """
    tests, remarks = shown(), notes()
    known = {it.id for it in sentences()}
    lost = [f"no test shows {it.id}: {it.text}" for it in sentences() if it.id not in tests]
    lost += [f"a note is on {key}, which is no sentence" for key in remarks if key not in known]
    if lost:
        raise SystemExit("\n".join(lost))
    yield HEAD
    yield f"{len(known)} sentences, {len(remarks)} of them with a note."
    for spec, (title, file) in TITLES.items():
        yield f"\n## {title}\n\n`tests/vectors/specs/{file}`\n"
        yield "| section | sentence | shown by | note |\n|---|---|---|---|"
        for it in sentences():
            if it.spec == spec:
                names = "<br>".join(f"`{name}`" for name in tests[it.id])
                section = it.id.partition(".")[2]
                yield f"| {section} | {_cell(it)} | {names} | {remarks.get(it.id, '')} |"
    yield f"\n{MUTATED}".removesuffix("\n")
    for mutation in MUTATIONS:
        yield f"| {mutation.what} | `{mutation.file}` | `{mutation.test}` |"


def main() -> None:
    """Prints the page."""
    print("\n".join(table()))


if __name__ == "__main__":
    main()
