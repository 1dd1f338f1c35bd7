"""Clients over HTTP with short timeouts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.upstreams.conftest import DEADLINE
from waypost.testing import TestClient
from waypost.upstreams.http import HttpTransport

PATIENCE = 60.0
"""Far more than a local server needs, far less than a request that nobody answers would wait."""


@asynccontextmanager
async def opened(url: str, version: str, **options: Any) -> AsyncIterator[TestClient]:
    """A client of the server at a URL."""
    async with asyncio.timeout(DEADLINE):
        client = TestClient(HttpTransport(url), version=version, patience=PATIENCE, **options)
        await client.open()
        try:
            yield client
        finally:
            await client.close()
