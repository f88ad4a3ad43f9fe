"""The documentation is true: its examples run, its links lead to every page."""

from __future__ import annotations

import doctest
import io
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]

LINK = re.compile(r"\]\(([^()\s]+)\)")
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Commands that need no instance and no other program.
LIBRARY_COMMAND = re.compile(r"(seq [\d ]+\| )?penstock (idset|hostlist|R) ")


def examples(text: str) -> str:
    """The Python blocks of a page; every other line is blank, so that line numbers stay."""
    lines, python, fence = [], False, ""
    for line in text.splitlines():
        if not fence and (opening := re.match(r"\s*(`{3,})(.*)", line)):
            fence, python = opening[1], opening[2].split()[:1] == ["python"]
            lines.append("")
        elif fence and line.strip() == fence:
            fence, python = "", False
            lines.append("")
        else:
            lines.append(line if python else "")
    return "\n".join(lines) + "\n"


def run(text: str, name: str) -> str:
    """Runs the examples of a page one after the other in one namespace. Returns what went wrong."""
    test = doctest.DocTestParser().get_doctest(examples(text), {}, name, name, 0)
    report = io.StringIO()
    doctest.DocTestRunner(verbose=False).run(test, out=report.write)
    return report.getvalue()


def library_commands(text: str) -> list[tuple[str, str]]:
    """The commands of a page's console blocks that use the library alone, with their output."""
    sessions = (block.split("$ ")[1:] for block in CONSOLE.findall(text))
    steps = (step.partition("\n") for session in sessions for step in session)
    return [(command, output) for command, _, output in steps if LIBRARY_COMMAND.match(command)]


def links(page: Path) -> list[Path]:
    """The files that a page links to."""
    targets = (target.partition("#")[0] for target in LINK.findall(page.read_text()))
    return [(page.parent / target).resolve() for target in targets if target and ":" not in target]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = run(page.read_text(), page.name)
    assert not wrong, wrong


@pytest.mark.parametrize("page", ["hostlist", "idset", "index", "resource"])
def test_shell_examples_of_the_library_are_right(page: str, tmp_path: Path) -> None:
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LC_ALL": "C.UTF-8",
    }
    found = library_commands((DOCS / f"{page}.md").read_text())
    assert found
    for command, output in found:
        done = subprocess.run(
            ["sh", "-c", command],
            check=False,
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.stdout == output, command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    assert not [target for target in links(page) if not target.exists()]


def test_every_page_can_be_reached_from_the_first() -> None:
    found, todo = set(), [DOCS / "index.md"]
    while todo:
        page = todo.pop()
        if page.suffix == ".md" and page not in found:
            found.add(page)
            todo.extend(target for target in links(page) if target.is_relative_to(DOCS))
    lost = set(DOCS.rglob("*.md")) - found
    assert not lost, f"no page that is reached from docs/index.md links to {sorted(lost)}"


def test_an_example_that_is_not_true_is_noticed() -> None:
    blocks = [
        "```python\n>>> x = 1\n\n```",
        "```console\n>>> x = 2\n```",
        "```python\n>>> x\n{}\n```",
    ]
    page = "# A page\n\n" + "\n\n".join(blocks) + "\n"
    assert run(page.format(1), "page") == ""
    assert 'File "page", line 13' in run(page.format(2), "page")


def test_every_installation_names_the_distribution() -> None:
    """`penstock` is another project's name where packages are published."""
    name = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"]
    sources = [*PAGES, *(ROOT / "examples").glob("*.py"), *(ROOT / "python").rglob("*.py")]
    named = {
        f"{path.relative_to(ROOT)}: {found}"
        for path in sources
        for found in re.findall(r"pip install '?(penstock[\w-]*)", path.read_text())
        if found != name
    }
    assert named == set()
    assert f"pip install {name}" in (ROOT / "README.md").read_text()


# Running jobs, pending ones, inactive ones.
STATE_ORDER = {"R": 0, "S": 1, "CD": 2, "F": 2, "CA": 2, "TO": 2}
JOB_LISTING = re.compile(
    r"^\$ penstock jobs(?: -a)?\n *JOBID USER .*\n((?: *ƒ.*\n)+)", re.MULTILINE
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_listings_of_jobs_have_the_order_of_the_command(page):
    for listing in JOB_LISTING.findall(page.read_text()):
        states = [line.split()[3] for line in listing.splitlines()]
        assert states == sorted(states, key=STATE_ORDER.__getitem__), listing


def test_the_pages_have_listings_of_jobs():
    assert sum(len(JOB_LISTING.findall(page.read_text())) for page in PAGES) >= 2
