"""A hub with tools that remember, a client of it, and sessions that end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from waypost import Context, Hub
from waypost.protocol.session import LegacySession
from waypost.testing import TestClient, connect
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28

BOTH = pytest.mark.parametrize("version", [LATEST_LEGACY, V2026_07_28])


def fill(hub: Hub) -> Hub:
    """Four tools, a resource and a prompt."""

    @hub.tool
    async def shout(text: str) -> str:
        """Say it loudly."""
        return text.upper()

    @hub.tool
    async def remember(word: str, ctx: Context) -> str:
        """Keep a word with the session."""
        await ctx.session.put("word", word)
        return word

    @hub.tool
    async def recall(ctx: Context) -> str:
        """The word kept with the session."""
        return str(ctx.session.assigns.get("word"))

    @hub.tool
    async def murmur(ctx: Context) -> str:
        """Log a little."""
        await ctx.log("info", "murmur")
        return "said"

    @hub.resource("docs://readme", subscribable=True)
    async def readme() -> str:
        """How to use this."""
        return "# Hello"

    @hub.prompt
    def greet(name: str) -> str:
        """Compose a greeting."""
        return f"Greet {name}."

    return hub


def plain(**options: Any) -> Hub:
    return fill(Hub("plain", version="1", **options))


@asynccontextmanager
async def talking(hub: Hub, version: str = LATEST_LEGACY, **options: Any) -> AsyncIterator[TestClient]:
    """A client of a hub; the hub is stopped when the block ends."""
    try:
        async with connect(hub, version, **options) as client:
            yield client
    finally:
        await hub.stop()


def only_session(hub: Hub) -> LegacySession:
    (session,) = hub.engine.sessions
    return session


def expire(hub: Hub, session_id: str) -> None:
    """End a session as if it had been idle."""
    session = hub.engine.sessions.get(session_id)
    assert session is not None
    hub.engine.sessions.close(session, "expired")
