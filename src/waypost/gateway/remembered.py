"""What other servers offered when they were last asked, looked up in a store that no hub of this process has open."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from typing import Final

import msgspec

from waypost.config import Loaded
from waypost.config.executors import Connection, McpConnection
from waypost.errors import StoreError
from waypost.gateway.manifests import Manifest, digest_of
from waypost.stores import sqlite, urls
from waypost.stores.directory import data_directory
from waypost.stores.sqlite import SqliteDatabase

_KEPT: Final = "SELECT key, value FROM state WHERE scope = 'manifest'"
_PATIENCE: Final = 1.0


def last_offered(loaded: Loaded) -> dict[str, set[str]]:
    """The tools of each connection that was asked before; nothing is made, and no server connected to, for it."""
    try:
        database = urls.database(loaded.config.store.url, data_directory(loaded.path))
    except StoreError:
        return {}
    if not isinstance(database, SqliteDatabase) or database.path is None or not database.path.exists():
        return {}
    try:
        with closing(sqlite.connect(database.path, busy=_PATIENCE, reading=True)) as connection:
            kept = dict(connection.execute(_KEPT))
    except sqlite3.Error:
        return {}
    return dict(_tools(kept, loaded.config.connections))


def _tools(kept: Mapping[str, str], connections: Mapping[str, Connection]) -> Iterator[tuple[str, set[str]]]:
    for name, text in kept.items():
        connection = connections.get(name)
        with suppress(msgspec.DecodeError):
            manifest = msgspec.json.decode(text, type=Manifest)
            if isinstance(connection, McpConnection) and manifest.digest == digest_of(connection):
                yield name, {str(tool["name"]) for tool in manifest.tools if "name" in tool}
