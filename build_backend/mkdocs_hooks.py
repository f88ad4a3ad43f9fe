"""Pages of the documentation that are made when the site is built: the command line's reference."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

# mkdocs executes a hook by its path, and restores `sys.path` afterwards.
sys.path.insert(0, str(Path(__file__).parent))

from command_reference import markdown


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds `commands.md`, from the parsers of the command line."""
    files.append(File.generated(config, "commands.md", content=markdown()))
    return files
