"""The tables of `docs/configuration.md`, from the declaration of the configuration.

python tests/support/configuration_page.py    # rewrites the tables of the page
"""

from __future__ import annotations

import re
from pathlib import Path

from penstock.config import Config
from penstock.config.declaration import Key, keys

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
HEAD = "| key | kind | default | what | reload |\n|---|---|---|---|---|\n"


def table(rows: list[Key]) -> str:
    """The rows of some keys, below the head of a table."""
    return HEAD + "".join(
        f"| `{'.'.join(row.path)}` | {row.kind} | {row.default} | {row.doc} "
        f"| {'yes ' if row.reloadable else ''}|\n"
        for row in rows
    )


def rendered(page: str) -> str:
    """The page with the table of each section regenerated.

    The section of a table is headed by the table's name, such as `## policy`.
    """
    sections: dict[str, list[Key]] = {}
    for key in keys(Config):
        sections.setdefault(key.path[0], []).append(key)
    for name, rows in sections.items():
        pattern = re.compile(
            rf"(^## {re.escape(name)}\n(?:(?!^## ).*\n)*?)(?:^\|.*\n)+", re.MULTILINE
        )
        text = table(rows)
        page, found = pattern.subn(lambda match: match[1] + text, page)  # noqa: B023
        assert found == 1, f"expected one table below `## {name}`, found {found}"
    return page


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text()))
