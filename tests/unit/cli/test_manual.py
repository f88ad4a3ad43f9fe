"""Manual pages and the page of the command line, which are made from the parsers."""

from __future__ import annotations

import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from build_backend import command_reference

from penstock.cli import SHORT_FORMS, VERBS

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def pages():
    return command_reference.man_pages()


def plain(page: str) -> str:
    """The words of a page without the escapes of roff."""
    text = re.sub(r"\\f[A-Z]", "", page).replace(r"\-", "-").replace(r"\&", "")
    return text.replace(r"\e", "\\")


def test_every_verb_has_a_page(pages):
    assert set(pages) == {"penstock.1", *(f"penstock-{verb}.1" for verb in VERBS)}
    overview = plain(pages["penstock.1"])
    for verb, (_, text) in VERBS.items():
        assert f"penstock-{verb}(1)\n{text}" in overview
    for name, form in SHORT_FORMS.items():
        assert f"{name}\npenstock {' '.join(form)}" in overview


def test_a_page_has_every_option_and_operation(pages):
    for command in command_reference.commands():
        page = plain(pages[f"{command.name.replace(' ', '-')}.1"])
        for part in [command, *command.operations]:
            assert part.name in page
            for name, text in part.arguments:
                assert f"{name}\n{text}" in page


def test_lines_that_would_be_requests_are_text():
    assert command_reference._roff(".so file\n'br") == "\\&.so file\n\\&'br"
    assert command_reference._roff("a\\b -x") == r"a\eb \-x"


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_formats_the_pages_without_warnings(pages, tmp_path):
    for name, page in pages.items():
        (tmp_path / name).write_text(page)
    done = subprocess.run(
        ["groff", "-ww", "-man", "-Kutf8", "-Tutf8", "-z", *sorted(pages)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""


def test_the_page_in_markdown_has_every_verb_and_option():
    text = command_reference.markdown()
    for command in command_reference.commands():
        assert f"\n## {command.name}\n" in text
        for operation in command.operations:
            assert f"\n### {operation.name}\n" in text
        for name, _ in command.arguments:
            assert f"| `{name.replace('|', chr(92) + '|')}` |" in text


def test_shared_files_are_added_to_a_wheel(tmp_path, monkeypatch):
    build = pytest.importorskip("build_backend.penstock_build", exc_type=ImportError)
    wheel = tmp_path / "penstock_hpc-1.0-cp311-abi3-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("penstock/__init__.py", "")
        record = "penstock/__init__.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n"
        archive.writestr("penstock_hpc-1.0.dist-info/RECORD", record)
    # The modules of this checkout stand for those of the wheel.
    make = build.make_shared_files
    monkeypatch.setattr(build, "make_shared_files", lambda shared, _: make(shared, ROOT / "python"))
    # A second time replaces the files of the first.
    for _ in range(2):
        build.add_shared_files(wheel)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        rows = archive.read("penstock_hpc-1.0.dist-info/RECORD").decode().splitlines()
        zsh = archive.read("penstock_hpc-1.0.data/data/share/zsh/site-functions/_penstock")
    assert len(names) == len(set(names))
    assert {row.split(",")[0] for row in rows} == set(names) - {"penstock_hpc-1.0.dist-info/RECORD"}
    share = "penstock_hpc-1.0.data/data/share"
    assert f"{share}/man/man1/penstock-submit.1" in names
    assert f"{share}/bash-completion/completions/penstock" in names
    assert f"{share}/fish/vendor_completions.d/penstock.fish" in names
    assert f"{share}/penstock/systemd/system/penstock.service" in names
    assert zsh.startswith(b"#compdef penstock\n")
    assert zsh.rstrip().endswith(b'_penstock "$@"')
