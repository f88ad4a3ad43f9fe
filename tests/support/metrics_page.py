"""The table of metrics in `docs/monitoring.md`, from the code's own table.

python tests/support/metrics_page.py    # rewrites it
"""

from __future__ import annotations

import re
from pathlib import Path

from penstock.metrics import FAMILIES

PAGE = Path(__file__).parents[2] / "docs" / "monitoring.md"
HEAD = "| metric | type | labels | meaning |\n|---|---|---|---|\n"


def table() -> str:
    """The rows, a metric each."""
    rows = []
    for family in FAMILIES:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        rows.append(f"| `{family.sample}` | {family.kind} | {labels} | {family.doc} |\n")
    return HEAD + "".join(rows)


def rendered(page: str) -> str:
    """The page with its table regenerated."""
    pattern = re.compile(rf"^{re.escape(HEAD)}(?:\|.*\n)*", re.MULTILINE)
    text = table()
    page, found = pattern.subn(lambda _: text, page)
    assert found == 1, f"expected one table of metrics, found {found}"
    return page


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text()))
