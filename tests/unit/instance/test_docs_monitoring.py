"""The metrics in `docs/monitoring.md` are those of the code."""

from __future__ import annotations

from metrics_page import PAGE, rendered


def test_the_table_is_that_of_the_code() -> None:
    text = PAGE.read_text()
    assert rendered(text) == text, "run `make configuration`"
