"""Trio and asyncio by the same names, for tests of the clients for both."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import trio

from penstock import aclient, aioclient


class Trio:
    """Trio, and the client for it."""

    connect = staticmethod(aclient.connect)
    event = trio.Event
    sleep_forever = staticmethod(trio.sleep_forever)
    to_thread = staticmethod(trio.to_thread.run_sync)

    @staticmethod
    def run(function):
        """Runs an async function, for no longer than a minute."""

        async def limited():
            with trio.fail_after(60):
                return await function()

        return trio.run(limited)

    @staticmethod
    @asynccontextmanager
    async def move_on_after(seconds):
        """Leaves the block after a time, or by `cancel`; the result says whether it has."""
        with trio.move_on_after(seconds) as scope:
            yield scope


class Asyncio:
    """asyncio, and the client for it."""

    connect = staticmethod(aioclient.connect)
    event = asyncio.Event
    to_thread = staticmethod(asyncio.to_thread)

    @staticmethod
    async def sleep_forever():
        """Waits until it is cancelled."""
        await asyncio.Event().wait()

    @staticmethod
    def run(function):
        """Runs an async function, for no longer than a minute."""

        async def limited():
            async with asyncio.timeout(60):
                return await function()

        return asyncio.run(limited())

    @staticmethod
    @asynccontextmanager
    async def move_on_after(seconds):
        """Leaves the block after a time, or by `cancel`; the result says whether it has."""
        timeout = asyncio.timeout(seconds)
        scope = SimpleNamespace(cancelled_caught=False, cancel=lambda: timeout.reschedule(0))
        try:
            async with timeout:
                yield scope
        except TimeoutError:
            assert timeout.expired()
            scope.cancelled_caught = True
