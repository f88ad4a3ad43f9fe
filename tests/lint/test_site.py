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
    lines = (IDset.add.__doc__ or "").splitlines()
    (summary, *_) = [line for line in lines if line and not line.startswith("add(")]
    assert summary.replace("`", "") in text
    # The page shows the signature of the stub.
    assert "add(member: int" not in text


def test_the_copy_button_leaves_out_prompts_and_output():
    page = (SITE / "index.html").read_text()
    assert re.search(r'<span class="gp">\$', page)
    style = (SITE / "extra.css").read_text()
    assert "[data-md-copying] .gp" in style
    scripts = [path.read_text() for path in SITE.rglob("bundle.*.js")]
    # The attribute that the theme sets while it copies.
    assert any("data-md-copying" in script for script in scripts)


def test_options_are_in_one_line_each():
    page = (SITE / "flux/index.html").read_text()
    assert '<code class="option">-g</code> <code class="option">--gpus-per-task</code>' in page
    assert re.search(r"code\.option \{\s*white-space: nowrap", (SITE / "extra.css").read_text())


def test_names_of_source_files_are_links_to_their_lines():
    page = SITE / "python/index.html"
    links = re.findall(
        r'Source code in <a href="([^"#]+)#(\w[\w-]*)"><code>([\w/.]+)</code>', page.read_text()
    )
    assert len(links) == page.read_text().count("Source code in ")
    assert {name for _, _, name in links} >= {
        "python/penstock/_core.pyi",
        "python/penstock/job.py",
        "python/penstock/sim/workload.py",
    }
    texts = {url: (page.parent / url / "index.html").resolve().read_text() for url, _, _ in links}
    for url, anchor, name in links:
        assert f'id="{anchor}"' in texts[url], name
    (url,) = re.findall(r'href="([^"]+)"><code>examples/scheduler.py', first_page())
    assert "sched.alloc" in (SITE / url / "index.html").read_text()


def first_page() -> str:
    return (SITE / "index.html").read_text()


def test_sources_are_not_searched():
    assert [item for item in documents() if item["location"].startswith("source/")] == []


def test_parameters_of_the_extension_are_tables():
    page = (SITE / "python/index.html").read_text()
    section = page.partition('id="penstock.IDset.add"')[2].partition('id="penstock.IDset.discard"')[
        0
    ]
    assert "Args:" not in section
    assert "A number from 0 to 4294967294, or a range of ids of the set." in section
    assert "<th>Type</th>" in section
