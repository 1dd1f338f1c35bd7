"""The tools that upstreams listed when a hub last asked them, read from the store of a configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from waypost.config import Loaded
from waypost.config.connections import Connection, McpConnection
from waypost.errors import StoreError
from waypost.gateway.manifests import Manifest, digest_of
from waypost.stores import schema, urls
from waypost.stores.database import Database
from waypost.stores.directory import data_directory
from waypost.stores.records import Entry
from waypost.stores.store import Store

_READ_TIMEOUT_S: Final = 3.0


def last_offered(loaded: Loaded) -> dict[str, set[str]]:
    """The tools of each connection that a hub asked before; no upstream is connected to, no store created or migrated.

    A store that cannot be read in time gives nothing. Not to be called on an event loop.
    """
    try:
        database = urls.create_database(loaded.config.store.url, data_directory(loaded.path))
        entries = asyncio.run(_read_manifests(database))
    except (StoreError, TimeoutError):
        return {}
    return dict(_tools(entries, loaded.config.connections))


async def _read_manifests(database: Database) -> Sequence[Entry]:
    try:
        async with asyncio.timeout(_READ_TIMEOUT_S):
            # Reading opens a store, and opening brings its tables up to date: `check` must not do that for a hub.
            if not database.is_durable or await database.schema_version() != schema.LATEST:
                return ()
            return await Store(database).state.page("manifest")
    finally:
        await database.close()


def _tools(entries: Sequence[Entry], connections: Mapping[str, Connection]) -> Iterator[tuple[str, set[str]]]:
    for entry in entries:
        connection = connections.get(entry.key)
        with suppress(msgspec.ValidationError):
            manifest = msgspec.convert(entry.value, Manifest)
            if isinstance(connection, McpConnection) and manifest.digest == digest_of(connection):
                yield entry.key, {str(tool["name"]) for tool in manifest.tools if "name" in tool}
