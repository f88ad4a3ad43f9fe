"""The tutorials: every command of a page is run in one shell, and prints what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)
MARK = "@@ command"
# Texts that differ between two runs: ids of jobs, users, times, durations.
DIFFERENT = [
    (re.compile(r"ƒ[1-9A-HJ-NP-Za-km-z]+"), "JOB"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ T]"), ""),
    (re.compile(r"\b\d\d:\d\d(:\d\d)?\b"), "TIME"),
    (re.compile(r"\b\d+(\.\d+)?(ms|s|m|min|h)\b"), "DURATION"),
    (re.compile(r"\b(root|alice)\b"), "USER"),
    (re.compile(r"[ \t]+"), " "),
]


def normal(text: str) -> str:
    """The text without what differs between two runs."""
    lines = [line.strip() for line in text.strip().splitlines()]
    # The log of an instance that has been started in the session is no output of its commands.
    text = "\n".join(line for line in lines if line and not line.startswith("penstock: "))
    for pattern, replacement in DIFFERENT:
        text = pattern.sub(replacement, text)
    return text


def session(page: str, folder: Path) -> list[tuple[str, str]]:
    """Commands and their output; files of the page are written to the folder."""
    steps = []
    for language, title, body in BLOCK.findall(page):
        if title:
            (folder / title).write_text(body)
        elif language == "console":
            for step in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, _, output = step.partition("\n")
                steps.append((command, output))
    return steps


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_prints_what_it_shows(page, tmp_path):
    steps = session(page.read_text(), tmp_path)
    assert steps
    lines = []
    for number, (command, _) in enumerate(steps):
        # The session is the standard input here, and not a terminal.
        lines += [
            f"echo '{MARK} {number}'",
            re.sub(r"^penstock run .*", r"\g<0> < /dev/null", command),
        ]
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    done = subprocess.run(
        # Commands of `penstock start -- bash` come from the same standard input.
        ["bash", "--norc"],
        input="\n".join([*lines, ""]),
        cwd=tmp_path,
        env={
            **{name: value for name, value in os.environ.items() if "PENSTOCK" not in name},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "XDG_RUNTIME_DIR": str(runtime),
            "XDG_STATE_HOME": str(tmp_path / "state"),
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "LC_ALL": "C.UTF-8",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=240,
    )
    printed = re.split(rf"^{MARK} \d+\n", done.stdout, flags=re.MULTILINE)[1:]
    assert len(printed) == len(steps), done.stdout
    for (command, expected), output in zip(steps, printed, strict=True):
        assert normal(output) == normal(expected), command


def test_there_are_tutorials():
    assert {page.stem for page in PAGES} == {"cluster", "policies", "scheduler", "sweep"}
