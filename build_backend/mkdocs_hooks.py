"""Pages that are made when the site is built: the command line's reference, and the sources."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File
from mkdocs.utils import get_relative_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
# mkdocs executes a hook by its path, and restores `sys.path` afterwards.
sys.path.insert(0, str(ROOT / "build_backend"))

from command_reference import markdown  # noqa: E402

# The sources that have a page: the examples, and the modules of the page on the Python API.
SOURCES = ("examples/*.py", "python/penstock/**/*.py", "python/penstock/_core.pyi")
# The packages without a public interface.
PRIVATE = ("cli", "compat", "instance", "web")
SOURCE_PAGE = """---
title: {path}
search:
  exclude: true
---

# `{path}`

````````python linenums="1"
{text}````````
"""
# The name of a file in a page, and what mkdocstrings writes above the source of an object.
NAME = re.compile(r"(?<!\">)<code>((?:examples|python/penstock)/[\w/]+\.py)</code>")
# Options in a table: a browser would break a line between their hyphens.
OPTIONS = re.compile(r"<code>(-{1,2}[A-Za-z][\w-]*(?: -{1,2}[A-Za-z][\w-]*)*)</code>")
SOURCE_SUMMARY = re.compile(
    r"(<summary>Source code in )<code>([\w/.]+)</code>(</summary>.*?"
    r"<span class=\"normal\"><a [^>]*>\s*)(\d+)",
    re.DOTALL,
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds `commands.md`, from the parsers of the command line, and a page for each source file."""
    files.append(File.generated(config, "commands.md", content=markdown()))
    for path in source_files():
        text = (ROOT / path).read_text(encoding="utf-8")
        content = SOURCE_PAGE.format(path=path, text=text)
        files.append(File.generated(config, page_of(path), content=content))
    return files


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Makes the names of source files links to their pages, and keeps each option in one line."""
    if page.file.src_uri.startswith("source/"):
        return html

    def link(path: str, line: str = "") -> str:
        file = files.get_file_from_path(page_of(path))
        if file is None:
            return f"<code>{path}</code>"
        url = get_relative_url(file.url, page.url)
        return f'<a href="{url}{line}"><code>{path}</code></a>'

    html = SOURCE_SUMMARY.sub(
        lambda found: (
            f"{found[1]}{link(found[2], f'#__codelineno-0-{found[4]}')}{found[3]}{found[4]}"
        ),
        html,
    )
    html = OPTIONS.sub(
        lambda found: " ".join(f'<code class="option">{word}</code>' for word in found[1].split()),
        html,
    )
    return NAME.sub(lambda found: link(found[1]), html)


def source_files() -> Iterator[str]:
    """The paths of the source files that have a page."""
    for pattern in SOURCES:
        for path in sorted(ROOT.glob(pattern)):
            source = path.relative_to(ROOT).as_posix()
            if not source.startswith(tuple(f"python/penstock/{name}/" for name in PRIVATE)):
                yield source


def page_of(path: str) -> str:
    """The page of a source file."""
    return f"source/{Path(path).with_suffix('.md')}"
