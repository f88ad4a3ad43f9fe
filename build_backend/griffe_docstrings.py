"""An extension of griffe: docstrings of the compiled extension, for the signatures of its stub."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import griffe

MODULE = "penstock._core"


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
        obj.docstring = griffe.Docstring(inspect.cleandoc(text), parent=obj)
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
