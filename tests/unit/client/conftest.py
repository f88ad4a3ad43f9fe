"""The libraries for asynchronous programs."""

from __future__ import annotations

import pytest
from asynclibraries import Asyncio, Trio


@pytest.fixture(params=[Trio, Asyncio], ids=["trio", "asyncio"])
def library(request):
    """Trio or asyncio."""
    return request.param
