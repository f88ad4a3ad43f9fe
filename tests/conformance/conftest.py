"""Fixtures of the tests that need a whole instance."""

from tests.instance.conftest import start

__all__ = ["start"]
