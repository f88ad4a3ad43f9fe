"""The table of roles in `docs/security.md`, from the tables by which the services check requests.

python tests/support/roles_page.py    # rewrites it
"""

from __future__ import annotations

import re
from pathlib import Path

from penstock._core import service_roles
from penstock.instance.control import ControlService
from penstock.instance.hooks import HookService
from penstock.instance.log_service import LogService
from penstock.instance.pmix_service import PmixService

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
HEAD = "| who | requests |\n|---|---|\n"
WHO = {
    "all": "everyone who may connect",
    "guests if admitted": "the owner, and guests if jobs of guests are accepted",
    "visible": "everyone who may connect, for the jobs that `access.job-visibility` lets them list",
    "own": "the user of the job, the owner for every job",
    "own, running: owner": "the user of a pending job, the owner for every job",
    "own, other keys: owner": "the user of the job whose document it is, the owner for every key",
    "owner": "the owner",
}


IN_PYTHON = (ControlService, HookService, LogService, PmixService)


def roles() -> list[tuple[str, str]]:
    """Each topic with the role that may call it."""
    methods = [entry for service in IN_PYTHON for entry in service.METHODS.items()]
    return [*service_roles(), *((topic, method.role.value) for topic, method in methods)]


def table() -> str:
    """The rows, a role each."""
    topics: dict[str, list[str]] = {role: [] for role in WHO}
    for topic, role in roles():
        topics[role].append(f"`{topic}`")
    return HEAD + "".join(
        f"| {who} | {', '.join(sorted(topics[role]))} |\n" for role, who in WHO.items()
    )


def rendered(page: str) -> str:
    """The page with its table regenerated."""
    pattern = re.compile(rf"^{re.escape(HEAD)}(?:\|.*\n)*", re.MULTILINE)
    text = table()
    page, found = pattern.subn(lambda _: text, page)
    assert found == 1, f"expected one table of roles, found {found}"
    return page


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text()))
