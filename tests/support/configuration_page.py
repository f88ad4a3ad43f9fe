"""Files that follow from the declaration of the configuration.

The tables of `docs/configuration.md`, and for the job manager, the scheduler and `penstock-exec`
the defaults, choices and keys of their settings, which their crates take from there.

python tests/support/configuration_page.py    # rewrites them
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

from penstock.config import Config, manager_settings, scheduler_settings
from penstock.config.declaration import Key, choices, full_settings, keys, spelled
from penstock.config.tables import ExecSettings, SchedulerSettings

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "configuration.md"
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


def service_settings() -> dict[Path, str]:
    """The declaration of each service's settings, by file, as JSON.

    `defaults`, the `choices` of a key, and `full`: every key, the optional ones too. The keys of
    `penstock.exec` all have defaults.
    """
    execution = {
        spelled(field): getattr(ExecSettings(), field.name)
        for field in dataclasses.fields(ExecSettings)
    }
    manager = full_settings(Config, "manager")
    # The queue of a job that names none is set by the general policy only.
    del manager["queues"]["NAME"]["default_queue"]
    declared: dict[str, dict[str, Any]] = {
        "manager": {
            "defaults": manager_settings(Config()),
            "choices": list(choices(Config, "manager")),
            "full": manager,
        },
        "sched": {
            "defaults": scheduler_settings(Config()),
            "choices": [
                *choices(SchedulerSettings, "scheduler"),
                *({"job-visibility": jobs} for jobs in ("own", "all")),
            ],
            "full": full_settings(SchedulerSettings, "scheduler") | {"job-visibility": "own"},
        },
        "exec": {"defaults": execution},
    }
    return {
        ROOT / "rust" / crate / "src" / "settings.json": json.dumps(each, indent=1) + "\n"
        for crate, each in declared.items()
    }


if __name__ == "__main__":
    for path, text in service_settings().items():
        path.write_text(text)
    PAGE.write_text(rendered(PAGE.read_text()))
