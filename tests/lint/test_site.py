"""The documentation as it is built: `make docs` builds it and names the folder in PENSTOCK_SITE."""

from __future__ import annotations

import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from penstock import IDset
from penstock.cli import VERBS

FOLDER = os.environ.get("PENSTOCK_SITE")
pytestmark = pytest.mark.skipif(FOLDER is None, reason="the site is not built: `make docs`")
SITE = Path(FOLDER or ".")
# Words that a reader searches for, and the page that explains them.
SEARCHED = {
    "install": "install/",
    "stdin": "execution/",
    "accounting": "operations/",
    "systemd": "systemd/",
    "security": "security/",
}


class Resources(HTMLParser):
    """The addresses that a page loads by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in ("script", "img", "iframe", "source"):
            self.found.append(values.get("src") or "")
        elif tag == "link" and values.get("rel") in ("stylesheet", "icon", "preload"):
            self.found.append(values.get("href") or "")


def documents() -> list[dict[str, str]]:
    return json.loads((SITE / "search/search_index.json").read_text())["docs"]


@pytest.mark.parametrize(("word", "page"), SEARCHED.items())
def test_the_search_has_the_words_that_people_look_for(word, page):
    found = {
        document["location"].partition("#")[0]
        for document in documents()
        if re.search(rf"\b{word}\b", f"{document['title']} {document['text']}", re.IGNORECASE)
    }
    assert page in found


def test_pages_load_nothing_from_elsewhere():
    for path in SITE.rglob("*.html"):
        resources = Resources()
        resources.feed(path.read_text())
        assert [url for url in resources.found if re.match(r"(https?:)?//", url)] == [], path


def test_the_command_line_has_a_page():
    text = (SITE / "commands/index.html").read_text()
    for verb in VERBS:
        assert f">penstock {verb}<" in text


def test_the_python_api_has_docstrings_of_the_extension():
    text = re.sub(r"<[^>]+>", "", (SITE / "python/index.html").read_text())
    for name in ("union", "allocate", "first", "expand", "restrict"):
        assert re.search(rf"\b{name}\b", text)
    summary = (IDset.add.__doc__ or "").splitlines()[0].replace("`", "")
    assert summary
    assert summary in text


def test_the_copy_button_leaves_out_prompts_and_output():
    page = (SITE / "index.html").read_text()
    assert re.search(r'<span class="gp">\$', page)
    style = (SITE / "extra.css").read_text()
    assert "[data-md-copying] .gp" in style
    scripts = [path.read_text() for path in SITE.rglob("bundle.*.js")]
    # The attribute that the theme sets while it copies.
    assert any("data-md-copying" in script for script in scripts)
