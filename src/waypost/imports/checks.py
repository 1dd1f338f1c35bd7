"""Findings of `waypost check` about `proxy`: exposures, imports, and the tools that upstreams listed last."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from waypost.config import Loaded
from waypost.config.findings import Finding, KeyPath, quoted, quoted_file
from waypost.config.models import Connection, Import, McpConnection, RestConnection
from waypost.errors import DefinitionError, StoreError
from waypost.imports.exposures import Offer, build_offer, exposed_name
from waypost.imports.sources import Manifest, digest_connection
from waypost.stores import schema, urls
from waypost.stores.database import Database
from waypost.stores.directory import data_directory
from waypost.stores.records import Entry
from waypost.stores.store import Store
from waypost.workflows.checks import called_names, executors_in, may_bring
from waypost.workflows.definitions import nearest
from waypost.workflows.executors.mcp import Mcp

_READ_TIMEOUT_S: Final = 3.0


def read_manifests(loaded: Loaded) -> dict[str, Manifest]:
    """What each connection last listed; no upstream is connected to, no store created or migrated.

    A store that cannot be read in time gives nothing. Not to be called on an event loop.
    """
    try:
        database = urls.create_database(loaded.config.store.url, data_directory(loaded.path))
        entries = asyncio.run(_read_manifests(database))
    except (StoreError, TimeoutError):
        return {}
    return dict(_valid_manifests(entries, loaded.config.connections))


async def _read_manifests(database: Database) -> Sequence[Entry]:
    try:
        async with asyncio.timeout(_READ_TIMEOUT_S):
            # Reading opens a store, and opening brings its tables up to date: `check` must not do that for a hub.
            if not database.is_durable or await database.schema_version() != schema.LATEST:
                return ()
            return await Store(database).state.page("manifest")
    finally:
        await database.close()


def _valid_manifests(entries: Sequence[Entry], connections: Mapping[str, Connection]) -> Iterator[tuple[str, Manifest]]:
    for entry in entries:
        connection = connections.get(entry.key)
        with suppress(msgspec.ValidationError):
            manifest = msgspec.convert(entry.value, Manifest)
            if isinstance(connection, McpConnection) and manifest.digest == digest_connection(connection):
                yield entry.key, manifest


MAX_REPORTED: Final = 10
"""How many omitted operations of one document are reported one by one."""
RESERVED: Final = ("gateway.", "workflow.")
"""The prefixes of the names of the hub's own tools."""

Offered = tuple[KeyPath, Offer]


def build_offers(loaded: Loaded) -> tuple[list[Offered], list[Finding]]:
    """All offers of the section with their key paths, and findings beyond those of `check_workflows`."""
    offers: list[Offered] = []
    findings: list[Finding] = []
    config = loaded.config
    for index, entry in enumerate(config.proxy.expose):
        try:
            offers.append((("proxy", "expose", index), build_offer(entry, config.capabilities)))
        except DefinitionError:
            continue
    for index, one in enumerate(config.proxy.imports):
        place: KeyPath = ("proxy", "import", index)
        offers += [(place, found) for found in _import_offers(one, place, loaded, findings)]
    for place, found in offers:
        if found.name.startswith(RESERVED):
            message = f"{quoted(found.name)} is how the hub's own tools are called; give it another name"
            findings.append(loaded.finding(place, message, "CFG043"))
    return offers, findings


def _import_offers(entry: Import, place: KeyPath, loaded: Loaded, findings: list[Finding]) -> Iterator[Offer]:
    def note(key: str, message: str, code: str) -> None:
        findings.append(loaded.finding((*place, key), message, code))

    connections = loaded.config.connections
    connection = connections.get(entry.connection)
    if connection is None:
        hint = nearest(entry.connection, connections)
        note("connection", f"there is no connection {quoted(entry.connection)}; {hint}", "CFG070")
        return
    if isinstance(connection, McpConnection):
        return
    if not isinstance(connection, RestConnection):
        sentence = f"{quoted(entry.connection)} is a program; expose what it does one by one, in `expose`"
        if loaded.root.at("connections", entry.connection, "kind") is None:
            sentence = (
                f"{quoted(entry.connection)} has no `kind`, and with a `command` alone it is a program; "
                "write `kind: mcp` if it is an MCP server"
            )
        note("connection", sentence, "CFG070")
        return
    from waypost.imports.openapi import import_operations, kept_file

    folder = data_directory(loaded.path) / "openapi"
    try:
        found = import_operations(entry, connection, folder)
    except DefinitionError as error:
        note("connection", f"nothing of {quoted(entry.connection)} can be taken over: {error.message}", "CFG071")
        return
    if found.is_changed:
        kept = quoted_file(str(kept_file(connection, folder)))
        sentence = f"the OpenAPI document of {quoted(entry.connection)} has changed, and the one that was kept is used"
        note("connection", f"{sentence}; to take the new one, remove {kept}", "CFG077")
    for left in found.left_out[:MAX_REPORTED]:
        note("connection", f"the operation {quoted(left.name)} is left out: {left.why}", "CFG072")
    if len(found.left_out) > MAX_REPORTED:
        note("connection", f"{len(found.left_out) - MAX_REPORTED} more operations are left out", "CFG072")
    for name in found.unknown:
        key = "include" if name in entry.include else "exclude"
        note(key, f"{quoted(entry.connection)} has no operation {quoted(name)}", "CFG073")
    yield from found.offers


def find_missing_tools(loaded: Loaded) -> list[Finding]:
    """Findings about tools that their server did not list the last time; it may have them by now."""
    if not any(isinstance(one, McpConnection) for one in loaded.config.connections.values()):
        return []
    manifests = read_manifests(loaded)
    listed = {name: _names(manifest.tools) for name, manifest in manifests.items()}
    exposed = {exposed_name(entry) for entry in loaded.config.proxy.expose}
    found: list[Finding] = []
    for path, name in called_names(loaded.config):
        if name in exposed:
            continue
        bringing = [one for one in loaded.config.proxy.imports if may_bring(one, name, loaded.config.connections)]
        if bringing and all(one.connection in listed for one in bringing):
            tools = {f"{one.prefix or one.connection}.{tool}" for one in bringing for tool in listed[one.connection]}
            if name not in tools:
                sentence = f"{quoted(bringing[0].connection)} had no such tool when it was last asked"
                found.append(loaded.finding(path, f"{sentence}; {nearest(name, tools)}", "CFG074"))
    for place in executors_in(loaded.config):
        if isinstance(place.executor, Mcp) and place.executor.connection in listed:
            known = listed[place.executor.connection]
            found += _find_unlisted(
                loaded, (*place.path, "tool"), place.executor.tool, place.executor.connection, known
            )
    for index, one in enumerate(loaded.config.proxy.imports):
        for key, names in (("include", one.include), ("exclude", one.exclude)):
            for at, name in enumerate(names if one.connection in listed else ()):
                known = listed[one.connection] | _names(manifests[one.connection].prompts)
                found += _find_unlisted(loaded, ("proxy", "import", index, key, at), name, one.connection, known)
    return found


def _find_unlisted(loaded: Loaded, path: KeyPath, name: str, connection: str, known: set[str]) -> Iterator[Finding]:
    if name not in known:
        sentence = f"{quoted(connection)} had no {quoted(name)} when it was last asked; {nearest(name, known)}"
        yield loaded.finding(path, sentence, "CFG074")


def _names(definitions: Iterable[dict[str, Any]]) -> set[str]:
    return {str(one["name"]) for one in definitions if "name" in one}
