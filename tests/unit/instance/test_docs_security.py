"""The roles in `docs/security.md` are those of the services' tables."""

from __future__ import annotations

from roles_page import PAGE, rendered, roles, table


def test_the_table_is_that_of_the_services() -> None:
    text = PAGE.read_text()
    assert rendered(text) == text, "run `make configuration`"


def test_the_table_has_each_request_once() -> None:
    topics = [topic for topic, _ in roles()]
    assert len(topics) == len(set(topics)) > 90
    cells = [line.split("|")[2] for line in table().splitlines()[2:]]
    assert "".join(cells).count("`") == 2 * len(topics)
