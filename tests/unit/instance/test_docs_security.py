"""The roles in `docs/security.md` are those of the routers' tables."""

from __future__ import annotations

from roles_page import PAGE, rendered, table

from penstock._core import service_roles


def test_the_table_is_that_of_the_routers() -> None:
    text = PAGE.read_text()
    assert rendered(text) == text, "run `make configuration`"


def test_the_table_has_each_request_once() -> None:
    topics = [topic for topic, _ in service_roles()]
    assert len(topics) == len(set(topics)) > 50
    cells = [line.split("|")[2] for line in table().splitlines()[2:]]
    assert "".join(cells).count("`") == 2 * len(topics)
