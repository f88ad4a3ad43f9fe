"""An extension of griffe: docstrings of the compiled extension, for the signatures of its stub."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import griffe

MODULE = "penstock._core"
# As `docstring_options` in mkdocs.yml, which are those of docstrings in Python.
OPTIONS = {"warn_missing_types": False, "warn_unknown_params": False}
# The signatures with types that a docstring begins with, for `help`.
SIGNATURES = re.compile(r"(?:\w+\(.*\)(?: -> .+)?\n)+\n")


class RuntimeDocstrings(griffe.Extension):
    """Gives the objects of the stub, which has no docstrings, those of the extension."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Sets the docstrings of the extension's module and of what it contains."""
        module = pkg.members.get("_core")
        if isinstance(module, griffe.Module):
            _describe(module, importlib.import_module(MODULE))


def _describe(obj: griffe.Object, value: Any) -> None:
    # Not `getdoc`: the docstrings of protocols such as `__len__` are those of `object`.
    text = getattr(value, "__doc__", None)
    if obj.docstring is None and isinstance(text, str):
        # The signature of the page is that of the stub.
        text = inspect.cleandoc(text)
        if signatures := SIGNATURES.match(text):
            text = text[signatures.end() :]
        obj.docstring = griffe.Docstring(text, parent=obj, parser="google", parser_options=OPTIONS)
    for name, member in obj.members.items():
        found = member
        if isinstance(member, griffe.Alias):
            try:
                # A class whose `__module__` is the public module is an alias of itself.
                found = member.final_target
            except griffe.AliasResolutionError:
                continue
        if found.path.startswith(obj.path) and hasattr(value, name):
            _describe(found, getattr(value, name))
